"""ALTER TABLE: what each of its specifications does to rows and values.

Lives here: the grammar behind the table's name, and the effect of each specification. Does not
live here: columns and keys (`columns`), options and partitions (`options`), whose table it is
(`statements`).

Row events describe their own columns, so most changes show by themselves. What does not is told
here: columns that come with NULL in all rows, types that may rewrite values, what moves rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

from ratchet.core.sql.columns import check, definition, index_body, references
from ratchet.core.sql.cursor import NotUnderstoodError, TokenCursor
from ratchet.core.sql.effects import (
    COLUMN_GOES,
    COLUMN_RENAMED,
    KEY_GOES,
    MISPLACED,
    MOVED,
    AddedColumn,
    Change,
    PartitionStep,
    TableChanges,
    TableName,
)
from ratchet.core.sql.lexer import SqlToken
from ratchet.core.sql.options import option, partition_by, partitions

_FOREIGN: Final = Change("foreign_key", "its foreign keys changed")
_KEY: Final = Change("key", KEY_GOES)
_ROWS: Final = Change("rows", MOVED)
_TYPES: Final = Change("types", "a column's type may have changed")
_PRIMARY: Final = Change("types", "it has another primary key")
_KEY_DROPPED: Final = Change("rows", KEY_GOES)
# Of RANGE partitions the server lets the whole range stay or grow; of others it asks nothing.
_LISTED: Final = Change("doubt", "REORGANIZE PARTITION deletes rows that no new partition takes")
_CONSTRAINTS: Final = frozenset(["PRIMARY", "UNIQUE", "FOREIGN", "CHECK"])
_PAIRS: Final = 5_000  # of names that are compared letter by letter; hardly an ALTER has as many
_INDEX_KINDS: Final = ("FULLTEXT", "SPATIAL", "VECTOR")


@dataclass(slots=True)
class Alteration:
    """What an ALTER TABLE does.

    Attributes:
        changes: to the table itself.
        others: to other tables that it names.
        nulls: columns that come, and are NULL in all rows that were there.
        touched: columns of which it says more than their definition: where one comes and has its
            default set by the same statement, MariaDB fills it with that.
        heeds_default: see `statements.Log`.
        added: columns that come, none of them the key.
        dropped: columns that go.
        renamed: columns that change their names: (old, new).
        retyped: columns that are defined anew.
        keys: the columns of each primary key that comes; None: not told by whole columns.
        partitions: what it does to partitions, in order.
    """

    changes: list[Change] = field(default_factory=list)
    others: list[tuple[TableName, Change]] = field(default_factory=list)
    nulls: list[str] = field(default_factory=list)
    touched: set[str] = field(default_factory=set)
    heeds_default: bool = False
    added: list[AddedColumn] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    renamed: list[tuple[str, str]] = field(default_factory=list)
    retyped: list[str] = field(default_factory=list)
    keys: list[tuple[str, ...] | None] = field(default_factory=list)
    partitions: list[PartitionStep] = field(default_factory=list)

    def columns(self) -> TableChanges | None:
        """What it does to columns; None if it does, or may do, anything else to rows."""
        changes, key = self.changes, self._key()
        if key:
            changes = [one for one in changes if one is not _PRIMARY and one is not _KEY_DROPPED]
        told = len(self.added) + len(self.dropped) + len(self.renamed)
        others = [one for one in changes if one is not _TYPES and one.effect != "rows"]
        moved = sum(one.effect == "rows" for one in changes)
        retyped = sum(one is _TYPES for one in self.changes)
        if others or self.others or moved + len(self.nulls) != told:
            return None
        if retyped != len(self.retyped):
            return None  # of which columns is not told
        come = [one.name for one in self.added]
        if _with_a_value(come, self.touched) is not None:
            return None
        return TableChanges(
            added=tuple(self.added),
            dropped=tuple(self.dropped),
            renamed=tuple(self.renamed),
            retyped=tuple(self.retyped),
            key=key,
        )

    def emptied(self) -> PartitionStep | None:
        """The partitions whose rows it takes away; None if it does, or may do, anything else."""
        step = self.partitions[0] if len(self.partitions) == 1 else None
        if step is None or step.kind not in {"emptied", "dropped"} or not step.names:
            return None
        return step if self.changes == [_ROWS] and not (self.others or self.nulls) else None

    def names_column(self, name: str) -> bool:
        """Whether it may do something to a column of that name."""
        named = {*self.touched, *self.dropped, *self.retyped, *(one.name for one in self.added)}
        named |= {one for pair in self.renamed for one in pair}
        return any(_may_be_one(name, other) for other in named)

    def _key(self) -> tuple[str, ...]:
        """The primary key that takes the place of another one; none: that is not what it does."""
        drops = sum(one is _KEY_DROPPED for one in self.changes)
        (come,) = self.keys if len(self.keys) == 1 else (None,)
        return come if drops == 1 and come is not None else ()

    def settle(self) -> None:
        """Say so where a column comes with a value after all."""
        name = _with_a_value(self.nulls, self.touched)
        if name is not None:
            self.changes.append(_added(name))

    def all_changes(self) -> tuple[Change, ...]:
        """Those of the table itself, each kind once; what moves rows is all there is to say."""
        moved = [one for one in self.changes if one.effect == "rows"]
        if moved:
            return (moved[0],)
        found = {one.effect: one for one in reversed(self.changes)}
        come = [Change("columns", nulls=tuple(self.nulls))] if self.nulls else []
        return (*come, *reversed(found.values()))


def alter_table(
    cursor: TokenCursor, *, ignore: bool, heeds_default: bool
) -> tuple[Alteration, str]:
    """Take all that follows the table's name.

    Args:
        cursor: there.
        ignore: whether it is an ALTER IGNORE.
        heeds_default: see `statements.Log`.

    Returns:
        What was understood, and what was not; empty if everything was.
    """
    found = Alteration(heeds_default=heeds_default)
    problem = ""
    try:
        waiting(cursor)
        while not cursor.done:
            if cursor.sign(","):
                continue
            _specification(cursor, found)
            # Options may follow each other without commas, as may what is about partitions.
    except NotUnderstoodError as error:
        problem = str(error)
    found.settle()
    if ignore:
        found.changes.append(Change("doubt", "ALTER IGNORE may have deleted rows or cut values"))
    return found, problem


def waiting(cursor: TokenCursor) -> bool:
    """MariaDB's WAIT n, NOWAIT."""
    if cursor.accept("NOWAIT"):
        return True
    if not cursor.accept("WAIT"):
        return False
    if not cursor.number():
        raise cursor.stuck()
    return True


def how(cursor: TokenCursor) -> bool:
    """Take how it is to be done: ALGORITHM, LOCK, VALIDATION, WAIT."""
    if cursor.one_of("ALGORITHM", "LOCK"):
        cursor.sign("=")
        cursor.name()
        return True
    return (
        cursor.accept("WITH", "VALIDATION") or cursor.accept("WITHOUT", "VALIDATION")
    ) or waiting(cursor)


def _specification(cursor: TokenCursor, found: Alteration) -> None:
    judge = _HEADS.get(cursor.peek().word)
    if judge is not None:
        cursor.take()
        judge(cursor, found)
    elif not (_partition(cursor, found) or _whole_table(cursor, found) or how(cursor)):
        there, change, union = option(cursor)
        if not there:
            raise cursor.stuck()
        if change is not None:
            found.changes.append(change)
        if union:
            _union(TokenCursor(union), found)


def _with_a_value(nulls: Sequence[str], touched: Collection[str]) -> str | None:
    """The first of some columns that another clause may name; None: none does."""
    plain = {other.casefold() for other in touched if other.isascii()}
    odd = [other for other in touched if not other.isascii()]
    pairs = 0
    for name in nulls:
        others = odd if name.isascii() else touched
        pairs += len(others)  # a statement may have thousands of both
        hit = name.casefold() in plain or pairs > _PAIRS
        if hit or any(_may_be_one(name, other) for other in others):
            return name
    return None


def _may_be_one(name: str, other: str) -> bool:
    """Whether two names may be one column's: servers ignore case, and marks on letters."""
    return len(name) == len(other) and all(
        a.casefold() == b.casefold() or not (a + b).isascii()
        for a, b in zip(name, other, strict=True)
    )


def _added(name: str) -> Change:
    return Change("rows", f"its columns changed (added {name})")


def _modify(cursor: TokenCursor, found: Alteration) -> None:
    cursor.accept("COLUMN")
    cursor.accept("IF", "EXISTS")
    name = cursor.name()
    found.touched.add(name)
    found.retyped.append(name)
    _retype(cursor, found)


def _change(cursor: TokenCursor, found: Alteration) -> None:
    cursor.accept("COLUMN")
    cursor.accept("IF", "EXISTS")
    old, new = cursor.name(), cursor.name()
    found.touched.add(old)
    found.retyped.append(old)
    if old != new:
        found.renamed.append((old, new))
        found.changes.append(Change("rows", COLUMN_RENAMED))
    _retype(cursor, found)


def _place(cursor: TokenCursor) -> None:
    if not cursor.accept("FIRST") and cursor.accept("AFTER"):
        cursor.name()


def _retype(cursor: TokenCursor, found: Alteration) -> None:
    made = definition(cursor)
    _place(cursor)
    if made.odd:
        found.changes.append(Change("doubt", made.odd))
    found.changes.append(_TYPES)
    if made.references:
        found.changes.append(_FOREIGN)


def _add(cursor: TokenCursor, found: Alteration) -> None:
    if cursor.accept("PARTITION"):
        found.partitions.append(PartitionStep("added"))
        cursor.accept("IF", "NOT", "EXISTS")
        _local(cursor)
        if cursor.accept("PARTITIONS"):
            if not cursor.number():
                raise cursor.stuck()
        else:
            partitions(cursor)
    elif not (add_key(cursor, found) or _add_columns(cursor, found)):
        raise cursor.stuck()


def add_key(cursor: TokenCursor, found: Alteration) -> bool:
    """Take a key or a constraint, where its name may be missing; whether there was one."""
    if cursor.one_of(*_INDEX_KINDS):
        cursor.one_of("INDEX", "KEY")
        _named_index(cursor)
        return True
    if cursor.one_of("INDEX", "KEY"):
        _named_index(cursor)
        return True
    if cursor.accept("CONSTRAINT"):
        cursor.accept("IF", "NOT", "EXISTS")
        if cursor.peek().word not in _CONSTRAINTS:
            cursor.name()
    return _constraint(cursor, found)


def _constraint(cursor: TokenCursor, found: Alteration) -> bool:
    if cursor.accept("PRIMARY", "KEY"):
        cursor.accept("IF", "NOT", "EXISTS")
        if cursor.peek().text != "(" and cursor.peek().word not in {"USING", "TYPE"}:
            cursor.name()
        begin = cursor.at
        index_body(cursor)
        found.touched |= cursor.names_since(begin)
        found.changes.append(_PRIMARY)
        found.keys.append(_whole_columns(TokenCursor(cursor.taken_since(begin))))
    elif cursor.accept("UNIQUE"):
        cursor.one_of("INDEX", "KEY")
        _named_index(cursor)
    elif cursor.accept("FOREIGN", "KEY"):
        cursor.accept("IF", "NOT", "EXISTS")
        if cursor.peek().text != "(":
            cursor.name()
        cursor.need_parens()
        references(cursor)
        found.changes.append(_FOREIGN)
    elif cursor.peek().word == "CHECK":
        check(cursor)
    else:
        return False
    return True


def _whole_columns(cursor: TokenCursor) -> tuple[str, ...] | None:
    """The columns of a key; None where some are only parts of columns, or no columns."""
    if cursor.one_of("USING", "TYPE"):
        cursor.name()
    inner = TokenCursor(cursor.need_parens())
    names = []
    while True:
        names.append(inner.name())
        inner.one_of("ASC", "DESC")
        if not inner.sign(","):
            break
    return tuple(names) if inner.done else None


def _named_index(cursor: TokenCursor) -> None:
    cursor.accept("IF", "NOT", "EXISTS")
    if cursor.peek().text != "(" and cursor.peek().word not in {"USING", "TYPE"}:
        cursor.name()
    index_body(cursor)


def _add_columns(cursor: TokenCursor, found: Alteration) -> bool:
    if cursor.peek().word in {"PERIOD", "SYSTEM"}:
        return False
    cursor.accept("COLUMN")
    if_absent = cursor.accept("IF", "NOT", "EXISTS")
    inside = cursor.parens()
    if inside is None:
        _add_column(cursor, found, if_absent=if_absent)
        _place(cursor)
        return True
    inner = TokenCursor(inside)
    while True:
        if not add_key(inner, found):
            _add_column(inner, found, if_absent=if_absent)
        if not inner.sign(","):
            break
    if not inner.done:
        raise inner.stuck()
    return True


def _add_column(cursor: TokenCursor, found: Alteration, *, if_absent: bool) -> None:
    name = cursor.name()
    made = definition(cursor)
    if made.references:
        found.changes.append(_FOREIGN)
    if not (made.is_key or made.references):
        found.added.append(
            AddedColumn(
                name,
                made.tokens,
                made.default,
                made.not_null,
                if_absent=if_absent,
                is_told=made.constant and not made.odd,
            )
        )
    if made.null_in_all_rows(heeds_default=found.heeds_default):
        found.nulls.append(name)
    else:
        found.changes.append(_added(name))


def _drop(cursor: TokenCursor, found: Alteration) -> None:
    if cursor.accept("PRIMARY", "KEY"):
        found.changes.append(_KEY_DROPPED)
    elif cursor.one_of("INDEX", "KEY"):
        cursor.accept("IF", "EXISTS")
        primary = cursor.name().upper() == "PRIMARY"
        found.changes.append(Change("rows", KEY_GOES) if primary else _KEY)
    elif cursor.accept("FOREIGN", "KEY"):
        cursor.accept("IF", "EXISTS")
        cursor.name()
        found.changes.append(_FOREIGN)
    elif cursor.accept("CONSTRAINT"):
        cursor.accept("IF", "EXISTS")
        primary = cursor.name().upper() == "PRIMARY"
        found.changes += [Change("rows", KEY_GOES) if primary else _KEY, _FOREIGN]
    elif cursor.accept("CHECK"):
        cursor.name()
    elif cursor.accept("PARTITION"):
        found.partitions.append(PartitionStep("dropped", _partition_names(cursor)))
        found.changes.append(_ROWS)
    elif cursor.peek().word in {"PERIOD", "SYSTEM"} and cursor.peek(1).word in {
        "FOR", "VERSIONING",
    }:  # fmt: skip
        raise cursor.stuck()
    else:
        cursor.accept("COLUMN")
        cursor.accept("IF", "EXISTS")
        found.dropped.append(cursor.name())
        cursor.one_of("RESTRICT", "CASCADE")
        found.changes.append(Change("rows", COLUMN_GOES))


def _rename(cursor: TokenCursor, found: Alteration) -> None:
    if cursor.accept("COLUMN"):
        cursor.accept("IF", "EXISTS")
        old = cursor.name()
        cursor.need("TO")
        found.renamed.append((old, cursor.name()))
        found.changes.append(Change("rows", COLUMN_RENAMED))
    elif cursor.one_of("INDEX", "KEY"):
        cursor.accept("IF", "EXISTS")
        cursor.name()
        cursor.need("TO")
        cursor.name()
    else:
        if not cursor.one_of("TO", "AS"):
            cursor.sign("=")
        found.changes.append(_ROWS)
        found.others.append((TableName(*cursor.table()), _ROWS))


def _alter(cursor: TokenCursor, found: Alteration) -> None:
    """ALTER of a column's default, or of who sees an index or heeds a constraint."""
    if cursor.one_of("INDEX", "KEY", "CHECK", "CONSTRAINT"):
        cursor.accept("IF", "EXISTS")
        cursor.name()
        known = (
            cursor.one_of("VISIBLE", "INVISIBLE", "IGNORED", "ENFORCED")
            or cursor.accept("NOT", "IGNORED")
            or cursor.accept("NOT", "ENFORCED")
        )
        if not known:
            raise cursor.stuck()
        return
    cursor.accept("COLUMN")
    cursor.accept("IF", "EXISTS")
    found.touched.add(cursor.name())
    if cursor.accept("DROP", "DEFAULT"):
        return
    cursor.need("SET")
    if cursor.one_of("VISIBLE", "INVISIBLE"):
        return
    cursor.need("DEFAULT")
    if cursor.parens() is None and not cursor.literal():
        cursor.name()
        cursor.parens()


def _convert(cursor: TokenCursor, found: Alteration) -> None:
    if cursor.accept("TO", "CHARACTER", "SET") or cursor.accept("TO", "CHARSET"):
        for _ in range(2):
            cursor.sign("=")
            if not cursor.string():
                cursor.name()
            if not cursor.accept("COLLATE"):
                break
        found.changes.append(_TYPES)
    elif cursor.accept("PARTITION"):
        found.partitions.append(PartitionStep("other"))
        cursor.name()
        cursor.need("TO", "TABLE")
        found.changes.append(_ROWS)
        found.others.append((TableName(*cursor.table()), _ROWS))
        waiting(cursor)
    elif cursor.accept("TABLE"):
        found.partitions.append(PartitionStep("other"))
        found.changes.append(_ROWS)
        found.others.append((TableName(*cursor.table()), _ROWS))
        cursor.need("TO", "PARTITION")
        cursor.at += len(cursor.rest())
    else:
        raise cursor.stuck()


def _whole_table(cursor: TokenCursor, found: Alteration) -> bool:
    """What is about all rows."""
    if cursor.one_of("DISCARD", "IMPORT"):
        cursor.need("TABLESPACE")
        found.changes.append(_ROWS)
    elif cursor.one_of("DISABLE", "ENABLE"):
        cursor.need("KEYS")
    elif cursor.accept("ORDER", "BY"):
        cursor.table()
        cursor.one_of("ASC", "DESC")
        while cursor.sign(","):
            cursor.table()
            cursor.one_of("ASC", "DESC")
    elif not cursor.accept("FORCE"):
        return False
    return True


def _partition(cursor: TokenCursor, found: Alteration) -> bool:
    if cursor.accept("PARTITION", "BY"):
        partition_by(cursor)
    elif cursor.accept("COALESCE", "PARTITION"):
        _local(cursor)
        if not cursor.number():
            raise cursor.stuck()
    elif cursor.accept("REORGANIZE", "PARTITION"):
        _reorganize(cursor, found)
        return True
    elif cursor.accept("EXCHANGE", "PARTITION"):
        cursor.name()
        cursor.need("WITH", "TABLE")
        found.others.append((TableName(*cursor.table()), _ROWS))
        unchecked = cursor.accept("WITHOUT", "VALIDATION")
        found.changes.append(Change("rows", MISPLACED) if unchecked else _ROWS)
    elif cursor.accept("TRUNCATE", "PARTITION"):
        found.partitions.append(PartitionStep("emptied", _partition_names(cursor)))
        found.changes.append(_ROWS)
        return True
    elif cursor.peek(1).word == "PARTITION" and cursor.one_of("DISCARD", "IMPORT"):
        cursor.need("PARTITION")
        _partition_names(cursor)
        cursor.accept("TABLESPACE")
        found.changes.append(_ROWS)
    elif cursor.peek(1).word == "PARTITION" and cursor.one_of(
        "ANALYZE", "CHECK", "OPTIMIZE", "REBUILD"
    ):
        cursor.need("PARTITION")
        _local(cursor)
        _partition_names(cursor)
        return True
    elif not cursor.accept("REMOVE", "PARTITIONING"):
        return False
    found.partitions.append(PartitionStep("other"))
    return True


def _reorganize(cursor: TokenCursor, found: Alteration) -> None:
    _local(cursor)
    if cursor.peek().word == "INTO" or cursor.done:
        found.partitions.append(PartitionStep("other"))
        return  # of HASH or KEY, and all of them
    found.partitions.append(PartitionStep("reorganized", _partition_names(cursor)))
    cursor.need("INTO")
    if not _are_ranges(cursor.rest()):
        found.changes.append(_LISTED)
    partitions(cursor)


def _are_ranges(tokens: Sequence[SqlToken]) -> bool:
    """Whether each partition of a list says VALUES LESS THAN. Its name may be any word."""
    depth, begins = 0, []
    for at, token in enumerate(tokens):
        if token.kind == "sign" and token.text in "()":
            depth += 1 if token.text == "(" else -1
        elif depth == 1 and tokens[at - 1].text in {"(", ","} and token.word == "PARTITION":
            begins.append(at)
    ranges = [[token.word for token in tokens[at + 2 : at + 5]] for at in begins]
    return bool(ranges) and all(words == ["VALUES", "LESS", "THAN"] for words in ranges)


def _local(cursor: TokenCursor) -> None:
    cursor.one_of("NO_WRITE_TO_BINLOG", "LOCAL")


def _partition_names(cursor: TokenCursor) -> tuple[str, ...]:
    """The names; none: all."""
    cursor.accept("IF", "EXISTS")
    if cursor.accept("ALL"):
        return ()
    names = [cursor.name()]
    while cursor.peek().text == "," and cursor.peek(1).kind in {"word", "name"}:
        cursor.take()
        names.append(cursor.name())
    return tuple(names)


def _union(cursor: TokenCursor, found: Alteration) -> None:
    why = Change("rows", "a MERGE table changes its rows without row events of its own")
    while not cursor.done:
        found.others.append((TableName(*cursor.table()), why))
        cursor.sign(",")


_HEADS: Final[dict[str, Callable[[TokenCursor, Alteration], None]]] = {
    "ADD": _add,
    "DROP": _drop,
    "MODIFY": _modify,
    "CHANGE": _change,
    "RENAME": _rename,
    "ALTER": _alter,
    "CONVERT": _convert,
}
