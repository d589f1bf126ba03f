"""`ggpy top`: what an engine does, live, as its metrics page tells."""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections import deque
from collections.abc import Callable

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from ggpy.tools.keyboard import ctrl_c_once, single_keys
from ggpy.tools.metrics_page import NoMetricsError, Scrape, Span, fetch, metrics_url, parse
from ggpy.tools.terminal import print_tables
from ggpy.tools.top_view import activity, times

DEFAULT_URL = "http://127.0.0.1:8080/metrics"
WINDOW_S = 10.0         # speeds and quantiles are those of so long


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("url", metavar="URL", nargs="?", type=metrics_url, default=DEFAULT_URL,
                        help=f"the server, ggpy's or llama-server (with --metrics); default: {DEFAULT_URL}")
    parser.add_argument("--once", action="store_true",
                        help="show what happens in one interval and exit; so it is also where stdout is no terminal")
    parser.add_argument("--interval", metavar="S", type=_interval, default=1.0,
                        help="seconds between looks at the server; default: %(default)s")
    parser.add_argument("--api-key", metavar="KEY", help="the key that the server asks for")


def main(args: argparse.Namespace) -> int:
    console = Console(markup=False, emoji=False, highlight=False)
    if args.once or not sys.stdout.isatty() or console.is_dumb_terminal:
        _show_once(args)
    else:
        _watch(args, console)
    return 0


def _interval(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0.1 <= value <= 3600:
        raise argparse.ArgumentTypeError("expected 0.1 to 3600 seconds")
    return value


class History:
    """What was seen of a server lately."""

    def __init__(self) -> None:
        self._scrapes: deque[Scrape] = deque()

    def add(self, scrape: Scrape) -> Span:
        """What happened within the window up to `scrape`; what was before a restart is forgotten."""
        if self._scrapes and Span(self._scrapes[-1], scrape).has_restart:
            self._scrapes.clear()
        self._scrapes.append(scrape)
        while len(self._scrapes) > 2 and scrape.time_s - self._scrapes[1].time_s >= WINDOW_S:
            self._scrapes.popleft()
        return Span(self._scrapes[0], scrape)


def _look(args: argparse.Namespace) -> Scrape:
    return parse(args.url, fetch(args.url, args.api_key), time.monotonic())


def _show_once(args: argparse.Namespace) -> None:
    history = History()
    history.add(_look(args))
    time.sleep(args.interval)
    span = history.add(_look(args))
    print_tables(*(each for each in (activity(span), times(span)) if each is not None))


def _watch(args: argparse.Namespace, console: Console) -> None:
    """Show the server until q or Ctrl-C. One that was there once may go away and come back."""
    history, problem = History(), ""
    span = history.add(_look(args))
    seen_s = time.monotonic()
    try:
        with ctrl_c_once(), single_keys() as wait_for_key, \
                Live(console=console, screen=True, auto_refresh=False) as live:
            while True:
                live.update(_screen(args.url, span, problem, time.monotonic() - seen_s), refresh=True)
                if _hears_q(wait_for_key, args.interval):
                    return
                try:
                    span, problem = history.add(_look(args)), ""
                    seen_s = time.monotonic()
                except NoMetricsError as error:
                    problem = str(error)
    except KeyboardInterrupt:
        return


def _hears_q(wait_for_key: Callable[[float], str], timeout_s: float) -> bool:
    """Whether q is typed within the time; other keys change nothing."""
    end = time.monotonic() + timeout_s
    while (left := end - time.monotonic()) > 0:
        if wait_for_key(left) in ("q", "Q"):
            return True
    return False


def _screen(url: str, span: Span, problem: str, age_s: float) -> RenderableType:
    """Everything that the terminal shows; with a problem, what was seen `age_s` ago."""
    title = Text("ggpy top", "bold").append(f"  {url}  q leaves", "not bold")
    if problem:
        title = Text("waiting", "bold yellow").append(f" for {age_s:.0f} s: {problem}", "not bold")
    tables = [each for each in (activity(span), times(span)) if each is not None]
    return Group(title, *(part for each in tables for part in (Text(), each)))
