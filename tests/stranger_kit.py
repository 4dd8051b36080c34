"""A port that another user of this machine serves, who would like to be taken for the server.

Lives here: starting him (`stranger_child`), and what he was told. Only root can start another user;
for all others the tests that need him are passed over, and those with ourselves as the one who is
not trusted are not.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

NOBODY = 65534
CHILD = Path(__file__).with_name("stranger_child.py")

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")


@contextmanager
def stranger(
    kind: str, address: str = "127.0.0.1", port: int = 0
) -> Iterator[tuple[int, Callable[[], str]]]:
    """His port, and a way to ask what he was told, which ends him."""
    environment = {**os.environ, "TMPDIR": "/tmp"}  # he may not get into ours
    environment["PYTHONPATH"] = os.pathsep.join(map(str, (CHILD.parents[1], CHILD.parent)))
    with subprocess.Popen(
        [sys.executable, str(CHILD), kind, address, str(port), str(NOBODY)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        cwd="/",
    ) as child:

        def told() -> str:
            said, _ = child.communicate(timeout=60)
            parts: list[str] = json.loads(said)
            return "".join(
                parts if kind == "grpc" else (bytes.fromhex(one).decode("latin1") for one in parts)
            )

        try:
            assert child.stdout is not None
            yield int(json.loads(child.stdout.readline())), told
        finally:
            child.kill()
