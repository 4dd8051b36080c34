"""What is done when a column holds values that its lake type, or the key, cannot hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ratchet.core.errors import TableStoppedError
from ratchet.core.shell import redump
from ratchet.core.types import InvalidValuePolicy


def check_misfits(
    misfits: Mapping[str, int], *, table: str, key: Iterable[str], policy: InvalidValuePolicy
) -> None:
    """Raise TableStoppedError if the policy does not let these values become NULL.

    A key's value never becomes NULL: rows that differ in the source would be one row in the lake.

    Args:
        misfits: column -> how many of its values do not fit.
        table: keyspace.table, for the message.
        key: names of the columns that identify a row.
        policy: what the config says.
    """
    stopping = misfits if policy.zero_dates == "fail" else set(misfits) & set(key)
    for column in stopping:
        what = "zero or invalid dates" + (", and is part of the key" if column in key else "")
        raise TableStoppedError(
            f"column {column} holds {misfits[column]} {what}",
            operation="decode rows",
            table=table,
            hint=f"correct the values there, then {redump(table)}; or set "
            'types: {zero_dates: "text"} in the config, for all sources, and have all tables with '
            "dates dumped again: `ratchet dump CONFIG --again '*'`",
        )


def check_exact(column: str, charset: str | None, bad: int, *, table: str) -> None:
    """Raise TableStoppedError if a value of the key is one of several that are the same text.

    Args:
        column: a text column of the key.
        charset: its character set.
        bad: index of such a value, or -1.
        table: keyspace.table, for the message.
    """
    if bad < 0:
        return
    name, own = _quoted(column), _quoted(table.partition(".")[2])
    raise TableStoppedError(
        f"column {column} is part of the key, and has bytes that are no character of {charset}, or "
        "whose text other bytes have too: rows that differ in the source would be one row in the "
        "lake",
        operation="decode rows",
        table=table,
        hint=f"SELECT * FROM {own} WHERE CAST(CONVERT(CONVERT({name} USING utf8mb4) USING "
        f"{charset}) AS BINARY) <> CAST({name} AS BINARY);  -- finds them. Correct them there, "
        f"then {redump(table)}; or exclude the table",
    )


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
