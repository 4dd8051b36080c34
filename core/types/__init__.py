"""The rule for every column type of MySQL and MariaDB: what it becomes in the lake.

Lives here: `rule_for`, `arrow_schema`, what is told of misfits, the registry of the families, one
module each (`numeric`, `temporal`, `text`, `binary`, `network`). Does not live here: how values are
decoded (`wire.decode`). CONTRIBUTING.md says where else a new type has to be known, and
`tests/unit/types/test_registered.py` names the places that do not know it.

Invariant: there is one rule per type, for the log and for the snapshot; a type without a rule is
an error, never a guess.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from ratchet.core.columnrules import unfit_name
from ratchet.core.errors import TableStoppedError
from ratchet.core.schema import ColumnType, TableSchema
from ratchet.core.types import binary, network, numeric, temporal, text
from ratchet.core.types.rule import Family, InvalidValuePolicy, Rules, TypeRule, ZeroDates

__all__ = [
    "FAMILIES",
    "Family",
    "InvalidValuePolicy",
    "TypeRule",
    "ZeroDates",
    "arrow_schema",
    "misfits_told",
    "rule_for",
]

FAMILIES: Final = {
    "Numbers": numeric,
    "Dates and times": temporal,
    "Text": text,
    "Bytes": binary,
    "UUID and addresses": network,
}
_RULES: Final[Rules] = {
    name: rule for family in FAMILIES.values() for name, rule in family.RULES.items()
}


def rule_for(column: ColumnType, policy: InvalidValuePolicy) -> TypeRule:
    """The rule for a column's type; TableStoppedError for a type that has none."""
    found = _RULES.get(column.name)
    if found is None:
        raise TableStoppedError(
            f"there is no rule for columns of type {column.name!r}",
            operation="find a column's lake type",
            hint="exclude the table in the config, or change the column's type in the source",
        )
    return found(column, policy)


def misfits_told(table: str, misfits: Mapping[str, int]) -> str:
    """What is told of values that became NULL, which no row shows.

    Args:
        table: keyspace.table.
        misfits: column -> how many.
    """
    counts = ", ".join(f"{column} {count:,}" for column, count in sorted(misfits.items()))
    return f"{table}: zero or invalid dates became NULL ({counts}); see `zero_dates`"


def arrow_schema(schema: TableSchema, policy: InvalidValuePolicy) -> pa.Schema:
    """The lake's columns of a table in their order, all nullable, without the token column.

    Nullable, because a source may drop NOT NULL at any time, and older files keep their schema.
    """
    odd = unfit_name((column.name for column in schema.columns), table=schema.table)
    if odd is not None:
        raise TableStoppedError(
            odd.message, operation="find a table's lake schema", table=schema.name, hint=odd.hint
        )
    return pa.schema([pa.field(c.name, rule_for(c.type, policy).arrow) for c in schema.columns])
