"""Showing a dump: bars on a terminal, plain log lines elsewhere.

Lives here: two displays of one `Board`. Does not live here: the arithmetic (`board`).
"""

from __future__ import annotations

import logging
import math
import sys
import threading
import time
from collections.abc import Callable, Collection
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from ratchet.jobs.reporting.board import Board, Line
from ratchet.jobs.reporting.terminal import visible
from ratchet.jobs.reporting.text import clock_time, counted
from ratchet.snapshot.records import Progress, TableDone, TableRestarted, Waiting

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

log: Final = logging.getLogger(__name__)

_SHOWN: Final = 12  # tables that have bars of their own at the same time
_LINE_EVERY: Final = 5.0  # seconds between two plain lines about the whole
_WAITING_EVERY: Final = 30.0  # seconds between two lines that a shard is waited for


class Display:
    """Shows a dump's records as they come. A context; `show` may be called from any thread.

    Args:
        tables: name and expected rows of each table.
        terminal: whether there is one to draw on; stderr decides if not given.
        clock: seconds, rising.
    """

    def __init__(
        self,
        tables: Collection[tuple[str, int]],
        *,
        terminal: bool | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self.board = Board(tables, clock())
        self._terminal = sys.stderr.isatty() if terminal is None else terminal
        self._live: Live | None = None
        self._last_line = clock()
        self._told: dict[str, float] = {}  # shard -> when it was said that it is waited for

    def __enter__(self) -> Self:
        if self._terminal:
            from rich.console import Console
            from rich.live import Live

            self._live = Live(
                console=Console(stderr=True), refresh_per_second=4, get_renderable=self._render
            )
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()
        with self._lock:
            total = self.board.total(self._clock())
        if total.rows and kind is None:
            rate = total.rows / max(total.seconds, 1e-3)
            log.info(
                "dumped %s in %s (%s rows/s)",
                counted(total.rows, "row"),
                clock_time(total.seconds),
                f"{rate:,.0f}",
                extra={"fields": {"event": "dump_done", "rows": total.rows, "rows_per_s": rate}},
            )

    def expect(self, tables: Collection[tuple[str, int]]) -> None:
        """Tables come to be dumped as well: name and expected rows of each."""
        with self._lock:
            self.board.expect(tables)

    def show(self, record: Progress) -> None:
        """Take one record of the dump's."""
        now = self._clock()
        with self._lock:
            line = self.board.take(record, now)
            due = now - self._last_line >= _LINE_EVERY
            if due:
                self._last_line = now
            total = self.board.total(now)
        self._tell(record, line)
        if due and self._live is None:
            log.info("dump: %s", described(total), extra={"fields": _fields(total)})

    def _tell(self, record: Progress, line: Line | None) -> None:
        """What is worth a line of its own, with bars or without."""
        if isinstance(record, TableDone) and line is not None:
            log.info(
                "%s: %s in %s",
                record.table,
                counted(record.rows, "row"),
                clock_time(record.seconds),
                extra={"fields": {"event": "table_dumped", **_fields(line)}},
            )
        elif isinstance(record, TableRestarted):
            log.warning("%s is dumped from scratch: %s", record.table, record.reason)
        elif isinstance(record, Waiting) and not record.throttled:  # snapshot.waits tells of those
            now = self._clock()
            if now - self._told.get(record.shard, -math.inf) >= _WAITING_EVERY:
                self._told[record.shard] = now
                log.info("waiting for %s: %s", record.shard, record.reason)

    def _render(self) -> Table:
        with self._lock:
            lines, total = self.board.lines, self.board.total(self._clock())
            waiting = self.board.waiting
        return rendered(lines, total, waiting)


def rendered(lines: Collection[Line], total: Line, waiting: str) -> Table:
    """The bars: tables being read, then how many others there are, then all together."""
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    for width in (20, 28):
        grid.add_column(min_width=width)
    for width in (34, 14, 6):  # wide enough that the columns stay where they are
        grid.add_column(justify="right", min_width=width)

    def add(line: Line, style: str = "") -> None:
        bar = ProgressBar(total=max(line.expected, 1), completed=line.rows, width=28)
        grid.add_row(Text(visible(line.name), style=style), bar, *_cells(line), style=style)

    reading = [line for line in lines if line.state == "reading"]
    for line in reading[:_SHOWN]:
        add(line)
    others = [
        f"{count} {what}"
        for what, count in (
            ("more being read", len(reading) - min(len(reading), _SHOWN)),
            ("waiting", sum(line.state == "waiting" for line in lines)),
            ("done", sum(line.state == "done" for line in lines)),
            ("stopped", sum(line.state == "failed" for line in lines)),
        )
        if count
    ]
    add(total, "bold")
    grid.add_row(Text(f"tables: {', '.join(others)}" if others else "", style="dim"))
    if waiting:
        grid.add_row(Text(f"waiting for {visible(waiting)}", style="yellow"))
    return grid


def described(line: Line) -> str:
    """One line of text: rows, rate, time to go.

    >>> described(Line(name="x", rows=1500, expected=3000, rate=100.0, eta=15.0))
    '1,500 of about 3,000 rows, 100 rows/s, 0:15 to go'
    """
    rows, rate, eta = _cells(line)
    return ", ".join(part for part in (rows, rate, f"{eta} to go" if eta else "") if part)


def _cells(line: Line) -> tuple[str, str, str]:
    about = "" if line.state == "done" else f" of about {line.expected:,}"
    eta = "" if line.eta is None or line.state == "done" else clock_time(line.eta)
    rate = f"{line.rate:,.0f} rows/s" if line.rate else ""
    return f"{line.rows:,}{about} rows", rate, eta


def _fields(line: Line) -> dict[str, Any]:
    return {
        "table": line.name,
        "rows": line.rows,
        "expected_rows": line.expected,
        "rows_per_s": round(line.rate),
        "bytes": line.bytes,
        "eta_s": line.eta,
    }
