"""A small lake with a file of each kind that a run reads, and what reads each of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from ratchet.core.rounds import ChangeFile
from ratchet.ingest.logfiles import _rows
from ratchet.jobs.topology.lostrows import _keys
from ratchet.merge.changeplaces import seqs_of
from ratchet.merge.liverows import LiveRows
from ratchet.merge.lookup import look, look_for_truncated
from ratchet.merge.newest import ChangeFiles, NeedsSpark, newest
from ratchet.merge.patch import may_have_shadows
from ratchet.merge.prune import key_ranges
from ratchet.merge.sidestats import read_side_stats
from ratchet.store.cuts import Cuts
from ratchet.store.delta.log import TableFiles, replay
from ratchet.store.delta.vectors import gone_rows
from ratchet.store.files import Lake
from ratchet.store.rounds import RoundLog
from ratchet.store.segments import SegmentPart, part_of
from tests.direct_kit import batch, merged, put, streaming
from tests.merge_kit import Source

Reader = Callable[[], object]


@dataclass(frozen=True)
class FileToFlip:
    """A file of the lake.

    Attributes:
        path: the file.
        begin: the first of its bytes that count.
        end: the one behind the last.
        reads: what reads them, by name.
    """

    path: Path
    begin: int
    end: int
    reads: Mapping[str, Reader]


def lake_with_rows(folder: Path) -> Source:
    """A table with two data files, one with a vector, a side table, and changes to be merged."""
    source = streaming(folder)
    source.in_segments = 1.0
    for ops in (
        [put(n, f"v{n}") for n in range(12)],
        [*(("del", n) for n in range(3)), put(4, "new"), put(20, "more")],
    ):
        source.tx(source.names[0], *ops)
        source.round()
        merged(source)
    source.tx(source.names[0], put(5, "last"), ("del", 6), put(30, "x"))
    source.round()
    return source


def files_of(source: Source) -> dict[str, FileToFlip]:
    """One file of each kind."""
    lake, state = source.lake, source.state
    main, side = _replayed(lake, state.path), _replayed(lake, state.side_path)
    shape = batch(source).shape
    (change,) = source.rounds.since(source.rounds.last_number() - 1)[0].files
    files = ChangeFiles.load(lake, [change.path])
    keys = newest(files, shape)
    dumped = next(one for one in main.files.values() if one.vector is not None)
    vector = next((Path(lake.root) / state.path).glob("*.bin"))
    (hidden,) = side.files.values()
    part = part_of(change.path)
    assert part is not None

    def live() -> list[pa.Table]:
        return list(LiveRows(lake, state.path, dumped, shape.columns).groups())

    return {
        "data": _whole(
            Path(lake.root, state.path, dumped.path),
            {
                "look": lambda: look(lake, state.path, keys, main),
                "tokens": lambda: look_for_truncated(lake, state.path, main, marks={}, floors={}),
                "rows": live,
            },
        ),
        "vector": _whole(vector, {"gone": lambda: gone_rows(lake, state.path, dumped)}),
        "side": _whole(
            Path(lake.root, state.side_path, hidden.path),
            {
                "stats": lambda: read_side_stats(lake, state.side_path),
                "shadows": lambda: may_have_shadows(lake, state.side_path),
            },
        ),
        "change": FileToFlip(
            Path(lake.root, part.path),
            part.offset,
            part.offset + part.length,
            _change_reads(lake, change, part, shape.columns, source),
        ),
        "rounds": _whole(
            _newest(lake, "_ratchet/rounds"), {"rounds": lambda: RoundLog(lake).last()}
        ),
        "cuts": _whole(_newest(lake, "_ratchet/cuts"), {"cuts": lambda: Cuts(lake).last()}),
    }


def _change_reads(
    lake: Lake, change: ChangeFile, part: SegmentPart, columns: pa.Schema, source: Source
) -> dict[str, Reader]:
    shape = batch(source).shape
    everything = np.ones(change.rows, np.bool_)

    def loaded(made: Callable[[Lake, list[str]], ChangeFiles]) -> object:
        files = made(lake, [str(part)])
        with suppress(NeedsSpark):
            newest(files, shape)
        files.weights()
        return files.images(columns, everything)

    return {
        "loaded": lambda: loaded(ChangeFiles.load),
        "at": lambda: loaded(ChangeFiles.at),
        "ranges": lambda: key_ranges(lake, [str(part)], shape),
        "seqs": lambda: seqs_of(lake, change),
        "keys": lambda: list(_keys(lake, change, shape.key)),
        "log": lambda: list(_rows(lake, change)),
    }


def _whole(path: Path, reads: Mapping[str, Reader]) -> FileToFlip:
    return FileToFlip(path, 0, path.stat().st_size, reads)


def _newest(lake: Lake, folder: str) -> Path:
    return max(Path(lake.root, folder).glob("*.parquet"), key=lambda one: one.stat().st_mtime_ns)


def _replayed(lake: Lake, path: str) -> TableFiles:
    found = replay(lake, path)
    assert found is not None
    return found
