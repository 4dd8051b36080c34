"""How far a merge step goes, and what it is told of a table. Pure: no Spark, no files.

Lives here: which round a step goes to, whose transactions count it, the shape that a table has
there. Does not live here: what the rounds hold for a table (`gather`), carrying it out (`table`,
`rounds`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from ratchet.core.position import Position
from ratchet.core.rounds import Round, ShardSlice
from ratchet.core.types import InvalidValuePolicy
from ratchet.merge.ancestry import Ancestry
from ratchet.merge.shape import Shape
from ratchet.store.tables import TableState


def app_id(state: TableState) -> str:
    """Whose transaction versions count the rounds merged into a table.

    The dump is part of it: after a new dump the table may have to be merged to a round that the old
    one had reached already, and Delta would take that for a replay.
    """
    return f"ratchet.merge/{state.dump.id}" if state.dump else "ratchet.merge"


def choose_round(
    rounds: Sequence[Round],
    *,
    begin: int,
    at_least: int,
    upto: int,
    max_bytes: int,
    max_rows: int,
) -> int:
    """The round that a step brings all tables to.

    A round that begins streams after a reshard comes first in its step: so a step has one stream
    per shard's name, and none together with one that it descends from (merge.ancestry).

    Args:
        rounds: the committed rounds above `begin`, in order.
        begin: the round of the last cut.
        at_least: some table is there already (a step was killed half-way).
        upto: not further than this.
        max_bytes: change files that one step takes; at least one round is taken.
        max_rows: changes of one table that one step takes, likewise: several merges in the driver's
            process are faster than one that is too large for it (merge.direct).
    """
    chosen, taken = begin, 0
    rows: Counter[str] = Counter()
    for value in rounds:
        taken += sum(file.bytes for file in value.files)
        for file in value.files:
            rows[f"{file.keyspace}.{file.table}"] += file.rows
        too_many = max(rows.values(), default=0) > max_rows
        full = taken > max_bytes or too_many or begins_heirs(value)
        if value.number > upto or (chosen > begin and full):
            break
        chosen = value.number
    return max(chosen, at_least)


def begins_heirs(value: Round) -> bool:
    """Whether a round begins the streams of a reshard's targets."""
    return any(piece.ancestors for piece in value.slices)


def loses_shards(state: TableState, rounds: Iterable[Round]) -> bool:
    """Whether those rounds begin streams that descend from a shard that a table was dumped from."""
    return any(takes_over(state, piece) for value in rounds for piece in value.slices)


def shape_of(state: TableState, policy: InvalidValuePolicy, ancestry: Ancestry) -> Shape:
    """The shape of a table past its dump.

    Rows of several shards meet in it if several were dumped, or if its shards came from others
    since: their rows keep the names of those.
    """
    dumped = len(state.dump.start) if state.dump else 0
    return Shape.of(
        state.whole,
        policy,
        key=state.key,
        many_shards=dumped > 1 or bool(ancestry),
        shard_in_key=state.shard_in_key,
    )


def covers(positions: Mapping[str, Position], end: Mapping[str, Position]) -> bool:
    """Whether every shard has been captured up to where a dump ended."""
    return all(
        shard in positions and positions[shard].executed.contains_all(position.executed)
        for shard, position in end.items()
    )


def takes_over(state: TableState, piece: ShardSlice) -> bool:
    """Whether a stream descends from another shard that the table was dumped from."""
    before = piece.ancestors.keys() - {piece.shard}
    return state.dump is not None and not before.isdisjoint(state.dump.start)
