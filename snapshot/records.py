"""What a dump is told and what it reports: settings, progress records, rates.

Lives here: frozen values and the arithmetic of rates. Does not live here: displaying them (`jobs`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from ratchet.core.errors import RatchetError
from ratchet.core.types import InvalidValuePolicy
from ratchet.snapshot.throttle import Throttle, ThrottleLimits
from ratchet.wire.session import SourceConfig
from ratchet.wire.vitess import on_primary

_WINDOW: Final = 30.0  # seconds that a rate looks back


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardSource:
    """A shard to dump from.

    Attributes:
        config: its server; of a shard behind a vtgate, which of its tablets rows are read from.
        generation: generation of its stream.
        replicas: servers whose lag the throttle asks for.
    """

    config: SourceConfig
    generation: int = 0
    replicas: tuple[SourceConfig, ...] = ()

    @property
    def primary(self) -> SourceConfig:
        """Where to ask for all but rows; the same server, unless `config` is a vtgate's replicas.

        One replica may be behind another: schemas, cuts and the end of what was shown would be old.
        """
        return on_primary(self.config)


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpSettings:
    """How a dump goes about it.

    Attributes:
        parallel: chunks read at the same time, over all tables and shards.
        chunk_seconds: time that a chunk is aimed to take.
        chunk_rows: a fixed number of rows a chunk instead; None adapts.
        chunk_bytes: about the most that a server sends for a chunk.
        commit_seconds: a table's chunks are committed at most this often.
        patience: seconds without success after which a failing server ends the dump.
        throttle: asked before each read; one for all that reads in this process.
        policy: what becomes of values that do not fit.
        deletion_vectors: whether new Delta tables have them.
    """

    parallel: int = 4
    chunk_seconds: float = 1.0
    chunk_rows: int | None = None
    chunk_bytes: int = 256 << 20
    commit_seconds: float = 1.0
    patience: float = 300.0
    throttle: Throttle = field(default_factory=lambda: Throttle(ThrottleLimits()))
    policy: InvalidValuePolicy = field(default_factory=InvalidValuePolicy)
    deletion_vectors: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDumpRequest:
    """A table to dump.

    Attributes:
        keyspace: its keyspace.
        table: its name.
        shards: the shards that have it, ShardId as text.
        shard_in_key: whether two shards may hold the same key.
        again: dump it anew, whatever phase it is in.
    """

    keyspace: str
    table: str
    shards: tuple[str, ...]
    shard_in_key: bool = False
    again: bool = False

    @property
    def name(self) -> str:
        """keyspace.table."""
        return f"{self.keyspace}.{self.table}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStarted:
    """A table's first chunk is about to be read.

    Attributes:
        table: keyspace.table.
        estimated_rows: what the servers believe that it holds.
        rows: rows that an earlier run has dumped already.
    """

    table: str
    estimated_rows: int
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkDone:
    """A chunk was read; it is in the table at the next commit.

    Attributes:
        table: keyspace.table.
        shard: keyspace/shard.
        number: of the chunk.
        chunk_rows: rows in it.
        seconds: time it took.
        misfits: column -> values that became NULL because they did not fit.
        rows: rows of the table so far, over all shards and runs.
        estimated_rows: of the whole table; never below `rows`.
        bytes: bytes that the servers sent for them.
        rows_per_second: of this table, over the last half minute.
        eta: seconds that the table still needs at that rate; None while unknown.
    """

    table: str
    shard: str
    number: int
    chunk_rows: int
    seconds: float
    misfits: dict[str, int]
    rows: int
    estimated_rows: int
    bytes: int
    rows_per_second: float
    eta: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDone:
    """All of a table is in the lake.

    Attributes:
        table: keyspace.table.
        rows: rows dumped.
        bytes: bytes that the servers sent for them.
        seconds: since this run began with the table.
    """

    table: str
    rows: int
    bytes: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRestarted:
    """A table changed its columns in the middle; its dump begins anew.

    Attributes:
        table: keyspace.table.
        reason: one sentence.
    """

    table: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFailed:
    """A table stopped; the others go on.

    Attributes:
        table: keyspace.table.
        error: why, and what to do.
    """

    table: str
    error: RatchetError


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Nothing is read from a shard at the moment.

    Attributes:
        shard: keyspace/shard.
        reason: the throttle's, or the error that is retried.
        throttled: whether the throttle holds it back, which tells of that itself.
    """

    shard: str
    reason: str
    throttled: bool = False


Progress = TableStarted | ChunkDone | TableDone | TableRestarted | TableFailed | Waiting
OnProgress = Callable[[Progress], None]


class Meter:
    """Rows per second over the last half minute."""

    def __init__(self, now: float) -> None:
        """Count from `now` (seconds of any clock) on."""
        self._points: list[tuple[float, int]] = [(now, 0)]

    def count(self, now: float, rows: int) -> float:
        """Note rows and give the rate."""
        self._points.append((now, self._points[-1][1] + rows))
        while len(self._points) > 2 and self._points[1][0] < now - _WINDOW:
            del self._points[0]
        start, before = self._points[0]
        return (self._points[-1][1] - before) / max(now - start, 1e-3)
