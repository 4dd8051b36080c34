"""A proxy before the tests' object store that holds a put back, or loses the answer to one."""

from __future__ import annotations

import http.client
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

_HELD_FOR = 120.0  # seconds at most
_HOP_BY_HOP = {"connection", "content-length", "date", "expect", "server", "transfer-encoding"}


class S3Proxy:
    """Use as a context. Requests go to the store as they come, but for the puts that are named.

    Args:
        url: the store's.
    """

    def __init__(self, url: str) -> None:
        self.held = threading.Event()
        self.go_on = threading.Event()
        self.answers: list[tuple[str, int]] = []  # of puts with a condition: the key, the status
        self._hold: str | None = None
        self._lose: str | None = None
        target = urlsplit(url)

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            proxy = self

            def log_message(self, *_: object) -> None:
                """To nobody."""

            def forward(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                self.proxy.before(self.command, self.path)
                to_store = http.client.HTTPConnection(target.hostname or "", target.port)
                headers = {n: v for n, v in self.headers.items() if n.lower() not in _HOP_BY_HOP}
                to_store.request(self.command, self.path, body, headers)
                answer = to_store.getresponse()
                data = answer.read()
                if self.headers.get("If-None-Match") == "*":
                    self.proxy.answers.append((self.path.rpartition("/")[2], answer.status))
                if self.proxy.loses(self.command, self.path):
                    self.close_connection = True
                    return
                self.send_response(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in _HOP_BY_HOP:
                        self.send_header(name, value)
                length = answer.getheader("Content-Length") if self.command == "HEAD" else None
                self.send_header("Content-Length", length or str(len(data)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(data)

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = forward  # noqa: N815

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, name="s3-proxy")

    def hold(self, name: str) -> None:
        """Let the next put of a file of this name wait for `go_on`."""
        self._hold = name

    def lose(self, name: str) -> None:
        """Let the next put of a file of this name succeed, and close the connection then."""
        self._lose = name

    def before(self, method: str, path: str) -> None:
        """What a request waits for."""
        if self._hold and method == "PUT" and path.endswith(self._hold):
            self._hold = None
            self.held.set()
            assert self.go_on.wait(_HELD_FOR)

    def loses(self, method: str, path: str) -> bool:
        """Whether a request gets no answer."""
        if self._lose is None or method != "PUT" or not path.endswith(self._lose):
            return False
        self._lose = None
        return True

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.go_on.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
