"""An object store of our own: moto's S3 on the loopback address, as slow as it is asked to be.

Lives here: the server, as a process, and what it was asked. Does not live here: who uses it.

    python -m lab.objectstore FOLDER PORT SECONDS    # the process itself
"""

from __future__ import annotations

import re
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import unquote

import pyarrow.fs

from lab.daemon import Daemon
from lab.ports import LOOPBACK, Port
from ratchet.core.errors import BugError, OperatorError

_ROOT: Final = Path(__file__).resolve().parents[1]
_STARTS_WITHIN: Final = 60.0  # seconds
_STOPS_WITHIN: Final = 30.0
_REGION: Final = "us-east-1"
_COLOUR: Final = r"(?:\x1b\[[0-9;]*m)*"
_REQUEST: Final = re.compile(rf'"{_COLOUR}([A-Z]+) (\S+) HTTP/[0-9.]+{_COLOUR}" ([0-9]{{3}})')


class S3Server:
    """Use as a context; it answers when it is entered.

    Args:
        home: a folder for its log.
        delay: seconds that each request takes longer, as if the store were far away.
    """

    def __init__(self, home: Path, *, delay: float = 0.0) -> None:
        self._home = home
        self._delay = delay
        self._port = Port()
        self._process: Daemon | None = None
        self._read = 0

    @property
    def pid(self) -> int:
        """The id of its process."""
        if self._process is None:
            raise BugError("asked for the process of a server that does not run")
        return self._process.pid

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://{LOOPBACK}:{self._port.number}"

    @property
    def environment(self) -> Mapping[str, str]:
        """What leads a lake's clients to it."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "tests",
            "AWS_SECRET_ACCESS_KEY": "no-secret",
            "AWS_REGION": _REGION,
        }

    def new_root(self) -> str:
        """The root of a lake in a new bucket. Ask for it with `environment` set."""
        bucket = f"lakes-{uuid.uuid4().hex}"
        pyarrow.fs.S3FileSystem(
            endpoint_override=f"{LOOPBACK}:{self._port.number}",
            scheme="http",
            region=_REGION,
            allow_bucket_creation=True,
        ).create_dir(bucket)
        return f"s3://{bucket}/some/lake"

    def requests(self) -> list[tuple[str, str, int]]:
        """Method, path with its query and status of each request since the last call."""
        with self._log.open(errors="replace") as log:
            log.seek(self._read)
            text = log.read()
            self._read = log.tell()
        return [(m[1], unquote(m[2]), int(m[3])) for m in _REQUEST.finditer(text)]

    def __enter__(self) -> Self:
        self._home.mkdir(parents=True, exist_ok=True)
        where = self._home, self._port.number, self._delay
        self._process = Daemon(
            [sys.executable, "-m", "lab.objectstore", *map(str, where)],
            log=self._log,
            datadir=self._home,
            cwd=_ROOT,
        )
        try:
            self._wait()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End its process; what it held is gone."""
        if self._process is not None:
            self._process.terminate(timeout=_STOPS_WITHIN)
            self._process = None
        self._port.release()

    @property
    def _log(self) -> Path:
        return self._home / "server.log"

    def _wait(self) -> None:
        until = time.monotonic() + _STARTS_WITHIN
        while not self._answers():
            ended = self._process is None or not self._process.running
            if ended or time.monotonic() > until:
                raise OperatorError(
                    "the object store did not start",
                    operation="start an object store",
                    hint=f"its log is {self._log}; it needs requirements-dev.txt",
                )
            time.sleep(0.1)

    def _answers(self) -> bool:
        try:
            socket.create_connection((LOOPBACK, self._port.number), 1).close()
        except OSError:
            return False
        return True


def main(port: int, delay: float) -> None:
    """Serve until the process is ended."""
    # The tests' requirements have them, what users install has not.
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, run_simple

    moto = DomainDispatcherApplication(create_backend_app)

    # moto looks whether a key is there and then writes it: of two conditional writes at once both
    # would succeed, which a real store rules out.
    writing = threading.Lock()

    def slow(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        time.sleep(delay)
        reads = environ["REQUEST_METHOD"] in {"GET", "HEAD"}
        with nullcontext() if reads else writing:
            answer: Iterable[bytes] = moto(environ, start)
        return answer

    class KeepAliveHandler(WSGIRequestHandler):
        protocol_version = "HTTP/1.1"  # connections stay open, as a real store's do

    run_simple(LOOPBACK, port, slow, threaded=True, request_handler=KeepAliveHandler)


if __name__ == "__main__":
    main(int(sys.argv[2]), float(sys.argv[3]))
