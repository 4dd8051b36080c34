"""The round log: which rounds are committed, and where every shard stands.

One Delta table, one row per round, written by `deltalake` (milliseconds, no Spark). Its commit is
the moment a round exists. Invariant: rounds are numbered from 1 without holes; two writers never
both commit the same number.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from core.errors import LakeError
from core.position import Position
from core.rounds import Round
from store import layout
from store.delta_log import DeltaLogTable, microseconds
from store.files import Lake

APP_ID: Final = "ratchet.rounds"
_COMPACT_EVERY: Final = 100

_SCHEMA: Final = pa.schema(
    [
        pa.field("round", pa.int64(), nullable=False),
        pa.field("committed_at", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("rows", pa.int64(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("min_ts", pa.timestamp("us", tz="UTC")),
        pa.field("max_ts", pa.timestamp("us", tz="UTC")),
        pa.field("positions", pa.string(), nullable=False),
        pa.field("record", pa.string(), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True)
class _Last:
    round: Round
    positions: dict[str, Position]


class RoundLog:
    """The committed rounds of one lake. Not shared between threads."""

    def __init__(self, lake: Lake) -> None:
        self._table = DeltaLogTable(lake, layout.ROUNDS, _SCHEMA)
        self._last: _Last | None = None

    def last(self) -> Round | None:
        """The newest committed round, also if another process wrote it."""
        found = self._read_last()
        return found.round if found else None

    def last_number(self) -> int:
        """Its number; 0 if there is none."""
        return self._table.version_of(APP_ID)

    def positions(self) -> dict[str, Position]:
        """Shard -> the end of the newest slice taken from it, over all rounds that ever were."""
        found = self._read_last()
        return dict(found.positions) if found else {}

    def positions_at(self, number: int) -> dict[str, Position]:
        """As `positions`, when that round was committed.

        Raises:
            LakeError: the round has been pruned.
        """
        last = self._read_last()
        if last is not None and last.round.number == number:
            return dict(last.positions)
        rows = self._table.read(columns=["positions"], where=pc.field("round") == number)
        if not rows:
            raise LakeError(
                f"round {number} is not in the log",
                operation="read the round log",
                hint="it was pruned: ask for a newer round",
            )
        return _positions(rows[0]["positions"])

    def since(self, number: int) -> list[Round]:
        """The rounds with numbers above `number`, in order.

        Raises:
            LakeError: some of them have been pruned.
        """
        last = self.last_number()
        if number >= last:
            return []
        if self._last is not None and number == last - 1 and self._last.round.number == last:
            return [self._last.round]
        rounds = [_round(row["record"]) for row in self._rows(number)]
        if [r.number for r in rounds] != list(range(number + 1, last + 1)):
            raise LakeError(
                f"rounds {number + 1} to {last} are needed, but the log has {len(rounds)} of them",
                operation="read the round log",
                hint="they were pruned before every table had merged them: dump those tables again "
                "(`ratchet dump CONFIG --again TABLE`)",
            )
        return rounds

    def earliest_above(self, number: int) -> int | None:
        """The earliest commit time in rounds above `number`; microseconds UTC, None if none."""
        if number >= self.last_number():
            return None
        rows = self._table.read(columns=["min_ts"], where=pc.field("round") > number)
        times = [row["min_ts"] for row in rows if row["min_ts"] is not None]
        return min((microseconds(time) for time in times), default=None)

    def first_number(self) -> int:
        """The oldest round still in the log; 0 if there is none."""
        rows = self._table.read(columns=["round"])
        return min((int(row["round"]) for row in rows), default=0)

    def append(self, value: Round) -> None:
        """Commit a round.

        Raises:
            LakeError: its number is not the next one, or another process has just written it.
        """
        before = self._read_last()
        expected = before.round.number + 1 if before else 1
        if value.number != expected:
            raise LakeError(
                f"round {value.number} cannot follow round {expected - 1}",
                operation="commit a round",
                hint="another `ratchet` is writing to this lake: stop one of them",
            )
        positions = dict(before.positions) if before else {}
        positions.update({s.shard: s.end for s in value.slices})
        self._table.append(
            pa.Table.from_pylist([_row(value, positions)], schema=_SCHEMA),
            app_id=APP_ID,
            version=value.number,
            operation=f"commit round {value.number}",
        )
        self._last = _Last(value, positions)
        if value.number % _COMPACT_EVERY == 0:
            self._table.compact()

    def prune(self, before_round: int) -> None:
        """Forget the rounds below `before_round`; the newest one always stays."""
        keep_from = min(before_round, self.last_number())
        self._table.delete_below("round", keep_from)

    def _read_last(self) -> _Last | None:
        number = self.last_number()
        if number == 0:
            return None
        if self._last is None or self._last.round.number != number:
            row = self._rows(number - 1)[-1]
            self._last = _Last(_round(row["record"]), _positions(row["positions"]))
        return self._last

    def _rows(self, above: int) -> list[dict[str, Any]]:
        found = self._table.read(
            columns=["round", "positions", "record"], where=pc.field("round") > above
        )
        return sorted(found, key=lambda row: int(row["round"]))


def _positions(text: str) -> dict[str, Position]:
    return {shard: Position.from_json(data) for shard, data in json.loads(text).items()}


def _round(text: str) -> Round:
    return Round.from_json(json.loads(text))


def _row(value: Round, positions: dict[str, Position]) -> dict[str, Any]:
    earliest = [s.min_ts for s in value.slices if s.min_ts is not None]
    latest = [s.max_ts for s in value.slices if s.max_ts is not None]
    return {
        "round": value.number,
        "committed_at": value.committed_at,
        "rows": sum(f.rows for f in value.files),
        "bytes": sum(f.bytes for f in value.files),
        "min_ts": min(earliest, default=None),
        "max_ts": max(latest, default=None),
        "positions": json.dumps({s: p.to_json() for s, p in positions.items()}, sort_keys=True),
        "record": json.dumps(value.to_json()),
    }
