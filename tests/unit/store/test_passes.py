"""The marks of a verification's pass."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ratchet.store.formats import open_lake
from ratchet.store.passes import Pass, Passes

PASS = Pass(
    keyspace="shop", table="t", dump="d", columns=("id",), shards=("shop/-",), since=1, begun=1
)


def test_a_torn_file_of_marks_lacks_some(tmp_path: Path) -> None:
    """It ended each run, as an error of nobody's; rows without a mark are only looked at again."""
    passes = Passes(open_lake(tmp_path / "lake", now=1))
    progress = passes.begin(PASS)
    for first in (1, 4):
        progress = passes.add(progress, np.arange(first, first + 3, dtype=np.uint64))
    (one, two) = sorted((tmp_path / "lake").rglob("0000000*[01]"))
    one.write_bytes(one.read_bytes()[:-3])
    assert [found.tolist() for found in passes.marks(progress)] == [[1, 2], [4, 5, 6]]
    two.write_bytes(b"")
    assert [found.tolist() for found in passes.marks(progress)] == [[1, 2], []]
