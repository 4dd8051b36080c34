"""The plain twin of framing's index and the walker: one event after the other, in plain Python.

Lives here: `PlainReader`, which does slowly and readably what `reader` and `walk` do: the same
transitions, the same transactions, the same rows events. It is the oracle of their tests and the
shortest description of what they do. Does not live here: anything that capture uses.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from ratchet.core.errors import DecodeError
from ratchet.core.gtid import Flavor, Gtid, GtidSet, format_gtid, pack_file
from ratchet.core.position import Position
from ratchet.core.sql.lexer import Mode
from ratchet.core.sql.names import Scope
from ratchet.core.sql.statements import classify
from ratchet.ingest.binlog import events
from ratchet.ingest.binlog.machine import KIND_OF_TYPE, TRANSITIONS, Action, Kind, State
from ratchet.ingest.binlog.payload import _pieces
from ratchet.ingest.binlog.statements import KIND_OF, savepoint_of

_TABLE: Final[Mapping[tuple[State, Kind], tuple[Action, State]]] = {
    (state, kind): (action, state if following is None else following)
    for states, kind, action, following in TRANSITIONS
    for state in states
}
_OPS: Final = {23: 1, 24: 2, 25: 3, 30: 1, 31: 2, 32: 3, 166: 1, 167: 2, 168: 3}


class RefusedError(Exception):
    """The machine refuses an event; the argument is the Action."""


@dataclass(slots=True)
class PlainTransaction:
    """A whole transaction.

    Attributes:
        gtid: its name.
        seq: its `seq`.
        ts: commit time.
        rows: (database, table, op, bytes from the column count on) of its rows events.
        silent: for each of them, whether InnoDB followed foreign keys by itself.
        began: for each of them, when its statement began, seconds by its session's clock; below 0
            where the session looked at no foreign keys.
    """

    gtid: str
    seq: int
    ts: int
    rows: list[tuple[str, str, int, bytes]] = field(default_factory=list)
    silent: list[bool] = field(default_factory=list)
    began: list[int] = field(default_factory=list)


@dataclass(slots=True)
class _Name:
    origin: str
    number: int
    server: int
    ts: int


class PlainReader:
    """Reads events one at a time.

    Attributes:
        transactions: the whole ones that the start did not contain, in stream order.
        executed: the set they make with the start.
        state: the machine's state.
        held_ts: commit time of the transaction that `not_after` stopped it before; None: none.

    Args:
        start: where the events begin.
        database: the one whose rows are of interest.
        not_after: end before the first transaction committed later, microseconds UTC.
    """

    def __init__(self, start: Position, *, database: str, not_after: int | None = None) -> None:
        self.flavor: Flavor = start.flavor
        self.executed: GtidSet = start.executed
        self.transactions: list[PlainTransaction] = []
        self.state = State.BETWEEN
        self.held_ts: int | None = None
        self._not_after = not_after
        self._database = database
        self._has_last = start.last is not None
        self._file = start.file
        self._open: tuple[_Name, PlainTransaction] | None = None
        self._maps: dict[int, tuple[str, str]] = {}
        self._points: dict[str, int] = {}

    def read(self, stream: Iterable[bytes], *, inner: bool = False) -> None:
        """Take events without checksums (header and body).

        Raises:
            RefusedError: the machine refuses one.
            DecodeError: one cannot be read.
        """
        for event in stream:
            (seconds, logged, server, size, end, flags) = struct.unpack_from("<IBIIIH", event)
            del size, flags
            body = event[19:]
            kind = self._kind(logged, body)
            action, following = _TABLE.get((self.state, kind), (Action.OUT_OF_ORDER, self.state))
            if self.state is State.BETWEEN:
                action = self._nameless(kind, action)
            if action >= Action.STOP:
                raise RefusedError(action)
            if action is Action.BEGIN and not self._begin(
                logged, body, server=server, seconds=seconds, end=end
            ):
                return
            self.state = following
            self._mind_points(logged, body, kind)
            if action is Action.MAP:
                database, at = _short(body, 8)
                self._maps[int.from_bytes(body[:6], "little")] = database, _short(body, at)[0]
            elif action is Action.TAKE and self._open is not None:
                self._take(logged, body, seconds)
            elif action is Action.END:
                self._end()
            elif action is Action.ABANDON:
                self._open = None
            if kind is Kind.PAYLOAD and not inner:
                self.read(_bare(b"".join(_pieces(body))), inner=True)

    def _kind(self, logged: int, body: bytes) -> Kind:
        kind = Kind(int(KIND_OF_TYPE[logged]))
        if kind is Kind.QUERY:
            query = events.parse_query(body, compressed=logged == 165, load=logged == 18)
            mode = Mode.of(query.sql_mode, mariadb=self.flavor == "mariadb")
            scope = Scope(database="", default=query.database, known=())
            return KIND_OF[classify(query.statement, mode=mode, scope=scope).form]
        if kind is Kind.XA_PREPARE and body[:1] == b"\1":
            return Kind.XA_ONE_PHASE
        if kind is Kind.GTID_GROUP and body[12] & 1:
            return Kind.GTID_SINGLE
        if kind is Kind.ROTATE:
            self._file = events.parse_rotate(body)[0]
        if kind is Kind.PARTIAL_ROWS and int.from_bytes(body[:6], "little") in self._maps:
            return Kind.OTHER_ROWS  # left out, and a mirrored table stops for it
        if kind is Kind.ROWS:
            found = self._maps.get(int.from_bytes(body[:6], "little"))
            return Kind.OTHER_ROWS if found and found[0] != self._database else kind
        return kind

    def _nameless(self, kind: Kind, action: Action) -> Action:
        """What has no name takes that of the transaction before; without one it is refused."""
        follows = bool(self.transactions or self._has_last)
        if kind in {Kind.STATEMENT, Kind.DML} and not (follows and self.flavor == "mysql"):
            return Action.OUT_OF_ORDER
        known = follows or bool(self.executed.intervals)
        return Action.INCIDENT if kind is Kind.INCIDENT and not known else action

    def _begin(self, logged: int, body: bytes, *, server: int, seconds: int, end: int) -> bool:
        """Begin a transaction; False if it is behind the bound."""
        name = self._name(logged, body, server=server, seconds=seconds, end=end)
        self._open = None
        gtid = Gtid(name.origin, name.number, name.server)
        if self.executed.contains(gtid):
            if self.flavor == "mariadb":
                raise RefusedError(Action.GTID_ORDER)
            return True
        if self._not_after is not None and name.ts > self._not_after:
            self.held_ts = name.ts
            return False
        first = name.number if self.flavor == "mysql" else 1
        after = self.executed.with_interval(name.origin, first, name.number, name.server)
        text = format_gtid(self.flavor, gtid)
        self._points = {}
        self._open = name, PlainTransaction(text, after.cardinality, name.ts)
        return True

    def _name(self, logged: int, body: bytes, *, server: int, seconds: int, end: int) -> _Name:
        if self.flavor == "mariadb":
            number, domain = struct.unpack_from("<QI", body)
            return _Name(str(domain), number, server, seconds * 1_000_000)
        if logged == 42:
            tagged = events.parse_tagged_gtid(body)
            origin, number, ts, length = tagged.origin, tagged.number, tagged.ts, tagged.length
        else:
            origin = body[1:17].hex()
            origin = "-".join((origin[:8], origin[8:12], origin[12:16], origin[16:20], origin[20:]))
            number = int.from_bytes(body[17:25], "little")
            ts = int.from_bytes(body[42:49], "little")
            at = 49
            if ts & 1 << 55:
                ts, at = ts & ~(1 << 55), 56
            width = {0xFC: 2, 0xFD: 3, 0xFE: 8}.get(body[at], 0)
            length = int.from_bytes(body[at + 1 : at + 1 + width], "little") or body[at]
        if self.flavor == "file":
            begin = end - (len(body) + 19 + 4)  # the tests' events have checksums
            packed = pack_file(self._file, begin + length)
            return _Name(packed.origin, packed.number, 0, ts)
        return _Name(origin, number, 0, ts)

    def _take(self, logged: int, body: bytes, seconds: int) -> None:
        number = int.from_bytes(body[:6], "little")
        if number not in self._maps:
            raise RefusedError(Action.UNMAPPED_ROWS)
        if self._open is None:
            raise DecodeError("rows outside a transaction")
        if logged >= 166:
            rows = events.uncompress_rows(body, version=1, update=logged == 167)
        else:
            extra = int.from_bytes(body[8:10], "little") if logged >= 30 else 0
            rows = body[8 + extra :]
        self._open[1].rows.append((*self._maps[number], _OPS[logged], rows))
        flags = int.from_bytes(body[6:8], "little")
        told = flags & (0x02 if self.flavor == "mariadb" else 0x12)
        self._open[1].silent.append(not told)
        self._open[1].began.append(-seconds if told == 0x02 else seconds)

    def _mind_points(self, logged: int, body: bytes, kind: Kind) -> None:
        """Mind savepoints, and leave out what is rolled back, or prepared to happen later."""
        minded = {Kind.SAVEPOINT, Kind.ROLLBACK, Kind.ROLLBACK_TO, Kind.XA_PREPARE}
        if self._open is None or kind not in minded:
            return
        lists = self._open[1].rows, self._open[1].silent, self._open[1].began
        if kind is Kind.XA_PREPARE:
            for one in lists:
                one.clear()
            return
        rows = lists[0]
        query = events.parse_query(body, compressed=logged == 165, load=logged == 18)
        point = savepoint_of(query.statement)
        if kind is Kind.SAVEPOINT:
            self._points[point] = len(rows)
        else:
            known = self._points.get(point, len(rows)) if point else len(rows)
            keep = 0 if kind is Kind.ROLLBACK else known
            for one in lists:
                del one[keep:]

    def _end(self) -> None:
        if self._open is None:
            return
        name, transaction = self._open
        first = name.number if self.flavor == "mysql" else 1
        self.executed = self.executed.with_interval(name.origin, first, name.number, name.server)
        self.transactions.append(transaction)
        self._open = None


def _short(body: bytes, at: int) -> tuple[str, int]:
    """A name behind its length of one byte and in front of a zero, and where the next one is."""
    end = at + 1 + body[at]
    return body[at + 1 : end].decode(), end + 1


def _bare(data: bytes) -> Iterable[bytes]:
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at + 9 : at + 13], "little")
        yield data[at : at + size]
        at += size
