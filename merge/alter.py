"""What an ALTER TABLE does to columns, as far as no row event would tell. Pure.

Lives here: taking a statement's specifications apart. Does not live here: whether the statement is
about the table, and what else it may do to rows (`ddl`).

Row events describe their own columns, so most changes show by themselves. Three do not:
- a column that comes: what the rows have in it that were there before. NULL, if it says nothing of
  a value; only then the mirror can go on (`Altered.nulls`).
- a column that goes and comes back, or two that swap their names: the shape is as before, the
  values are not (`Altered.breaks`).
- a type that is narrowed and widened again before any row is written: likewise. One such change is
  compared with the shape before; a second one with no row between them is not (`Altered.retyped`).

What is not understood is none of the first kind, so a mistake here stops a table and no more.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_QUOTED: Final = r"`(?:[^`]|``)+`|\"(?:[^\"\\]|\\.|\"\")*\"|'(?:[^'\\]|\\.|'')*'"
_TOKEN: Final = re.compile(rf"({_QUOTED})|([(),])|([^\s(),`\"']+)", re.DOTALL)
_NO_COLUMN: Final = frozenset(
    [
        "CHECK",
        "CONSTRAINT",
        "FOREIGN",
        "FULLTEXT",
        "INDEX",
        "KEY",
        "PARTITION",
        "PERIOD",
        "PRIMARY",
        "SPATIAL",
        "SYSTEM",
        "UNIQUE",
        "VECTOR",
    ]
)
_NO_COLUMN_GOES: Final = frozenset(
    ["CHECK", "CONSTRAINT", "FOREIGN", "INDEX", "KEY", "PARTITION", "PERIOD", "PRIMARY", "SYSTEM"]
)
# Words in a column's definition after which rows may have something else than NULL in it.
_VALUES: Final = frozenset(
    [
        "AS",
        "AUTO_INCREMENT",
        "GENERATED",
        "KEY",
        "NOT",
        "ON",
        "PERSISTENT",
        "PRIMARY",
        "ROW",
        "SERIAL",
        "STORED",
        "VIRTUAL",
        "WITH",
        "WITHOUT",
    ]
)


@dataclass(frozen=True, slots=True)
class Altered:
    """What a statement does to columns.

    Attributes:
        nulls: columns that come, and are NULL in all rows that were there.
        breaks: why values may be others under an unchanged shape; empty if they cannot.
        retyped: whether a type may change.
    """

    nulls: frozenset[str] = frozenset()
    breaks: str = ""
    retyped: bool = False


@dataclass(frozen=True, slots=True)
class _Word:
    """A token: `text` as it means, `key` in upper case unless it was quoted."""

    text: str
    key: str


def altered(specifications: str, *, whole: bool) -> Altered:
    """Take the specifications of an ALTER TABLE apart.

    Args:
        specifications: what follows the table's name.
        whole: whether that is all of it; the log's statements may be cut.
    """
    # A comment could hide anything; in a string its signs are harmless, but who can tell.
    plain = whole and not re.search(r"--|#|/\*", specifications)
    nulls: set[str] = set()
    breaks, retyped = "", False
    for words in map(_without_waiting, _split(specifications)):
        if not words:
            continue
        keys = [word.key for word in words]
        head, rest = keys[0], words[1:]
        if head == "ADD":
            found = _null_column(rest)
            nulls |= {found} if found and plain else set()
        elif head == "DROP" and _drops_column(rest):
            breaks = breaks or "a column goes"
        elif head == "RENAME" and "COLUMN" in keys[1:2]:
            breaks = breaks or "a column changes its name"
        elif head == "CHANGE":
            names = [w.text.casefold() for w in rest if w.key != "COLUMN"][:2]
            retyped = True
            if len(set(names)) > 1:
                breaks = breaks or "a column changes its name"
        elif head in {"MODIFY", "CONVERT"}:
            retyped = True
    return Altered(frozenset(nulls), breaks, retyped)


def _split(text: str) -> Iterator[list[_Word]]:
    """The specifications, at commas outside of parentheses."""
    words: list[_Word] = []
    depth = 0
    for quoted, sign, bare in _TOKEN.findall(text):
        if sign == "," and depth == 0:
            if words:
                yield words
            words = []
            continue
        depth += {"(": 1, ")": -1}.get(sign, 0)
        inner = quoted[1:-1].replace(quoted[0] * 2, quoted[0]) if quoted else sign or bare
        words.append(_Word(inner, "" if quoted else inner.upper()))
    if words:
        yield words


def _without_waiting(words: list[_Word]) -> list[_Word]:
    """MariaDB's ALTER TABLE t WAIT 5 ..., or NOWAIT."""
    skipped = {"WAIT": 2, "NOWAIT": 1}.get(words[0].key, 0)
    return words[skipped:]


def _null_column(words: list[_Word]) -> str | None:
    """The name of a column that ADD brings, if all rows that were there have NULL in it."""
    keys = [word.key for word in words]
    if keys[:1] == ["COLUMN"]:
        words, keys = words[1:], keys[1:]
    elif keys[:1] and keys[0] in _NO_COLUMN:
        return None
    if keys[:3] == ["IF", "NOT", "EXISTS"]:
        words, keys = words[3:], keys[3:]
    if len(words) < 2 or keys[0] == "(":
        return None
    definition = keys[1:]
    if _VALUES & set(definition):
        return None
    defaults = [at for at, key in enumerate(definition) if key == "DEFAULT"]
    if any(definition[at + 1 : at + 2] != ["NULL"] for at in defaults):
        return None
    # Without explicit_defaults_for_timestamp it is NOT NULL, and has a value, unless it says NULL.
    if definition[0] == "TIMESTAMP" and "NULL" not in definition:
        return None
    return words[0].text


def _drops_column(words: list[_Word]) -> bool:
    return bool(words) and words[0].key not in _NO_COLUMN_GOES
