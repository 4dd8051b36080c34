"""Which transaction something in the log belongs to, where it has no name of its own, too.

Lives here: `TransactionStamps`: the open transaction, the one before, and whether one counts that
has a name which was there already. Does not live here: which transactions were delivered
(`ledger`), reading names (`events`), what is told of the tables (`watch`).

Invariant: what has no name belongs to the last whole transaction, and to none if there was none.
"""

from __future__ import annotations

from ratchet.core.gtid import Gtid, format_gtid
from ratchet.ingest.binlog import places
from ratchet.ingest.binlog.ledger import GtidTracker
from ratchet.ingest.binlog.notes import Records
from ratchet.ingest.binlog.watch import TransactionStamp


class TransactionStamps:
    """The transactions of one stream that something may belong to."""

    def __init__(self, ledger: GtidTracker, state: places.Ints, txns: Records) -> None:
        """Begin.

        Args:
            ledger: what the stream has delivered.
            state: the walker's.
            txns: where the walker notes transactions.
        """
        self._ledger = ledger
        self._state = state
        self._txns = txns
        # The one that was asked for last: its record, and what is told of it. A transaction may
        # hold very many statements.
        self._told: tuple[object, TransactionStamp] | None = None

    def decide(self) -> None:
        """Whether a transaction of MySQL's counts, whose name is in the state."""
        state = self._state
        origin, number = int(state[places.ORIGIN]), int(state[places.NUMBER])
        state[places.SKIP], state[places.DECIDED] = int(self._ledger.contains(origin, number)), 1
        if self._ledger.repeats(origin, number):
            state[places.SKIP] = places.REPEATED

    def open(self) -> TransactionStamp | None:
        """The open transaction; None if it leaves no trace."""
        state = self._state
        if not state[places.TXNS] or state[places.SKIP]:
            return None
        return self.noted(int(state[places.TXNS]) - 1)

    def before(self) -> TransactionStamp | None:
        """The transaction before, for what has no name, or the name of another one; None: none.

        MySQL 9.7 writes both: where a statement that it logs otherwise calls a function (`SHOW ...
        WHERE f()`, `PURGE BINARY LOGS BEFORE f()`). The ledger must know of all that is whole.
        """
        last, seq = self._ledger.last, int(self._state[places.SEQ])
        if last is None:
            return None
        gtid = format_gtid(self._ledger.flavor, last.gtid)
        return TransactionStamp(gtid=gtid, seq=seq, ts=last.committed, behind=True)

    def executed(self) -> TransactionStamp | None:
        """The transaction before, or else any that the server had executed; None: none."""
        ledger, seq = self._ledger, int(self._state[places.SEQ])
        if ledger.last is not None:
            return self.before()
        for origin, spans in ledger.executed.intervals.items():
            server = ledger.executed.servers.get(origin, 0)
            gtid = format_gtid(ledger.flavor, Gtid(origin, spans[-1][1], server))
            return TransactionStamp(gtid=gtid, seq=seq, ts=0, behind=True)
        return None

    def noted(self, number: int) -> TransactionStamp:
        """A transaction that is noted."""
        txn = self._txns[number]
        record = txn.item()
        if self._told is not None and self._told[0] == record:
            return self._told[1]
        name = self._ledger.names()[int(txn["origin"])]
        gtid = Gtid(name, int(txn["number"]), int(txn["server"]))
        told = TransactionStamp(
            gtid=format_gtid(self._ledger.flavor, gtid), seq=int(txn["seq"]), ts=int(txn["ts"])
        )
        self._told = record, told
        return told
