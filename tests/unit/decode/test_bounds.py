"""The fuzz tests again, with numba checking every access to an array."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
NAMES = ("test_twins.py", "test_rows.py", "test_jsonb.py", "test_jsontexts.py")


@pytest.mark.long
def test_no_kernel_reads_or_writes_outside_of_its_arrays(tmp_path: Path) -> None:
    """An access outside raises IndexError in that mode, which fails a test."""
    files = [f"tests/unit/decode/{name}" for name in NAMES]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files],
        cwd=ROOT,
        env={**os.environ, "NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:]
