"""The grammar of table options and partitions, as far as it is understood completely.

Lives here: which options leave rows as they are, and which engines keep a table's rows in a log.
Does not live here: the statements that they stand in (`alter`, `statements`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ratchet.core.sql.cursor import NotUnderstoodError, TokenCursor
from ratchet.core.sql.effects import Change
from ratchet.core.sql.lexer import SqlToken

# Engines that have rows of their own, all of them, and log each change.
ORDINARY: Final = frozenset(["INNODB", "MYISAM", "ARIA", "MEMORY", "HEAP"])
# Engines whose rows are elsewhere or nowhere.
ELSEWHERE: Final = frozenset(
    {"BLACKHOLE", "CONNECT", "FEDERATED", "FEDERATEDX", "MERGE", "MRG_MYISAM", "MRG_ISAM"}
    | {"NDB", "NDBCLUSTER", "OQGRAPH", "PERFORMANCE_SCHEMA", "S3", "SEQUENCE", "SPHINX", "SPIDER"}
    | {"COLUMNSTORE", "EXAMPLE"}
)
_NUMBERS: Final = (
    "AUTO_INCREMENT", "AVG_ROW_LENGTH", "CHECKSUM", "TABLE_CHECKSUM", "PAGE_CHECKSUM",
    "DELAY_KEY_WRITE", "KEY_BLOCK_SIZE", "MAX_ROWS", "MIN_ROWS", "PACK_KEYS", "PAGE_COMPRESSED",
    "PAGE_COMPRESSION_LEVEL", "STATS_AUTO_RECALC", "STATS_PERSISTENT", "STATS_SAMPLE_PAGES",
    "TRANSACTIONAL", "AUTOEXTEND_SIZE", "ENCRYPTION_KEY_ID",
)  # fmt: skip
_STRINGS: Final = (
    "COMMENT", "COMPRESSION", "ENCRYPTION", "ENGINE_ATTRIBUTE", "SECONDARY_ENGINE_ATTRIBUTE",
    "PASSWORD",
)  # fmt: skip
_NAMES: Final = ("ROW_FORMAT", "ENCRYPTED")


def engine_change(name: str) -> Change | None:
    """What becomes of a table's rows under an engine; None: nothing."""
    word = name.upper()
    if word in ORDINARY:
        return None
    if word in ELSEWHERE:
        return Change("rows", f"its engine becomes {name}: no log tells of its rows")
    return Change("doubt", f"its engine becomes {name}, which is not known")


def option(cursor: TokenCursor) -> tuple[bool, Change | None, Sequence[SqlToken]]:
    """Take one table option.

    Returns:
        Whether there was one, what it does to the table's rows, and the tables of a UNION.

    Raises:
        NotUnderstoodError: it goes on with something that is not known.
    """
    if cursor.accept("ENGINE") or cursor.accept("TYPE"):
        return True, engine_change(_value(cursor)), ()
    if cursor.one_of(*_NUMBERS):
        cursor.sign("=")
        if not (cursor.number() or cursor.accept("DEFAULT")):
            raise cursor.stuck()
    elif (
        cursor.one_of(*_STRINGS)
        or cursor.accept("DATA", "DIRECTORY")
        or cursor.accept("INDEX", "DIRECTORY")
    ):
        _string(cursor)
    elif cursor.one_of(*_NAMES) or cursor.accept("TABLESPACE"):
        _value(cursor)
    elif cursor.accept("UNION"):
        cursor.sign("=")
        return True, None, cursor.need_parens()
    elif not character_set(cursor):
        return False, None, ()
    return True, None, ()


def like(cursor: TokenCursor) -> tuple[str | None, str] | None:
    """Take LIKE, in parentheses or not, and the table's name behind it; None: it does not come."""
    ahead = 1 if cursor.peek() == SqlToken("sign", "(") else 0
    if cursor.peek(ahead).word != "LIKE":
        return None
    cursor.at += ahead + 1
    return cursor.table()


def character_set(cursor: TokenCursor) -> bool:
    """Take [DEFAULT] CHARACTER SET or COLLATE with a value; whether there was one."""
    ahead = 1 if cursor.peek().word == "DEFAULT" else 0
    two = cursor.peek(ahead).word, cursor.peek(ahead + 1).word
    if two in {("CHARACTER", "SET"), ("CHAR", "SET")}:
        cursor.at += ahead + 2
    elif two[0] in {"CHARSET", "COLLATE"}:
        cursor.at += ahead + 1
    else:
        return False
    _value(cursor)
    return True


def _value(cursor: TokenCursor) -> str:
    cursor.sign("=")
    first = cursor.peek()
    if cursor.string():
        return first.inner
    return cursor.name()


def _string(cursor: TokenCursor) -> None:
    cursor.sign("=")
    if not cursor.string():
        raise cursor.stuck()


def partition_by(cursor: TokenCursor) -> None:
    """Take what follows PARTITION BY, to its end."""
    _partition_kind(cursor, sub=False)
    if cursor.accept("PARTITIONS") and not cursor.number():
        raise cursor.stuck()
    if cursor.accept("SUBPARTITION", "BY"):
        _partition_kind(cursor, sub=True)
        if cursor.accept("SUBPARTITIONS") and not cursor.number():
            raise cursor.stuck()
    partitions(cursor)


def partitions(cursor: TokenCursor) -> None:
    """Take the list of partitions, if there is one.

    Raises:
        NotUnderstoodError: one of them has another engine than an ordinary one.
    """
    inside = cursor.parens()
    if inside is None:
        return
    inner = TokenCursor(inside)
    while not inner.done:
        if not inner.accept("ENGINE"):
            inner.take()
        elif engine_change(name := _value(inner)) is not None:
            raise NotUnderstoodError(f"a partition's engine becomes {name}")


def _partition_kind(cursor: TokenCursor, *, sub: bool) -> None:
    cursor.accept("LINEAR")
    kind = cursor.one_of("HASH", "KEY") or ("" if sub else cursor.one_of("RANGE", "LIST"))
    if not kind:
        raise cursor.stuck()
    if kind == "KEY" and cursor.accept("ALGORITHM"):
        cursor.sign("=")
        if not cursor.number():
            raise cursor.stuck()
    if kind in {"RANGE", "LIST"}:
        cursor.accept("COLUMNS")
    cursor.need_parens()
