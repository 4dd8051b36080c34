"""The cuts: at which Delta versions all tables together show one moment of every shard.

One row per cut, written after all tables were merged to the same round. `as-of` reads nothing else.
Invariant: cuts are numbered from 1 without holes; along them rounds only grow, and so does the
position of a shard within a generation of its stream. Two cuts may have the same round: when a
table ends its dump while nothing new was captured.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from ratchet.core.errors import DecodeError, LakeError
from ratchet.core.gtid import parse_gtid
from ratchet.core.position import Position
from ratchet.store import layout
from ratchet.store.delta.appendlog import DeltaLogTable, NumberRange, microseconds
from ratchet.store.failures import sound
from ratchet.store.files import Lake

APP_ID: Final = "ratchet.cuts"
_COMPACT_EVERY: Final = 100
_KEPT: Final = 256  # cuts in memory, of those that were asked for

_SCHEMA: Final = pa.schema(
    [
        pa.field("cut", pa.int64(), nullable=False),
        pa.field("round", pa.int64(), nullable=False),
        pa.field("merged_at", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("latest", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("record", pa.string(), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CutShard:
    """One shard in a cut.

    Attributes:
        position: every transaction in it is in the tables, and no other.
        min_ts: earliest commit time among what this cut added, microseconds UTC; None if nothing.
        max_ts: latest commit time among what this cut added.
        latest_ts: no transaction in the position was committed later, by the shard's clock; where
            nothing was captured yet, when capture first looked.
        observed_at: capture's clock when it had read up to the position.
        generation: lineage generation of the stream: along one, positions only grow.
    """

    position: Position
    min_ts: int | None
    max_ts: int | None
    latest_ts: int
    observed_at: int
    generation: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """One cut over all tables.

    Attributes:
        number: from 1, without holes.
        round: all rounds up to this one are in the tables.
        merged_at: the merging driver's clock, microseconds UTC.
        shards: shard -> where it stands.
        tables: "keyspace.table" -> Delta version; tables that are not dumped yet are missing.
        stopped: those of them that stopped earlier and no longer belong to the moment.
    """

    number: int
    round: int
    merged_at: int
    shards: dict[str, CutShard]
    tables: dict[str, int]
    stopped: tuple[str, ...] = ()

    def shows(self, table: str) -> bool:
        """Whether a table (keyspace.table) is in it as of its moment: it had not stopped."""
        return table in self.tables and table not in self.stopped

    @property
    def latest_ts(self) -> int:
        """Nothing in the cut was committed later than this, by any shard's clock."""
        return max((shard.latest_ts for shard in self.shards.values()), default=self.merged_at)

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        shards = {
            name: {
                "position": shard.position.to_json(),
                "min_ts": shard.min_ts,
                "max_ts": shard.max_ts,
                "latest_ts": shard.latest_ts,
                "observed_at": shard.observed_at,
                "generation": shard.generation,
            }
            for name, shard in self.shards.items()
        }
        return {
            "number": self.number,
            "round": self.round,
            "merged_at": self.merged_at,
            "shards": shards,
            "tables": self.tables,
            "stopped": list(self.stopped),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Cut:
        """Read what `to_json` wrote."""
        shards = {
            name: CutShard(**{**shard, "position": Position.from_json(shard["position"])})
            for name, shard in data["shards"].items()
        }
        return cls(**{**data, "shards": shards, "stopped": tuple(data["stopped"])})


class Cuts:
    """The cuts of one lake. Not shared between threads."""

    def __init__(self, lake: Lake) -> None:
        self._table = DeltaLogTable(lake, layout.CUTS, _SCHEMA)
        self._last: Cut | None = None
        self._read: dict[int, Cut] = {}  # a cut never changes

    def last(self) -> Cut | None:
        """The newest cut, also if another process wrote it."""
        number = self._table.version_of(APP_ID)
        if number == 0:
            return None
        if self._last is None or self._last.number != number:
            self._last = self._get(number)
        return self._last

    def append(self, cut: Cut) -> None:
        """Commit a cut.

        Raises:
            LakeError: its number is not the next one, or another process has just written it.
        """
        before = self.last()
        expected = before.number + 1 if before else 1
        if cut.number != expected:
            self._table.refuse_late("commit a cut")
            raise LakeError(
                f"cut {cut.number} cannot follow cut {expected - 1}",
                operation="commit a cut",
                hint="another `ratchet` is merging in this lake: stop one of them",
            )
        row = {
            "cut": cut.number,
            "round": cut.round,
            "merged_at": cut.merged_at,
            "latest": cut.latest_ts,
            "record": json.dumps(cut.to_json(), sort_keys=True),
        }
        self._table.append(
            pa.Table.from_pylist([row], schema=_SCHEMA),
            app_id=APP_ID,
            version=cut.number,
            operation=f"commit cut {cut.number}",
        )
        self._last = cut
        if cut.number % _COMPACT_EVERY == 0:
            self._table.compact()

    def fence(self) -> None:
        """Refuse cuts of epochs before the lake's from here on.

        Raises:
            LateError: a later epoch stands here.
        """
        self._table.fence()

    def at_round(self, number: int) -> Cut | None:
        """The newest cut that holds no round above `number`; None if there is none."""
        return self._newest(lambda row: bool(row["round"] <= number))

    def at_time(self, moment: int) -> Cut | None:
        """The newest cut in which nothing was committed after `moment`.

        By each shard's own clock (`CutShard.latest_ts`), so clocks that differ by some
        milliseconds make the answer uncertain by as much. What was committed before the moment
        but captured later than the cut is not in it: a mirror lags. None if every cut that is
        left holds something later.

        Args:
            moment: microseconds UTC.
        """
        return self._newest(lambda row: bool(microseconds(row["latest"]) <= moment))

    def holding_gtid(self, gtid: str) -> Cut | None:
        """The first cut that holds that transaction, whichever shard it is from; None if none does.

        If it was there before the first cut that is left, that one. Where a server's history was
        reset a name may stand for several transactions: then it is the newest one's.

        Raises:
            DecodeError: it is no GTID in the notation of any shard's server.
        """
        numbers = sorted(int(row["cut"]) for row in self._overview())
        end = len(numbers)
        while end:
            newest = self._get(numbers[end - 1])
            begins = {name: self._begin(numbers[:end], name) for name in newest.shards}
            found = [
                self._first(numbers[:end], begins[name], _HoldsIn(name, gtid))
                for name in _holding(newest, gtid)
            ]
            if found:
                return self._get(numbers[min(found)])
            # Before the newest of these streams began its shard may have had another life.
            end = max(begins.values(), default=0)
        return None

    def first_since(self, moment: int) -> Cut | None:
        """The oldest cut merged at or after `moment`, microseconds UTC."""
        self._table.version_of(APP_ID)  # looks for new commits
        number = self._table.first_since("cut", "merged_at", moment)
        return None if number is None else self._get(number)

    def prune(self, before: int) -> None:
        """Forget the cuts numbered below `before`; the newest one always stays."""
        self._table.delete_below("cut", min(before, self._table.version_of(APP_ID)))

    def _begin(self, numbers: Sequence[int], name: str) -> int:
        """The first of these cuts with a shard in the generation that it has in the last of them.

        A generation is one history: its names stand for one transaction each, and its positions
        only grow. What is before a new beginning may be of another (a server that was reset).
        """
        last = self._get(numbers[-1]).shards[name]
        return self._first(numbers, 0, _LivesIn(name, last.generation))

    def _first(self, numbers: Sequence[int], begin: int, accept: Callable[[Cut], bool]) -> int:
        """The first of these cuts, from `begin` on, that is accepted as are all behind it."""
        return begin + bisect_left(
            range(begin, len(numbers) - 1), True, key=lambda at: accept(self._get(numbers[at]))
        )

    def _newest(self, accept: Callable[[dict[str, Any]], bool]) -> Cut | None:
        numbers = [int(row["cut"]) for row in self._overview() if accept(row)]
        return self._get(max(numbers)) if numbers else None

    def _overview(self) -> list[dict[str, Any]]:
        self._table.version_of(APP_ID)  # looks for new commits
        return self._table.read(columns=["cut", "round", "merged_at", "latest"])

    def _get(self, number: int) -> Cut:
        if number not in self._read:
            rows = self._table.read(columns=["record"], where=NumberRange("cut", number, number))
            if len(self._read) >= _KEPT:
                self._read.clear()
            self._read[number] = _cut(number, rows)
        return self._read[number]


def _cut(number: int, rows: Sequence[Mapping[str, Any]]) -> Cut:
    """The cut of that number, by the rows that the log has of it."""
    with sound(f"{layout.CUTS}/ (the record of a cut)"):
        if len(rows) != 1:
            raise DecodeError(f"the log has {len(rows)} of cut {number}")
        found = Cut.from_json(json.loads(rows[0]["record"]))
        if found.number != number:
            raise DecodeError(f"it is that of cut {found.number}, in the row of {number}")
        return found


@dataclass(frozen=True, slots=True)
class _LivesIn:
    """Whether a cut has a shard in that generation."""

    name: str
    generation: int

    def __call__(self, cut: Cut) -> bool:
        shard = cut.shards.get(self.name)
        return shard is not None and shard.generation == self.generation


@dataclass(frozen=True, slots=True)
class _HoldsIn:
    """Whether a cut holds a transaction in a shard's position."""

    name: str
    gtid: str

    def __call__(self, cut: Cut) -> bool:
        return self.name in _holding(cut, self.gtid)


def _holding(cut: Cut, gtid: str) -> list[str]:
    """The shards whose positions hold a transaction.

    Raises:
        DecodeError: no shard's server writes GTIDs like this one.
    """
    understood, found = False, []
    for shard_name, shard in cut.shards.items():
        executed = shard.position.executed
        try:
            name = parse_gtid(executed.flavor, gtid)
        except DecodeError:
            continue
        understood = True
        if executed.contains(name):
            found.append(shard_name)
    if not understood:
        raise DecodeError(
            f"{gtid!r} is no GTID as any of the mirrored servers writes them",
            operation="find a transaction's cut",
            hint="MySQL: UUID:number; MariaDB: domain-server-number; "
            "without GTIDs: binlog file:end offset",
        )
    return found
