"""Judging the foreign keys of a source: by which the server changes rows without logging it.

Invariant: a key that is not followed is named, with what to do.
"""

from __future__ import annotations

from collections.abc import Iterator

from ratchet.jobs.preflight.facts import ServerFacts
from ratchet.jobs.preflight.finding import Finding, finding
from ratchet.jobs.preflight.foreignkeys import lost_parents
from ratchet.jobs.reporting.text import counted, how_to_exclude

_CHECK = "foreign keys"


def foreign_keys(facts: ServerFacts) -> Iterator[Finding]:
    """What is said of the keys of mirrored tables that change rows."""
    mirrored = {table.name for table in facts.tables}
    rules = facts.rules
    keys = [
        (table, key)
        for table, found in sorted(rules.by_table.items())
        if table in mirrored
        for key in found
    ]
    if not keys:
        return
    if rules.logged:
        told = f"rows are changed by {counted(len(keys), 'key')}, and the server logs these changes"
        yield finding(facts, _CHECK, "ok", told)
        return
    lost = lost_parents(rules, mirrored.__contains__)
    followed = []
    for table, key in keys:
        name = f"{table}.{key.name}"
        if table in lost:
            parent, _ = lost[table]
            yield finding(
                facts,
                _CHECK,
                "fail",
                f"{name}: the server changes rows of {table} when those of {parent} change, and "
                f"does not log it; {parent} is not mirrored",
                f"mirror {parent} too, or {how_to_exclude(table)}",
            )
        elif key.unclear or key.blurred or key.switched:
            switches = f"{key.switched} switches foreign_key_checks within a statement"
            why = key.unclear or key.blurred or switches
            yield finding(
                facts,
                _CHECK,
                "warn",
                f"{name} cannot be followed in all cases ({why}): when it "
                f"changes rows, {table} is compared with its source; if rows differ, it stops or "
                "they are repaired (`verify.on_difference`)",
                f"if rows of {key.parent} change often: {how_to_exclude(table)}",
            )
        else:
            followed.append(name)
    if followed:
        yield finding(
            facts,
            _CHECK,
            "info",
            f"rows are changed by {counted(len(followed), 'key')}, which the server does not log: "
            f"followed ({', '.join(followed)})",
        )
