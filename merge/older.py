"""What of the log is older than a table's dump: it says nothing about the table. Pure.

Rounds are coarse, so the first ones of a catch-up hold what every chunk shows already: row changes,
and the statements between them. Most of these row changes do no harm, but those of before a DROP or
TRUNCATE would come back as rows. So both go, up to the same place.

Lives here: that place, of each stream. Does not live here: what is done with the rest (`plan`).

Invariant: all changes of the table up to the place are in every chunk that was read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from ratchet.core.errors import DecodeError
from ratchet.core.floor import resolve_floor
from ratchet.core.gtid import parse_gtid
from ratchet.core.position import Position
from ratchet.core.rounds import GtidRange, Round, TableEvent
from ratchet.store.tables import TableState

Stream = tuple[str, int]  # shard and generation

# What the server does while it holds the table for itself alone: all that changed rows before has
# ended by then, and a read that begins behind it shows that.
_ALONE: Final = frozenset({"columns", "types", "key", "rows"})


class Older(NamedTuple):
    """Up to which `seq` what a stream holds of a table is left out.

    Attributes:
        sure: each chunk has all up to there.
        upto: the same, or the last change without row events that the dump should have, as it stood
            in the log before; then the table is in doubt. Row changes of before must not undo it.
    """

    sure: int = 0
    upto: int = 0


def older(state: TableState, rounds: Iterable[Round]) -> dict[Stream, Older]:
    """Up to where what those rounds hold of a table is in each of its chunks.

    Args:
        state: the table, in its catch-up; else there is nothing to leave out. One that was computed
            may stop again before a round that its dump has of another shard.
        rounds: consecutive ones, in order.
    """
    catches_up = state.phase == "catching_up" or (bool(state.marks) and state.is_computed)
    if not catches_up or state.dump is None:
        return {}
    start = state.dump.start
    first: dict[Stream, Position] = {}
    runs: dict[Stream, list[GtidRange]] = defaultdict(list)
    sure: dict[Stream, int] = defaultdict(int)
    likely: dict[Stream, int] = defaultdict(int)
    for value in rounds:
        generations = {piece.shard: piece.generation for piece in value.slices}
        for piece in value.slices:
            if piece.shard in start:
                stream = piece.shard, piece.generation
                first.setdefault(stream, piece.start)
                runs[stream].extend(piece.runs)
        for event in value.events:
            mine = (event.keyspace, event.table) == (state.keyspace, state.table)
            if mine and event.shard in generations and is_in_shape(state, event):
                stream = event.shard, generations[event.shard]
                places = sure if _is_alone(event) else likely
                places[stream] = max(places[stream], event.seq)
    for stream, before in first.items():
        place = start[stream[0]].executed
        if place.flavor == before.flavor and place.contains_all(before.executed):
            sure[stream] = max(sure[stream], resolve_floor(place, before, runs[stream]))
    return {
        stream: Older(sure[stream], max(sure[stream], likely[stream]))
        for stream in {*sure, *likely}
    }


def _is_alone(event: TableEvent) -> bool:
    return event.kind == "truncate" or (event.kind == "ddl" and event.effect in _ALONE)


def is_in_chunks(state: TableState, event: TableEvent) -> bool:
    """Whether every chunk was read behind that event."""
    return _contains(state.dump.start if state.dump else {}, event)


def is_in_shape(state: TableState, event: TableEvent) -> bool:
    """Whether the dump began behind that event as it stood in the log.

    So it has what was done while nobody else was at the table; of other changes that is not sure
    where there are no GTIDs (DumpState.shaped).
    """
    dump = state.dump
    return dump is not None and (_contains(dump.start, event) or _contains(dump.shaped, event))


def _contains(places: Mapping[str, Position], event: TableEvent) -> bool:
    place = places.get(event.shard)
    if place is None:
        return False
    try:
        return place.executed.contains(parse_gtid(place.flavor, event.gtid))
    except DecodeError:
        return False  # another flavour than at the dump's start: then it is later
