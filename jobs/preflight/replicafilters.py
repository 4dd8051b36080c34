"""What a replica leaves out of what it replicates, and so out of its own log.

Lives here: `ReplicaFilters`, as a server shows them for one channel. Pure. Does not live here:
asking the server (`facts`), what follows from it (`fitness`).

The rules are the servers' own for row events: the database's filters first; then table by table the
first that matches of do, ignore, wild do, wild ignore; a table that none matches is replicated
unless there is a do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ratchet.jobs.reporting.text import sql_like


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaFilters:
    """The filters of one replication channel; databases, and tables as database.table.

    Attributes:
        do_db: replicate_do_db.
        ignore_db: replicate_ignore_db.
        do_table: replicate_do_table.
        ignore_table: replicate_ignore_table.
        wild_do: replicate_wild_do_table.
        wild_ignore: replicate_wild_ignore_table.
    """

    do_db: tuple[str, ...] = ()
    ignore_db: tuple[str, ...] = ()
    do_table: tuple[str, ...] = ()
    ignore_table: tuple[str, ...] = ()
    wild_do: tuple[str, ...] = ()
    wild_ignore: tuple[str, ...] = ()

    def of_database(self, database: str) -> str:
        """The filter that leaves all of a database out; empty if none does.

        >>> ReplicaFilters(do_db=("a",)).of_database("b")
        'replicate_do_db'
        """
        if self.do_db:
            return "" if database in self.do_db else "replicate_do_db"
        return "replicate_ignore_db" if database in self.ignore_db else ""

    def of_table(self, database: str, table: str) -> str:
        """The filter that leaves a table out; empty if none does.

        >>> ReplicaFilters(wild_ignore=("shop.log%",)).of_table("shop", "logins")
        'replicate_wild_ignore_table'
        """
        if whole := self.of_database(database):
            return whole
        name = f"{database}.{table}"
        matches = (
            (name in self.do_table, ""),
            (name in self.ignore_table, "replicate_ignore_table"),
            (any(sql_like(name, one) for one in self.wild_do), ""),
            (any(sql_like(name, one) for one in self.wild_ignore), "replicate_wild_ignore_table"),
            (bool(self.do_table), "replicate_do_table"),
            (bool(self.wild_do), "replicate_wild_do_table"),
        )
        return next((filter_name for holds, filter_name in matches if holds), "")


def read_filters(shown: Mapping[str, Any]) -> ReplicaFilters:
    """From a row of SHOW REPLICA STATUS, or from the variables of the same names."""
    low = {name.lower(): value for name, value in shown.items()}

    def names(name: str) -> tuple[str, ...]:
        parts = str(low.get(name) or "").split(",")
        return tuple(part.strip() for part in parts if part.strip())

    return ReplicaFilters(
        do_db=names("replicate_do_db"),
        ignore_db=names("replicate_ignore_db"),
        do_table=names("replicate_do_table"),
        ignore_table=names("replicate_ignore_table"),
        wild_do=names("replicate_wild_do_table"),
        wild_ignore=names("replicate_wild_ignore_table"),
    )
