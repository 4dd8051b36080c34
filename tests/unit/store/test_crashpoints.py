"""A crash point kills by the environment's word only, at the n-th time."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from halt_kit import HEALING, LEFT_OUT, WAYS

import ratchet

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


def test_each_point_is_one_at_which_runs_are_halted() -> None:
    """In `tests/halt_kit.py`, so that a new one is not forgotten; or a reason is written there."""
    root = Path(ratchet.__file__).parent
    there = {
        point
        for package in ("core", "ingest", "jobs", "merge", "snapshot", "store", "wire")
        for file in (root / package).rglob("*.py")
        for point in re.findall(r"\breach\(\s*f?\"([^\"]+)\"", file.read_text())
    }
    assert len(there) > 40
    halted = {point for way in WAYS.values() for point in way.points} | {*HEALING}
    assert halted | LEFT_OUT.keys() == there
    assert not halted & LEFT_OUT.keys()
    assert all(LEFT_OUT.values())
