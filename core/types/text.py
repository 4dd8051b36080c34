"""CHAR, VARCHAR, TEXT, ENUM, SET and JSON: whatever the lake holds as a string."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from ratchet.core.schema import ColumnType
from ratchet.core.types.rule import Family, RuleMaker, Rules, TypeRule, always

TEXTS: Final = ("varchar", "tinytext", "text", "mediumtext", "longtext")
_FROM_ANY: Final = "from any charset into UTF-8, as the server converts it"


# Bytes of the longest character.
WIDEST: Final[dict[str | None, int]] = {"latin1": 1, "utf8": 3, "utf8mb3": 3, "utf8mb4": 4}
_BITS: Final = {"tiny": 8, "": 16, "medium": 24, "long": 32}
_CAPACITY: Final = {
    size + kind: (1 << bits) - 1 for size, bits in _BITS.items() for kind in ("text", "blob")
}
# Roman's I and J, U and V; Lithuanian's I and Y; some Swedish V and W.
_ALIKE: Final = str.maketrans("jyvw", "iiuu")


def capacity(kind: ColumnType) -> int:
    """Bytes that a value of a text or binary type may have; 0 where the length says nothing."""
    return _CAPACITY.get(kind.name, kind.length or 0)


def are_apart(labels: Sequence[str]) -> bool:
    """Whether no collation takes two labels of plain letters for one, as far as is known.

    >>> [are_apart(labels) for labels in (("i", "a"), ("A", "a"), ("i", "J"))]
    [True, False, False]
    """
    return len({label.casefold().translate(_ALIKE) for label in labels}) == len(labels)


def _string(family: Family, note: str) -> RuleMaker:
    return always(TypeRule(family=family, arrow=pa.string(), note=note))


RULES: Final[Rules] = {
    **dict.fromkeys(TEXTS, _string("text", _FROM_ANY)),
    "char": _string("text", f"{_FROM_ANY}, without the padding"),
    "enum": _string("enum", "the label; '' for the error value"),
    "set": _string("set", "the labels in their order, with commas; '' for the empty set"),
    "json": _string("json", "the text that the server's SELECT gives"),
}

EXAMPLES: Final = (
    ColumnType(name="char", length=40, charset="utf8mb4"),
    *(ColumnType(name=name, charset="utf8mb4") for name in TEXTS),
    ColumnType(name="enum", charset="utf8mb4", members=("a", "b")),
    ColumnType(name="set", charset="utf8mb4", members=("a", "b")),
    ColumnType(name="json"),
)
