"""Capture beside a run: what changed on the sources after a cut, into files of its own.

Lives here: `Scratch`, for `ratchet verify`. Does not live here: the run's capture (`capturing`),
what verify makes of the changes (`snapshot.verify`).

Invariant: the lake's change log is not touched; the files lie in a folder of their own under
`_ratchet/scratch`, which `close` removes, and the streams show server ids of their own, so a
run's streams go on beside them.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Self

from ratchet.core.errors import RetryableError
from ratchet.core.patterns import TablePatterns
from ratchet.core.position import Position
from ratchet.core.rounds import ChangeFile, TableEvent
from ratchet.core.shard import ShardId
from ratchet.core.types import InvalidValuePolicy
from ratchet.ingest.rounds import Runner
from ratchet.ingest.slices import CaptureRequest, SliceLimits
from ratchet.jobs.capture.capturing import CaptureSettings, Stream
from ratchet.merge.cascades.concern import concerned
from ratchet.merge.cascades.graph import KeyGraph, read_graph
from ratchet.snapshot.keychanges import Changes
from ratchet.snapshot.scan import SCRATCH
from ratchet.store.files import Lake
from ratchet.store.tables import Tables
from ratchet.wire.binlog import DumpOptions


def changes_from(
    root: Lake,
    files: Iterable[ChangeFile],
    events: Iterable[TableEvent],
    *,
    table: tuple[str, str],
    reached: Mapping[str, Position],
    keys: KeyGraph,
    policy: InvalidValuePolicy,
) -> Changes:
    """What captured files and events say of one table, and of those that its foreign keys lead to.

    Args:
        root: where the files lie.
        files: of all tables, from the cut on.
        events: likewise.
        table: keyspace and table.
        reached: shard -> everything up to here is among them.
        keys: which tables hang on which.
        policy: decides about the lake's types.
    """
    files = list(files)
    mine = [f for f in files if (f.keyspace, f.table) == table]
    heard = [e for e in events if (e.keyspace, e.table) == table]
    disturbed = f"meanwhile: {heard[0].statement[:100]}" if heard else ""
    if len({file.schema for file in mine}) > 1:
        disturbed = disturbed or "its columns changed meanwhile"
    disturbed = disturbed or _followed(".".join(table), root, files, keys, policy)
    found = () if disturbed else tuple(mine)
    return Changes(root=root, files=found, reached=dict(reached), disturbed=disturbed)


def _followed(
    name: str,
    root: Lake,
    files: Iterable[ChangeFile],
    keys: KeyGraph,
    policy: InvalidValuePolicy,
) -> str:
    """Whether foreign keys may have changed rows of a table behind the cut: that is in no log."""
    if name not in keys.by_child:
        return ""
    found = concerned(root, policy, keys, files)
    if name not in found:
        return ""
    return f"rows of {found[name]} changed meanwhile, and may have changed its own by foreign keys"


class Scratch:
    """The changes after a cut, read as far as they are asked for. A context.

    Args:
        lake: the lake.
        streams: ShardId as text -> its stream.
        settings: as for a run's capture; `lake` is replaced.
        starts: shard -> position of the cut.
        patterns: which tables of a keyspace are mirrored.
        tables: names of the tables that the mirror holds, by keyspace.
        run: takes slices.
        patience: seconds that a server may be away.
        clock: seconds, rising.
    """

    def __init__(
        self,
        lake: Lake,
        streams: Mapping[str, Stream],
        settings: CaptureSettings,
        starts: Mapping[str, Position],
        *,
        patterns: Callable[[str], TablePatterns],
        tables: Callable[[str], tuple[str, ...]],
        run: Runner,
        patience: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lake = lake
        self._folder = f"{SCRATCH}/capture-{uuid.uuid4().hex[:12]}"
        self._root = Lake.at(f"{lake.root}/{self._folder}")
        self._streams = streams
        self._settings = replace(settings, lake=self._root.root)
        self._reached = dict(starts)
        self._patterns = patterns
        self._tables = tables
        self._run = run
        self._patience = patience
        self._clock = clock
        self._round = 0
        self._files: list[ChangeFile] = []
        self._events: list[TableEvent] = []

    def changes(self, keyspace: str, table: str, ends: Mapping[str, Position]) -> Changes:
        """All changes of a table after the cut, up to these positions or beyond.

        Raises:
            RetryableError: a server stays away.
            OperatorError: a stream cannot go on.
        """
        self._reach(ends)
        return changes_from(
            self._root, self._files, self._events,
            table=(keyspace, table), reached=self._reached,
            keys=read_graph(self._lake, Tables(self._lake).list()), policy=self._settings.policy,
        )  # fmt: skip

    def close(self) -> None:
        """Remove the files."""
        self._lake.delete_folder(self._folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _reach(self, ends: Mapping[str, Position]) -> None:
        deadline = self._clock() + self._patience
        while short := [shard for shard, end in ends.items() if not self._holds(shard, end)]:
            self._round += 1
            for result in self._run([self._request(shard, ends[shard]) for shard in short]):
                if result.error is None and result.slice is not None:
                    self._reached[result.shard] = result.slice.end
                    self._files += result.files
                    self._events += result.events
                    deadline = self._clock() + self._patience
                elif not isinstance(result.error, RetryableError) or self._clock() > deadline:
                    raise result.error or RetryableError("no slice came", source=result.shard)

    def _holds(self, shard: str, end: Position) -> bool:
        return self._reached[shard].executed.contains_all(end.executed)

    def _request(self, shard: str, end: Position) -> CaptureRequest:
        stream, settings = self._streams[shard], self._settings
        return CaptureRequest(
            source=stream.source,
            start=self._reached[shard],
            generation=stream.generation,
            round_number=self._round,
            lake=settings.lake,
            patterns=self._patterns(ShardId.parse(shard).keyspace),
            known=self._tables(ShardId.parse(shard).keyspace),
            policy=settings.policy,
            limits=SliceLimits(
                max_bytes=settings.round_bytes,
                max_seconds=settings.round_seconds,
                min_seconds=0.0,
                stop_at=end.executed,
            ),
            dump=DumpOptions(server_id=stream.server_id, heartbeat=settings.heartbeat),
            vtgate=stream.vtgate,
        )
