"""What every part of the grammar draws from: chance, the session's dialect, the tables of now.

Lives here: `Draw`, and the register of kinds of statements. Does not live here: any statement.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from .model import Column, Model, Table
from .text import Dialect
from .values import key_value, value

T = TypeVar("T")

NAMES: Final = (
    "a", "b", "t_one", "orders", "items", "Parent", "child", "UPPER", "a#b", "it's", 'q"q',
    "back`tick", "two words", "ünï", "select", "x--y", "c/*d*/", "e;f", "$dollar", "0day", "key",
    "back\\slash", "mixed", "logs", "p0",
)  # fmt: skip
COLUMNS: Final = (
    "v", "w", "n", "x", "y", "z", "c1", "c2", "Name", "to", "rename", "two words", "it's", "a#",
    "`", 'q"', "ä", "comment", "drop", "--", "/*", "default", "d1", "d2", "d3",
)  # fmt: skip
OTHER: Final = "other"  # a database that nobody mirrors


@dataclass(frozen=True)
class Draw:
    """For one step.

    Attributes:
        rng: chance.
        dialect: of the step's session.
        model: the tables.
        database: their name.
    """

    rng: random.Random
    dialect: Dialect
    model: Model
    database: str

    def one(self, items: Sequence[T]) -> T:
        """One of some."""
        return items[self.rng.randrange(len(items))]

    def some(self, items: Sequence[T], most: int) -> list[T]:
        """One up to `most` of some."""
        return self.rng.sample(items, min(len(items), self.rng.randint(1, most)))

    def maybe(self, chance: float) -> bool:
        """Yes, with that chance."""
        return self.rng.random() < chance

    def n(self, name: str) -> str:
        """A name, quoted."""
        return self.dialect.name(name, self.rng)

    def s(self, text: str) -> str:
        """A string, quoted."""
        return self.dialect.string(text, self.rng)

    def t(self, table: str) -> str:
        """A table's name, sometimes with its database."""
        blank = self.one(("", "", "", " "))
        prefix = f"{self.n(self.database)}{blank}.{blank}" if self.maybe(0.2) else ""
        return prefix + self.n(table)

    def table(self, accept: Callable[[Table], bool] = lambda _: True) -> Table | None:
        """A table of the kind."""
        fitting = [table for table in self.model.tables.values() if accept(table)]
        return self.one(fitting) if fitting else None

    def free_name(self) -> str | None:
        """A name that no table has."""
        taken = {*self.model.tables, *self.model.views, *self.model.sequences}
        folded = {name.casefold() for name in taken}
        free = [name for name in NAMES if name.casefold() not in folded]
        return self.one(free) if free else None

    def free_column(self, table: Table) -> str:
        """A name that no column has."""
        taken = {column.name.casefold() for column in table.columns}
        free = [name for name in COLUMNS if name.casefold() not in taken]
        return self.one(free) if free else f"c{self.rng.randrange(10_000)}"

    def value(self, column: Column) -> str:
        """A literal."""
        return value(column, self.dialect, self.rng)

    def key_value(self, column: Column) -> str:
        """A literal that other statements use as well."""
        return key_value(column, self.dialect, self.rng)


# A kind of statements: text, or texts of one session; None where nothing fits it now.
Make = Callable[[Draw], str | Sequence[str] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of statements.

    Attributes:
        name: dotted.
        weight: how often.
        make: the texts.
        flavors: the servers that know it.
        ddl: whether tables may change.
    """

    name: str
    weight: float
    make: Make
    flavors: tuple[str, ...]
    ddl: bool


KINDS: Final[dict[str, Kind]] = {}


def kind(
    name: str, weight: float = 1.0, *, only: str = "", ddl: bool = True
) -> Callable[[Make], Make]:
    """Register a kind of statements."""

    def register(make: Make) -> Make:
        flavors = (only,) if only else ("mariadb", "mysql")
        KINDS[name] = Kind(name=name, weight=weight, make=make, flavors=flavors, ddl=ddl)
        return make

    return register
