"""Columns that a mirrored table cannot have: by their names, and as a part of its key. Pure.

Lives here: the one rule that `check`, the dump and capture ask. Does not live here: types
(`core.types`), whether there is a key at all.

Any name will do (decisions/0020) but those under which Ratchet, Spark or Delta have a column of
their own in every file that they read or write: with some of them a reader gives its own values in
place of the table's, without a word.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ratchet.core.change import TOKEN_COLUMN
from ratchet.core.charsets import ONE_TO_ONE
from ratchet.core.patterns import exclusion
from ratchet.core.schema import ColumnType, TableSchema

# In the plans of a MERGE into a table with deletion vectors (Delta 4.4).
_IN_PLANS: Final = (
    "__delta_internal_row_index",
    "__delta_internal_is_row_deleted",
    "_row_id_",
    "_file_name_",
    "_condition_",
    "_row_dropped_",
    "_source_row_present_",
    "_target_row_present_",
    "_source_row_index",
    "_target_row_index_",
    "deletionvectorid",
    "rowindexcol",
    "deletedrowindexset",
)
# Compared without regard to letter case, as Spark does.
TAKEN: Final = {
    TOKEN_COLUMN: "Ratchet's own column",
    "_metadata": "Spark's own column",
    "_tmp_metadata_row_index": "Spark's own column",
    **dict.fromkeys(_IN_PLANS, "Delta's own column"),
}
_ROUNDED: Final = frozenset({"float", "double"})
_LISTS: Final = frozenset({"enum", "set"})
_SHORT_YEAR: Final = 2


@dataclass(frozen=True, slots=True)
class UnfitColumn:
    """A column that its table cannot be mirrored with.

    Attributes:
        column: its name.
        message: one sentence: why.
        hint: what mends it.
    """

    column: str
    message: str
    hint: str


def unfit_name(names: Iterable[str], *, table: str) -> UnfitColumn | None:
    """The first of a table's columns whose name cannot be in the lake; None if all can.

    Args:
        names: of its columns, in order.
        table: its own name.
    """
    seen: dict[str, str] = {}
    for name in names:
        # Spark compares in both ways, in one place or another.
        alike = {name.lower(), _letter_by_letter(name)}
        renamed = f"ALTER TABLE {_quoted(table)} RENAME COLUMN {_quoted(name)} TO"
        exclude = f"  -- or exclude the table: {exclusion(table)}"
        taken = next((one for one in alike if one in TAKEN), None)
        if taken is not None:
            return UnfitColumn(
                name,
                f"the column {name!r} has the name of {TAKEN[taken]}",
                f"{renamed} {_quoted(taken.strip('_') + '_')};{exclude}",
            )
        other = next((seen[one] for one in alike if one in seen), None)
        if other is not None:
            return UnfitColumn(
                name,
                f"the columns {other!r} and {name!r} are one name to Spark",
                f"{renamed} {_quoted(name.lower() + '_2')};{exclude}",
            )
        seen |= dict.fromkeys(alike, name)
    return None


def _letter_by_letter(name: str) -> str:
    """The same text for names that Java's `equalsIgnoreCase` takes for one.

    It compares the lower case of each letter's upper case: so the two small sigmas are one letter,
    and so are the micro sign and the letter mu.
    """
    return "".join(_lower_of_upper(letter) for letter in name)


def _lower_of_upper(letter: str) -> str:
    upper = letter.upper()
    # Java maps a letter to one letter; some have several in upper case, and are left as they are.
    return (upper if len(upper) == 1 else letter).lower()[0]


def unfit_key(schema: TableSchema) -> UnfitColumn | None:
    """The first column of a table's key that cannot tell rows apart; None if all can."""
    for name in schema.key:
        kind = schema.column(name).type
        own, exclude = _quoted(name), f"or exclude the table: {exclusion(schema.table)}"
        alter = f"ALTER TABLE {_quoted(schema.table)} MODIFY {own}"
        if kind.name in _ROUNDED:
            return UnfitColumn(
                name,
                f"its key column {name!r} is a {kind.name.upper()}, which is no exact value",
                f"{alter} DECIMAL(38,10) NOT NULL;  -- if that holds its values; {exclude}",
            )
        if kind.name in _LISTS and (why := _alike(kind)):
            return UnfitColumn(
                name,
                f"its key column {name!r} is {kind.name.upper()} with {why}",
                f"{alter} ... without that member; {exclude}",
            )
        if kind.name == "year" and kind.length == _SHORT_YEAR:
            return UnfitColumn(
                name,
                f"its key column {name!r} is a YEAR(2), where 1955 and 2055 look alike",
                f"{alter} YEAR(4) NOT NULL;  -- {exclude}",
            )
    return None


def _alike(kind: ColumnType) -> str:
    """What lets two values of an ENUM or SET look alike; empty if nothing does."""
    if "" in kind.members:
        return "a member '', which looks like no member at all"
    # Elsewhere labels that are not the same bytes are not the same text (but information_schema
    # shows "?" for some of them).
    if (kind.charset or "binary") in ONE_TO_ONE:
        return ""
    if len(set(kind.members)) < len(kind.members):
        return f"members that are one text, as several bytes of {kind.charset} are"
    if kind.name == "set" and any("," in member for member in kind.members):
        return f"a member that has a comma, which other bytes of {kind.charset} are too"
    return ""


def unfit_column(schema: TableSchema) -> UnfitColumn | None:
    """What a table cannot be mirrored with, by its name or as a part of its key."""
    found = unfit_name((column.name for column in schema.columns), table=schema.table)
    return found or unfit_key(schema)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
