"""Rows of the open transaction that it takes back, or that may be taken back.

Lives here: `OpenRows`: savepoints, XA transactions that are prepared, inserts in bulk. Does not
live here: noting row events (`walk`), what is told of the tables (`watch`).

Invariant: rows that were taken back are not among those that are noted any more, and the watch is
told which tables they were of.
"""

from __future__ import annotations

import numpy as np

from ratchet.ingest.binlog import places
from ratchet.ingest.binlog.machine import Kind
from ratchet.ingest.binlog.moments import TransactionStamps
from ratchet.ingest.binlog.notes import Records
from ratchet.ingest.binlog.slots import TableMapCache
from ratchet.ingest.binlog.statements import savepoint_of
from ratchet.ingest.binlog.watch import StatementWatch, TransactionStamp


class OpenRows:
    """The row events of one stream's open transaction."""

    def __init__(
        self,
        state: places.Ints,
        rows: Records,
        slots: TableMapCache,
        watch: StatementWatch,
        moments: TransactionStamps,
    ) -> None:
        """Begin.

        Args:
            state: the walker's.
            rows: where the walker notes row events.
            slots: which tables they are of.
            watch: is told of the tables whose rows are taken back.
            moments: which transaction is open.
        """
        self._state = state
        self._rows = rows
        self._slots = slots
        self._watch = watch
        self._moments = moments
        # Of the open transaction: its `seq`, and savepoint -> how many row events stood before it.
        self._points: tuple[int, dict[str, int]] = (0, {})
        # Of its last ROLLBACK TO: the tables that it or one before has told of, how many row events
        # were left, and how many events the watch had then. None: there was none, or it is past.
        self._told: tuple[frozenset[str], int, int] | None = None
        self._handed: set[str] = set()  # tables of which rows of the open transaction are given out

    def handed_on(self) -> None:
        """What is noted of the open transaction is given out."""
        self._handed |= self._tables_of(0)
        self._told = None
        self._points = self._points[0], dict.fromkeys(self._points[1], 0)

    def closed(self) -> None:
        """No transaction is open that has given out rows."""
        self._handed = set()
        self._told = None

    def abandoned(self) -> None:
        """The open transaction never happened; the next one may have its number."""
        self._points, self._told = (0, {}), None

    def mind_points(self, kind: Kind, statement: str, now: TransactionStamp) -> None:
        """Leave out the rows that a transaction took back.

        Seen on both servers: what is undone is of InnoDB, and tables without transactions have
        transactions of their own. That is not sure of each, so the tables are in doubt.
        """
        state, point = self._state, savepoint_of(statement)
        if self._points[0] != now.seq:
            self._points, self._told = (now.seq, {}), None
        if kind is Kind.SAVEPOINT:
            self._points[1][point] = int(state[places.ROW_EVENTS])
        elif kind is Kind.ROLLBACK_TO:
            noted = int(state[places.ROW_EVENTS])
            left = self._points[1].get(point, noted) if point else noted
            self._tell_undone(statement, now, left)
            state[places.ROW_EVENTS] = left
        elif kind is Kind.ROLLBACK:
            begin = self._first_row()
            undone = self._handed_now() | self._tables_of(begin)
            state[places.ROW_EVENTS] = begin
            self._watch.undone(undone, statement, now)

    def _tell_undone(self, statement: str, now: TransactionStamp, left: int) -> None:
        """Tell of the open transaction's tables, of each once while nothing else is told.

        It may go back by the hundred thousand, whatever it has changed before: no row is looked at
        again, and the same is not said of a table in the same transaction again.
        """
        known: frozenset[str] = frozenset()
        if self._told is not None and self._told[2] == len(self._watch.events):
            known = self._told[0]
            undone = self._tables_of(self._told[1]) - known
        else:
            undone = self._handed_now() | self._tables_of(self._first_row())
        self._watch.undone(undone, statement, now)
        self._told = (known | undone if undone else known), left, len(self._watch.events)

    def prepare(self, body: bytes) -> None:
        """Leave out the rows of an XA transaction that is prepared: it may never happen."""
        now = self._moments.open()
        if now is None:
            return  # it was read before: what its rows are of is not known here
        begin, handed = self._first_row(), self._handed_now()
        tables = handed | self._tables_of(begin)
        self._state[places.ROW_EVENTS] = begin
        self._watch.prepare(body, tables=tables, handed=handed, now=now)

    def bulk_of(self, count: int) -> dict[str, TransactionStamp]:
        """Tables into which rows were inserted in bulk, and the last transaction that did so."""
        rows = self._rows[:count]
        rows = rows[rows["bulk"] == 1]
        found = {}
        for slot in np.unique(rows["slot"]).tolist():
            last = int(rows["txn"][rows["slot"] == slot].max())
            if (known := self._slots.maps[slot]) is not None:
                found[known.schema.table] = self._moments.noted(last)
        return found

    def _first_row(self) -> int:
        """Where the open transaction's row events begin among those that are noted."""
        noted, txn = int(self._state[places.ROW_EVENTS]), int(self._state[places.TXNS]) - 1
        return int(np.searchsorted(self._rows["txn"][:noted], txn))

    def _handed_now(self) -> set[str]:
        """The tables of which rows of the open transaction were handed on already."""
        return self._handed if int(self._state[places.TXNS]) == 1 else set()

    def _tables_of(self, first: int) -> set[str]:
        """The tables of the open transaction's row events, from one of them on."""
        txn = int(self._state[places.TXNS]) - 1
        if first == int(self._state[places.ROW_EVENTS]):
            return set()
        rows = self._rows[first : int(self._state[places.ROW_EVENTS])]
        slots = set(rows["slot"][rows["txn"] == txn].tolist())
        maps = (self._slots.maps[slot] for slot in slots)
        return {found.schema.table for found in maps if found is not None}
