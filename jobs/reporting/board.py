"""What a dump's progress comes to: rows, rates and times to go, per table and in all.

Lives here: adding up the dump's records. Does not live here: showing it (`progress`).

Invariant: what is shown as done never falls, unless a table begins anew.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Literal

from ratchet.snapshot.records import (
    ChunkDone,
    Meter,
    Progress,
    TableDone,
    TableFailed,
    TableRestarted,
    TableStarted,
    Waiting,
)

State = Literal["waiting", "reading", "done", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One table, or all of them together.

    Attributes:
        name: keyspace.table.
        state: waiting, reading, done or failed.
        rows: rows read, over all runs.
        expected: rows that there probably are; never below `rows`.
        rate: rows per second, over the last half minute.
        eta: seconds to go; None while unknown.
        bytes: bytes that the servers sent in this run.
        seconds: how long it took, when done.
        error: why it failed.
    """

    name: str
    state: State = "waiting"
    rows: int = 0
    expected: int = 0
    rate: float = 0.0
    eta: float | None = None
    bytes: int = 0
    seconds: float = 0.0
    error: str = ""


class Board:
    """The dump's progress. Not for several threads at once.

    Args:
        tables: name and expected rows of each table.
        now: seconds of any rising clock.
    """

    def __init__(self, tables: Collection[tuple[str, int]], now: float) -> None:
        self._lines: dict[str, Line] = {}
        self.expect(tables)
        self._meter = Meter(now)
        self._rate = 0.0
        self._began = now
        self.waiting = ""

    def expect(self, tables: Collection[tuple[str, int]]) -> None:
        """Tables come: name and expected rows of each. One that was done before begins anew."""
        self._lines.update((name, Line(name=name, expected=rows)) for name, rows in tables)

    @property
    def lines(self) -> list[Line]:
        """All tables, in the order they were given in."""
        return list(self._lines.values())

    def total(self, now: float) -> Line:
        """All tables together."""
        lines = self.lines
        rows = sum(line.rows for line in lines)
        expected = sum(max(line.expected, line.rows) for line in lines)
        open_tables = any(line.state in {"waiting", "reading"} for line in lines)
        eta = (expected - rows) / self._rate if self._rate > 0 else None
        return Line(
            name="in all",
            state="reading" if open_tables else "done",
            rows=rows,
            expected=expected,
            rate=self._rate,
            eta=eta if open_tables else 0.0,
            bytes=sum(line.bytes for line in lines),
            seconds=now - self._began,
        )

    def take(self, record: Progress, now: float) -> Line | None:
        """Note a record; gives the line of the table that it is about."""
        if isinstance(record, Waiting):
            self.waiting = f"{record.shard}: {record.reason}"
            return None
        line = self._lines.get(record.table, Line(name=record.table))
        if isinstance(record, ChunkDone):
            self._rate = self._meter.count(now, record.chunk_rows)
            self.waiting = ""
        line = _updated(line, record)
        self._lines[record.table] = line
        return line


def _updated(line: Line, record: Progress) -> Line:
    match record:
        case TableStarted():
            expected = max(record.estimated_rows, record.rows)
            return replace(line, state="reading", rows=record.rows, expected=expected)
        case ChunkDone():
            return replace(
                line,
                state="reading",
                rows=record.rows,
                expected=record.estimated_rows,
                rate=record.rows_per_second,
                eta=record.eta,
                bytes=record.bytes,
            )
        case TableDone():
            return replace(
                line,
                state="done",
                rows=record.rows,
                expected=record.rows,
                bytes=record.bytes,
                eta=0.0,
                seconds=record.seconds,
            )
        case TableRestarted():
            return replace(line, state="waiting", rows=0)
        case TableFailed():
            return replace(line, state="failed", error=record.error.message, expected=line.rows)
        case _:
            return line
