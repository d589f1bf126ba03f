"""A Hugging Face of this test's own on 127.0.0.1: the endpoints that huggingface_hub asks when it fetches a file."""

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

COMMIT = "c0ffee" + "0" * 34


class FakeHub:
    """Serves the `files` of one repository, user/model.

    `break_after` ends each transfer after so many bytes, `damaged` files arrive with another byte, `refusal` is a
    status and the hub's error code for everything. `requests` holds method, path, Range and Authorization of what was
    asked.
    """

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.break_after: int | None = None
        self.damaged: set[str] = set()
        self.refusal: tuple[int, str] | None = None
        self.requests: list[tuple[str, str, str | None, str | None]] = []
        self.endpoint = ""

    def transfers(self) -> list[str | None]:
        """The Range of each download, None for a whole one."""
        return [range_ for method, path, range_, _ in self.requests if method == "GET" and "/blobs/" in path]

    def info(self) -> dict[str, object]:
        return {"id": "user/model", "sha": COMMIT, "siblings": [
            {"rfilename": name, "size": len(data), "blobId": "0" * 40,
             "lfs": {"size": len(data), "sha256": hashlib.sha256(data).hexdigest(), "pointerSize": 130}}
            for name, data in self.files.items()]}


@contextmanager
def serve(hub: FakeHub) -> Iterator[None]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(hub))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    hub.endpoint = f"http://127.0.0.1:{server.server_port}"
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(hub: FakeHub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(with_body=True)

        def do_HEAD(self) -> None:
            self._answer(with_body=False)

        def _answer(self, with_body: bool) -> None:
            path = unquote(urlsplit(self.path).path)
            hub.requests.append((self.command, path, self.headers["Range"], self.headers["Authorization"]))
            file = re.fullmatch(r"/user/model/resolve/(?:main|" + COMMIT + ")/(.+)", path)
            if hub.refusal is not None:
                self._send(hub.refusal[0], {"X-Error-Code": hub.refusal[1]}, b"")
            elif path == "/api/models/user/model":
                self._send(200, {"Content-Type": "application/json"}, json.dumps(hub.info()).encode())
            elif file and file[1] in hub.files:
                self._redirect(file[1])
            elif path.startswith("/blobs/"):
                self._blob(path.removeprefix("/blobs/"))
            else:
                self._send(404, {"X-Error-Code": "RepoNotFound"}, b"")

        def _redirect(self, name: str) -> None:
            """As the hub does for large files: its bytes lie on another host, a CDN."""
            data = hub.files[name]
            self._send(302, {"Location": f"{hub.endpoint.replace('127.0.0.1', 'localhost')}/blobs/{name}",
                             "X-Repo-Commit": COMMIT, "X-Linked-Size": str(len(data)),
                             "X-Linked-Etag": f'"{hashlib.sha256(data).hexdigest()}"'}, b"")

        def _blob(self, name: str) -> None:
            data = hub.files[name]
            if name in hub.damaged:
                data = bytes([data[0] ^ 1]) + data[1:]
            start = int((self.headers["Range"] or "bytes=0-").removeprefix("bytes=").rstrip("-"))
            headers = {"Content-Range": f"bytes {start}-{len(data) - 1}/{len(data)}"} if self.headers["Range"] else {}
            self._send(206 if headers else 200, headers, data[start:], hub.break_after)

        def _send(self, status: int, headers: dict[str, str], body: bytes, cut: int | None = None) -> None:
            self.send_response(status)
            for key, value in headers.items():
                self.send_header(key, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body if cut is None else body[:cut])
            self.close_connection = True

        def log_message(self, *_: object) -> None:
            pass

    return Handler
