"""DATE, DATETIME, TIMESTAMP and TIME, with fractions of a second down to the microsecond."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from ratchet.core.schema import ColumnType
from ratchet.core.types.rule import Family, InvalidValuePolicy, Rules, TypeRule, always

_ARROW: Final[dict[Family, pa.DataType]] = {
    "date": pa.date32(),
    "datetime": pa.timestamp("us"),
    "timestamp": pa.timestamp("us", tz="UTC"),
}
_NOTES: Final[dict[Family, str]] = {
    "date": "",
    "datetime": "no time zone, as in the source",
    "timestamp": "an instant, in UTC",
}


def _calendar(family: Family, policy: InvalidValuePolicy) -> TypeRule:
    if policy.zero_dates == "text":
        note = "the server's own text" + (", in UTC" if family == "timestamp" else "")
        return TypeRule(family=family, arrow=pa.string(), note=note)
    misfit = "no day of the calendar: " + (
        "NULL, counted" if policy.zero_dates == "null" else "the table stops"
    )
    note = "; ".join(filter(None, (_NOTES[family], misfit)))
    return TypeRule(family=family, arrow=_ARROW[family], note=note, can_misfit=True)


_TIME: Final = TypeRule(
    family="time",
    arrow=pa.int64(),
    note="microseconds, negative ones too: -838:59:59 to 838:59:59",
)

RULES: Final[Rules] = {
    "date": lambda _, policy: _calendar("date", policy),
    "datetime": lambda _, policy: _calendar("datetime", policy),
    "timestamp": lambda _, policy: _calendar("timestamp", policy),
    "time": always(_TIME),
}

EXAMPLES: Final = (
    ColumnType(name="date"),
    ColumnType(name="datetime", fraction=6),
    ColumnType(name="timestamp", fraction=6),
    ColumnType(name="time", fraction=6),
)
