"""A crash point kills by the environment's word only, at the n-th time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

PROGRAM = """
from ratchet.store.crashpoints import reach
for n in range(3):
    reach("a")
    reach("b")
    print(n, flush=True)
"""


def run(crash_at: str) -> tuple[int, str]:
    env = {**os.environ, "RATCHET_CRASH_AT": crash_at}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout


def test_nothing_without_a_name() -> None:
    assert run("")[0] == run("c")[0] == 0


def test_dies_at_the_named_point() -> None:
    assert run("b") == (-signal.SIGKILL, "")
    assert run("a:2") == (-signal.SIGKILL, "0\n")
