"""The grammar of columns, keys and references, as far as it is understood completely.

Lives here: what a column's definition says of values (`Definition`), and what stands around keys.
Does not live here: which statement it stands in (`alter`).

Types and attributes that are not listed are not understood: MariaDB's COMPRESSED, system
versioning, types of a database of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ratchet.core.sql.cursor import NotUnderstoodError, TokenCursor
from ratchet.core.sql.lexer import SqlToken

_INTS: Final = frozenset(
    {"TINYINT", "SMALLINT", "MEDIUMINT", "MIDDLEINT", "INT", "INTEGER", "BIGINT"}
    | {"INT1", "INT2", "INT3", "INT4", "INT8", "BOOL", "BOOLEAN", "BIT"}
)
_DECIMALS: Final = frozenset(["DECIMAL", "DEC", "NUMERIC", "FIXED"])
_FLOATS: Final = frozenset(["FLOAT", "DOUBLE", "REAL", "FLOAT4", "FLOAT8"])
_TIMES: Final = frozenset(["DATE", "TIME", "DATETIME", "TIMESTAMP", "YEAR"])
_TEXTS: Final = frozenset(
    {"CHAR", "CHARACTER", "NCHAR", "VARCHAR", "VARCHARACTER", "NVARCHAR", "NATIONAL", "LONG"}
    | {"TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT", "JSON"}
    | {"BINARY", "VARBINARY", "TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB"}
    | {"UUID", "INET4", "INET6", "VECTOR"}
)
_SHAPES: Final = frozenset(
    {"GEOMETRY", "POINT", "LINESTRING", "POLYGON", "MULTIPOINT", "MULTILINESTRING"}
    | {"MULTIPOLYGON", "GEOMETRYCOLLECTION", "GEOMCOLLECTION"}
)
_WITH_NUMBERS: Final = _INTS | _DECIMALS | _FLOATS | _TIMES | _TEXTS | _SHAPES
_BARE: Final = (
    "UNSIGNED", "SIGNED", "BINARY", "ASCII", "UNICODE", "BYTE", "VISIBLE", "INVISIBLE",
)  # fmt: skip
NOW: Final = ("CURRENT_TIMESTAMP", "NOW", "LOCALTIME", "LOCALTIMESTAMP")
_NOW: Final = (
    *NOW, "CURRENT_DATE", "CURRENT_TIME",
    "CURDATE", "CURTIME", "UTC_TIMESTAMP", "UTC_DATE", "UTC_TIME", "CURRENT_USER",
)  # fmt: skip


@dataclass(slots=True)
class Definition:
    """What a column's definition says.

    Attributes:
        valued: whether rows that were there may have something else than NULL in it, if it comes.
        odd: why values may change under an unchanged type, if it is changed; empty if they cannot.
        references: whether it makes a foreign key.
        explicit_null: whether it says NULL.
        default_null: whether it says DEFAULT NULL.
        timestamp: whether it is a TIMESTAMP, which may be NOT NULL unless it says NULL.
        not_null: whether it says NOT NULL.
        constant: whether the rows that were there all get one value that it tells, if it comes.
        is_key: whether it makes the column the primary key.
        default: the tokens of that value, where it says DEFAULT; those of CURRENT_TIMESTAMP mean
            the statement's time.
        tokens: all of it.
    """

    valued: bool = False
    odd: str = ""
    references: bool = False
    explicit_null: bool = False
    default_null: bool = False
    timestamp: bool = False
    not_null: bool = False
    constant: bool = True
    is_key: bool = False
    default: Sequence[SqlToken] = ()
    tokens: Sequence[SqlToken] = ()

    def null_in_all_rows(self, *, heeds_default: bool) -> bool:
        """Whether all rows that were there have NULL in it, if it comes.

        Args:
            heeds_default: see `statements.Log`.
        """
        nullable = self.explicit_null or (heeds_default and self.default_null)
        return not (self.valued or (self.timestamp and not nullable))


def definition(cursor: TokenCursor) -> Definition:
    """Take a type and what follows it, up to the first word that is no part of a definition.

    Raises:
        NotUnderstoodError: the type is not known, or what an attribute goes on with.
    """
    found = Definition()
    begin = cursor.at
    _type(cursor, found)
    while _attribute(cursor, found):
        pass
    found.tokens = cursor.taken_since(begin)
    return found


def _type(cursor: TokenCursor, found: Definition) -> None:
    word = cursor.peek().word
    if word in {"ENUM", "SET"}:
        cursor.take()
        inner = TokenCursor(cursor.need_parens())
        while inner.string() and inner.sign(","):
            pass
        if not inner.done:
            raise inner.stuck()
    elif word == "SERIAL":
        cursor.take()
        found.valued, found.odd = True, "SERIAL numbers rows"
        found.constant = False
    elif word in _WITH_NUMBERS:
        cursor.take()
        _more_words(cursor, word)
        found.timestamp = word == "TIMESTAMP"
        _sizes(cursor, found, word)
    else:
        raise cursor.stuck()


def _more_words(cursor: TokenCursor, word: str) -> None:
    """The further words of types that have several."""
    if word == "NATIONAL":
        if not cursor.one_of("CHAR", "CHARACTER", "VARCHAR", "VARCHARACTER"):
            raise cursor.stuck()
        cursor.accept("VARYING")
    elif word in {"CHAR", "CHARACTER", "NCHAR"}:
        cursor.one_of("VARYING", "VARCHAR")
    elif word == "LONG":
        cursor.one_of("VARCHAR", "VARBINARY", "VARCHARACTER")
    elif word == "DOUBLE":
        cursor.accept("PRECISION")


def _sizes(cursor: TokenCursor, found: Definition, word: str) -> None:
    inside = cursor.parens()
    if inside is None:
        return
    inner = TokenCursor(inside)
    if not inner.number():
        raise inner.stuck()
    several = inner.sign(",")
    if several and not inner.number():
        raise inner.stuck()
    if not inner.done or (several and word not in _DECIMALS | _FLOATS):
        raise NotUnderstoodError(f"not understood: what stands behind {word}")
    if several and word in _FLOATS:
        found.odd = f"{word} with a number of digits rounds values"


def _attribute(cursor: TokenCursor, found: Definition) -> bool:
    """Take one attribute; whether there was one."""
    return _value(cursor, found) or _constraint(cursor, found) or _look(cursor, found)


def _value(cursor: TokenCursor, found: Definition) -> bool:
    """What says which values are in the column."""
    if cursor.accept("NOT", "NULL"):
        found.constant = found.constant and not found.explicit_null  # which counts is its affair
        found.valued = found.not_null = True
    elif cursor.accept("NULL"):
        found.constant = found.constant and not found.not_null
        found.explicit_null = True
    elif cursor.accept("DEFAULT"):
        _default(cursor, found)
    elif cursor.accept("ON", "UPDATE"):
        if not cursor.one_of(*_NOW):
            raise cursor.stuck()
        cursor.parens()  # of rows that are updated from now on
    elif cursor.accept("AUTO_INCREMENT"):
        found.valued, found.constant = True, False
        found.odd = found.odd or "AUTO_INCREMENT gives rows with 0 another number"
    elif cursor.accept("GENERATED", "ALWAYS", "AS") or cursor.accept("AS"):
        cursor.need_parens()
        cursor.one_of("VIRTUAL", "STORED", "PERSISTENT")
        found.valued, found.constant = True, False
        found.odd = "what a generated column is made of is not in the log"
    else:
        return False
    return True


def _constraint(cursor: TokenCursor, found: Definition) -> bool:
    """Keys, checks, references."""
    if cursor.accept("UNIQUE"):
        cursor.accept("KEY")
    elif cursor.accept("PRIMARY", "KEY") or cursor.one_of("KEY", "PRIMARY"):
        found.valued = found.is_key = True
    elif cursor.peek().word in {"CONSTRAINT", "CHECK"}:
        if cursor.accept("CONSTRAINT") and cursor.peek().word != "CHECK":
            cursor.name()
        check(cursor)
    elif cursor.peek().word == "REFERENCES":
        references(cursor)
        found.references = True
    else:
        return False
    return True


def _look(cursor: TokenCursor, found: Definition) -> bool:
    """What is about characters and how the column is shown and kept."""
    if cursor.one_of("CHARACTER", "CHAR"):
        cursor.need("SET")
        _text_name(cursor)
    elif cursor.one_of("CHARSET", "COLLATE"):
        _text_name(cursor)
    elif cursor.accept("ZEROFILL"):
        found.odd = found.odd or "ZEROFILL makes a column unsigned"
    elif cursor.one_of("COMMENT", "ENGINE_ATTRIBUTE", "SECONDARY_ENGINE_ATTRIBUTE"):
        cursor.sign("=")
        if not cursor.string():
            raise cursor.stuck()
    elif cursor.one_of("COLUMN_FORMAT", "STORAGE"):
        cursor.name()
    elif cursor.accept("SRID"):
        found.odd = found.odd or "a SRID is set"
        if not cursor.number():
            raise cursor.stuck()
    else:
        return bool(cursor.one_of(*_BARE))
    return True


def _text_name(cursor: TokenCursor) -> None:
    """A character set or a collation; a string will do."""
    if not cursor.string():
        cursor.name()


def _default(cursor: TokenCursor, found: Definition) -> None:
    if found.default or found.default_null:
        found.constant = False  # which of them counts is the server's affair
    if cursor.accept("NULL"):
        found.default_null = True
        return
    inside = cursor.parens()
    if inside is not None:
        inner = TokenCursor(inside)
        if not (inner.accept("NULL") and inner.done):
            found.valued, found.constant = True, False
        return
    found.valued = True
    begin = cursor.at
    if cursor.literal():
        found.default = cursor.taken_since(begin)
        return
    if cursor.one_of(*NOW):
        cursor.parens()
        found.default = cursor.taken_since(begin)  # one value: that of the statement's time
        return
    found.constant = False
    if cursor.one_of(*_NOW):
        cursor.parens()
        return
    cursor.name()
    cursor.need_parens()


def check(cursor: TokenCursor) -> None:
    """CHECK (...), enforced or not."""
    cursor.need("CHECK")
    cursor.need_parens()
    if not cursor.accept("NOT", "ENFORCED"):
        cursor.accept("ENFORCED")


def references(cursor: TokenCursor) -> None:
    """REFERENCES t (...) with its rules."""
    cursor.need("REFERENCES")
    cursor.table()
    cursor.parens()
    while True:
        if cursor.accept("MATCH"):
            if not cursor.one_of("FULL", "PARTIAL", "SIMPLE"):
                raise cursor.stuck()
        elif cursor.accept("ON", "DELETE") or cursor.accept("ON", "UPDATE"):
            known = (
                cursor.one_of("RESTRICT", "CASCADE")
                or cursor.accept("SET", "NULL")
                or cursor.accept("SET", "DEFAULT")
                or cursor.accept("NO", "ACTION")
            )
            if not known:
                raise cursor.stuck()
        else:
            return


def index_body(cursor: TokenCursor) -> None:
    """What follows the name of an index: its kind, its columns, its options."""
    if cursor.one_of("USING", "TYPE"):
        cursor.name()
    cursor.need_parens()
    index_options(cursor)


def index_options(cursor: TokenCursor) -> None:
    """The options of an index."""
    while True:
        if cursor.one_of("USING", "TYPE"):
            cursor.name()
        elif cursor.accept("KEY_BLOCK_SIZE"):
            cursor.sign("=")
            if not cursor.number():
                raise cursor.stuck()
        elif cursor.accept("WITH", "PARSER"):
            cursor.name()
        elif cursor.one_of("COMMENT", "ENGINE_ATTRIBUTE", "SECONDARY_ENGINE_ATTRIBUTE"):
            cursor.sign("=")
            if not cursor.string():
                raise cursor.stuck()
        elif not (
            cursor.one_of("VISIBLE", "INVISIBLE", "IGNORED") or cursor.accept("NOT", "IGNORED")
        ):
            return
