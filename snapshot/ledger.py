"""What of one table's dump is done and what is left, kept in the table's own Delta commits.

Lives here: the ranges still to be read, the numbers of chunks, the commits, and finding all of it
again after a kill. Does not live here: who reads a range, and when (`dump`).

Invariant: at every moment each key of the source belongs to exactly one of: rows that are
committed, a chunk that waits for its commit, a range that is being read, a range that is queued. A
commit puts the waiting chunks into the table and names the ranges in its own metadata, at once. So
whatever is killed, the newest commit says exactly what is still missing.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from deltalake import DeltaTable

from ratchet.core.dumps import FORMAT_VERSION, DumpCommit, DumpedChunk, app_id
from ratchet.core.errors import BugError, LakeError
from ratchet.snapshot.keys import ChunkRange
from ratchet.snapshot.reader import ChunkResult
from ratchet.store.delta.actions import Action, AppTransaction, DataFile, rewrite_info
from ratchet.store.delta.checkpoints import checkpoint_if_due
from ratchet.store.delta.commits import check_epoch, commit_files, committed, epoch_of
from ratchet.store.delta.errors import conflict, delta_errors
from ratchet.store.delta.log import TableFiles, replay
from ratchet.store.delta.tables import open_delta, replace_columns, stats_columns, version_in
from ratchet.store.files import Lake

_LOOK_BACK: Final = (20, 1_000, None)  # commits of history that are read to find our newest one


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A range that somebody is reading.

    Attributes:
        number: number of the chunk that it becomes.
        shard: ShardId as text.
        keys: the range.
        whole: whether splitting it was tried in vain.
    """

    number: int
    shard: str
    keys: ChunkRange
    whole: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A commit that is about to be written.

    Attributes:
        record: what it says about itself.
        results: the chunks that it adds.
    """

    record: DumpCommit
    results: tuple[ChunkResult, ...]


class ChunkTracker:
    """The books of one dump of one table. Not for several threads at once."""

    def __init__(
        self,
        lake: Lake,
        *,
        path: str,
        dump: str,
        generations: Mapping[str, int],
        last: DumpCommit | None,
    ) -> None:
        """Begin, or go on after the commit `last`; use `open_ledger`."""
        self._lake = lake
        self._files: TableFiles | None = None
        self._path = path
        self.dump = dump
        self._generations = generations
        todo: Mapping[str, tuple[list[Any], ...]] = (
            last.todo if last else {shard: (ChunkRange().to_json(),) for shard in generations}
        )
        # (range, whether splitting it was tried in vain); the front is read next
        self._queues: dict[str, deque[tuple[ChunkRange, bool]]] = {
            shard: deque((ChunkRange.from_json(keys), False) for keys in ranges)
            for shard, ranges in todo.items()
        }
        self._claims: dict[int, Claim] = {}
        self._read: list[ChunkResult] = []
        self._next_chunk = last.next_chunk if last else 1
        self._commits = last.number if last else 0
        self.rows = last.rows if last else 0
        self.bytes = last.bytes if last else 0

    @property
    def resumed(self) -> bool:
        """Whether an earlier run has committed something of this dump."""
        return self._commits > 0

    @property
    def done(self) -> bool:
        """Whether everything has been read and committed."""
        return not (self._claims or self._read or any(self._queues.values()))

    @property
    def all_read(self) -> bool:
        """Whether nothing is left to read, though something may wait for its commit."""
        return not (self._claims or any(self._queues.values()))

    @property
    def uncommitted(self) -> int:
        """How many chunks wait for their commit."""
        return len(self._read)

    @property
    def queued(self) -> int:
        """How many ranges wait for a reader."""
        return sum(len(queue) for queue in self._queues.values())

    def busy(self, shard: str) -> int:
        """How many ranges of a shard are being read."""
        return sum(claim.shard == shard for claim in self._claims.values())

    def claim(self, barred: Collection[str] = ()) -> Claim | None:
        """Take the next range, of the shard that is least busy; None if none is queued.

        Args:
            barred: shards from which nothing may be read now.
        """
        waiting = [s for s, queue in self._queues.items() if queue and s not in barred]
        if not waiting:
            return None
        shard = min(waiting, key=self.busy)
        keys, whole = self._queues[shard].popleft()
        claim = Claim(number=self._next_chunk, shard=shard, keys=keys, whole=whole)
        self._next_chunk += 1
        self._claims[claim.number] = claim
        return claim

    def narrow(self, claim: Claim, parts: tuple[ChunkRange, ...]) -> Claim | None:
        """Keep the first part of a claimed range and queue the others; None if there is no part."""
        self._settle(claim)
        if not parts:
            return None
        queue = self._queues[claim.shard]
        queue.extendleft((keys, False) for keys in reversed(parts[1:]))
        kept = Claim(number=claim.number, shard=claim.shard, keys=parts[0], whole=len(parts) == 1)
        self._claims[kept.number] = kept
        return kept

    def finish(self, claim: Claim, result: ChunkResult) -> None:
        """A claimed range was read; what is left of it is queued again."""
        self._settle(claim)
        rest = result.rest
        if rest is not None:
            self._queues[claim.shard].appendleft((rest, False))  # estimates are better now
        self._read.append(result)
        self.rows += result.rows
        self.bytes += result.bytes

    def give_back(self, claim: Claim) -> None:
        """A claimed range was not read: queue it again."""
        self._settle(claim)
        self._queues[claim.shard].appendleft((claim.keys, claim.whole))

    def draft(self) -> Draft | None:
        """The commit of all chunks that wait for one; None if none does."""
        if not self._read:
            return None
        record = DumpCommit(
            dump=self.dump,
            number=self._commits + 1,
            chunks=tuple(self._described(result) for result in self._read),
            todo=self._todo(),
            next_chunk=self._next_chunk,
            rows=self.rows,
            bytes=self.bytes,
        )
        return Draft(record=record, results=tuple(self._read))

    def write(self, draft: Draft) -> None:
        """Put a draft into the table. The books may be used meanwhile, except for a second draft.

        Raises:
            LakeError: the commit failed, or another process works on the same dump.
        """
        doing = f"commit chunks of a dump, number {draft.record.number}"
        number, now = draft.record.number, time.time_ns() // 1000
        files = replay(self._lake, self._path, self._files)
        if files is None or (committed(files, app_id(self.dump)) or 0) >= number:
            raise conflict(self._path, doing)
        actions: list[Action] = [
            rewrite_info("WRITE", read=files.version, now=now, note=draft.record.to_text()),
            AppTransaction(app_id=app_id(self.dump), version=number, updated_at=now),
            *(
                DataFile.new(one.file, size=one.size, stats=one.stats, now=now)
                for one in draft.results
                if one.file
            ),
        ]
        after = commit_files(self._lake, self._path, files, actions)
        if after is None:
            raise conflict(self._path, doing)
        self._files = after
        checkpoint_if_due(self._lake, self._path, after.version)

    def committed(self, draft: Draft) -> None:
        """A draft is in the table now."""
        self._commits = draft.record.number
        self._read = self._read[len(draft.results) :]

    def _todo(self) -> dict[str, tuple[list[Any], ...]]:
        todo = {shard: [keys for keys, _ in queue] for shard, queue in self._queues.items()}
        for claim in self._claims.values():
            todo[claim.shard].insert(0, claim.keys)
        return {shard: tuple(keys.to_json() for keys in found) for shard, found in todo.items()}

    def _described(self, result: ChunkResult) -> DumpedChunk:
        return DumpedChunk(
            number=result.number,
            shard=result.shard,
            generation=self._generations[result.shard],
            rows=result.rows,
            read_at=result.read_at,
            floor=result.floor,
        )

    def _settle(self, claim: Claim) -> None:
        if self._claims.pop(claim.number, None) is None:
            raise BugError(
                f"chunk {claim.number} belongs to nobody",
                operation="dump a table",
                table=self._path,
            )


def open_ledger(
    lake: Lake,
    *,
    path: str,
    dump: str,
    generations: Mapping[str, int],
    columns: pa.Schema,
    key: Sequence[str],
    empty: bool = True,
) -> ChunkTracker:
    """The books of a dump, as its commits say; its first time empties the table.

    That first commit gives the table the source's columns and no rows, and leaves its history. It
    has the dump's transaction version 0, so it happens once. Files of this dump that are in no
    commit (their task failed or was killed) are removed.

    Args:
        lake: the lake.
        path: the Delta table, which exists, relative to the lake's root.
        dump: id of the dump.
        generations: shard -> generation of its stream, for all shards of the table.
        columns: all columns of the Delta table.
        key: columns that files keep statistics of.
        empty: whether it does; rows may be kept (store.tables.RetainedRows).

    Raises:
        LakeError: the table is missing or damaged, or another process writes to it.
    """
    table = open_delta(lake, path)
    if table is None:
        raise LakeError(
            f"{path} holds no Delta table",
            operation="dump a table",
            hint="something removed it: dump the table again (`ratchet table CONFIG redump TABLE`)",
        )
    with delta_errors("look for the dump's commits", path):
        number = version_in(table, app_id(dump))
    if number is None and empty:
        table = _emptied(lake, table, path, dump, columns=columns, key=key)
    last = _newest(table, path, dump, number) if number else None
    remove_orphans(lake, path=path, dump=dump)
    return ChunkTracker(lake, path=path, dump=dump, generations=generations, last=last)


def _emptied(
    lake: Lake,
    table: DeltaTable,
    path: str,
    dump: str,
    *,
    columns: pa.Schema,
    key: Sequence[str],
) -> DeltaTable:
    """The table with the columns of a dump and no rows."""
    note = json.dumps({"ratchet": FORMAT_VERSION, "reset": dump})
    replace_columns(
        lake,
        table,
        path,
        columns,
        stats=stats_columns(columns, key),
        app=(app_id(dump), 0),
        note=note,
        now=time.time_ns() // 1000,
    )
    emptied = open_delta(lake, path)
    if emptied is None:
        raise BugError(f"{path} was emptied but is not there", operation="empty a table")
    return emptied


def file_prefix(dump: str) -> str:
    """What the names of a dump's files begin with."""
    return f"dump-{dump}"


def remove_orphans(lake: Lake, *, path: str, dump: str) -> int:
    """Remove files of a dump that are in no commit; how many. Nothing may be writing them.

    They are listed before the table is looked at: what was there before a version that shows no
    later epoch is of nobody else's, however late it is removed. (No name is used twice.)

    Raises:
        LateError: another run has taken the lake over.
    """
    prefix = f"{path}/{file_prefix(dump)}-"
    there = [file.path for file in lake.list(path, recursive=False)]
    files = replay(lake, path)
    if files is not None:
        check_epoch(lake, epoch_of(files), path, "remove what a dump has left")
    known = set() if files is None else set(files.files)
    orphans = [
        name for name in there if name.startswith(prefix) and name.rpartition("/")[2] not in known
    ]
    for orphan in orphans:
        lake.delete(orphan)
    return len(orphans)


def _newest(table: DeltaTable, path: str, dump: str, number: int) -> DumpCommit:
    with delta_errors("look for the dump's newest commit", path):
        for limit in _LOOK_BACK:
            for commit in table.history(limit):
                found = DumpCommit.from_text(commit.get("userMetadata"))
                if found is not None and (found.dump, found.number) == (dump, number):
                    return found
    raise LakeError(
        f"commit {number} of the dump is no longer in the table's history",
        operation="resume a dump",
        hint="dump the table again: `ratchet table CONFIG redump TABLE`",
    )
