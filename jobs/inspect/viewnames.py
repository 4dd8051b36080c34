"""Names of tables in Spark SQL.

Spark takes only letters, digits and `_` in the names of databases and views, and does not tell
letter case apart; MySQL takes nearly anything. So an odd name gets a plain view name, and a query
may still use the real one: `rename` puts the view's name in its place.

Pure functions. Invariant: no two tables get the same view name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

Name = tuple[str, str]  # keyspace, table

_TOKEN: Final = re.compile(
    r"""
      (?P<skip> '(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*" | --[^\n]* | /\*.*?\*/ )
    | (?P<pair> (?P<first> `(?:[^`]|``)+` | \w+ ) \s*\.\s* (?P<second> `(?:[^`]|``)+` | \w+ ) )
    """,
    re.VERBOSE | re.DOTALL,
)


def view_names(tables: Iterable[Name]) -> dict[Name, Name]:
    """For each table the database and view that stand for it.

    >>> view_names([("shop", "orders"), ("shop", "order-items")])[("shop", "order-items")]
    ('shop', 'order_items')
    """
    found: dict[Name, Name] = {}
    taken: set[Name] = set()
    databases: dict[str, str] = {}
    # Names that need no change come first, so that they keep what is theirs.
    for keyspace, table in sorted(tables, key=lambda name: (name != _plain_pair(name), name)):
        if keyspace not in databases:
            used = {name.lower() for name in databases.values()}
            databases[keyspace] = free(_plain(keyspace), used)
        database = databases[keyspace]
        used = {view for owner, view in taken if owner == database.lower()}
        view = free(_plain(table), used)
        taken.add((database.lower(), view.lower()))
        found[keyspace, table] = (database, view)
    return found


def rename(query: str, names: Mapping[Name, Name], *, any_case: bool = False) -> str:
    """The query with other names in the place of these.

    Texts in quotes and comments stay as they are.

    Args:
        query: SQL.
        names: keyspace and table -> database and view.
        any_case: whether letter case is not told apart; the names to replace are in lower case.

    >>> rename("SELECT 'shop.`a-b`' FROM shop.`a-b`", {("shop", "a-b"): ("shop", "a_b")})
    "SELECT 'shop.`a-b`' FROM `shop`.`a_b`"
    """

    def replaced(match: re.Match[str]) -> str:
        if match["pair"] is None:
            return match[0]
        name = (_unquoted(match["first"]), _unquoted(match["second"]))
        view = names.get((name[0].lower(), name[1].lower()) if any_case else name)
        if view is None or view == name:
            return match[0]
        return f"{quoted(view[0])}.{quoted(view[1])}"

    return _TOKEN.sub(replaced, query)


def quoted(name: str) -> str:
    """An identifier as Spark takes it."""
    return "`" + name.replace("`", "``") + "`"


def _unquoted(text: str) -> str:
    return text[1:-1].replace("``", "`") if text.startswith("`") else text


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]", "_", name)


def _plain_pair(name: Name) -> Name:
    return _plain(name[0]), _plain(name[1])


def free(name: str, used: set[str]) -> str:
    """The name, or the first one like it that is not among these (lower case)."""
    number, found = 1, name
    while found.lower() in used:
        number += 1
        found = f"{name}_{number}"
    return found
