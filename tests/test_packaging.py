"""What is installed: every package, by the right name, and nothing else."""

import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

import ggpy

ROOT = Path(__file__).parents[1]
SETUPTOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]
LINKED = ("models", "server", "tools")


def test_every_package_is_listed() -> None:
    """A folder with an __init__.py that pyproject.toml does not list would be missing from the wheel."""
    found = {"ggpy"}
    for init in (ROOT / "ggpy").rglob("__init__.py"):
        found.add(".".join(init.parent.relative_to(ROOT).parts))
    for name in LINKED:
        for init in (ROOT / name).rglob("__init__.py"):
            found.add(".".join(("ggpy", *init.parent.relative_to(ROOT).parts)))
    assert set(SETUPTOOLS["packages"]) == found


@pytest.mark.parametrize("name", LINKED)
def test_links_point_home(name: str) -> None:
    """ggpy/models is the folder models beside it, be it a link or, where git makes none, a file that holds the path."""
    link = ROOT / "ggpy" / name
    target = str(link.readlink()) if link.is_symlink() else link.read_text("utf-8").strip()
    assert target == f"../{name}"
    assert (ROOT / name / "__init__.py").is_file()
    assert SETUPTOOLS["package-dir"][f"ggpy.{name}"] == name


@pytest.mark.parametrize("name", LINKED)
def test_a_linked_package_refuses_its_other_name(name: str) -> None:
    """Imported as `models`, a module would be loaded twice; the error says the right name."""
    result = subprocess.run([sys.executable, "-c", f"import {name}"], cwd=ROOT, capture_output=True, text=True)
    assert f"{name} is ggpy.{name}; import it by that name" in result.stderr


@pytest.mark.slow
def test_the_wheel_holds_only_ggpy(tmp_path: Path) -> None:
    """Tests, benchmarks and documents stay out; the linked packages are in, once. Slow: pip fetches setuptools."""
    tree = tmp_path / "tree"        # a copy: setuptools would also pack what an earlier build left in build/
    for name in ("ggpy", *LINKED):
        shutil.copytree(ROOT / name, tree / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)

    command = [sys.executable, "-m", "pip", "wheel", ".", "--no-deps", "--quiet", "--wheel-dir", str(tmp_path)]
    subprocess.run(command, cwd=tree, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    dist_info = f"ggpy-{wheel.name.split('-')[1]}.dist-info"
    assert {name.split("/")[0] for name in names} == {"ggpy", dist_info}

    sources = {file.relative_to(tree).as_posix() for file in (tree / "ggpy").rglob("*.py")}
    sources |= {f"ggpy/{file.relative_to(tree).as_posix()}" for name in LINKED for file in (tree / name).rglob("*.py")}
    assert {name for name in names if name.endswith(".py")} == sources
    assert "ggpy/py.typed" in names


def test_the_namespace_holds_what_is_for_users() -> None:
    """Public names, the version, and Python's own; none that the module itself needs, such as import_module."""
    shown = dir(ggpy)
    assert [name for name in shown if not name.startswith("__")] == sorted(ggpy.__all__)
    assert "__version__" in shown
    assert ggpy.__version__ == metadata.version("ggpy")
