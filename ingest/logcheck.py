"""A stretch of the change log beside the same stretch as mysql-replication read it, row for row.

Lives here: `LogCheck`, a pure comparison of two streams of transactions. Does not live here: change
files (`logfiles`), the server's log (`wire.secondlog`), when two values are the same (`logvalues`).

Both streams are in the order of the log and numbered by `seq`. A transaction of the one without a
counterpart is a difference, and so is a row too many or too few, another order, another value, a
token that does not name the place where the row stands.

Invariant: each row of the stretch on either side is compared, or counted in `not_compared` under a
reason; nothing is passed over in silence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final

from ratchet.core.change import DELETE, INSERT, UPDATE
from ratchet.core.errors import DecodeError
from ratchet.core.schema import TableSchema
from ratchet.core.types import InvalidValuePolicy
from ratchet.ingest.logvalues import NOT_COMPARED, ValueCheck, check_of
from ratchet.wire.secondlog import SecondTransaction
from ratchet.wire.secondrows import Image, SecondTable

KEPT: Final = 100  # differences that are described; all are counted
_SHOWN: Final = 80  # characters of a value
_OPS: Final = {INSERT: "insert", UPDATE: "update", DELETE: "delete"}
# Columns that a server keeps for itself: behind MariaDB's UNIQUE over a BLOB, and behind MySQL's
# functional indexes. The log has them, the mirror leaves them out.
_OWN_COLUMNS: Final = ("DB_ROW_HASH_", "!hidden!")


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeChange:
    """A row change of the change log.

    Attributes:
        round: the round that holds it.
        schema: of its file.
        op: core.change.INSERT, UPDATE or DELETE.
        token: as in core.change.TOKEN_TYPE, by field.
        before: image before it; None for inserts.
        after: image after it; None for deletes.
    """

    round: int
    schema: TableSchema
    op: int
    token: Mapping[str, Any]
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDifference:
    """What the change log and the server's log do not have alike.

    Attributes:
        what: in words.
        round: the round.
        gtid: the transaction.
        table: its own name; empty where it is about a whole transaction.
        row: place of the row change in its transaction, from 0; None where it is about no row.
        column: the column; empty where it is about no value.
        lake: what the lake has, for people.
        server: what the server's log has.
    """

    what: str
    round: int
    gtid: str
    table: str = ""
    row: int | None = None
    column: str = ""
    lake: str = ""
    server: str = ""


@dataclass(slots=True)
class LogResult:
    """What came of a stretch.

    Attributes:
        rows: row changes that were compared and are the same on both sides, or differ in a value.
        transactions: those with such rows.
        values: values that were compared.
        differences: how many there are.
        examples: the first of them.
        not_compared: what was not compared, and why -> how many rows of the lake, or values; 0: the
            lake has none of these.
    """

    rows: int = 0
    transactions: int = 0
    values: int = 0
    differences: int = 0
    examples: list[LogDifference] = field(default_factory=list)
    not_compared: Counter[str] = field(default_factory=Counter)

    def differ(self, found: LogDifference) -> None:
        """Count a difference."""
        self.differences += 1
        if len(self.examples) < KEPT:
            self.examples.append(found)


@dataclass(frozen=True, slots=True)
class _Columns:
    """How the columns of a file and of a table map are compared."""

    checks: tuple[tuple[str, int, ValueCheck], ...]
    wrong: tuple[str, ...]  # columns of one side only
    left: tuple[tuple[str, str], ...]  # columns that are not compared, and why


class LogCheck:
    """The comparison of one stream's stretches; they are given one after the other.

    Attributes:
        result: what was found so far.

    Args:
        shard: ShardId as text, as the tokens have it.
        generation: lineage generation of the stream.
        policy: see core.types.
        left_out: (table, round, seq) -> why rows of it are not compared; empty: they are.
    """

    def __init__(
        self,
        *,
        shard: str,
        generation: int,
        policy: InvalidValuePolicy,
        left_out: Callable[[str, int, int], str] = lambda *_: "",
    ) -> None:
        self.result = LogResult()
        self._shard, self._generation = shard, generation
        self._policy = policy
        self._left_out = left_out
        self._columns: dict[tuple[int, int], tuple[TableSchema, SecondTable, _Columns]] = {}

    def compare(
        self,
        ours: Iterable[LakeChange],
        theirs: Iterable[SecondTransaction],
        *,
        round_of: Callable[[int], int],
        whole: Callable[[], bool] = lambda: True,
    ) -> None:
        """Compare a stretch.

        Args:
            ours: its row changes in the change log, by seq and idx.
            theirs: its transactions.
            round_of: seq -> the round that has to hold it.
            whole: asked behind the last one of `theirs`: whether there are no more of them.
        """
        groups = groupby(ours, key=lambda change: int(change.token["seq"]))
        held = next(groups, None)
        for transaction in theirs:
            while held is not None and held[0] < transaction.seq:
                self._only_in_lake(held[1])
                held = next(groups, None)
            number = round_of(transaction.seq)
            if held is not None and held[0] == transaction.seq:
                self._transaction(held[1], transaction, number)
                held = next(groups, None)
            elif transaction.rows or transaction.unread:
                self._transaction(iter(()), transaction, number)
        while held is not None and whole():
            self._only_in_lake(held[1])
            held = next(groups, None)

    def _only_in_lake(self, changes: Iterator[LakeChange]) -> None:
        for first in changes:
            if self._why_not(first.schema.table, first.round, int(first.token["seq"])):
                continue
            self.result.differ(
                LogDifference(
                    what="the server's log has no such transaction here",
                    round=first.round,
                    gtid=str(first.token["gtid"]),
                    table=first.schema.table,
                    row=int(first.token["idx"]),
                    lake=f"{_OPS.get(first.op, first.op)} at {first.token['seq']}",
                )
            )
            return

    def _why_not(self, table: str, number: int, seq: int, unread: str = "") -> str:
        """Why a row's table is not compared; counts the row if so."""
        why = unread or self._left_out(table, number, seq)
        if why:
            self.result.not_compared[f"{table}: {why}"] += 1
        return why

    # --- a transaction ----------------------------------------------------------------------------

    def _transaction(
        self, changes: Iterator[LakeChange], other: SecondTransaction, number: int
    ) -> None:
        if other.unread:
            self.result.not_compared[f"transactions: {other.unread}"] += 1
            return
        unread = {one.table.name: one.table.unread for one in other.rows if one.table.unread}
        ours = self._comparable(changes, other, number, unread)
        theirs = self._decoded(other, number, unread)
        compared = 0
        while True:
            try:
                server = next(theirs, None)
            except DecodeError as error:
                self.result.not_compared[f"rows of a transaction: {error.message}"] += 1
                break
            lake = next(ours, None)
            if lake is None and server is None:
                break
            if not self._row(lake, server, other, number, compared):
                break
            compared += 1
        if compared and not other.gtid:
            self.result.not_compared["names of transactions (tagged GTIDs)"] += 1
        self.result.rows += compared
        self.result.transactions += bool(compared)

    def _comparable(
        self,
        changes: Iterator[LakeChange],
        other: SecondTransaction,
        number: int,
        unread: Mapping[str, str],
    ) -> Iterator[LakeChange]:
        """The lake's rows, without those that are not compared; looks at their tokens."""
        for place, change in enumerate(changes):
            token, table = change.token, change.schema.table
            expected = {
                "shard": self._shard,
                "generation": self._generation,
                "gtid": other.gtid or token["gtid"],
                "idx": place,
            }
            odd = [name for name, value in expected.items() if token[name] != value]
            if change.round != number:
                odd.append("round")
            if odd:
                named = {**token, "round": change.round}
                right = {**expected, "round": number}
                self.result.differ(
                    LogDifference(
                        what="the row's token names another place",
                        round=change.round,
                        gtid=other.gtid,
                        table=table,
                        row=place,
                        column=", ".join(odd),
                        lake=", ".join(str(named[name]) for name in odd),
                        server=", ".join(str(right[name]) for name in odd),
                    )
                )
            if not self._why_not(table, number, other.seq, unread.get(table, "")):
                yield change

    def _decoded(
        self, other: SecondTransaction, number: int, unread: Mapping[str, str]
    ) -> Iterator[tuple[SecondTable, int, Image | None, Image | None]]:
        for event in other.rows:
            table = event.table
            why = unread.get(table.name, "") or self._left_out(table.name, number, other.seq)
            if why:  # it is the lake's rows that are counted; there may be none
                self.result.not_compared[f"{table.name}: {why}"] += 0
                continue
            for op, before, after in event.changes():
                yield table, op, before, after

    def _row(
        self,
        lake: LakeChange | None,
        server: tuple[SecondTable, int, Image | None, Image | None] | None,
        other: SecondTransaction,
        number: int,
        place: int,
    ) -> bool:
        """Compare one row change; False if what follows in the transaction makes no sense."""
        ours = None if lake is None else (lake.schema.table, _OPS.get(lake.op, str(lake.op)))
        theirs = None if server is None else (server[0].name, _OPS[server[1]])
        if lake is None or server is None or ours != theirs:
            self.result.differ(
                LogDifference(
                    what=_event_differs(ours, theirs),
                    round=number,
                    gtid=other.gtid or ("" if lake is None else str(lake.token["gtid"])),
                    table=(theirs or ours or ("",))[0],
                    row=place,
                    lake=" ".join(reversed(ours or ("nothing",))),
                    server=" ".join(reversed(theirs or ("nothing",))),
                )
            )
            return False
        columns = self._columns_of(lake.schema, server[0])
        for name, why in columns.left:
            self.result.not_compared[f"{lake.schema.table}.{name}: {why}"] += 1
        if columns.wrong:
            self._differs("other columns", lake, number, place, column=", ".join(columns.wrong))
        _, _, before, after = server
        self._image("before", lake, lake.before, before, columns, number, place)
        self._image("after", lake, lake.after, after, columns, number, place)
        return True

    def _image(  # noqa: PLR0917
        self,
        which: str,
        change: LakeChange,
        lake: Mapping[str, Any] | None,
        server: Image | None,
        columns: _Columns,
        number: int,
        place: int,
    ) -> None:
        if lake is None or server is None:
            if lake is not None or server is not None:
                self._differs(f"there is no row {which} the change", change, number, place)
            return
        self.result.values += len(columns.checks)
        for name, at, check in columns.checks:
            outcome = check.outcome(lake[name], server[at])
            if outcome is True:
                continue
            if outcome is NOT_COMPARED:
                self.result.values -= 1
                self.result.not_compared[_unread(change.schema, name)] += 1
                continue
            self._differs(
                f"the value {which} the change",
                change,
                number,
                place,
                column=name,
                lake=_shown(lake[name]),
                server=_shown(None if server[at] is None else check.theirs(server[at])),
            )

    def _differs(
        self,
        what: str,
        change: LakeChange,
        number: int,
        place: int,
        *,
        column: str = "",
        lake: str = "",
        server: str = "",
    ) -> None:
        self.result.differ(
            LogDifference(
                what=what,
                round=number,
                gtid=str(change.token["gtid"]),
                table=change.schema.table,
                row=place,
                column=column,
                lake=lake,
                server=server,
            )
        )

    def _columns_of(self, schema: TableSchema, table: SecondTable) -> _Columns:
        key = id(schema), id(table)  # of objects that the entry keeps
        found = self._columns.get(key)
        if found is None:
            found = schema, table, _matched(schema, table, self._policy)
            self._columns[key] = found
        return found[2]


def _matched(schema: TableSchema, table: SecondTable, policy: InvalidValuePolicy) -> _Columns:
    places = {column.name: at for at, column in enumerate(table.columns)}
    checks, left, wrong = [], [], []
    for column in schema.columns:
        at = places.pop(column.name, None)
        if at is None:
            wrong.append(column.name)
            continue
        check = check_of(column, table.columns[at], policy)
        if isinstance(check, str):
            left.append((column.name, check))
        else:
            checks.append((column.name, at, check))
    wrong += [name for name in places if not name.startswith(_OWN_COLUMNS)]
    return _Columns(tuple(checks), tuple(wrong), tuple(left))


def _event_differs(ours: tuple[str, str] | None, theirs: tuple[str, str] | None) -> str:
    if ours is None:
        return "a row change is missing in the lake"
    if theirs is None:
        return "a row change is only in the lake"
    return "another row change is in the lake: one is missing, too many, or the order differs"


def _unread(schema: TableSchema, column: str) -> str:
    kind = schema.column(column).type
    charset = f" in {kind.charset}" if kind.charset else ""
    return f"{schema.table}.{column}: values of {kind.name}{charset} that mysql-replication loses"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... ({len(text):,} characters)"
