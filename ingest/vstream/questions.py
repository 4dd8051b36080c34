"""What a VStream's feed asks the shard's MySQL, through the same vtgate.

Lives here: sessions, and what becomes of them when the shard serves no queries. Does not live here:
the stream itself (`feed`).

After a reshard's switch the old shard's stream goes on up to the journal, but its tablets refuse
queries: then there is no answer, and that is no error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ratchet.core.errors import RetryableError
from ratchet.core.gtid import GtidSet
from ratchet.core.position import Position
from ratchet.wire.continues import check_continues, check_not_lost
from ratchet.wire.decode.catalog import DeclaredTable, read_declared
from ratchet.wire.session import Session, SourceConfig
from ratchet.wire.vitess import on_primary

T = TypeVar("T")


class ShardQuestions:
    """Questions to one shard. Not for several threads at once.

    The first answer of a session comes with a check that the stream can go on: vtgate itself says
    nothing about purged transactions, for minutes.

    Args:
        source: the shard through the MySQL port of the vtgate.
        executed: what the stream has given so far.
    """

    def __init__(self, source: SourceConfig, executed: Callable[[], GtidSet]) -> None:
        self._source = source
        self._executed = executed
        self._session: Session | None = None
        self._primary: Session | None = None  # asked where the stream is not its own
        self._is_checked = False

    def close(self) -> None:
        """End the sessions."""
        for session in (self._session, self._primary):
            if session is not None:
                session.close()

    def check(self) -> None:
        """Ask nothing, so that the first answer's check is made.

        Raises:
            PositionLostError: the stream cannot go on from where it stands.
        """
        self._ask(lambda _: None)

    def declared(self, table: str) -> DeclaredTable | None:
        """A table as it is now; None: nobody tells."""

        def question(session: Session) -> DeclaredTable | None:
            source = self._source
            return read_declared(
                session.query, keyspace=source.shard.keyspace, database=source.database, table=table
            ).get(table)

        return next(iter(self._ask(question)), None)

    def has_given_all(self) -> bool:
        """Whether the stream has given all that the shard has executed.

        Raises:
            PositionLostError: the shard lacks what the stream has given (a failover).
        """
        executed = self._executed()

        def question(session: Session) -> GtidSet:
            head = session.head().executed
            if not head.contains_all(executed):
                # vtgate hides a failover: both session and stream go on, the stream in silence.
                check_not_lost(session, Position(executed=executed))
            # A replica that has no more to give may itself be behind.
            return self._head_of_primary(head) if executed.contains_all(head) else head

        return any(executed.contains_all(head) for head in self._ask(question))

    def next_to(self, reached: GtidSet, count: int) -> GtidSet:
        """Transactions that the shard has executed next, if they are of one server.

        Args:
            reached: the ones before.
            count: how many at most.
        """
        found = GtidSet.parse("mysql", "")
        for head in self._ask(lambda session: session.head().executed):
            behind = head.minus(reached).intervals
            if len(behind) == 1:
                ((name, spans),) = behind.items()
                first, last = spans[0]
                found = found.with_interval(name, first, min(last, first + count - 1))
        return found

    def _head_of_primary(self, head: GtidSet) -> GtidSet:
        """What the shard's primary has executed, given what the tablet has that is asked."""
        source = on_primary(self._source)
        if source == self._source:
            return head
        if self._primary is None or not self._primary.usable:
            self._primary = Session.connect(source)
        return self._primary.head().executed

    def _ask(self, question: Callable[[Session], T]) -> list[T]:
        """The answer; none while the shard serves no queries."""
        try:
            if self._session is None or not self._session.usable:
                self._session = Session.connect(self._source)
            if not self._is_checked:
                check_continues(self._session, Position(executed=self._executed()))
                self._is_checked = True
            return [question(self._session)]
        except RetryableError:
            if self._session is not None:
                self._session.close()
            self._session = None
            self._is_checked = False  # another tablet may answer next, which lacks what we have
            return []
