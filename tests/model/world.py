"""Sources for the model: each shard's transactions, its rows at every moment, its chunks.

The rows at a moment are computed by executing the statements, with no rank in it: that is the
oracle. Tokens, positions and floors are made with the real `core`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from ratchet.core.change import FLOOR_IDX
from ratchet.core.floor import join_runs, resolve_floor
from ratchet.core.gtid import Gtid, GtidSet
from ratchet.core.position import Position
from ratchet.core.rounds import GtidRange
from ratchet.core.shard import ShardId
from ratchet.core.token import Coordinates, EventToken, Rank
from tests.model.reference import (
    Batch,
    Key,
    Life,
    Mark,
    Place,
    Register,
    implied,
    join,
    reduced,
)

ORIGINS = ("3e11fa47-71ca-11e1-9e33-c80aa9429562", "3e11fa47-71ca-11e1-9e33-c80aa9429563")
BASE = GtidSet("mysql", {ORIGINS[0]: ((1, 4),)})  # executed before the mirror began

Rows = Mapping[Key, str]


class Change(NamedTuple):
    """One row's change: `old` None inserts, `new` None deletes, two different keys move the row."""

    old: Key | None
    new: Key | None
    value: str = ""


@dataclass(frozen=True)
class Tx:
    """A transaction: row changes, or a TRUNCATE if there are none.

    Attributes:
        at: commit time as the log has it.
        changes: in their order.
        origin: which server wrote it first, 0 or 1.
    """

    at: int
    changes: tuple[Change, ...] = ()
    origin: int = 0


@dataclass(frozen=True)
class Log:
    """One shard: what it held at first, its transactions, and the order a replica ran them in.

    Attributes:
        shard: its name.
        base: the rows before the first transaction.
        transactions: in the order of the stream.
        replica: the order in which the server that the dump reads executed them; empty: the same.
        life: its generation, and what it descends from.
    """

    shard: str
    base: Rows
    transactions: tuple[Tx, ...]
    replica: tuple[int, ...] = ()
    life: Life = field(default_factory=Life)

    @cached_property
    def clock(self) -> list[int]:
        """The server's clock at each moment: later than every commit before it."""
        times = [tx.at for tx in self.transactions]
        return [max(times[:n], default=0) + 5 for n in range(len(times) + 1)]

    @cached_property
    def gtids(self) -> list[Gtid]:
        """Of the transactions, in the order of the stream."""
        numbers = [4, 0]
        found = []
        for tx in self.transactions:
            numbers[tx.origin] += 1
            found.append(Gtid(ORIGINS[tx.origin], numbers[tx.origin]))
        return found

    @cached_property
    def executed(self) -> list[GtidSet]:
        """The stream's set after each number of transactions."""
        return _growing(self.gtids)

    @cached_property
    def runs(self) -> Sequence[GtidRange]:
        """As the round log has them."""
        return join_runs(
            GtidRange(g.origin, g.number, g.number, after.cardinality)
            for g, after in zip(self.gtids, self.executed[1:], strict=True)
        )

    @cached_property
    def rows(self) -> list[Rows]:
        """The shard's rows after each number of transactions of the stream."""
        return _histories(self.base, self.transactions)

    @cached_property
    def read(self) -> list[Rows]:
        """What the dump's server holds after each number of transactions that it executed."""
        return _histories(self.base, [self.transactions[i] for i in self._replica])

    @cached_property
    def floors(self) -> list[GtidSet]:
        """The dump's server's set after each number of transactions that it executed."""
        return _growing([self.gtids[i] for i in self._replica])

    @cached_property
    def resolved(self) -> list[int]:
        """For each of the floors the `seq` that the real code finds for it."""
        start = Position(executed=BASE)
        return [resolve_floor(floor, start, self.runs) for floor in self.floors]

    @cached_property
    def holding(self) -> list[int]:
        """For each moment of the dump's server the first one of the stream that contains it."""
        return [
            next(n for n, executed in enumerate(self.executed) if executed.contains_all(floor))
            for floor in self.floors
        ]

    @property
    def _replica(self) -> tuple[int, ...]:
        return self.replica or tuple(range(len(self.transactions)))

    def token(self, number: int, idx: int) -> EventToken:
        """Of the idx-th change of transaction `number` (from 0)."""
        at = self._coordinates(self.executed[number + 1], idx, self.gtids[number])
        return EventToken(ts=self.transactions[number].at, at=at)

    def floor_token(self, floor: int, moment: int, chunk: int) -> EventToken:
        """Of the rows of a chunk that was read at `moment` with that floor."""
        at = self._coordinates(self.floors[floor], FLOOR_IDX + chunk, None)
        return EventToken(ts=self.clock[moment], at=at)

    def _coordinates(self, position: GtidSet, idx: int, gtid: Gtid | None) -> Coordinates:
        rank = Rank(generation=self.life.generation, seq=position.cardinality, idx=idx)
        shard = ShardId("shop", self.shard)
        return Coordinates(shard=shard, rank=rank, gtid=gtid, position=position)

    @cached_property
    def registers(self) -> list[list[tuple[Place, Register]]]:
        """What each transaction says of keys, change by change, and what that implies."""
        return [
            [
                said
                for idx, change in enumerate(tx.changes)
                for place, row in _said(change, self.shard)
                for said in (
                    (place, Register.of(self.token(number, idx), row)),
                    *implied(place, self.life),
                )
            ]
            for number, tx in enumerate(self.transactions)
        ]

    def batch(self, first: int, last: int) -> Batch:
        """The reduced transactions `first` up to, not including, `last`."""
        numbers = range(first, last)
        gone = [n for n in numbers if not self.transactions[n].changes]
        marks: dict[str, Mark] = {}
        if gone:
            marks[self.shard] = (self.life.generation, self.executed[gone[-1] + 1].cardinality)
        return reduced([said for n in numbers for said in self.registers[n]], marks)

    def chunk(self, keys: Sequence[Key], floor: int, moment: int, number: int) -> Batch:
        """The rows with those keys as a chunk brings them."""
        token = self.floor_token(floor, moment, number)
        rows = self.read[moment]
        return Batch({(k, self.shard): Register.of(token, rows[k]) for k in keys if k in rows})


@dataclass(frozen=True)
class World:
    """Several shards that one table mirrors, and what is asked of the mirror.

    Attributes:
        name: for messages.
        logs: the shards.
        chunks: which keys of which shard are read together.
        contested: whether only one shard's row of a key is shown (`key: primary`).
        causal: the order of all transactions as shard numbers; empty: not looked at.
    """

    name: str
    logs: tuple[Log, ...]
    chunks: tuple[tuple[int, tuple[Key, ...]], ...]
    contested: bool = False
    causal: tuple[int, ...] = field(default=())

    @cached_property
    def ancestors(self) -> list[list[int]]:
        """Of each log those that it descends from."""
        return [
            [
                number
                for number, other in enumerate(self.logs)
                if other.life.generation <= log.life.ancestors.get(other.shard, -1)
                or (other.shard == log.shard and other.life.generation < log.life.generation)
            ]
            for log in self.logs
        ]

    @cached_property
    def reshards(self) -> bool:
        """Whether any log descends from another."""
        return any(self.ancestors)

    def begun(self, log: int, ends: Sequence[int]) -> bool:
        """Whether all that it descends from has ended at those positions."""
        return all(ends[n] == len(self.logs[n].transactions) for n in self.ancestors[log])

    def live(self, ends: Sequence[int]) -> list[int]:
        """The logs that have begun at those positions and are not over."""
        if not self.reshards:
            return list(range(len(self.logs)))
        begun = [log for log in range(len(self.logs)) if self.begun(log, ends)]
        over = {ancestor for log in begun for ancestor in self.ancestors[log]}
        return [log for log in begun if log not in over]

    def leads(self, start: Sequence[int], end: Sequence[int]) -> bool:
        """Whether a step may do that: none holds changes of a stream and of its ancestors."""
        if not self.reshards:
            return True
        moved = [log for log in range(len(self.logs)) if end[log] > start[log]]
        return all(self.begun(log, start) for log in moved)

    @cached_property
    def prefixes(self) -> list[tuple[int, ...]]:
        """The positions at which every shard stands at the same moment of the causal order."""
        ends = [0] * len(self.logs)
        found = [tuple(ends)]
        for shard in self.causal:
            ends[shard] += 1
            found.append(tuple(ends))
        return found

    @cached_property
    def written(self) -> dict[str, int]:
        """Of each value its place in the causal order. No value is written twice."""
        found = {value: -1 for log in self.logs for value in log.base.values()}
        ends = [0] * len(self.logs)
        for moment, shard in enumerate(self.causal):
            for change in self.logs[shard].transactions[ends[shard]].changes:
                if change.new is not None:
                    found[change.value] = moment
            ends[shard] += 1
        return found

    def batch(self, start: Sequence[int], end: Sequence[int]) -> Batch:
        """All shards' transactions between two positions."""
        parts = [log.batch(a, b) for log, a, b in zip(self.logs, start, end, strict=True)]
        marks = {shard: mark for part in parts for shard, mark in part.marks.items()}
        live = [self.logs[number] for number in self.live(start)] if self.reshards else []
        lives = {log.shard: log.life for log in live}
        return Batch(join(*(part.registers for part in parts)), marks, lives)


def _said(change: Change, shard: str) -> list[tuple[Place, str | None]]:
    said: list[tuple[Place, str | None]] = []
    if change.old is not None and change.old != change.new:
        said.append(((change.old, shard), None))
    if change.new is not None:
        said.append(((change.new, shard), change.value))
    return said


def _growing(gtids: Sequence[Gtid]) -> list[GtidSet]:
    sets = [BASE]
    for gtid in gtids:
        sets.append(sets[-1].with_interval(gtid.origin, gtid.number, gtid.number))
    return sets


def _histories(base: Rows, transactions: Sequence[Tx]) -> list[Rows]:
    moments: list[Rows] = [base]
    for tx in transactions:
        rows = dict(moments[-1])
        if not tx.changes:
            rows.clear()
        for change in tx.changes:
            if change.old is not None:
                del rows[change.old]  # fails if a scenario changes a row that is not there
            if change.new is not None:
                assert change.new not in rows, "a scenario inserts a key twice"
                rows[change.new] = change.value
        moments.append(rows)
    return moments
