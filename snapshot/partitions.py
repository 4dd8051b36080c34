"""Rows that lie in a wrong partition, where no read by key finds them.

MySQL's `EXCHANGE PARTITION ... WITHOUT VALIDATION` puts them there. A condition on the key lets a
server leave out the partitions where such a key does not belong, so chunks of the key, the server's
own UPDATE and DELETE, and any comparison by key miss them, while a SELECT without a condition shows
them. Lives here: how to find them where that costs next to nothing. Does not live here: what is
done about it (docs/operations.md).

For partitions by RANGE of the key's first column, the least and the greatest key of each partition
tell, and the index has both at hand. Other kinds are not looked at: those by LIST, HASH and KEY
keep no order, and where the first column of the key does not choose the partition no read by key
leaves one out but for a tie of that column.
"""

from __future__ import annotations

import re
from typing import Final

from ratchet.core.errors import ServerRefusedError
from ratchet.snapshot.keys import KeyPlan, Query, string_literal
from ratchet.wire.decode.answers import as_name, as_text, or_null, settled, shaped, single_value
from ratchet.wire.session import quoted

_PAUSES: Final = (0.0, 0.05, 0.2, 1.0)  # seconds between tries
_PARTITIONS: Final = (
    "SELECT DISTINCT PARTITION_NAME, PARTITION_METHOD, PARTITION_EXPRESSION, PARTITION_DESCRIPTION,"
    " PARTITION_ORDINAL_POSITION FROM information_schema.PARTITIONS"
    " WHERE TABLE_SCHEMA = {database} AND TABLE_NAME = {table} AND PARTITION_NAME IS NOT NULL"
    " ORDER BY PARTITION_ORDINAL_POSITION"
)
# A column, or one of the functions that keep its order.
_EXPRESSION: Final = re.compile(
    r"(?:(to_days|to_seconds|year|unix_timestamp)\()?`((?:[^`]|``)+)`\)?", re.IGNORECASE
)
# Bounds as servers print them: numbers and strings, in any introducer.
_BOUND: Final = re.compile(r"-?[0-9]{1,20}|(?:_\w+)?'(?:[^'\\]|''|\\.)*'", re.DOTALL)
# Servers show a moment as it was typed; what it is below a second depends on the column.
_FRACTION: Final = re.compile(r"[0-9]:[0-9]{1,2}\.[0-9]")


def misplaced(query: Query, plan: KeyPlan) -> str | None:
    """A partition that holds rows of others; None: none is known to.

    Args:
        query: runs a statement on the server.
        plan: how the table is walked.
    """
    return settled(lambda: _misplaced(query, plan), pauses=_PAUSES, unless=(ServerRefusedError,))


def _misplaced(query: Query, plan: KeyPlan) -> str | None:
    asked = _PARTITIONS.format(
        database=string_literal(plan.database), table=string_literal(plan.table)
    )
    text = or_null(as_text)
    low: str | None = None
    for name, method, expression, high, _ in shaped(query(asked), as_name, text, text, text, text):
        form = _form(method, expression, plan)
        if form is None:
            return None
        bound = _bound(high or "", low)
        if bound is None:
            return None
        beyond = [f"{form.format('MIN')} < {low}"] if low else []
        beyond += [f"{form.format('MAX')} >= {bound}"] if bound else []
        table = f"{quoted(plan.database)}.{quoted(plan.table)} PARTITION ({quoted(name)})"
        if beyond and single_value(
            query(f"SELECT {' OR '.join(beyond)} FROM {table}"), or_null(as_text)
        ) not in {None, "0"}:
            return str(name)
        low = bound
    return None


def _bound(high: str, low: str | None) -> str | None:
    """A partition's bound as SQL has it; empty: there is none; None: it is not understood.

    Servers print unsigned numbers from 2^63 on as negative ones (measured on both).
    """
    if high.upper() == "MAXVALUE":
        return ""
    if not _BOUND.fullmatch(high) or _FRACTION.search(high):
        return None
    if not high.startswith("-"):
        return high
    return None if low is None or low.startswith("-") else str(int(high) + 2**64)


def _form(method: str | None, expression: str | None, plan: KeyPlan) -> str | None:
    """What a partition's bounds are compared with, with a place for MIN or MAX; None: unknown."""
    found = _EXPRESSION.fullmatch(expression or "")
    if not plan.walkable or method not in {"RANGE", "RANGE COLUMNS"} or found is None:
        return None
    column = found[2].replace("``", "`")
    if column.lower() != plan.columns[0].name.lower():
        return None
    # Braces of a name are none of the form.
    own = quoted(column).replace("{", "{{").replace("}", "}}")
    return f"{found[1]}({{}}({own}))" if found[1] else f"{{}}({own})"
