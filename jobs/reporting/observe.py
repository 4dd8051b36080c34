"""What a run reports: typed records, told to the log as one line each with the same fields.

Lives here: the records and their sentences. Does not live here: formats of the log (`logs`), the
dump's records (`snapshot.records`, shown by `progress`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import ClassVar, Final

from ratchet.jobs.reporting.terminal import visible
from ratchet.jobs.reporting.text import counted, one_line, size, within
from ratchet.store.tables import TableState

log: Final = logging.getLogger("ratchet.jobs.run")


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundCommitted:
    """A round is in the change log.

    Attributes:
        round: its number.
        shards: how many took part.
        rows: row changes of mirrored tables.
        bytes: binlog bytes read.
        seconds: from the beginning of its slices to its commit.
    """

    level: ClassVar[int] = logging.DEBUG
    round: int
    shards: int
    rows: int
    bytes: int
    seconds: float

    def sentence(self) -> str:
        """For people."""
        return (
            f"round {self.round}: {counted(self.rows, 'change')}, {size(self.bytes)} of binlog "
            f"from {counted(self.shards, 'shard')} in {self.seconds:.1f} s"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """A merge step is done.

    Attributes:
        round: all tables hold everything up to this round.
        tables: how many tables changed.
        rows: rows inserted, updated and deleted.
        seconds: how long it took.
    """

    level: ClassVar[int] = logging.DEBUG
    round: int
    tables: int
    rows: int
    seconds: float

    def sentence(self) -> str:
        """For people."""
        return (
            f"merged up to round {self.round}: {counted(self.rows, 'row')} of "
            f"{counted(self.tables, 'table')} in {self.seconds:.1f} s"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _TableProblem:
    """Something is wrong with one table.

    Attributes:
        table: keyspace.table.
        message: why.
        hint: what to do.
    """

    what: ClassVar[str]
    table: str
    message: str
    hint: str

    def sentence(self) -> str:
        """For people."""
        return f"{self.table} is {self.what}: {one_line(self.message)} ({visible(self.hint)})"


class TableStopped(_TableProblem):
    """A table cannot go on; the others do."""

    level: ClassVar[int] = logging.ERROR
    what: ClassVar[str] = "stopped"


class TableLeftOut(_TableProblem):
    """The config names a table that nothing can mirror."""

    level: ClassVar[int] = logging.WARNING
    what: ClassVar[str] = "left out"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSetAside:
    """A run goes on without a source.

    Attributes:
        source: the keyspace.
        message: why.
        hint: what to do about it.
        again: seconds until it is looked at again.
    """

    level: ClassVar[int] = logging.ERROR
    source: str
    message: str
    hint: str
    again: float

    def sentence(self) -> str:
        """For people."""
        hint = f" ({visible(self.hint)})" if self.hint else ""
        return (
            f"{self.source} is set aside, and the run continues without it: "
            f"{one_line(self.message)}{hint}; the next try is in {self.again:.0f} s"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCompared:
    """A table was compared with its source.

    Attributes:
        table: keyspace.table.
        why: what it was compared after, for people; empty: it was due.
        rows: rows of the source.
        differences: rows that differ.
        unsettled: rows that changed whenever they were looked at.
        found: what was found, for people: kinds and columns.
        seconds: how long it took, pauses included.
    """

    table: str
    why: str
    rows: int
    differences: int
    unsettled: int
    found: str
    seconds: float

    @property
    def level(self) -> int:
        """A difference is a warning; what becomes of it is told besides."""
        return logging.WARNING if self.differences else logging.INFO

    def sentence(self) -> str:
        """For people."""
        after = f" after {self.why}" if self.why else ""
        moving = f", {self.unsettled:,} without a verdict" if self.unsettled else ""
        if self.differences:
            return f"{self.table}: compared with its source{after}: {self.found}{moving}"
        rows = counted(self.rows, "row")
        verdict = "undecided" if self.unsettled else "equal"
        return f"{self.table}: compared with its source{after}: {verdict} ({rows}{moving})"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSampled:
    """A part of a round was read again by a second decoder.

    Attributes:
        shard: keyspace/shard.
        round: the round.
        rows: row changes that were compared.
        transactions: in so many transactions.
        differences: what is not the same.
        example: the first of these, for people.
        not_compared: rows and values that could not be compared.
    """

    shard: str
    round: int
    rows: int
    transactions: int
    differences: int
    example: str
    not_compared: int

    @property
    def level(self) -> int:
        """A difference is an error: what becomes of it is told besides."""
        return logging.ERROR if self.differences else logging.DEBUG

    def sentence(self) -> str:
        """For people."""
        found = f"{counted(self.differences, 'difference')}: {self.example}"
        return (
            f"log of {self.shard}, round {self.round}: {counted(self.rows, 'row change')} in "
            f"{counted(self.transactions, 'transaction')} read again: "
            f"{found if self.differences else 'equal'}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulse:
    """One look at the whole run.

    Attributes:
        round: the newest round in the change log.
        merged: the round of the newest cut.
        streaming: tables that stream.
        others: tables in other phases, stopped ones left out.
        stopped: tables that are stopped.
        doubtful: of those that stream, the ones in doubt.
        rows_per_second: changes captured since the last look.
        lag: seconds that the change log is behind the servers at most; None while unknown.
        tables_lag: seconds that the streaming tables are; None before anything is merged.
        troubled: shards that do not answer.
        held: shards held back until the others have come as far (capture.max_skew_seconds).
        ignored: shards that the others do not wait for any more: that bound does not hold now.
        aside: sources that the run goes on without; both lags count them.
    """

    level: ClassVar[int] = logging.INFO
    round: int
    merged: int
    streaming: int
    others: int
    stopped: int
    doubtful: int
    rows_per_second: float
    lag: float | None
    tables_lag: float | None
    troubled: tuple[str, ...]
    held: tuple[str, ...]
    ignored: tuple[str, ...]
    aside: tuple[str, ...] = ()

    def sentence(self) -> str:
        """For people."""
        parts = [
            f"round {self.round}, merged {self.merged}",
            f"{counted(self.streaming, 'table')} streaming",
            f"{self.others} on their way" if self.others else "",
            f"{self.stopped} stopped" if self.stopped else "",
            f"{self.doubtful} in doubt" if self.doubtful else "",
            f"{self.rows_per_second:,.0f} changes/s",
            _behind("tables", self.tables_lag),
            _behind("log", self.lag),
            f"no answer from {', '.join(self.troubled)}" if self.troubled else "",
            f"held back: {', '.join(self.held)}" if self.held else "",
            f"not waiting for {', '.join(self.ignored)}" if self.ignored else "",
            f"set aside: {', '.join(self.aside)}" if self.aside else "",
        ]
        return ", ".join(part for part in parts if part)


def _behind(what: str, seconds: float | None) -> str:
    return "" if seconds is None else f"{what} behind by {within(seconds)}"


class StopReporter:
    """Tells of each table that stops or is left out once, whoever finds it. For several threads."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._lock = threading.Lock()
        self._told: set[tuple[str, str]] = set()

    def tell(self, table: str, message: str, hint: str) -> None:
        """Tell of a table that stops, unless it was told of already."""
        self._once(TableStopped(table=table, message=message, hint=hint))

    def leave_out(self, table: str, message: str, hint: str) -> None:
        """Tell of a table that is left out, unless it was told of already."""
        self._once(TableLeftOut(table=table, message=message, hint=hint))

    def _once(self, record: TableStopped | TableLeftOut) -> None:
        with self._lock:
            if (record.table, record.message) in self._told:
                return
            self._told.add((record.table, record.message))
        self._observer(record)


def tell_doubtful(states: Iterable[TableState]) -> None:
    """Tell a reader which of the tables that he looks at do not count as right for now."""
    for state in states:
        if state.is_doubtful:
            log.warning("%s is in doubt (`ratchet status` says why): a run compares it", state.name)


Record = (
    RoundCommitted
    | Merged
    | TableStopped
    | TableLeftOut
    | SourceSetAside
    | TableCompared
    | LogSampled
    | Pulse
)
Observer = Callable[[Record], None]


def tell(record: Record) -> None:
    """The observer of a run's log."""
    name = "".join(f"_{c.lower()}" if c.isupper() else c for c in type(record).__name__)[1:]
    log.log(
        record.level, "%s", record.sentence(), extra={"fields": {"event": name, **asdict(record)}}
    )
