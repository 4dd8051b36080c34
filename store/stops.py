"""Why a table stopped, or is in doubt, as its state has it.

Lives here: the reasons, the change of shape behind one, and what is left to do. Does not live here:
the table's state (`tables`), who finds a reason (`merge`, `jobs.run`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from ratchet.core.position import Position
from ratchet.core.rounds import StatementTime

_THEN: Final = "; then "
_FIRST: Final = 150  # characters that are kept of the first of several statements


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRecovery:
    """A table of which some rows are being read again, because a server has lost what changed them.

    Attributes:
        round: the one in which the streams of those shards begin anew; all before is merged.
        parted: shard -> the last round whose end its server still has.
    """

    round: int
    parted: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeChange:
    """Where and how a table's columns changed, while all of before is merged and nothing behind.

    What it does to the rows may be computed from those that the mirror has (`merge.remake`).

    Of a table of several shards it is the statement on one of them. The others are merged up to
    theirs once all have come to it.

    Attributes:
        shard: on which it was made.
        position: its transactions up to there are those that are merged; the change is inside.
        round: the round in which it stands.
        statement: the ALTER TABLE as logged; empty: what changed is told by `shape` alone.
        shape: fingerprint of the shape that the row events have from there on; empty: see above.
        mark: generation and `seq` of the statement: nothing of the shard is merged from there on;
            None: the table is mirrored from this shard alone.
        others: the same of further shards, in the order in which they came to it.
        time: when the statement began, if it speaks of the time; None: nothing tells.
    """

    shard: str
    position: Position
    round: int
    statement: str = ""
    shape: str = ""
    mark: tuple[int, int] | None = None
    others: tuple[ShapeChange, ...] = ()
    time: StatementTime | None = None

    @property
    def every(self) -> tuple[ShapeChange, ...]:
        """This one and the others."""
        return (self, *self.others)

    @property
    def positions(self) -> dict[str, Position]:
        """Where the shards stand that have come to it."""
        return {one.shard: one.position for one in self.every}

    @property
    def first_round(self) -> int:
        """The first round with changes that the table lacks."""
        return min(one.round for one in self.every)

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values; `from_json` reads it back."""
        return {
            "shard": self.shard,
            "position": self.position.to_json(),
            "round": self.round,
            "statement": self.statement,
            "shape": self.shape,
            # Earlier versions know changes of one shard only.
            **({} if self.mark is None else {"mark": self.mark}),
            **({} if self.time is None else {"time": self.time.to_json()}),
            **({"others": [one.to_json() for one in self.others]} if self.others else {}),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> ShapeChange:
        """Read what `to_json` wrote."""
        read = {**data, "position": Position.from_json(data["position"])}
        if "mark" in data:
            generation, seq = data["mark"]
            read["mark"] = int(generation), int(seq)
        if "time" in data:
            read["time"] = StatementTime(*data["time"])
        read["others"] = tuple(map(cls.from_json, data.get("others", ())))
        return cls(**read)


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReason:
    """Why a table stopped.

    Attributes:
        message: one sentence.
        hint: the remedy.
        round: the round in which it happened; rounds below it are merged.
        healing: what is left to do, of a table that `ratchet heal` lets go on.
        differs: whether its rows were found to differ from the source, and nothing else is wrong:
            `ratchet repair` lets it go on. Its doubts stay, so it does not count as right before.
        altered: whether a statement or another shape stopped it, which a new dump takes in.
    """

    message: str
    hint: str
    round: int
    healing: RowRecovery | None = None
    differs: bool = False
    altered: bool = False

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> StopReason:
        """Read what `asdict` made."""
        healing = data.get("healing")
        return cls(**{**data, "healing": None if healing is None else RowRecovery(**healing)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """Why a table counts as right again only when it has been compared with its source.

    Attributes:
        message: one sentence: what happened.
        statement: the statement as logged, cut; empty if it was none.
        round: the round in which it happened: a comparison at this round or behind it decides.
        by_shape: whether the columns' types behind the statement can take the doubt away without
            a look at the rows (merge.ddl.unproven).
        rebuilt: whether all that happened is that its rows may have been written anew: they are as
            they were unless a STORED column is computed otherwise in another session.
    """

    message: str
    statement: str
    round: int
    by_shape: bool = False
    rebuilt: bool = False

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Doubt:
        """Read what `asdict` made; earlier versions kept whether rows may differ as well."""
        return cls(**{name: value for name, value in data.items() if name != "expected"})

    def behind(self, before: Doubt | None) -> Doubt:
        """This doubt of a table that was in doubt before: both are to be settled."""
        if before is None:
            return self
        message, statement = self.message, self.statement
        if before.statement not in {"", statement}:
            message = message if before.by_shape else before.message
            # The first may be the one that changed rows.
            first = before.statement.partition(_THEN)[0]
            statement = f"{first[:_FIRST]}{_THEN}{statement}" if statement else before.statement
        return Doubt(
            message=message,
            statement=statement,
            round=max(self.round, before.round),
            by_shape=self.by_shape and before.by_shape,
            rebuilt=self.rebuilt and before.rebuilt,
        )
