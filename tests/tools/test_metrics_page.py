"""Fetching, reading and comparing metrics pages."""

import math
import socket
import threading

import pytest

from ggpy.errors import ConfigError
from ggpy.tools.metrics_page import NoMetricsError, Scrape, Span, fetch, metrics_url, parse, quantile
from tests.tools.metric_pages import LLAMA_SERVER, NODE_EXPORTER, Server

PAGES = """\
# TYPE ggpy:kv_pages gauge
ggpy:kv_pages{group="0",use="held"} 3
ggpy:kv_pages{group="0",use="free"} 5
ggpy:kv_pages{group="1",use="held"} 1
"""


def page(text: str, time_s: float = 0.0) -> Scrape:
    return parse("http://x/metrics", text, time_s)


def counted(value: float, time_s: float) -> Scrape:
    return page(f"# TYPE ggpy:a_total counter\nggpy:a_total {value}\n", time_s)


@pytest.mark.parametrize(("text", "url"), [
    ("8080", "http://127.0.0.1:8080/metrics"),
    ("localhost:8080", "http://localhost:8080/metrics"),
    ("http://host", "http://host/metrics"),
    ("http://host/", "http://host/metrics"),
    ("https://host:1/a/metrics?model=b", "https://host:1/a/metrics?model=b"),
])
def test_a_url_may_be_short(text: str, url: str) -> None:
    assert metrics_url(text) == url


@pytest.mark.parametrize("text", ["", "ftp://host", "http://", "http://host:99999", "http://[::1", "a b", "http://u:p@h"])
def test_what_is_no_url_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="expected the URL of a server"):
        metrics_url(text)


def test_values_are_added_up_over_labels() -> None:
    """Nine pages in all, four of them held."""
    scrape = page(PAGES)
    assert scrape.value("ggpy:kv_pages") == 9
    assert scrape.by_label("ggpy:kv_pages", "use") == {("held",): 4, ("free",): 5}
    assert scrape.by_label("ggpy:kv_pages", "group", "use")[("1", "held")] == 1
    assert scrape.value("ggpy:other") is None


def test_a_counter_grows_between_two_scrapes() -> None:
    """From 10 to 40 in 2 s."""
    span = Span(counted(10, 1.0), counted(40, 3.0))
    assert span.growth("ggpy:a_total") == 30
    assert span.per_second("ggpy:a_total") == 15
    assert span.per_second("ggpy:b_total") is None
    assert not span.has_restart


def test_one_scrape_is_no_speed_yet() -> None:
    scrape = counted(10, 1.0)
    speed = Span(scrape, scrape).per_second("ggpy:a_total")
    assert speed is not None
    assert math.isnan(speed)


def test_a_counter_that_falls_tells_of_a_restart() -> None:
    assert Span(counted(10, 0.0), counted(3, 1.0)).has_restart


@pytest.mark.parametrize(("q", "value"), [(0.25, 0.05), (0.5, 0.1), (0.75, 0.2), (1.0, 0.3)])
def test_observations_are_spread_evenly_in_their_bucket(q: float, value: float) -> None:
    """Ten up to 0.1 s, ten more up to 0.3 s."""
    assert quantile([(0.1, 10), (0.3, 20), (math.inf, 20)], q) == pytest.approx(value)


def test_quantiles_beyond_the_last_bound_are_infinite_and_without_observations_there_are_none() -> None:
    assert quantile([(0.1, 1), (math.inf, 10)], 0.5) == math.inf
    assert quantile([(0.1, 0), (math.inf, 0)], 0.5) is None
    assert quantile([], 0.5) is None


def test_buckets_of_a_span_hold_what_was_observed_meanwhile() -> None:
    """One observation up to 0.1 s at first, then another one above it."""
    text = '# TYPE ggpy:t histogram\nggpy:t_bucket{{le="0.1"}} 1\nggpy:t_bucket{{le="+Inf"}} {}\n'
    span = Span(page(text.format(1), 0.0), page(text.format(2), 1.0))
    assert span.buckets("ggpy:t") == [(0.1, 0), (math.inf, 1)]


@pytest.mark.parametrize(("status", "message"), [
    (401, "wants a key .401.; give it with --api-key"),
    (404, "no such page .404."),
    (501, "does not show metrics .501.; start it with --metrics"),
    (503, "not ready .503."),
    (500, "status 500 instead of metrics"),
])
def test_a_refusal_says_what_to_do(status: int, message: str) -> None:
    """llama-server answers 501 without --metrics."""
    with Server("{}", status) as server, pytest.raises(NoMetricsError, match=message):
        fetch(server.url)


def test_a_key_is_sent_along() -> None:
    with Server(LLAMA_SERVER) as server:
        fetch(server.url)
        assert fetch(server.url, "secret") == LLAMA_SERVER
    assert server.authorizations == [None, "Bearer secret"]


def test_a_proxy_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would look for 127.0.0.1 on its own machine."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    with Server(LLAMA_SERVER) as server:
        assert fetch(server.url) == LLAMA_SERVER


def test_nobody_listens() -> None:
    """The port was another's a moment ago."""
    with Server("") as server:
        pass
    with pytest.raises(NoMetricsError, match="nobody listens there; start the server"):
        fetch(server.url)


def test_what_does_not_speak_http_is_told() -> None:
    """As an SSH server would answer."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(b"SSH-2.0-OpenSSH_9.6\r\n")
                connection.recv(4096)

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(NoMetricsError, match="does not speak HTTP"):
            fetch(f"http://127.0.0.1:{listener.getsockname()[1]}/metrics")
        thread.join()


@pytest.mark.parametrize(("text", "found"), [
    ("<html><body>Hello</body></html>", "found '<html><body>Hello"),
    (NODE_EXPORTER, "found the metrics of something else .node_load1"),
    ("", "found an empty page"),
])
def test_what_is_no_metrics_page_is_named(text: str, found: str) -> None:
    with pytest.raises(NoMetricsError, match=f"http://x/metrics: expected metrics of ggpy or llama-server, {found}"):
        page(text)
