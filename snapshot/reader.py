"""Reading one chunk of a table: from a consistent read on the server to one Parquet file.

Lives here: what a Spark task does for a dump or a verification, and nothing that needs Spark. Does
not live here: which chunks there are and what becomes of their files (`dump`).

Invariant: all rows of a chunk come from one consistent read, which contains the chunk's floor; the
file holds exactly the rows of (after, end], where `end` came from the server with the last row.
Memory stays bounded whatever a row's width: rows leave as row groups of some 16 MB.

A chunk is several SELECTs in that one read, each limited to as many rows as the time and the bytes
that are left allow for. So a chunk ends near its target on any table without a plan made before;
a SELECT whose rows turn out much wider than those before is broken off at the limit.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ratchet.core.change import FLOOR_IDX
from ratchet.core.errors import RetryableError, TableStoppedError
from ratchet.core.position import Position
from ratchet.core.schema import Column, ColumnType, TableSchema
from ratchet.core.types import InvalidValuePolicy
from ratchet.snapshot.chunkfile import ChunkFile, ChunkToken
from ratchet.snapshot.errors import ShapeChangedError
from ratchet.snapshot.keys import Bound, ChunkRange, KeyPlan
from ratchet.snapshot.prints import BUCKET, PRINT, SHARD, Fingerprint, RowHasher, Tally
from ratchet.snapshot.sessions import open_session
from ratchet.snapshot.source import table_shapes
from ratchet.store.files import Lake
from ratchet.wire.decode.answers import refusal
from ratchet.wire.decode.text import TextRowDecoder
from ratchet.wire.session import Session, Snapshot, SourceConfig, quoted

# Of a chunk's first SELECT, by the server's own estimate of a row; a dump's `first_rows`.
FIRST_BYTES: Final = 16 << 20
_FEWEST: Final = 1_000  # rows that a SELECT asks for at least
_GROWTH: Final = 8  # how many times the last SELECT's rows the next one may ask for
_OVERRUN: Final = 2  # a SELECT is broken off when it made a chunk this many times too large
_KEY_COLUMN: Final = "ratchet key "  # + number; of columns that are only read to see the end


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLimits:
    """When a chunk ends, if its range does not end before.

    Attributes:
        seconds: target time of a chunk.
        rows: most rows of a chunk.
        bytes: about the most bytes of a chunk, as the server sends them.
        first_rows: rows of the first SELECT, while nothing is known of the table's speed.
    """

    seconds: float = 1.0
    rows: int = 2_000_000
    bytes: int = 256 << 20
    first_rows: int = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RowHashSpec:
    """To keep the prints of rows in place of their values.

    Attributes:
        printer: prints the rows.
        columns: the columns that are written nevertheless, the key's among them.
        shard: its name.
        home: what the shard adds to its rows' prints (`prints.ShardOrigins`).
        key_shard: `prints.shard_print` of the shard, where that is a part of the key.
    """

    printer: RowHasher
    columns: tuple[str, ...]
    shard: str
    home: np.uint64
    key_shard: np.uint64 | None

    def printed(self, batch: pa.RecordBatch, tally: Tally) -> pa.RecordBatch:
        """The columns of the rows that are written, with `PRINT`, `BUCKET` and `SHARD`."""
        rows, prints = batch.num_rows, self.printer.prints(batch)
        shards = None if self.key_shard is None else np.full(rows, self.key_shard)
        buckets = self.printer.buckets(batch, shards)
        tally.rows(prints, buckets, np.full(rows, self.home))
        kept = [batch.column(name) for name in self.columns]
        name = pa.DictionaryArray.from_arrays(np.zeros(rows, np.int8), [self.shard])
        return pa.record_batch(
            [*kept, pa.array(prints.view(np.int64)), pa.array(buckets.astype(np.int32)), name],
            names=[*self.columns, PRINT, BUCKET, SHARD],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkRequest:
    """Everything a task needs to read a chunk.

    Attributes:
        number: the chunk's number within its dump, from 1.
        config: the server.
        schema: the table's schema on that server.
        shape: what `table_shapes` gave when the schema was read.
        plan: how the table is walked.
        keys: the range to read; the chunk is the part of it at its beginning.
        generation: generation of the shard's stream.
        lake: where the file goes.
        folder: its folder in the lake.
        name: what the file's name begins with.
        policy: what becomes of values that do not fit.
        key: columns that identify a row in the lake.
        limits: when to stop.
        columns: the lake's columns in their order; the schema's own order if empty.
        since: what the read must contain, because the log is applied from there on; None: nothing
            in particular.
        compression: Parquet codec (zstd: as fast as snappy here, 0.13 s for a million rows, and
            two thirds of its size).
        printing: how to print the rows, for a verification; None: their values are written.
    """

    number: int
    config: SourceConfig
    schema: TableSchema
    shape: str
    plan: KeyPlan
    keys: ChunkRange
    generation: int
    lake: Lake
    folder: str
    name: str
    policy: InvalidValuePolicy
    key: tuple[str, ...]
    limits: ReadLimits = field(default_factory=ReadLimits)
    columns: tuple[str, ...] = ()
    since: Position | None = None
    compression: str = "zstd"
    printing: RowHashSpec | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkResult:
    """A chunk that was read.

    Attributes:
        number: as in the request.
        shard: shard it was read from.
        keys: the range that was asked for.
        end: the last key read, if the range goes on behind it; None if it was read to its end.
        file: name of the Parquet file in the folder; empty if there were no rows.
        size: its bytes.
        stats: Delta's statistics of the file.
        rows: rows in it.
        bytes: bytes that the server sent.
        floor: what the rows are sure to contain.
        read_at: the server's clock when the read began, microseconds UTC.
        seconds: time the chunk took.
        misfits: column -> values that became NULL because they did not fit.
        fingerprint: of its rows, if they were printed.
    """

    number: int
    shard: str
    keys: ChunkRange
    end: Bound | None
    file: str
    size: int
    stats: str
    rows: int
    bytes: int
    floor: Position
    read_at: int
    seconds: float
    misfits: dict[str, int]
    fingerprint: Fingerprint | None = None

    @property
    def rest(self) -> ChunkRange | None:
        """What is left of the range; None if nothing is."""
        return None if self.end is None else ChunkRange(after=self.end, upto=self.keys.upto)


def read_chunk(request: ChunkRequest) -> ChunkResult:
    """Read the beginning of a range into one Parquet file in the lake.

    A file that was begun when an error struck is removed.

    Raises:
        RetryableError: the connection failed, or the server is behind `since`; the same request
            may succeed later.
        TableStoppedError: the table is gone, has changed its shape, or holds what does not fit.
        DecodeError, LakeError, SourceUnfitError: see core.errors.
    """
    name = request.schema.name
    with open_session(request.config, table=name) as session, session.snapshot() as snapshot:
        check_since(snapshot, request.since, source=request.config, table=name)
        _check_shape(session, request)
        return _ChunkReader(request, session, snapshot).run()


def check_since(
    snapshot: Snapshot, since: Position | None, *, source: SourceConfig, table: str
) -> None:
    """Refuse a read that lacks what the log is applied from, or what is merged already.

    Args:
        snapshot: the read.
        since: what it must contain; None: nothing in particular.
        source: the server, for the error.
        table: what is read, for the error.

    Raises:
        RetryableError: it lacks some of it.
    """
    if since is not None and not snapshot.floor.executed.contains_all(since.executed):
        raise RetryableError(
            "this replica has not reached what the mirror has or begins with",
            operation="read a table",
            source=str(source.shard),
            table=table,
            hint="it is read once it has caught up; or read from @primary",
        )


def _check_shape(session: Session, request: ChunkRequest) -> None:
    # Inside the read: a table that is rebuilt later makes the server refuse the read (1412).
    plan = request.plan
    if table_shapes(session.query, plan.database, plan.table).get(plan.table) != request.shape:
        raise ShapeChangedError(
            "the table's columns have changed since its dump began",
            operation="read a chunk",
            source=session.source,
            table=request.schema.name,
            hint="dump the table again: `ratchet table CONFIG redump TABLE`",
        )


class _ChunkReader:
    """One chunk being read. Used once."""

    def __init__(self, request: ChunkRequest, session: Session, snapshot: Snapshot) -> None:
        self._request = request
        self._session = session
        self._snapshot = snapshot
        self._started = time.monotonic()
        ends = [column.raw for column in request.plan.columns if not column.native]
        schema = _with_key_columns(request.schema, len(ends))
        self._decoder = TextRowDecoder(schema, request.policy, key=request.key)
        own = self._decoder.select_list[: len(request.schema.columns)]
        self._select = ", ".join([*own, *ends])
        self._rows = 0
        self._bytes = 0
        self._misfits: dict[str, int] = {}
        self._last: pa.RecordBatch | None = None
        self._ordered_by = _ordered_by(request)
        self._tally = None if request.printing is None else Tally()
        self._file = ChunkFile(
            request.lake,
            folder=request.folder,
            name=f"{request.name}-{request.number:06d}",
            columns=_lake_columns(request),
            token=None if request.printing is not None else _token(request, snapshot),
            described=request.key,
            compression=request.compression,
        )

    def run(self) -> ChunkResult:
        """Read until the range or the limits end."""
        try:
            end = self._read()
            name, size, stats = self._file.finish()
        except BaseException:
            self._file.discard()
            raise
        request = self._request
        return ChunkResult(
            number=request.number,
            shard=str(request.config.shard),
            keys=request.keys,
            end=end,
            file=name,
            size=size,
            stats=stats,
            rows=self._rows,
            bytes=self._bytes,
            floor=self._snapshot.floor,
            read_at=self._snapshot.read_at,
            seconds=time.monotonic() - self._started,
            misfits=self._misfits,
            fingerprint=None if self._tally is None else self._tally.fingerprint,
        )

    def _read(self) -> Bound | None:
        plan, limits, keys = self._request.plan, self._request.limits, self._request.keys
        if not plan.walkable:
            self._select_rows(keys, limit=None)
            return None
        asked = max(1, min(limits.first_rows, limits.rows))
        while True:
            before = self._rows
            whole = self._select_rows(keys, limit=asked)
            if whole and self._rows - before < asked:
                return None
            end = self._end_key()
            asked = self._next_limit(asked)
            if not whole or asked == 0:
                return end
            if end == keys.after:
                raise refusal(f"rows after the key {end} that end with it")
            keys = ChunkRange(after=end, upto=keys.upto)

    def _select_rows(self, keys: ChunkRange, *, limit: int | None) -> bool:
        """Read one SELECT; False if it was broken off."""
        plan = self._request.plan
        sql = f"SELECT {self._select} FROM {plan.source}{plan.where(keys)}{plan.order()}"
        if limit is not None:
            sql += f" LIMIT {limit}"
        most = self._request.limits.bytes * _OVERRUN
        with self._session.stream_rows(sql) as rows:
            for buffer, start, end in rows:
                self._take(buffer, start, end)
                if limit is not None and self._bytes > most:
                    return False
        return True

    def _take(self, buffer: Any, start: int, end: int) -> None:
        decoded = self._decoder.decode(buffer, start, end)
        self._rows += decoded.batch.num_rows
        self._bytes += end - start
        for column, count in decoded.misfits.items():
            self._misfits[column] = self._misfits.get(column, 0) + count
        self._check_keys(decoded.batch)
        self._last = decoded.batch
        printing = self._request.printing
        if printing is None or self._tally is None:
            self._file.add(decoded.batch)
        else:
            self._file.add(printing.printed(decoded.batch, self._tally))

    def _check_keys(self, batch: pa.RecordBatch) -> None:
        # A server can be made to hold two rows with one primary key (EXCHANGE PARTITION ... WITHOUT
        # VALIDATION looks at nothing). They arrive side by side, as the key orders them. The log
        # names a row by its key, so the first change of either would be made to both.
        if not self._ordered_by or not batch.num_rows:
            return
        keys = [batch.column(name) for name in self._ordered_by]
        if _has_neighbours(keys):
            raise self._two_rows()
        if self._last is not None and self._last.num_rows:
            ends = [self._last.column(name)[-1] for name in self._ordered_by]
            if all(end == key[0] for end, key in zip(ends, keys, strict=True)):
                raise self._two_rows()

    def _two_rows(self) -> TableStoppedError:
        plan = self._request.plan
        index = ", ".join(quoted(column.name) for column in plan.columns)
        return TableStoppedError(
            "two rows of the source have the same key",
            operation="read a chunk",
            source=self._session.source,
            table=self._request.schema.name,
            hint=f"remove one row of each pair: SELECT {index}, COUNT(*) FROM "
            f"{quoted(plan.database)}.{quoted(plan.table)} GROUP BY {index} HAVING COUNT(*) > 1 "
            "finds them; then dump the table again: `ratchet table CONFIG redump TABLE`",
        )

    def _next_limit(self, asked: int) -> int:
        """Rows for the next SELECT; 0 if the chunk is large enough."""
        limits = self._request.limits
        spent = time.monotonic() - self._started
        left = min(
            (limits.seconds - spent) / max(spent, 1e-6) * self._rows,
            (limits.bytes - self._bytes) / max(self._bytes, 1) * self._rows,
            limits.rows - self._rows,
        )
        # A rest that is small beside the chunk is not worth another statement.
        if left < max(_FEWEST, self._rows // 10):
            return 0
        return int(min(left, asked * _GROWTH))

    def _end_key(self) -> Bound:
        """The key of the last row, as the server gave it."""
        batch = self._last
        assert batch is not None  # noqa: S101 - a SELECT that ended at its limit gave rows
        extra = iter(range(len(self._request.schema.columns), batch.num_columns))
        return tuple(
            column.text_of(batch.column(column.name if column.native else next(extra))[-1].as_py())
            for column in self._request.plan.columns
        )


def _token(request: ChunkRequest, snapshot: Snapshot) -> ChunkToken:
    return ChunkToken(
        ts=snapshot.read_at,
        shard=str(request.config.shard),
        generation=request.generation,
        seq=snapshot.floor.seq,
        idx=FLOOR_IDX + request.number,
    )


def _ordered_by(request: ChunkRequest) -> tuple[str, ...]:
    """The key's columns, if rows with the same key arrive one behind the other; else none."""
    plan = request.plan
    names = tuple(column.name for column in plan.columns)
    return names if plan.walkable and set(names) == set(request.key) else ()


def _has_neighbours(keys: list[pa.Array]) -> bool:
    """Whether a row has the same key as the row before it."""
    same = None
    for values in keys:
        equal = pc.equal(values[1:], values[:-1])
        same = equal if same is None else pc.and_(same, equal)
    return bool(pc.any(same).as_py())


def _lake_columns(request: ChunkRequest) -> tuple[str, ...]:
    if request.printing is not None:
        return (*request.printing.columns, PRINT, BUCKET, SHARD)
    return request.columns or tuple(column.name for column in request.schema.columns)


def _with_key_columns(schema: TableSchema, count: int) -> TableSchema:
    """The schema and `count` columns of bytes, to see where a chunk ends."""
    kind = ColumnType(name="varbinary")
    extra = tuple(Column(name=f"{_KEY_COLUMN}{n}", type=kind) for n in range(count))
    return replace(schema, columns=(*schema.columns, *extra))
