"""A table's dump, as its state has it.

Lives here: `DumpState` and what it leaves in the table. Does not live here: the table's state
(`tables`), the chunks of a dump (`snapshot.ledger`).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from ratchet.core.position import Position


@dataclass(frozen=True, slots=True, kw_only=True)
class RetainedRows:
    """What a dump leaves in its table: the rows of shards that it does not read.

    Attributes:
        names: those shards and all that they descend from; rows stand under any of these names.
        dump: id of the dump before, whose side table has their hidden rows.
        since: the round from which on the table's rows are from streams that are known: the first
            one of the dump before, or of the one that it kept rows of.
    """

    names: tuple[str, ...]
    dump: str
    since: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpState:
    """A table's dump.

    Attributes:
        id: unique; names the dump in the Delta commits of its chunks.
        start_round: the first round that may hold changes the chunks lack.
        start: shard -> a position that every chunk is sure to contain; of shards that are not read,
            the one that their rows stand at.
        end: shard -> a position that contains everything any chunk may have seen; None until the
            last chunk has been read.
        done: whether every chunk is committed.
        shaped: shard -> a position whose statements on the table itself are in its shape and in
            every chunk, though rows of before may not be; only where that is behind `start`.
        kept: the rows that were left in the table; None: it was emptied.
        made: shard -> server id and CREATE_TIME there when it began; of an earlier version nothing.
        computed: whether its rows come from those that the mirror had, not from the source.
        known_from: of one that is computed: the first round of the dump that was read; None: an
            earlier version did not note it.
    """

    id: str
    start_round: int
    start: dict[str, Position]
    end: dict[str, Position] | None = None
    done: bool = False
    shaped: dict[str, Position] = field(default_factory=dict)
    kept: RetainedRows | None = None
    made: dict[str, str] = field(default_factory=dict)
    computed: bool = False
    known_from: int | None = None

    @property
    def followed_from(self) -> int | None:
        """The round from which on all statements about the table are in the log; None: unknown."""
        return self.known_from if self.computed else self.start_round

    @property
    def read(self) -> tuple[str, ...]:
        """The shards that are dumped."""
        kept = () if self.kept is None else self.kept.names
        return tuple(shard for shard in self.start if shard not in kept)

    @property
    def since(self) -> int:
        """The first round of the dump that the oldest rows may be of."""
        return self.start_round if self.kept is None else self.kept.since

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {
            "id": self.id,
            "start_round": self.start_round,
            "start": _positions_to_json(self.start),
            "end": None if self.end is None else _positions_to_json(self.end),
            "done": self.done,
            "shaped": _positions_to_json(self.shaped),
            "kept": None if self.kept is None else asdict(self.kept),
            "made": self.made,
            "computed": self.computed,
            **({} if self.known_from is None else {"known_from": self.known_from}),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> DumpState:
        """Read what `to_json` wrote."""
        end, kept = data["end"], data.get("kept")
        return cls(
            id=data["id"],
            start_round=data["start_round"],
            start=_positions_from_json(data["start"]),
            end=None if end is None else _positions_from_json(end),
            done=data["done"],
            shaped=_positions_from_json(data.get("shaped", {})),
            kept=None if kept is None else RetainedRows(**{**kept, "names": tuple(kept["names"])}),
            made=data.get("made", {}),
            computed=data.get("computed", False),
            known_from=data.get("known_from"),
        )


def _positions_to_json(positions: dict[str, Position]) -> dict[str, Any]:
    return {shard: position.to_json() for shard, position in sorted(positions.items())}


def _positions_from_json(data: dict[str, Any]) -> dict[str, Position]:
    return {shard: Position.from_json(value) for shard, value in data.items()}
