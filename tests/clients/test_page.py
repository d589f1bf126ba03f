"""The page at `/` in a headless Chromium, where there is one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.clients.chromium import Page, find_chromium
from tests.clients.conftest import KEY

CHROMIUM = find_chromium()
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine")
ANSWER = ("# Sums\n\nTwo **numbers** and <img src=x onerror=\"document.title='broken'\">:\n\n- one\n- `two`\n\n"
          "```python\nx = 1 < 2  # **not bold**\n```\n\n[a](https://a.example/) [b](javascript:alert(1))")
IS_DONE = "document.querySelector('.assistant .foot')"


@pytest.fixture
def visit(base_url: str, tmp_path: Path) -> Callable[[Callable[[Page], Awaitable[None]]], None]:
    """Runs a visit to the page by somebody who has the key; nothing may go wrong in the page itself."""
    assert CHROMIUM is not None
    program = CHROMIUM

    def run(story: Callable[[Page], Awaitable[None]]) -> None:
        async def main() -> None:
            async with Page(program, tmp_path / "profile") as page:
                await page.call("Page.addScriptToEvaluateOnNewDocument", source=(
                    f"sessionStorage.setItem('key', {KEY!r}); const send = window.fetch; window.sent = [];"
                    "window.fetch = (path, options = {}) => { window.sent.push(options.body); "
                    "return send(path, options); };"))
                await page.call("Page.navigate", url=f"{base_url}/")
                await page.until("document.getElementById('only-model')?.textContent === 'tiny'")
                await story(page)
                assert page.problems == []

        asyncio.run(main())

    return run


async def ask(page: Page, text: str) -> None:
    await page.value("document.getElementById('prompt').focus()")
    await page.write(text)
    await page.press("Enter")


def test_an_answer_is_shown_as_it_is_written(visit: Callable[..., None], script: Callable[..., None]) -> None:
    """Markdown becomes elements; HTML that a model writes stays text, and its links are of the web alone."""
    async def story(page: Page) -> None:
        await ask(page, "What is <b>a sum</b>?")
        await page.until(IS_DONE)
        body = "document.querySelector('.assistant .body')"
        assert await page.value(f"[...{body}.children].map((block) => block.tagName).join()") == "H2,P,UL,DIV,P"
        assert await page.value(f"{body}.querySelector('pre').textContent") == "x = 1 < 2  # **not bold**"
        assert await page.value(f"{body}.querySelector('p').textContent") == (
            "Two numbers and <img src=x onerror=\"document.title='broken'\">:")
        assert await page.value("document.images.length") == 0
        assert await page.value("document.title") == "ggpy"
        assert await page.value(f"[...{body}.querySelectorAll('a')].map((link) => link.href)") == ["https://a.example/"]
        assert await page.value("document.querySelector('.user .body').textContent") == "What is <b>a sum</b>?"
        assert "tokens/s" in await page.value("document.querySelector('.foot').textContent")

    script(ANSWER)
    visit(story)


def test_settings_are_sent_and_kept(visit: Callable[..., None], script: Callable[..., None]) -> None:
    """And a chat goes on with all of its messages, until a new one begins."""
    async def story(page: Page) -> None:
        await page.value("document.getElementById('open-settings').click()")
        await page.value("document.querySelector('[name=system]').focus()")
        await page.write("Be brief.")
        await page.value("document.querySelector('[name=temperature]').focus()")
        await page.write("0.5")
        await page.press("Escape")
        await ask(page, "first")
        await page.until(IS_DONE)
        await ask(page, "second")
        await page.until("document.querySelectorAll('.foot').length === 2")
        body = json.loads(await page.value("window.sent.at(-1)"))
        assert body["messages"] == [
            {"role": "system", "content": "Be brief."}, {"role": "user", "content": "first"},
            {"role": "assistant", "content": "one"}, {"role": "user", "content": "second"}]
        assert (body["temperature"], body["stream"], "top_k" in body) == (0.5, True, False)
        await page.press("n", modifiers=1)
        assert await page.value("document.querySelectorAll('.message').length") == 0
        await page.call("Page.reload")
        await page.until("document.querySelector('[name=system]')?.value === 'Be brief.'")

    script("one", "two")
    visit(story)


def test_an_answer_can_be_stopped(visit: Callable[..., None], script: Callable[..., None]) -> None:
    """With Esc; what came stays."""
    async def story(page: Page) -> None:
        await page.value("localStorage.setItem('max_tokens', '6000')")
        await ask(page, "tell")
        await page.until("document.querySelector('.assistant .body').textContent.length > 3")
        await page.press("Escape")
        await page.until(IS_DONE)
        assert "stopped" in await page.value("document.querySelector('.foot').textContent")
        assert await page.value("document.getElementById('send').hidden") is False

    script("abc " * 1500)
    visit(story)


def test_an_answer_that_is_left_for_a_new_chat_stays_out_of_it(visit: Callable[..., None],
                                                               script: Callable[..., None]) -> None:
    """What had come of it is not sent with the next question."""
    async def story(page: Page) -> None:
        await page.value("localStorage.setItem('max_tokens', '6000')")
        await ask(page, "tell")
        await page.until("document.querySelector('.assistant .body').textContent.length > 3")
        await page.press("n", modifiers=1)
        await page.until("document.getElementById('send').hidden === false")
        await ask(page, "hello")
        await page.until(IS_DONE)
        assert json.loads(await page.value("window.sent.at(-1)"))["messages"] == [{"role": "user", "content": "hello"}]

    script("abc " * 1500, "one")
    visit(story)


def test_an_error_is_told(visit: Callable[..., None]) -> None:
    """With the server's own words, and the chat can go on."""
    async def story(page: Page) -> None:
        await ask(page, "x" * 20_000)
        await page.until(IS_DONE)
        assert "exceeds the available context size" in await page.value("document.querySelector('.error').textContent")
        assert await page.value("document.querySelector('.error').role") == "alert"
        page.problems.clear()       # Chromium itself notes the status

    visit(story)
