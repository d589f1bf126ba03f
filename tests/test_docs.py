"""The documentation says what is so."""

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ggpy import LLM

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("script", ["make_cli.py", "make_compat.py"])
def test_pages_that_are_written_are_up_to_date(script: str) -> None:
    """docs/cli.md and docs/compat.md are what their scripts write today."""
    command = [sys.executable, str(ROOT / "docs" / script), "--check"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    """A link to a page of the project names a file that is there, and a heading of it if it names one."""
    broken = []
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", page.read_text(encoding="utf-8")):
        name, _, anchor = target.partition("#")
        file = page.parent / name if name else page
        headings = re.findall(r"^#+ (.+)$", file.read_text(encoding="utf-8"), re.MULTILINE) if file.is_file() else []
        anchors = {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings}
        if not file.exists() or (anchor and anchor not in anchors):
            broken.append(target)
    assert broken == []


def test_the_first_answer_of_the_readme_has_a_bound() -> None:
    """An answer without one has gone on for 8,156 tokens."""
    answers = re.findall(r'ggpy run smollm2 "Why is the sky blue\?"(.*)', PAGES[0].read_text(encoding="utf-8"))
    assert [end.rstrip("`") for end in answers] == [" -n 500"] * 2


def test_every_parameter_of_the_library_has_a_row() -> None:
    """docs/library.md describes all that LLM takes, and each of them once."""
    page = (ROOT / "docs" / "library.md").read_text(encoding="utf-8")
    table = page.partition("| argument | default | meaning |")[2].partition("\n\n")[0]
    parameters = list(inspect.signature(LLM).parameters)
    assert sorted(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == sorted(parameters)
