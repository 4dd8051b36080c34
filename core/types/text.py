"""CHAR, VARCHAR, TEXT, ENUM, SET and JSON: whatever the lake holds as a string."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from ratchet.core.schema import ColumnType
from ratchet.core.types.rule import Family, RuleMaker, Rules, TypeRule, always

_TEXT: Final = ("varchar", "tinytext", "text", "mediumtext", "longtext")
_FROM_ANY: Final = "from any charset into UTF-8, as the server converts it"


def _string(family: Family, note: str) -> RuleMaker:
    return always(TypeRule(family=family, arrow=pa.string(), note=note))


RULES: Final[Rules] = {
    **dict.fromkeys(_TEXT, _string("text", _FROM_ANY)),
    "char": _string("text", f"{_FROM_ANY}, without the padding"),
    "enum": _string("enum", "the label; '' for the error value"),
    "set": _string("set", "the labels in their order, with commas; '' for the empty set"),
    "json": _string("json", "the text that the server's SELECT gives"),
}

EXAMPLES: Final = (
    ColumnType(name="char", length=40, charset="utf8mb4"),
    *(ColumnType(name=name, charset="utf8mb4") for name in _TEXT),
    ColumnType(name="enum", charset="utf8mb4", members=("a", "b")),
    ColumnType(name="set", charset="utf8mb4", members=("a", "b")),
    ColumnType(name="json"),
)
