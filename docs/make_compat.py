"""Writes docs/compat.md from tables that the tests check: `python docs/make_compat.py`; with --check, only compares.

The tables are tests/data/server/fields.txt and llama_server_flags.txt.
"""

from __future__ import annotations

import sys
from pathlib import Path

from writing import filled, write_or_check

PAGE = Path(__file__).with_name("compat.md")
DATA = PAGE.parents[1] / "tests" / "data" / "server"
HEAD = """# Compatibility

Which fields of llama-server's, OpenAI's, Anthropic's and Ollama's APIs the server takes and gives, which of
llama-server's flags do nothing, and which of llama.cpp's own tests do not pass. Written by `python
docs/make_compat.py` from tables that the tests check: a field that is taken is one whose wrong types are refused by its
name, a field that is given stands in a reply. `/openapi.json` has the same routes for programs.
"""
TESTS = """## llama.cpp's own tests

llama.cpp's tests of its server (pytest, of the tree that llama-cpp-python 0.3.36 ships) run against `ggpy serve` as
they are. These do not pass:

| tests | why |
|---|---|
"""
FAILING = {
    "all of `test_vision_api`, five of `test_slot_save`, five of `test_security` (`test_local_media_file`)":
        "they send pictures; models read text alone",
    "all of `test_mcp_servers` and `test_tools_builtin`":
        "llama-server's built-in agent tools and its MCP client: the server has none",
    "two of `test_proxy`, one of `test_security` (`test_cors_proxy_only_forwards_explicit_proxy_headers`)":
        "`/cors-proxy` is there for the MCP client of llama-server's page",
    "one of `test_kv_keep_only_active` (`test_clear_and_restore`)":
        "it looks for lines of llama-server's debug log about a slot's cache that moves to other memory; here slots "
        "own no cache, all requests share one",
    "two of `test_router` (`test_router_remote_preset`, `test_router_download_model`)":
        "they need Hugging Face, and llama-server does not pass them without it either; remote presets are not there",
}
NOTES = """
`test_router_delete_model` asks a server that is `--offline` for a download and waits for it to finish. As in
llama-server, that is at once: nothing is fetched, what is here is all there is, and the log says so. The tests of the
router's queue need requests that take long: LLAMA_SERVER_DEBUG_FAKE_TIMING, which llama.cpp's tests set, delays
requests to one of several models by two seconds, here as there.
"""


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    dialect = ""
    for text in (DATA / "fields.txt").read_text(encoding="utf-8").split("\n\n"):
        if not text.startswith("["):
            continue
        head, *lines = text.strip().splitlines()
        name, _, route = head.partition("] ")
        if name != dialect:
            dialect = name
            parts.append(f"## {name[1:]}\n")
        parts.append(f"### {name[1:]}: {route}\n")
        parts += [item(*line.partition(":")[::2]) for line in lines]
        parts.append("")
    parts += ["## llama-server's flags that do nothing\n", idle_flags(), "",
              TESTS + "\n".join(f"| {tests} | {reason} |" for tests, reason in FAILING.items()), NOTES]
    return "\n".join(parts)


def item(word: str, rest: str) -> str:
    """A line of the table as a line of the page."""
    if word.startswith("without "):
        return filled(f"exceptions: {code(word.split()[1:])}: {rest.strip()}", is_item=True)
    return filled(f"{word}: {code(rest.split())}", is_item=True)


def idle_flags() -> str:
    lines = (DATA / "llama_server_flags.txt").read_text(encoding="utf-8").splitlines()
    flags = [line.split(" | ")[0].split()[0] for line in lines if line.endswith("| idle") and not line.startswith("#")]
    return filled(f"They are taken so that scripts run; what could be missed is said: {code(flags)}.")


def code(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


if __name__ == "__main__":
    sys.exit(write_or_check(PAGE, page(), Path(__file__).name))
