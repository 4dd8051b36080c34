"""A foreign key by which a server changes rows of a table when rows of another one change."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

# RESTRICT and NO ACTION change no rows; SET DEFAULT is refused by InnoDB.
Rule = Literal["none", "cascade", "set null"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignKey:
    """One foreign key of a child table.

    Attributes:
        name: the constraint's name, unique in the child's database.
        columns: the child's columns.
        parent_database: the parent's database, as the server spells it; empty: the child's own.
        parent: the parent table, as the server spells it.
        parent_columns: its columns, in the order of `columns`.
        on_delete: what becomes of a child whose parent is deleted.
        on_update: what becomes of a child whose parent's columns change.
        unclear: why it cannot be told which rows it changes (values that are equal to the server
            though they are not the same); empty: it can.
        blurred: why it cannot be told what rows look like that it changes and does not delete
            (columns that the server computes from others); empty: it can.
        padded: columns whose values are the same if they differ in spaces at their ends.
        switched: what on the server switches foreign_key_checks within a statement, so that the
            log may not tell whether the key was followed; empty: nothing that is known.
    """

    name: str
    columns: tuple[str, ...]
    parent_database: str
    parent: str
    parent_columns: tuple[str, ...]
    on_delete: Rule = "none"
    on_update: Rule = "none"
    unclear: str = ""
    blurred: str = ""
    padded: tuple[str, ...] = ()
    switched: str = ""

    @property
    def changes_rows(self) -> bool:
        """Whether the server changes the child's rows by it."""
        return self.on_delete != "none" or self.on_update != "none"

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values; `from_json` reads it back."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> ForeignKey:
        """Read what `to_json` wrote."""
        names = ("columns", "parent_columns", "padded")
        lists = {name: tuple(data[name]) for name in names if name in data}
        return cls(**{**data, **lists})
