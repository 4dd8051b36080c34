"""VIRTUAL columns that show one value to the log and another to whoever reads them.

Lives here: finding them in information_schema. Does not live here: what an expression depends on
(`core.sql.expressions`).

A VIRTUAL column is not stored. A row event has what the writer's session computed, a SELECT what
the reader's computes: with NOW() in it, or a TIMESTAMP shown in another time zone, these differ.
So they do where it refers to an AUTO_INCREMENT column (MariaDB allows it): the row event's value is
computed before the number is given.
"""

from __future__ import annotations

from typing import Final

from ratchet.core.sql.expressions import outside_of_row
from ratchet.core.sql.sessionrules import Operand
from ratchet.wire.decode.answers import as_name, as_text, as_whole, or_null, shaped, single_value
from ratchet.wire.decode.triggers import Query, sees_triggers
from ratchet.wire.decode.views import beside_views

# A column that is not generated has no expression; a STORED one keeps what was computed once.
_COLUMNS: Final = """
SELECT c.table_name, c.column_name,
       CASE WHEN UPPER(c.extra) LIKE '%%AUTO_INCREMENT%%'
            THEN 'auto_increment' ELSE c.data_type END,
       CASE WHEN UPPER(c.extra) LIKE '%%VIRTUAL%%' THEN c.generation_expression END,
       VERSION(), COALESCE(c.datetime_precision, 0)
  FROM information_schema.columns c
 WHERE c.table_schema = %s
   AND c.table_name IN (SELECT v.table_name FROM information_schema.columns v
                         WHERE v.table_schema = %s AND UPPER(v.extra) LIKE '%%VIRTUAL%%'{v})
   {c}
"""

_TRIGGERS: Final = """
SELECT event_object_table, trigger_name FROM information_schema.triggers
 WHERE event_object_schema = %s AND action_timing = 'BEFORE'
   AND event_manipulation IN ('INSERT', 'UPDATE')
"""


def volatile_columns(query: Query, *, database: str, table: str | None = None) -> dict[str, str]:
    """Tables with such a column -> why they cannot be mirrored.

    Args:
        query: runs a statement with arguments (%s) and returns its rows.
        database: the database's name on the server.
        table: the one that is asked about; None: all.
    """
    names = [] if table is None else [table]
    of = "{}.table_name"
    which = f" AND {of} = %s" if names else beside_views(query, database, of)
    only = {one: which.format(one) for one in "cv"}
    types: dict[str, dict[str, Operand]] = {}
    virtual: list[tuple[str, str, str]] = []
    mariadb = False
    described = shaped(
        query(_COLUMNS.format(**only), [database, database, *names, *names]),
        *(as_name, as_name, as_text, or_null(as_text), as_text, as_whole),
    )
    for name, column, kind, expression, version, octets in described:
        types.setdefault(name, {})[column] = Operand(kind.lower(), octets)
        mariadb = "mariadb" in version.lower()
        if expression is not None:
            virtual.append((name, column, expression))
    found = {}
    for name, column, expression in virtual:
        columns = types[name]
        reason = outside_of_row(expression, own=columns[column], types=columns, mariadb=mariadb)
        if reason and not mariadb and (once := _encoded_once(expression)):
            reason = outside_of_row(once, own=columns[column], types=columns, mariadb=mariadb)
        if reason:
            found[name] = (
                f"its VIRTUAL column {column} depends on more than the row ({reason}): the log and "
                f"a SELECT have different values of it ({_mend(reason)})"
            )
    if mariadb and virtual:
        found |= _before_triggers(query, database, {name for name, _, _ in virtual} - set(found))
    return found


def _encoded_once(text: str) -> str:
    """A text that a MySQL has encoded twice, as 9.7 does with expressions; empty if it has not.

    Plain letters and quotes stay what they are, so no other expression can come of it.
    """
    try:
        return b"".join(map(_byte, text)).decode()
    except UnicodeError:
        return ""


def _byte(character: str) -> bytes:
    """The byte that is this character in MySQL's latin1: Windows', with all 256 of them."""
    try:
        return character.encode("cp1252")
    except UnicodeEncodeError:
        return character.encode("latin1")


def _before_triggers(query: Query, database: str, tables: set[str]) -> dict[str, str]:
    """MariaDB may log a VIRTUAL column as it was before a trigger changed what it is made of.

    Seen with LOAD DATA and UPDATE of several tables (decision 0078).
    """
    if not sees_triggers(query, database):
        account = single_value(query("SELECT CURRENT_USER()", []), as_text)
        name, _, host = account.rpartition("@")
        grant = f"GRANT TRIGGER ON `{database.replace('`', '``')}`.* TO '{name}'@'{host}'"
        return dict.fromkeys(
            tables,
            "it has a VIRTUAL column, and this account may not see its triggers: with a BEFORE "
            f"trigger MariaDB may log the column as it was before it ({grant} shows them; or "
            "make the column STORED, or set `virtual_columns: trust` for this source)",
        )
    return {
        table: f"it has a VIRTUAL column and the BEFORE trigger {trigger}: MariaDB may log the "
        "column as it was before the trigger (make it STORED, or drop one of them)"
        for table, trigger in shaped(query(_TRIGGERS, [database]), as_name, as_name)
        if table in tables
    }


def _mend(reason: str) -> str:
    if "by the CHAR" in reason:  # MariaDB refuses to store it then
        return "give it TRIM() of that column, make that a VARCHAR, or drop it"
    return "make it STORED, or drop it"
