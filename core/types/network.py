"""MariaDB's UUID, INET4 and INET6: short binary values that the server shows as text.

The log calls them bytes: which ones they are is asked of the server (`wire.hints`).
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from ratchet.core.schema import ColumnType
from ratchet.core.types.rule import Family, Rules, TypeRule, always

NAMES: Final[tuple[Family, ...]] = ("uuid", "inet4", "inet6")

RULES: Final[Rules] = {
    family: always(TypeRule(family=family, arrow=pa.string(), note="the server's text"))
    for family in NAMES
}

EXAMPLES: Final = tuple(ColumnType(name=name) for name in NAMES)
