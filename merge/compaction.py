"""Small files put together, and rows that are gone dropped, without Spark and a bit at a time.

Lives here: which files are worth it, and the commit that replaces them. Does not live here: when
(`jobs.run.merging`), tables with rules of others (`maintain.compact` leaves them to Spark).

Files grow in steps: `FAN` of about one size become one, so that a row is written again once a
step, not once a merge. A file is written again, too, when a quarter of its rows is gone. Rows of
files that are put together are sorted by key where memory allows it: each file then has a part of
the keys, and a merge looks into few of them.

Invariant: the table shows the same before and after; the commit says so (`dataChange: false`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from ratchet.merge.liverows import LiveRows
from ratchet.store.crashpoints import reach
from ratchet.store.delta.actions import SNAPSHOT_ISOLATION, CommitInfo, DataFile
from ratchet.store.delta.commits import commit_files
from ratchet.store.delta.datafiles import write_data_file
from ratchet.store.delta.log import TableFiles, replay
from ratchet.store.delta.tables import stats_columns
from ratchet.store.files import Lake

FAN: Final = 8
SMALL_FILE: Final = 16 << 20  # bytes; a larger one is not put together with others: a dump's are
MOST_AT_ONCE: Final = 128 << 20  # bytes that are put together in one commit
MOST_SORTED: Final = 256 << 20  # bytes of rows, as Parquet has them before compression
BUDGET: Final = 256 << 20  # bytes of a table's files that one call reads
_SMALLEST: Final = 64 << 10  # bytes; below, all files are of one size
_STEP: Final = 4  # from one size to the next
_GONE: Final = 0.25  # the part of a file's rows


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionResult:
    """What was done.

    Attributes:
        files: how many files are no more.
        bytes: their size.
        left: whether there is more to do.
    """

    files: int
    bytes: int
    left: bool


def groups(files: Iterable[DataFile]) -> list[list[DataFile]]:
    """The files that are worth writing again, those together that become one file.

    The smallest come first: they cost the least, and there are most of them.
    """
    tiers: dict[int, list[DataFile]] = {}
    alone = []
    for file in files:
        if file.size < SMALL_FILE:
            tiers.setdefault(_tier(file.size), []).append(file)
        elif file.rows and file.gone >= _GONE * file.rows:
            alone.append([file])
    found = []
    for _, tier in sorted(tiers.items()):
        if len(tier) >= FAN:
            found += _packs(tier)
        else:
            found += [[file] for file in tier if file.rows and file.gone >= _GONE * file.rows]
    return found + alone


def compact_files(
    lake: Lake, path: str, *, key: Sequence[str], now: int
) -> CompactionResult | None:
    """Write some of a table's files again, if it is worth it; None if the table's rules forbid it.

    Never while the table is merged.

    Args:
        lake: the lake.
        path: the table's folder.
        key: columns to sort by, which statistics tell of; none: rows stay in their order.
        now: microseconds UTC.

    Raises:
        LakeError: a file is gone, damaged or cannot be read or written.
    """
    table = replay(lake, path)
    if table is None or not table.writable:
        return None
    todo = groups(table.files.values())
    files = done = 0
    for group in todo:
        if done >= BUDGET:
            return CompactionResult(files=files, bytes=done, left=True)
        rewrite = _Rewrite(lake, path, table, key, now)
        if not rewrite.commit(group):
            break  # somebody else writes to it: the next time comes by itself
        table = replay(lake, path, table) or table
        files += len(group)
        done += sum(file.size for file in group)
    return CompactionResult(files=files, bytes=done, left=False)


def _tier(size: int) -> int:
    return max(0, math.ceil(math.log(max(size, 1) / _SMALLEST, _STEP)))


def _packs(tier: Sequence[DataFile]) -> list[list[DataFile]]:
    """Files of one size, at least two together, as many as may be."""
    packs: list[list[DataFile]] = [[]]
    held = 0
    for file in sorted(tier, key=lambda f: (f.modified_at, f.path)):
        if held + file.size > MOST_AT_ONCE:
            packs.append([])
            held = 0
        packs[-1].append(file)
        held += file.size
    return [pack for pack in packs if len(pack) > 1]


@dataclass(frozen=True, slots=True)
class _Rewrite:
    """Files of one version of a table written again."""

    lake: Lake
    path: str
    table: TableFiles
    key: Sequence[str]
    now: int

    def commit(self, group: Sequence[DataFile]) -> bool:
        """Replace files by one; whether it was the next version."""
        info = CommitInfo(
            operation="OPTIMIZE",
            made_at=self.now,
            read=self.table.version,
            isolation=SNAPSHOT_ISOLATION,
        )
        new = []
        if any(file.rows is None or file.gone < file.rows for file in group):
            schema = self.table.schema
            added = write_data_file(
                self.lake,
                self.path,
                self._rows(group),
                schema,
                kind="compact",
                described=[name for name in self.key if stats_columns(schema, [name])],
                now=self.now,
            )
            new.append(replace(added, changes_data=False))
        reach("upkeep.before_compact")
        gone = [replace(file.removed(now=self.now), changes_data=False) for file in group]
        done = commit_files(self.lake, self.path, self.table, [info, *gone, *new])
        reach("upkeep.after_compact")
        return done is not None

    def _rows(self, group: Sequence[DataFile]) -> Iterator[pa.Table]:
        readers = [LiveRows(self.lake, self.path, file, self.table.schema) for file in group]
        if not self.key or len(group) == 1 or sum(r.bytes for r in readers) > MOST_SORTED:
            for reader in readers:
                yield from reader.groups()
            return
        whole = pa.concat_tables([part for reader in readers for part in reader.groups()])
        yield whole.sort_by([(name, "ascending") for name in self.key])
