"""The foreign keys that change rows, as a server describes them.

Lives here: the queries, and what of a key can be followed outside of the server. Does not live
here: the connection (a query function comes in from outside), following them (`merge.cascades`).

Invariant: each key of the database that changes rows is given, also where information_schema hides
its rule: MariaDB shows REFERENTIAL_CONSTRAINTS to nobody who may only SELECT, and says nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Final

from ratchet.core.errors import DecodeError, TableStoppedError
from ratchet.core.foreignkeys import ForeignKey, Rule
from ratchet.wire.decode.answers import (
    as_flag,
    as_name,
    as_text,
    as_whole,
    or_null,
    settled,
    shaped,
    single,
)
from ratchet.wire.decode.views import beside_views

Query = Callable[[str, Sequence[object]], Sequence[Sequence[Any]]]

_PARTS: Final = """
SELECT table_name, constraint_name, column_name, referenced_table_schema, referenced_table_name,
       referenced_column_name, table_schema
  FROM information_schema.key_column_usage
 WHERE table_schema = %s AND referenced_table_name IS NOT NULL
 ORDER BY table_name, constraint_name, ordinal_position
"""
_RULES: Final = """
SELECT table_name, constraint_name, delete_rule, update_rule
  FROM information_schema.referential_constraints
 WHERE constraint_schema = %s
"""
_COLUMNS: Final = """
SELECT table_name, column_name, data_type, column_type, character_set_name, collation_name, extra,
       generation_expression
  FROM information_schema.columns
 WHERE table_schema = %s
"""
_INDEXES: Final = """
SELECT table_name, index_name, column_name, sub_part, non_unique
  FROM information_schema.statistics
 WHERE table_schema = %s
 ORDER BY table_name, index_name, seq_in_index
"""
# Within a statement of theirs InnoDB goes by the setting of the last substatement, and the log's
# flags by that of the first row of an event. Procedures matter where one of the others calls them.
_SWITCHES: Final = """
SELECT LOWER(routine_type), routine_name, routine_definition LIKE '%%foreign_key_checks%%',
       routine_definition LIKE '%%call%%'
  FROM information_schema.routines WHERE routine_schema = %s
UNION ALL
SELECT 'trigger', trigger_name, action_statement LIKE '%%foreign_key_checks%%',
       action_statement LIKE '%%call%%'
  FROM information_schema.triggers WHERE event_object_schema = %s
"""
_NATIVE: Final = "SHOW GLOBAL VARIABLES LIKE 'innodb_native_foreign_keys'"
# What ends the line of a key in SHOW CREATE TABLE. Nothing of a name is in it.
_END: Final = re.compile(r"\)([A-Z ]*),?$")
_ON: Final = re.compile(r"ON (DELETE|UPDATE) (CASCADE|SET NULL|NO ACTION|RESTRICT|SET DEFAULT)")
_KINDS: Final[Mapping[str, Rule]] = {"CASCADE": "cascade", "SET NULL": "set null"}
_TEXT: Final = frozenset({"char", "varchar", "tinytext", "text", "mediumtext", "longtext"})
_LABELS: Final = frozenset({"enum", "set"})
# Types whose values are equal if, and only if, they are the same. Not FLOAT and DOUBLE (-0 = 0).
_EXACT: Final = frozenset({
    "tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "year", "bit", "date", "time",
    "datetime", "timestamp", "binary", "varbinary", "uuid", "inet4", "inet6", *_LABELS,
})  # fmt: skip
_PAUSES: Final = (0.05, 0.2, 1.0, 3.0)  # seconds between tries
_WIDTH: Final = re.compile(r"\(\d+\)")
_INTEGERS: Final = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint", "year"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignKeys:
    """The foreign keys of one database that change rows.

    Attributes:
        by_table: child table -> its keys, by name.
        logged: whether the server logs what it changes by them (MySQL since 9.6, unless
            innodb_native_foreign_keys is on).
    """

    by_table: Mapping[str, tuple[ForeignKey, ...]]
    logged: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    """A column as far as it matters."""

    kind: str
    declared: str
    charset: str
    collation: str
    generated: bool
    virtual: bool
    expression: str


def read_foreign_keys(
    query: Query, *, database: str, tables: Iterable[str] | None = None
) -> ForeignKeys:
    """The keys of a database's tables that change rows.

    Args:
        query: runs a statement with arguments (%s) and returns its rows.
        database: the database's name on the server.
        tables: only of these; None: of all.

    Raises:
        DecodeError: a key's rule cannot be read.
        TableStoppedError: a table was dropped each time that it was asked about.
    """
    # Seen on MariaDB, under a stream of ALTER.
    return settled(
        lambda: _read(query, database, tables),
        pauses=_PAUSES,
        unless=(DecodeError, TableStoppedError),
    )


def _read(query: Query, database: str, tables: Iterable[str] | None) -> ForeignKeys:
    wanted = None if tables is None else set(tables)
    parts: dict[tuple[str, str], list[tuple[str, ...]]] = {}
    for table, name, column, of, parent, theirs, own in shaped(
        query(_PARTS, [database]), *([as_name] * 7)
    ):
        if wanted is None or table in wanted:
            # A vtgate takes its own name of a database, and answers with the server's.
            other = "" if of == own else of
            parts.setdefault((table, name), []).append((column, other, parent, theirs))
    logged = _is_logged(query)
    if not parts:
        return ForeignKeys(by_table={}, logged=logged)
    rules = _rules(query, database, parts)
    changing = {one: rules[one] for one in parts if rules[one] != ("none", "none")}
    databases = {"", *(parts[one][0][1] for one in changing)}
    columns = {name: _columns(query, name or database) for name in databases} if changing else {}
    indexes = {name: _indexes(query, name or database) for name in databases} if changing else {}
    switched = _switched(query, database) if changing and not logged else ""
    found: dict[str, list[ForeignKey]] = {}
    for (table, name), (on_delete, on_update) in sorted(changing.items()):
        names, databases_of, parents, others = zip(*parts[table, name], strict=True)
        key = _Key(
            child=columns[""].get(table, {}),
            columns=names,
            parent=columns[databases_of[0]].get(parents[0], {}),
            parent_columns=others,
            indexes=indexes[databases_of[0]].get(parents[0], ()),
        )
        found.setdefault(table, []).append(
            ForeignKey(
                name=name,
                columns=names,
                parent_database=databases_of[0],
                parent=parents[0],
                parent_columns=others,
                on_delete=on_delete,
                on_update=on_update,
                unclear=key.unclear(),
                blurred=key.blurred(),
                padded=key.padded(),
                switched=switched,
            )
        )
    return ForeignKeys(by_table={t: tuple(keys) for t, keys in found.items()}, logged=logged)


def _switched(query: Query, database: str) -> str:
    """See ForeignKey; of what this account may see the text of."""
    found = [
        (f"the {kind} {name}", bool(switches), bool(calls))
        for kind, name, switches, calls in shaped(
            query(_SWITCHES, [database, database]),
            *(as_text, as_name, or_null(as_whole), or_null(as_whole)),
        )
    ]
    within = [one for one in found if not one[0].startswith("the procedure ")]
    called = any(calls for _, _, calls in within)
    return min(
        (what for what, switches, _ in (found if called else within) if switches), default=""
    )


def _is_logged(query: Query) -> bool:
    found = shaped(query(_NATIVE, []), as_name, as_text)
    return bool(found) and found[0][1].upper() in {"OFF", "0"}


def _rules(
    query: Query, database: str, wanted: Iterable[tuple[str, str]]
) -> dict[tuple[str, str], tuple[Rule, Rule]]:
    """(table, constraint) -> its rules on delete and on update."""
    found: dict[tuple[str, str], tuple[Rule, Rule]] = {
        (table, name): (_rule(on_delete), _rule(on_update))
        for table, name, on_delete, on_update in shaped(
            query(_RULES, [database]), as_name, as_name, as_text, as_text
        )
    }
    for table in sorted({table for table, name in wanted if (table, name) not in found}):
        where = ".".join("`" + name.replace("`", "``") + "`" for name in (database, table))
        _, text = single(query(f"SHOW CREATE TABLE {where}", []), as_text, as_text, wider=True)
        lines = text.split("\n")
        for name in (name for its, name in wanted if its == table):
            said = _said(lines, name)
            if said is not None:
                both = _rule(said.get("DELETE", "")), _rule(said.get("UPDATE", ""))
                found[table, name] = both
    for table, name in wanted:
        if (table, name) not in found:
            raise DecodeError(
                f"the rule of the foreign key {name} cannot be read",
                operation="read foreign keys",
                table=f"{database}.{table}",
                hint="if it was changed just now, try again; else report it with SHOW CREATE TABLE",
            )
    return found


def _said(lines: Iterable[str], name: str) -> dict[str, str] | None:
    """What SHOW CREATE TABLE says of a key, for DELETE and UPDATE; None: nothing.

    MariaDB does not double a quote within a key's name there. Texts have no line of their own: a
    server writes a newline in one as a backslash and n. No other sign ends a line.
    """
    heads = {f"  CONSTRAINT `{one}` FOREIGN KEY (" for one in (name, name.replace("`", "``"))}
    for line in lines:
        end = _END.search(line)
        if end is not None and any(line.startswith(head) for head in heads):
            return dict(_ON.findall(end[1]))
    return None


def _columns(query: Query, database: str) -> dict[str, dict[str, _Column]]:
    found: dict[str, dict[str, _Column]] = {}
    absent = or_null(as_text)
    for table, name, kind, declared, charset, collation, extra, expression in shaped(
        query(_COLUMNS + beside_views(query, database, "table_name"), [database]),
        *(as_name, as_name, as_text, as_text, absent, absent, absent, absent),
    ):
        told = (extra or "").upper()
        generated = "GENERATED" in told and "DEFAULT_GENERATED" not in told
        found.setdefault(table, {})[name] = _Column(
            kind=kind.lower(),
            declared=declared.lower(),
            charset=charset or "",
            collation=collation or "",
            generated=generated,
            virtual=generated and "VIRTUAL" in told,
            expression=expression or "",
        )
    return found


def _indexes(query: Query, database: str) -> dict[str, tuple[_Index, ...]]:
    """Table -> its indexes."""
    found: dict[tuple[str, str], list[str | None]] = {}
    unique: dict[tuple[str, str], bool] = {}
    for table, name, column, part, doubles in shaped(
        query(_INDEXES, [database]),
        *(as_name, as_name, or_null(as_text), or_null(as_whole), as_flag),
    ):
        # Of an expression there is no column, and a prefix of one is not the column.
        whole = None if column is None or part is not None else column.lower()
        found.setdefault((table, name), []).append(whole)
        unique[table, name] = not doubles
    by_table: dict[str, tuple[_Index, ...]] = {}
    for (table, name), columns in found.items():
        begins = tuple(one for one in takewhile(bool, columns) if one)
        only = frozenset(begins) if unique[table, name] and None not in columns else None
        by_table[table] = (*by_table.get(table, ()), _Index(begins=begins, unique=only))
    return by_table


@dataclass(frozen=True, slots=True, kw_only=True)
class _Index:
    """An index, its columns in lower case.

    Attributes:
        begins: the whole columns that it begins with.
        unique: the columns of which no two rows have the same values; None: none are known.
    """

    begins: tuple[str, ...]
    unique: frozenset[str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Key:
    """The columns of a key on both sides, and the parent's indexes, judged."""

    child: Mapping[str, _Column]
    columns: Sequence[str]
    parent: Mapping[str, _Column]
    parent_columns: Sequence[str]
    indexes: Sequence[_Index]

    def unclear(self) -> str:
        """See ForeignKey."""
        wanted = [name.lower() for name in self.parent_columns]
        if not any(list(one.begins[: len(wanted)]) == wanted for one in self.indexes):
            # MariaDB lets go of it with foreign_key_checks=0, and from then on follows no such key.
            return f"the parent has no index that begins with {', '.join(self.parent_columns)}"
        if not any(one.unique is not None and one.unique <= {*wanted} for one in self.indexes):
            # A row may come by another of the parent's while the deletion of one is open: it stays,
            # and stands before the deletion in the log.
            return f"the parent may have several rows of one {', '.join(self.parent_columns)}"
        for own, other in zip(self.columns, self.parent_columns, strict=True):
            mine, theirs = self.child.get(own), self.parent.get(other)
            if mine is None or theirs is None:
                return f"the column {other if mine else own} is out of sight"
            if theirs.virtual:
                return f"the parent's column {other} is virtual"
            if mine.kind not in _EXACT and not self._is_plain_text(mine):
                what = mine.collation or mine.kind
                return f"values of the column {own} ({what}) may be equal without being the same"
            if _comparable(mine) != _comparable(theirs):
                return f"the column {own} has another type than the parent's {other}"
        return ""

    def blurred(self) -> str:
        """See ForeignKey."""
        for name, column in self.child.items():
            if column.generated and name not in self.columns and self._depends(column):
                return f"the column {name} is generated, perhaps from a column of the key"
        return ""

    def padded(self) -> tuple[str, ...]:
        """See ForeignKey."""
        found = (name for name in self.columns if name in self.child)
        return tuple(name for name in found if _pads(self.child[name]))

    def _depends(self, column: _Column) -> bool:
        text = column.expression.lower()
        others = (name for name, one in self.child.items() if one.generated)
        return not text or any(name.lower() in text for name in (*self.columns, *others))

    @staticmethod
    def _is_plain_text(column: _Column) -> bool:
        return column.kind in _TEXT and column.collation.endswith("_bin")


def _pads(column: _Column) -> bool:
    """Whether spaces at the end do not count: under all binary collations but those that say so."""
    return column.kind in _TEXT and not column.collation.endswith(("_nopad_bin", "_0900_bin"))


def _comparable(column: _Column) -> tuple[str, str]:
    """What must be the same on both sides for values to be compared as they stand in the lake."""
    if column.kind in _TEXT or column.kind == "varbinary":
        return column.kind, column.collation
    if column.kind in _INTEGERS:
        return column.kind, _WIDTH.sub("", column.declared).replace(" zerofill", "")
    return column.declared, column.collation


def _rule(name: str) -> Rule:
    return _KINDS.get(name.upper(), "none")
