"""Judging what the account of a source may do, from SHOW GRANTS.

Invariant: a finding that failed has the GRANT that mends it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from ratchet.jobs.preflight.facts import ServerFacts
from ratchet.jobs.preflight.finding import Finding, finding
from ratchet.jobs.reporting.text import sql_like


def privileges(facts: ServerFacts) -> Iterator[Finding]:
    """What the account lacks, each with its GRANT."""
    held = _global_privileges(facts)
    account = "'{}'@'%'".format(facts.user.replace("'", "''"))
    needed = (
        ("REPLICATION SLAVE", {"REPLICATION SLAVE", "REPLICATION REPLICA"}),
        ("REPLICATION CLIENT", {"REPLICATION CLIENT", "BINLOG MONITOR"}),
    )
    for name, names in needed:
        if held & names or "ALL PRIVILEGES" in held:
            yield finding(facts, name.lower(), "ok", "granted")
        else:
            yield finding(
                facts, name.lower(), "fail", "not granted", f"GRANT {name} ON *.* TO {account};"
            )
    if _may_select(facts):
        yield finding(facts, "select", "ok", f"granted on {facts.database}")
    else:
        database = facts.database.replace("`", "``")
        yield finding(
            facts,
            "select",
            "fail",
            f"not granted on all of {facts.database}: some tables may be invisible",
            f"GRANT SELECT ON `{database}`.* TO {account};",
        )
    if more := _needless(facts):
        shown = "; ".join(more[:_SHOWN]) + ("; ..." if len(more) > _SHOWN else "")
        yield finding(
            facts,
            "least privilege",
            "warn",
            f"the account has more privileges than a mirror needs: {shown}",
            "create one for Ratchet alone: CREATE USER 'ratchet'@'%' IDENTIFIED BY '...'; "
            f"{_GRANTS}",
        )


_GRANTS: Final = (
    "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO 'ratchet'@'%'; and GRANT SELECT on the "
    "mirrored databases"
)
_SHOWN: Final = 4
# What is of use; TRIGGER and SELECT elsewhere show triggers that lead on from a mirrored table.
_OF_USE_ON_ONE: Final = frozenset({"USAGE", "SELECT", "TRIGGER", "SHOW VIEW"})
_OF_USE_ON_ALL: Final = frozenset({
    "USAGE", "REPLICATION SLAVE", "REPLICATION REPLICA", "REPLICATION CLIENT",
    "BINLOG MONITOR", "SLAVE MONITOR", "REPLICA MONITOR",
})  # fmt: skip
_NAME: Final = r"\*|`(?:[^`]|``)*`"
_GRANT: Final = re.compile(
    rf"GRANT (?P<what>.+?) ON (?P<database>{_NAME})\.(?P<table>{_NAME}) TO ", re.DOTALL
)
_COLUMNS: Final = re.compile(r"\((?:[^`)]|`(?:[^`]|``)*`)*\)")  # only of tables, never of all
_ALL: Final = ("*", "*")
_ACCOUNTS: Final = ("`mysql`", "*")  # whose tables hold the hashes of all passwords
_WILD: Final = re.compile(r"(?<!\\)[%_]")
_HANDED_ON: Final = re.compile(r" WITH (?:GRANT|ADMIN) OPTION\b")
_TO: Final = re.compile(r" TO (?:`(?:[^`]|``)*`|'[^']*')")


def _privileges_on(facts: ServerFacts) -> Iterator[tuple[frozenset[str], tuple[str, str]]]:
    """Privileges, and the database and table that they hold for, as GRANT names them."""
    yield from filter(None, map(_granted, facts.grants))


def _granted(line: str) -> tuple[frozenset[str], tuple[str, str]] | None:
    """What a line of SHOW GRANTS grants, and where; None if it is no privilege on tables."""
    match = _GRANT.match(line)
    if match is None:
        return None
    whole = _COLUMNS.sub("", match["what"])
    what = frozenset(part.strip().upper() for part in whole.split(","))
    return what, (match["database"], match["table"])


def _needless(facts: ServerFacts) -> list[str]:
    """Privileges that nothing here uses, as `WHAT, WHAT ON where`."""
    found = []
    for line in (line for line in facts.grants if line.startswith("GRANT ")):
        granted = _granted(line)
        if granted is None:  # a role, a routine, PROXY, or what a later server has
            end = _TO.search(line)
            found.append(line[: end.start() if end else None].removeprefix("GRANT "))
            continue
        what, where = granted
        of_use = _OF_USE_ON_ALL if where == _ALL else _OF_USE_ON_ONE
        if where == _ACCOUNTS:
            of_use -= {"SELECT"}
        more = sorted(what - of_use)
        if _HANDED_ON.search(line):
            more.append("GRANT OPTION")
        if more:
            listed = ", ".join(more[:_SHOWN]) + (", ..." if len(more) > _SHOWN else "")
            found.append(f"{listed} ON {'.'.join(where)}")
    return found


def _global_privileges(facts: ServerFacts) -> frozenset[str]:
    return frozenset().union(*(what for what, where in _privileges_on(facts) if where == _ALL))


def _may_select(facts: ServerFacts) -> bool:
    """Whether all tables of the database may be read.

    Of several grants whose patterns match a database, a server heeds one, the most specific. Which
    one that is, is known of a name without wildcards only: otherwise all have to say it.
    """
    by_name: list[bool] = []
    by_pattern: list[bool] = []
    for what, where in _privileges_on(facts):
        selects = bool(what & {"SELECT", "ALL PRIVILEGES", "ALL"})
        if where == _ALL and selects:
            return True
        name, table = where[0][1:-1].replace("``", "`"), where[1]
        if where == _ALL or table != "*" or not sql_like(facts.database, name):
            continue
        (by_pattern if _WILD.search(name) else by_name).append(selects)
    return any(by_name) if by_name else bool(by_pattern) and all(by_pattern)
