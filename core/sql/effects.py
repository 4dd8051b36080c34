"""What a statement does to a table, in the words of the round log. Values only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from ratchet.core.rounds import Effect
from ratchet.core.sql.lexer import SqlToken

# Words that people see, in messages of tables that stop.
MOVED: Final = "a statement may have changed its rows without row events"
MISPLACED: Final = (
    f"{MOVED}, and some may lie in a wrong partition (it was WITHOUT VALIDATION), where no read by "
    "key finds them: CHECK TABLE tells"
)
# What each generated column is declared with, one of them at least.
GENERATING: Final = frozenset({"GENERATED", "AS", "VIRTUAL", "STORED", "PERSISTENT"})
# Of a table that is made without a row in it, and that no foreign key leads to others.
CREATED: Final = "it was created anew, without rows"
COLUMN_GOES: Final = "a column goes"
COLUMN_RENAMED: Final = "a column changes its name"
REBUILT: Final = "its rows may have been written anew, and its generated columns computed anew"
KEY_GOES: Final = "an index was dropped that may have been its key"

PartitionStepKind = Literal["emptied", "dropped", "reorganized", "added", "other"]


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that a statement does to a table; see core.rounds.TableEvent."""

    effect: Effect
    reason: str = ""
    nulls: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TableName:
    """A table as a statement names it; `database` is None where it does not say."""

    database: str | None
    table: str


@dataclass(frozen=True, slots=True)
class AddedColumn:
    """A column that comes, and what the rows that were there have in it.

    Attributes:
        name: its name.
        declared: its definition, from its type on.
        default: the tokens of its value, or of CURRENT_TIMESTAMP, which is the statement's time;
            none: the type's own where it is NOT NULL, else NULL.
        not_null: whether it is NOT NULL.
        if_absent: whether it comes only if the table has no such column.
        is_told: whether its definition tells one value for all of them.
    """

    name: str
    declared: Sequence[SqlToken]
    default: Sequence[SqlToken]
    not_null: bool
    if_absent: bool = False
    is_told: bool = True


@dataclass(frozen=True, slots=True)
class PartitionStep:
    """What one clause of an ALTER TABLE does to partitions.

    Attributes:
        kind: "emptied" and "dropped" take all rows of some away; "reorganized" makes others of
            them; "added" makes more; "other" may do anything.
        names: of those that it names in front; none: it names none, or all.
    """

    kind: PartitionStepKind
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TableChanges:
    """What an ALTER TABLE does to columns, or what rows it takes away, where that is all it does.

    Attributes:
        added: columns that come.
        dropped: the names of those that go.
        renamed: (old name, new name).
        retyped: those that may have another type or attributes behind it, by their old names.
        key: those of the primary key that takes the place of the old one; none: it stays.
        emptied: partitions whose rows go; then it does nothing else.
    """

    added: tuple[AddedColumn, ...] = ()
    dropped: tuple[str, ...] = ()
    renamed: tuple[tuple[str, str], ...] = ()
    retyped: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    emptied: tuple[str, ...] = ()
