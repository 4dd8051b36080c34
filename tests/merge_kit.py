"""A source and its change log without servers, for tests of the merge.

`Source` keeps each shard's rows as the server would, writes rounds with real change files, dumps
chunks with real commits, and knows (by tests.model.reference) what the mirror must show.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, QueryBuilder, Transaction
from deltalake.transaction import AddAction

from ratchet.core.change import DELETE, FLOOR_IDX, INSERT, UPDATE, change_schema
from ratchet.core.dumps import DumpCommit, DumpedChunk, app_id
from ratchet.core.gtid import GtidSet
from ratchet.core.position import Position
from ratchet.core.rounds import ChangeFile, GtidRange, Journal, Round, ShardSlice, TableEvent
from ratchet.core.schema import Column, ColumnType, TableSchema
from ratchet.core.types import InvalidValuePolicy, arrow_schema
from ratchet.jobs.topology.gaps import begin_after_a_gap
from ratchet.merge.ancestry import LAST_SEQ
from ratchet.merge.delta import plain_session, read_delta
from ratchet.merge.rounds import Merger
from ratchet.merge.side import read_stats
from ratchet.merge.sidestats import read_side_stats
from ratchet.merge.step import MergeOptions
from ratchet.store.anew import standing_of
from ratchet.store.delta.tables import create_mirrored_table, mirrored_schema
from ratchet.store.dumpstates import DumpState
from ratchet.store.files import Lake
from ratchet.store.layout import change_file_path, segment_path
from ratchet.store.rounds import RoundLog
from ratchet.store.schemas import put_schema
from ratchet.store.segments import SegmentPart, object_of
from ratchet.store.tables import Tables, TableState
from tests.model.reference import Life, Place, Register, ended_marks, implied, shown

POLICY = InvalidValuePolicy()
Row = dict[str, Any]
Rank = tuple[int, int, int]

PLAIN = TableSchema(
    keyspace="shop",
    table="t",
    columns=(
        Column(name="id", type=ColumnType(name="bigint"), nullable=False),
        Column(name="v", type=ColumnType(name="varchar", length=40, charset="utf8mb4")),
    ),
    key=("id",),
)


@dataclass
class _Log:
    """One shard's server."""

    uuid: str
    rows: dict[Any, Row] = field(default_factory=dict)
    seq: int = 10
    start: int = 10  # of the next round
    changes: list[dict[str, Any]] = field(default_factory=list)
    events: list[TableEvent] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    said: list[tuple[Place, Register]] = field(default_factory=list)
    mark: tuple[int, int] | None = None
    old: list[dict[str, Any]] = field(default_factory=list)
    life: Life = field(default_factory=Life)


class Source:
    """A table on several shards, its log, and its lake."""

    def __init__(
        self,
        root: Path,
        *,
        schema: TableSchema = PLAIN,
        shards: Sequence[str] = ("-",),
        shard_in_key: bool = False,
    ) -> None:
        self.lake = Lake.at(root)
        self.schema = schema
        self.columns = arrow_schema(schema, POLICY)
        self.names = [f"{schema.keyspace}/{shard}" for shard in shards]
        self.many_shards = len(self.names) > 1
        self.over: dict[str, _Log] = {}
        self._uuids = (f"3e11fa47-71ca-11e1-9e33-c80aa94295{number:02x}" for number in count())
        self.logs = {name: _Log(next(self._uuids)) for name in self.names}
        self.rounds = RoundLog(self.lake)
        self.tables = Tables(self.lake)
        self.shard_in_key = shard_in_key
        self.registers: dict[Place, Register] = {}
        self.marks: dict[str, tuple[int, int]] = {}
        self.clock = 1_000_000
        self.dumped: list[DumpedChunk] = []
        self.copies: tuple[str, ...] = ()  # shards of which rounds say that copies are captured
        self.in_segments = 0.5  # of the change files
        self.segments = random.Random(root.name)

    # --- the servers

    def key(self, row: Row) -> Any:
        found = tuple(row[name] for name in self.schema.key)
        return found[0] if len(found) == 1 else found

    def tx(self, shard: str, *ops: tuple[Any, ...], ts: int | None = None) -> int:
        """A transaction: ("put", row), ("del", key), ("move", key, row), in their order."""
        name = self._name(shard)
        log = self.logs[name]
        log.seq += 1
        self.clock += 1_000_000
        ts = self.clock if ts is None else ts
        log.times.append(ts)
        for idx, (kind, *args) in enumerate(ops):
            before, after = None, None
            if kind == "put":
                (after,) = args
                before = log.rows.get(self.key(after))
            else:
                before = log.rows.pop(args[0])
                after = args[1] if kind == "move" else None
            rank = (log.life.generation, log.seq, idx)
            if before is not None:
                log.said.append(((self.key(before), name), Register(rank, ts, None)))
            if after is not None:
                log.rows[self.key(after)] = after
                log.said.append(((self.key(after), name), Register(rank, ts, freeze(after))))
            op = INSERT if before is None else DELETE if after is None else UPDATE
            token = self._token(name, ts, log.seq, idx, f"{log.uuid}:{log.seq}")
            log.changes.append({"op": op, "token": token, "before": before, "after": after})
        return log.seq

    def event(self, shard: str, statement: str, *, truncate: bool = False) -> int:
        """A statement about the table."""
        name = self._name(shard)
        log = self.logs[name]
        log.seq += 1
        self.clock += 1_000_000
        log.times.append(self.clock)
        if truncate:
            log.rows.clear()
            log.mark = (log.life.generation, log.seq)
        log.events.append(
            TableEvent(
                keyspace=self.schema.keyspace,
                table=self.schema.table,
                shard=name,
                kind="truncate" if truncate else "ddl",
                statement=statement,
                gtid=f"{log.uuid}:{log.seq}",
                seq=log.seq,
                ts=self.clock,
            )
        )
        return log.seq

    def position(self, shard: str, seq: int | None = None) -> Position:
        """The executed set of a shard, or what it was at that seq."""
        log = self.logs[self._name(shard)]
        return Position(executed=GtidSet("mysql", {log.uuid: ((1, seq or log.seq),)}))

    # --- capture

    def round(
        self, *shards: str, schema: TableSchema | None = None, journal: Journal | None = None
    ) -> int:
        """Commit what those shards (all, if none is named) wrote since their last round."""
        number = self.rounds.last_number() + 1
        files, slices, events = [], [], []
        for name in [self._name(s) for s in shards] or self.names:
            log = self.logs[name]
            if log.changes:
                files.append(self._file(number, name, schema or self.schema))
            slices.append(replace(self._slice(name), journal=journal))
            events += log.events
            log.old += log.changes
            log.start, log.changes, log.events, log.times = log.seq, [], [], []
            self._captured(name)
        self.rounds.append(
            Round(
                number=number,
                committed_at=self.clock,
                slices=tuple(slices),
                files=tuple(files),
                events=tuple(events),
                copies=self.copies,
            )
        )
        return number

    def _slice(self, name: str) -> ShardSlice:
        log = self.logs[name]
        run = GtidRange(log.uuid, log.start + 1, log.seq, log.start + 1)
        return ShardSlice(
            shard=name,
            generation=log.life.generation,
            start=self.position(name, log.start),
            end=self.position(name),
            runs=(run,) if log.seq > log.start else (),
            transactions=log.seq - log.start,
            rows=len(log.changes),
            bytes=100,
            min_ts=min(log.times, default=None),
            max_ts=max(log.times, default=None),
            observed_at=self.clock,
            caught_up=True,
        )

    def reshard(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        *,
        owner: Callable[[Any], str],
    ) -> int:
        """The sources' streams end in one round, the targets' begin in the next; gives its number.

        Args:
            sources: the shards that end.
            targets: those that take over.
            owner: which target has the row with that key.
        """
        old, new = [self._name(s) for s in sources], [self._name(s) for s in targets]
        ended = {name: self.logs[name] for name in old}
        begun = self._begun(new, ended, owner)
        ends = {
            n: Position(executed=GtidSet("mysql", {b.uuid: ((1, 10),)})) for n, b in begun.items()
        }
        self.round(*old, journal=Journal(sources=tuple(old), targets=ends))
        self._replace(old, begun)
        slices = [
            replace(self._slice(name), ancestors=self.logs[name].life.ancestors) for name in new
        ]
        number = self.rounds.last_number() + 1
        self.rounds.append(
            Round(
                number=number,
                committed_at=self.clock,
                slices=tuple(slices),
                files=(),
                events=(),
            )
        )
        return number

    def lose(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        *,
        owner: Callable[[Any], str],
    ) -> None:
        """As `reshard`, without a journal: what no round holds of the sources yet is lost.

        With the same names as sources and targets it is a shard that begins anew (jobs.heal).

        The dump of the heirs is begun: go on with `chunk`.
        """
        old, new = [self._name(s) for s in sources], [self._name(s) for s in targets]
        begun = self._begun(new, {name: self.logs[name] for name in old}, owner)
        self._replace(old, begun)
        heirs = []
        for name, log in begun.items():
            life = log.life
            ended = {**life.ancestors, name: life.generation - 1}
            own = {name: life.generation - 1} if name in old else {}
            self.marks |= {one: (generation, LAST_SEQ) for one, generation in ended.items()}
            heirs.append(
                ShardSlice.beginning(
                    name, self.position(name), generation=life.generation, now=self.clock,
                    ancestors={**life.ancestors, **own},
                )
            )  # fmt: skip
        begin_after_a_gap(self.lake, self.rounds, self.schema.keyspace, heirs, now=self.clock)
        self.dumped = []

    def _begun(
        self, names: Sequence[str], ended: Mapping[str, _Log], owner: Callable[[Any], str]
    ) -> dict[str, _Log]:
        """The servers that have taken over, with the rows."""
        begun = {name: _Log(next(self._uuids), life=self._heir(name, ended)) for name in names}
        for log in ended.values():
            for key, row in log.rows.items():
                begun[self._name(owner(key))].rows[key] = row
        return begun

    def _replace(self, old: Sequence[str], begun: Mapping[str, _Log]) -> None:
        self.names = [name for name in self.names if name not in old] + list(begun)
        self.over |= {name: self.logs.pop(name) for name in old}
        self.logs |= begun
        self.many_shards = True

    def _heir(self, name: str, ended: Mapping[str, _Log]) -> Life:
        ancestors: dict[str, int] = {}
        for source, log in ended.items():
            for shard, generation in {**log.life.ancestors, source: log.life.generation}.items():
                ancestors[shard] = max(generation, ancestors.get(shard, generation))
        ancestors.pop(name, None)
        return Life(max(log.life.generation for log in ended.values()) + 1, ancestors)

    def deliver_again(
        self, shard: str, first: int = 0, last: int | None = None, *, of: str | None = None
    ) -> None:
        """Put changes that earlier rounds have held into the next round once more.

        Args:
            shard: in whose file they come.
            first: the first one.
            last: the one behind them; None for all.
            of: a shard that is over whose changes they are; None for `shard` itself.
        """
        log = self.logs[self._name(shard)]
        old = log.old if of is None else self.over[self._name(of)].old
        log.changes = old[first:last] + log.changes

    def _captured(self, name: str) -> None:
        log = self.logs[name]
        for place, register in log.said:
            self._say(place, register)
            for other, tombstone in implied(place, log.life):
                self._say(other, tombstone)
        log.said = []
        if log.mark is not None:
            self.marks[name] = log.mark
        self.marks = ended_marks(self.marks, {n: one.life for n, one in self.logs.items()})

    def _file(self, number: int, name: str, schema: TableSchema) -> ChangeFile:
        changes = self.logs[name].changes
        rows = pa.Table.from_pylist(changes, schema=change_schema(arrow_schema(schema, POLICY)))
        written = pa.BufferOutputStream()
        pq.write_table(rows, written, compression="lz4")
        content = written.getvalue()
        path = self._put(number, name, schema, content)
        seqs = [change["token"]["seq"] for change in changes]
        ops = [change["op"] for change in changes]
        return ChangeFile(
            keyspace=schema.keyspace,
            table=schema.table,
            shard=name,
            schema=schema.fingerprint,
            path=path,
            rows=len(changes),
            bytes=content.size,
            min_seq=min(seqs),
            max_seq=max(seqs),
            inserts=ops.count(INSERT),
            updates=ops.count(UPDATE),
            deletes=ops.count(DELETE),
            misfits={},
        )

    def _put(self, number: int, shard: str, schema: TableSchema, content: pa.Buffer) -> str:
        """A file of its own, or, about as often, between others in a segment."""
        about = {"round_number": number, "shard": shard, "part": 0}
        fingerprint = put_schema(self.lake, schema)
        path = change_file_path(schema.keyspace, schema.table, schema=fingerprint, **about)
        if self.segments.random() < self.in_segments:
            before, behind = (self.segments.randbytes(self.segments.randint(0, 9)) for _ in "ab")
            place = segment_path(schema.keyspace, **about)
            path = str(SegmentPart(place, len(before), content.size))
            content = before + content.to_pybytes() + behind
        with self.lake.open_output(object_of(path)) as out:
            out.write(content)
        return path

    # --- dump

    def dump_begin(self, dump: str = "d1", *, vectors: bool = True, anew: bool = False) -> None:
        """Create the table, note where its dump starts; `anew`: behind what is shown of it."""
        self.dumped = []
        state = TableState(
            standing=standing_of(self.lake, self.state) if anew else None,
            keyspace=self.schema.keyspace,
            table=self.schema.table,
            schema=self.schema,
            key=self.schema.key,
            shard_in_key=self.shard_in_key,
            phase="dumping",
            dump=DumpState(
                id=dump,
                start_round=self.rounds.last_number() + 1,
                start={name: self.position(name) for name in self.names},
            ),
        )
        self.tables.save(state)
        create_mirrored_table(
            self.lake,
            state.path,
            self.columns,
            key=state.key,
            name=state.name,
            now=1,
            deletion_vectors=vectors,
        )

    def chunk(
        self,
        shard: str,
        *,
        floor: Position | None = None,
        only: Callable[[Row], bool] = lambda _: True,
    ) -> None:
        """Read rows as they are now; the floor may be older than the read."""
        name = self._name(shard)
        position = floor or self.position(name)
        number = len(self.dumped)
        rows = [row for row in self.logs[name].rows.values() if only(row)]
        token = self._token(name, self.clock, position.seq, FLOOR_IDX + number, None)
        generation = self.logs[name].life.generation
        for row in rows:
            rank = (generation, position.seq, FLOOR_IDX + number)
            self._say((self.key(row), name), Register(rank, self.clock, freeze(row)))
        full = mirrored_schema(self.columns, table=self.schema.name)
        table = pa.Table.from_pylist([{**row, "_token": token} for row in rows], schema=full)
        dump = self.state.dump
        assert dump is not None
        path = Path(self.lake.absolute(self.state.path)) / f"chunk-{dump.id}-{number}.parquet"
        pq.write_table(table, path)
        self.dumped.append(
            DumpedChunk(
                number=number,
                shard=name,
                generation=generation,
                rows=len(rows),
                read_at=self.clock,
                floor=position,
            )
        )
        record = DumpCommit(
            dump=dump.id,
            number=len(self.dumped),
            chunks=(self.dumped[-1],),
            todo={},
            next_chunk=number + 1,
            rows=0,
            bytes=0,
        )
        DeltaTable(self.lake.delta_uri(self.state.path)).create_write_transaction(
            [
                AddAction(
                    path.name,
                    path.stat().st_size,
                    {},
                    1,
                    True,
                    json.dumps({"numRecords": len(rows)}),
                )
            ],
            "append",
            full,
            commit_properties=CommitProperties(
                custom_metadata={"userMetadata": record.to_text()},
                app_transactions=[Transaction(app_id(dump.id), record.number)],
            ),
        )

    def dump_end(self) -> None:
        """The last chunk is in."""
        state = self.state
        assert state.dump is not None
        end = {name: self.position(name) for name in self.names}
        dump = replace(state.dump, end=end, done=True)
        self.tables.save(replace(state, phase="catching_up", dump=dump))

    def dump_all(self) -> None:
        """A dump of everything, in which nothing happens."""
        self.dump_begin()
        for name in self.names:
            self.chunk(name)
        self.dump_end()

    # --- what must be, and what is

    @property
    def state(self) -> TableState:
        found = self.tables.load(self.schema.keyspace, self.schema.table)
        assert found is not None
        return found

    def expected(self) -> dict[Place, tuple[Rank, Any]]:
        """What the mirror must show once everything is merged."""
        contested = self.many_shards and not self.shard_in_key
        rows = shown(self.registers, self.marks, contested=contested)
        return {place: (row.rank, row.row) for place, row in rows.items()}

    def mirror(self) -> dict[Place, tuple[Rank, Any]]:
        """What it shows."""
        found: dict[Place, tuple[Rank, Any]] = {}
        for row in self.mirror_rows():
            token = row.pop("_token")
            place = (self.key(row), token["shard"])
            assert place not in found, f"{place} twice"
            found[place] = ((token["generation"], token["seq"], token["idx"]), freeze(row))
        return found

    def mirror_rows(self) -> list[Row]:
        """Its rows with tokens."""
        table = DeltaTable(self.lake.delta_uri(self.state.path))
        reader = QueryBuilder().register("t", table).execute("SELECT * FROM t")
        rows: list[Row] = pa.table(reader.read_all()).to_pylist()
        return rows

    def assert_mirrored(self) -> None:
        """The mirror is what it must be: rows, shards and ranks."""
        expected, found = self.expected(), self.mirror()
        wrong = {
            p: (expected.get(p), found.get(p))
            for p in {*expected, *found}
            if expected.get(p) != found.get(p)
        }
        assert not wrong, f"{len(wrong)} wrong: {dict(sorted(wrong.items(), key=str)[:5])}"

    def assert_rows(self) -> None:
        """The mirror has the rows that the servers have, whatever shards it has them from."""
        servers = [freeze(row) for log in self.logs.values() for row in log.rows.values()]
        assert sorted(row for _, row in self.mirror().values()) == sorted(servers)

    def _say(self, place: Place, register: Register) -> None:
        old = self.registers.get(place)
        # An update says twice of one key, with one rank: gone, and then there.
        if old is None or old.rank < register.rank or (old.rank == register.rank and not old.row):
            self.registers[place] = register

    def _name(self, shard: str) -> str:
        return shard if shard in self.names else f"{self.schema.keyspace}/{shard}"

    def _token(self, name: str, ts: int, seq: int, idx: int, gtid: str | None) -> Mapping[str, Any]:
        generation = self.logs[name].life.generation
        return {
            "ts": ts, "shard": name, "gtid": gtid, "generation": generation, "seq": seq, "idx": idx
        }  # fmt: skip


def freeze(row: Row) -> tuple[tuple[str, Any], ...]:
    """A row as a value that compares."""
    return tuple(sorted(row.items()))


# Whether small batches may be merged without Spark; a test of both ways sets it.
DIRECT = ContextVar("DIRECT", default=True)


def merger(spark: Any, source: Source, **options: Any) -> Merger:
    """A Merger of the source's lake with a clock of the source's."""
    chosen = {"direct": DIRECT.get(), **options}
    return Merger(
        spark, source.lake, MergeOptions(policy=POLICY, **chosen), clock=lambda: source.clock
    )


def assert_side_stats(spark: Any, source: Source) -> None:
    """What is read of the side table without Spark is what Spark says."""
    path = source.state.side_path
    session = plain_session(spark)
    told = read_stats(session, read_delta(session, source.lake.hadoop_uri(path)))
    assert read_side_stats(source.lake, path) == told


def dump_beside_changes(
    source: Source,
    rng: random.Random,
    write: Callable[[int], None],
    parts: Sequence[Callable[[dict[str, Any]], bool]],
) -> None:
    """A dump in chunks, with changes before and behind each, and rounds of some shards between.

    Args:
        source: what is dumped.
        rng: chooses the rounds' shards.
        write: commits so many transactions.
        parts: which rows are a chunk's, of each shard.
    """
    shards = [name.partition("/")[2] for name in source.names]
    source.round()
    source.dump_begin()
    for part in parts:
        for shard in shards:
            floor = source.position(shard)
            write(2)
            source.chunk(shard, floor=floor, only=part)
            write(2)
            source.round(*rng.sample(shards, rng.randint(1, len(shards))))
    source.dump_end()
    source.round()
