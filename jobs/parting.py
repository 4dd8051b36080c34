"""Where the history of a server and that of a mirror part.

Lives here: finding the newest round that ended before they did. Does not live here: what is done
about the rest (`rowheal`), whether one position is shared (`ingest.binlog.history`).

A server that lost transactions (a failover to a replica that was behind, a backup that was
restored) still has what came before them. Each round's end carries its last transaction, so for
each it can be told whether the server has it; and if it has one, it has all before.
"""

from __future__ import annotations

from dataclasses import dataclass

from core.errors import PositionLostError
from core.position import Position
from ingest.binlog.history import check_position, is_shared
from store.rounds import RoundLog, StreamState
from wire.session import Session, SourceConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Parting:
    """The last moment that a server and a mirror have in common, as far as rounds tell.

    Attributes:
        shard: ShardId as text.
        round: what the stream brought up to this round the server has as well.
        position: where the stream stood then; the server can go on from there.
    """

    shard: str
    round: int
    position: Position


def find_parting(source: SourceConfig, rounds: RoundLog) -> Parting | None:
    """Where a shard's server and the mirror of it part; None if it is not known for sure.

    It is not if the server has nothing of the mirror's, has purged what follows, or shows through a
    vtgate (which does not tell what a position holds); without GTIDs; or if the stream has begun in
    a reshard. Where the server has all of it, the parting is the newest round.

    Args:
        source: how to connect; the first of its servers that answers is asked.
        rounds: the round log.

    Raises:
        RetryableError: no server answers.
        SourceUnfitError: it refuses us a stream.
    """
    shard = str(source.shard)
    stream = rounds.streams().get(shard)
    if stream is None or stream.journal is not None or stream.ancestors.keys() - {shard}:
        return None
    if source.target or stream.position.flavor == "file":
        return None
    with Session.connect(source) as session:
        number = _newest_shared(session, rounds, shard)
        place = None if number is None else _stream_at(rounds, number, shard)
        if number is None or place is None or place.generation != stream.generation:
            return None
        # "Not foreign" may be as much as is known; and what follows may have been purged.
        if not (is_shared(session, place.position) and _can_go_on(session, place.position)):
            return None
    return Parting(shard=shard, round=number, position=place.position)


def _can_go_on(session: Session, position: Position) -> bool:
    try:
        check_position(session, position)
    except PositionLostError:
        return False
    return True


def _newest_shared(session: Session, rounds: RoundLog, shard: str) -> int | None:
    """The newest round whose end is not known to be foreign to the server; None if none is."""
    answers: dict[str, bool] = {}

    def foreign(number: int) -> bool:
        place = _stream_at(rounds, number, shard)
        if place is None:
            return False  # before the stream began
        name = str(place.position.executed)
        if name not in answers:
            answers[name] = is_shared(session, place.position) is False
        return answers[name]

    low, high = rounds.first_number() - 1, rounds.last_number()
    while low < high:  # rounds up to `low` are not foreign, those above `high` are
        middle = (low + high + 1) // 2
        low, high = (low, middle - 1) if foreign(middle) else (middle, high)
    return low if low >= rounds.first_number() else None


def _stream_at(rounds: RoundLog, number: int, shard: str) -> StreamState | None:
    return rounds.streams_at(number).get(shard)
