"""Merging in plain Python, as docs/ordering.md describes it: registers, what is shown, two commits.

Lives here: the algorithm, with nothing made fast. The real one (`merge`) is held against it by
tests/spark/test_reference.py. Not here: where changes come from (`world`), and in what order things
happen (`explore`).

A register is what one shard last said of one key: a row or a tombstone, with its rank. Ranks are
compared within one shard only.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from ratchet.core.change import FLOOR_IDX
from ratchet.core.token import EventToken
from ratchet.merge.ancestry import LAST_SEQ

Key = Hashable
Place = tuple[Key, str]  # a key and a shard
RankParts = tuple[int, int, int]  # core.token.Rank.parts
Mark = tuple[int, int]  # generation and seq of a TRUNCATE


class Register(NamedTuple):
    """What a shard last said of a key; `row` is None for a tombstone."""

    rank: RankParts
    ts: int
    row: Any

    @classmethod
    def of(cls, token: EventToken, row: Any) -> Register:
        """With the place of that token in its own shard's stream."""
        return cls(token.at.rank.parts, token.ts, row)


@dataclass(frozen=True, slots=True)
class Life:
    """A shard's stream, from its begin to its end.

    Attributes:
        generation: rises from one life of a shard's name to the next, and from ancestors to heirs.
        ancestors: shard -> the generation up to which everything written there is older.
    """

    generation: int = 0
    ancestors: Mapping[str, int] = field(default_factory=dict)


Registers = Mapping[Place, Register]
Marks = Mapping[str, Mark]


@dataclass(frozen=True, slots=True)
class Batch:
    """What a step brings: the newest register of each key and shard, and truncations.

    Attributes:
        registers: one per key and shard; implied ones among them.
        marks: shard -> its newest truncation.
        lives: the live streams, where a reshard has begun some of them.
    """

    registers: Registers = field(default_factory=dict)
    marks: Marks = field(default_factory=dict)
    lives: Mapping[str, Life] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Mirror:
    """What lies in the lake of one table.

    Attributes:
        main: the rows of the mirrored table.
        side: tombstones, and live registers that another shard's row hides.
        marks: shard -> its newest truncation.
    """

    main: Registers = field(default_factory=dict)
    side: Registers = field(default_factory=dict)
    marks: Marks = field(default_factory=dict)


def join(*parts: Registers) -> dict[Place, Register]:
    """Per key and shard the register of the highest rank; the first of equal ones."""
    result: dict[Place, Register] = {}
    for part in parts:
        for place, register in part.items():
            if place not in result or result[place].rank < register.rank:
                result[place] = register
    return result


def implied(place: Place, life: Life) -> list[tuple[Place, Register]]:
    """What any change of a key says besides: that its shard's ancestors' registers are over."""
    return [
        ((place[0], shard), Register((generation, LAST_SEQ, 0), 0, None))
        for shard, generation in life.ancestors.items()
    ]


def ended_marks(marks: Marks, lives: Mapping[str, Life]) -> dict[str, Mark]:
    """Those truncations, and of ended shards those whose live heirs were all truncated.

    Args:
        marks: shard -> its newest truncation.
        lives: the live streams.
    """
    over = {shard: g for life in lives.values() for shard, g in life.ancestors.items()}
    for shard, generation in over.items():
        heirs = [
            (name, life.generation)
            for name, life in lives.items()
            if shard in life.ancestors or (name == shard and life.generation > generation)
        ]
        if all(marks.get(name, (-1, 0))[0] >= begun for name, begun in heirs):
            marks = join_marks(marks, {shard: (generation, LAST_SEQ)})
    return dict(marks)


def reduced(changes: Iterable[tuple[Place, Register]], marks: Marks | None = None) -> Batch:
    """A batch from single changes in any order."""
    return Batch(join(*({place: register} for place, register in changes)), marks or {})


def join_marks(*parts: Marks) -> dict[str, Mark]:
    """Per shard the newest truncation."""
    result: dict[str, Mark] = {}
    for part in parts:
        for shard, mark in part.items():
            result[shard] = max(mark, result.get(shard, mark))
    return result


def live(registers: Registers, marks: Marks) -> dict[Place, Register]:
    """Those that hold a row that no truncation removed."""
    return {
        place: register
        for place, register in registers.items()
        if register.row is not None and register.rank[:2] >= marks.get(place[1], (0, 0))
    }


def shown(registers: Registers, marks: Marks, *, contested: bool) -> dict[Place, Register]:
    """The rows of the mirrored table.

    Args:
        registers: one per key and shard.
        marks: the truncations.
        contested: whether of several shards' rows of a key only one is to be shown: the one of the
            latest commit time, and of the highest shard name among equal times.
    """
    rows = live(registers, marks)
    if not contested:
        return rows
    best: dict[Key, Place] = {}
    for place, register in rows.items():
        rival = best.get(place[0])
        if rival is None or (rows[rival].ts, rival[1]) < (register.ts, place[1]):
            best[place[0]] = place
    return {place: rows[place] for place in best.values()}


def side_commit(mirror: Mirror, batch: Batch, *, contested: bool) -> Mirror:
    """First commit of a step: note what is about to leave the mirrored table, or never enters."""
    after, marks = _after(mirror, batch)
    rows = shown(after, marks, contested=contested)
    dead = {
        place: register
        for place, register in batch.registers.items()
        if register.row is None and (register.rank[1] < LAST_SEQ or place in mirror.side)
    }
    losers = {p: r for p, r in live(after, marks).items() if p not in rows}
    return replace(mirror, side=join(mirror.side, dead, losers), marks=marks)


def main_commit(mirror: Mirror, batch: Batch, *, contested: bool) -> Mirror:
    """Second commit of a step: the mirrored table."""
    return replace(mirror, main=shown(*_after(mirror, batch), contested=contested))


def merge(mirror: Mirror, batch: Batch, *, contested: bool) -> Mirror:
    """A whole step of a table that streams."""
    noted = side_commit(mirror, batch, contested=contested)
    return main_commit(noted, batch, contested=contested)


def catch_up_main(mirror: Mirror, batch: Batch, floors: Mapping[tuple[str, int], int]) -> Mirror:
    """Second commit of the catch-up: each shard's rows for themselves, doubled keys stay.

    Args:
        mirror: the dumped table, after `side_commit`.
        batch: everything from the dump's first round to one that holds all that a chunk has seen.
        floors: (shard, chunk number) -> the `seq` that core.floor.resolve_floor finds for it.
    """
    effective = {place: resolved(place[1], row, floors) for place, row in mirror.main.items()}
    after = join(effective, mirror.side, batch.registers)
    rows = live(after, join_marks(mirror.marks, batch.marks))
    # A row that no change touched keeps the token that the dump wrote.
    kept = {p: mirror.main[p] if r is effective.get(p) else r for p, r in rows.items()}
    return replace(mirror, main=kept)


def resolved(shard: str, row: Register, floors: Mapping[tuple[str, int], int]) -> Register:
    """A dumped row at the rank of what it is sure to contain; any other as it is."""
    generation, _, idx = row.rank
    if idx < FLOOR_IDX:
        return row
    return row._replace(rank=(generation, floors[shard, idx - FLOOR_IDX], idx))


def _after(mirror: Mirror, batch: Batch) -> tuple[dict[Place, Register], dict[str, Mark]]:
    return (
        join(mirror.main, mirror.side, batch.registers),
        ended_marks(join_marks(mirror.marks, batch.marks), batch.lives),
    )
