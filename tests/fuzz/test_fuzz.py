"""Each parser of bytes from outside, with its seeds and some thousand mutations of them.

The same inputs in each run. `make fuzz` tries more of them, guided by coverage.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fuzz.__main__ import targets
from tests.fuzz.target import Target, mutations

ROOT = Path(__file__).parents[2]


def fuzz(*given: str, **variables: str) -> dict[str, dict[str, Any]]:
    """What became of each target, in a process of its own that may hang, crash or run full."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", *given],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in {0, 1}, f"it died; .cache/fuzz has its input: {done.stderr[-4000:]}"
    assert done.stdout, done.stderr[-4000:]
    return {line["target"]: line for line in map(json.loads, done.stdout.splitlines())}


@pytest.fixture(scope="module")
def outcomes() -> dict[str, dict[str, Any]]:
    return fuzz("all", "--short")


@pytest.mark.parametrize("name", list(targets()))
def test_garbage_is_decoded_or_refused(name: str, outcomes: dict[str, dict[str, Any]]) -> None:
    found = outcomes[name]
    assert not found["findings"], "\n".join(found["findings"])
    # A target that refuses everything tests nothing, nor does one without inputs.
    assert found["accepted"] > 0
    assert found["tried"] > 500


@pytest.mark.long
def test_no_kernel_looks_outside_of_its_arrays(tmp_path: Path) -> None:
    """With numba checking every access, which raises IndexError."""
    found = fuzz("all", "--mutations", "4000", NUMBA_BOUNDSCHECK="1", NUMBA_CACHE_DIR=str(tmp_path))
    assert set(found) == set(targets())
    findings = [one for line in found.values() for one in line["findings"]]
    assert not findings, "\n".join(findings)


def test_mutations_are_the_same_in_each_run_and_many() -> None:
    seeds = [b"abcdefgh", b"12345678"]
    first = list(mutations(seeds, 500, 1))
    assert first == list(mutations(seeds, 500, 1))
    assert len(set(first)) > 250


def test_only_the_documented_errors_are_refusals() -> None:
    def broken(_: bytes) -> None:
        raise IndexError

    with pytest.raises(IndexError):
        Target(broken, lambda: [b""]).accepts(b"")
