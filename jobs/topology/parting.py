"""Where the history of a server and that of a mirror part.

Lives here: finding the newest round that ended before they did. Does not live here: what is done
about the rest (`rowheal`), whether one position is shared (`ingest.binlog.history`).

A server that lost transactions (a failover to a replica that was behind, a backup that was
restored) still has what came before them. Each round's end carries its last transaction, so for
each it can be told whether the server has it; and if it has one, it has all before.
"""

from __future__ import annotations

from dataclasses import dataclass

from ratchet.core.errors import PositionLostError
from ratchet.core.position import Position
from ratchet.ingest.binlog.history import check_position, is_shared
from ratchet.store.rounds import RoundLog, StreamState
from ratchet.wire.session import Session, SourceConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class DivergencePoint:
    """The last moment that a server and a mirror have in common, as far as rounds tell.

    Attributes:
        shard: ShardId as text.
        round: what the stream brought up to this round the server has as well.
        position: where the stream stood then; the server can go on from there.
    """

    shard: str
    round: int
    position: Position


def find_parting(source: SourceConfig, rounds: RoundLog) -> DivergencePoint | str:
    """Where a shard's server and the mirror of it part; or why that is not known for sure.

    It is not known if the server has nothing of the mirror's, has purged what follows, or shows
    through a vtgate (which does not tell what a position holds); without GTIDs; or if the stream
    has begun in a reshard. Where the server has all of it, the parting is the newest round.

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
        return "its stream was begun or ended by a reshard"
    if source.target:
        return "a vtgate does not show what a position contains"
    if stream.position.flavor == "file":
        return "without GTIDs it is not known what it still has"
    with Session.connect(source) as session:
        number = _newest_shared(session, rounds, shard, stream.generation)
        place = None if number is None else _stream_at(rounds, number, shard)
        if number is None or place is None or place.generation != stream.generation:
            return "it has nothing that the mirror has read since this stream began"
        return _checked(
            session, DivergencePoint(shard=shard, round=number, position=place.position)
        )


def _checked(session: Session, found: DivergencePoint) -> DivergencePoint | str:
    """A round that is not known to be foreign may still not be known to be shared."""
    if not is_shared(session, found.position):
        return f"it is not known whether it has what the mirror had at round {found.round}"
    if not _can_go_on(session, found.position):
        return f"it has purged what came after round {found.round}, the last that both have"
    return found


def _can_go_on(session: Session, position: Position) -> bool:
    try:
        check_position(session, position)
    except PositionLostError:
        return False
    return True


def _newest_shared(session: Session, rounds: RoundLog, shard: str, generation: int) -> int | None:
    """The newest round whose end is not known to be foreign to the server; None if none is.

    Rounds of before the stream began anew do not count: what they held the server may lack,
    though it has what came later.
    """
    answers: dict[str, bool] = {}

    def foreign(number: int) -> bool:
        place = _stream_at(rounds, number, shard)
        if place is None or place.generation != generation:
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
