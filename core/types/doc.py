"""docs/types.md out of the rules: `python -m ratchet.core.types.doc > docs/types.md`.

A test compares the file with what this module writes, so the two cannot drift apart.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Final

from ratchet.core.schema import ColumnType
from ratchet.core.types import FAMILIES, InvalidValuePolicy, TypeRule, ZeroDates, rule_for

_HEAD: Final = """\
# Types

<!-- Written by `python -m ratchet.core.types.doc > docs/types.md`; a test keeps it up to date. -->

What each column type of MySQL and MariaDB becomes in the lake. A row has the same values whether
a dump read it or the log brought it, and they are what the server's own SELECT gives: tests on
both servers compare all three for every type (`tests/integration/test_types_oracle.py`).

Every column is nullable in the lake. A type that is not listed has no rule, and stops its table
with an error that names it.
"""

_DATES: Final = """
## Zero and invalid dates

MySQL and MariaDB hold dates that no calendar has: `0000-00-00`, month or day 0, 2024-02-31 (with
`ALLOW_INVALID_DATES`) and the year 0. Delta's dates cannot. `zero_dates` in the config decides for
each source what becomes of them; it must be chosen before a table is dumped, since it changes the
columns' types.

| `zero_dates` | DATE | DATETIME | TIMESTAMP | a zero or invalid date |
|---|---|---|---|---|
"""

_OUTCOMES: Final[dict[ZeroDates, str]] = {
    "null": "becomes NULL; a dump tells for each table how many in which columns, a run the first "
    "time that a column gets some from the log (how many each round brought stands in its record, "
    "`files[].misfits`). In a column of the key "
    "the table stops instead",
    "text": "keeps its text, as do all other values of the column",
    "fail": "stops the table with an error that names the column",
}

_TAIL: Final = """
## What to know

- **The log must say what columns are**: `binlog_row_metadata=FULL` and `binlog_row_image=FULL`.
- **Generated columns** (virtual and stored) **and invisible ones** are mirrored: both servers log
  them. A VIRTUAL one that other sessions may compute otherwise is refused by name, unless the
  config says `virtual_columns: trust` ([decision 0078](decisions/0078-sources.md)). A STORED one
  may be computed anew by any ALTER TABLE, CREATE or DROP INDEX or OPTIMIZE: then it is compared
  with its source. OPTIMIZE ... LOCAL (NO_WRITE_TO_BINLOG) stands in no log: a run finds it when it
  looks at the server (`capture.look_seconds`, 30 s), and until then such values count as right.
  Columns that a server hides for itself (MariaDB's `DB_ROW_HASH_1`, those behind
  MySQL's functional indexes) are not.
- **Keys**: the primary key, else the unique key that the server takes for it: the first one over
  whole columns that are NOT NULL.
  Two keys that differ at the source never meet in one row: FLOAT, DOUBLE, YEAR(2), and ENUM or SET
  with members that look alike are refused as keys. Of text in a character set where several bytes
  are one text, or are none (cp932, sjis, big5, cp1251, ...), a key is read only as the servers
  write that text; other bytes stop the table by name ([decision 0078](decisions/0078-sources.md)).
- **System-versioned tables** of MariaDB are not mirrored: their log mixes history with rows.
- **ENUM labels** beyond the Basic Multilingual Plane: information_schema shows `?`, the values are
  right on both ways.
- **MariaDB's temporal columns of before 10.1** (`/* mariadb-5.3 */`) are read: how many digits
  their fraction has comes from information_schema, the log does not tell.
- **Text that is no text**: the lone surrogates that MariaDB lets into columns have no UTF-8, so
  they are an error (see `wire.decode.charsets`).
"""


def source_name(column: ColumnType) -> str:
    """A type as SQL writes it: "DECIMAL(18,2) UNSIGNED"."""
    parts: list[object] = [part for part in (column.precision, column.scale) if part is not None]
    if column.name in {"enum", "set"}:
        parts = ["..."]
    elif column.length is not None:
        parts = [column.length // 4 if column.name == "vector" else column.length]
    elif column.fraction:
        parts = [column.fraction]
    given = f"({','.join(map(str, parts))})" if parts else ""
    return f"{column.name.upper()}{given}{' UNSIGNED' if column.unsigned else ''}"


def page() -> str:
    """The whole of docs/types.md."""
    parts = [_HEAD]
    for title, family in FAMILIES.items():
        parts.append(f"\n## {title}\n\n| source | Delta | Arrow | |\n|---|---|---|---|\n")
        parts += _rows(
            (example, rule_for(example, InvalidValuePolicy())) for example in family.EXAMPLES
        )
    parts.append(_DATES)
    for choice, outcome in _OUTCOMES.items():
        types = [
            rule_for(ColumnType(name=name), InvalidValuePolicy(zero_dates=choice)).delta
            for name in ("date", "datetime", "timestamp")
        ]
        default = " (default)" if choice == InvalidValuePolicy().zero_dates else ""
        parts.append(f"| `{choice}`{default} | {' | '.join(types)} | {outcome} |\n")
    parts.append(_TAIL)
    return "".join(parts)


def _rows(examples: Iterable[tuple[ColumnType, TypeRule]]) -> Iterator[str]:
    """Table rows; source types that share everything else share a row."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for column, rule in examples:
        what = (rule.delta, str(rule.arrow), rule.note)
        groups.setdefault(what, []).append(source_name(column))
    for (delta, arrow, note), names in groups.items():
        yield f"| {', '.join(names)} | {delta} | {arrow} | {note} |\n"


if __name__ == "__main__":
    sys.stdout.write(page())
