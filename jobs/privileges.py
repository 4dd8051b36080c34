"""Judging what the account of a source may do, from SHOW GRANTS.

Invariant: a finding that failed has the GRANT that mends it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from jobs.facts import ServerFacts
from jobs.finding import Finding, finding
from jobs.text import sql_like


def privileges(facts: ServerFacts) -> Iterator[Finding]:
    """What the account lacks, each with its GRANT."""
    held = _global_privileges(facts)
    account = f"'{facts.user}'@'%'"
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
            f"not granted on the whole of {facts.database}: some tables may be out of sight",
            f"GRANT SELECT ON `{database}`.* TO {account};",
        )


_NAME: Final = r"\*|`(?:[^`]|``)*`"
_GRANT: Final = re.compile(
    rf"GRANT (?P<what>.+?) ON (?P<database>{_NAME})\.(?P<table>{_NAME}) TO ", re.DOTALL
)
_ALL: Final = ("*", "*")


def _privileges_on(facts: ServerFacts) -> Iterator[tuple[frozenset[str], tuple[str, str]]]:
    """Privileges, and the database and table that they hold for, as GRANT names them."""
    for line in facts.grants:
        match = _GRANT.match(line)
        if match is not None:
            what = frozenset(part.strip().upper() for part in match["what"].split(","))
            yield what, (match["database"], match["table"])


def _global_privileges(facts: ServerFacts) -> frozenset[str]:
    return frozenset().union(*(what for what, where in _privileges_on(facts) if where == _ALL))


def _may_select(facts: ServerFacts) -> bool:
    for what, where in _privileges_on(facts):
        if not what & {"SELECT", "ALL PRIVILEGES", "ALL"}:
            continue
        if where == _ALL:
            return True
        name, table = where
        if table == "*" and sql_like(facts.database, name[1:-1].replace("``", "`")):
            return True
    return False
