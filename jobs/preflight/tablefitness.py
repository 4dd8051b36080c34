"""Judging the tables that a config mirrors: keys, names, and whether the shards agree.

Pure functions over `facts.ServerFacts`. The mend names the table's remedy; what cannot be mended is
excluded by a pattern.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from ratchet.core.patterns import exclusion
from ratchet.jobs.preflight.facts import ServerFacts
from ratchet.jobs.preflight.finding import Finding, Status
from ratchet.jobs.preflight.keyfitness import foreign_keys
from ratchet.jobs.reporting.text import how_to_exclude

_SHOWN: Final = 5


def judge_tables(facts: ServerFacts) -> list[Finding]:
    """Findings about one server's tables."""
    return [
        finding
        for rule in (_any, _helpers, _missing, _unfit, _keys, _columns, _case)
        for finding in rule(str(facts.shard), facts)
    ] + list(foreign_keys(facts))


def judge_shards(shards: Sequence[ServerFacts]) -> list[Finding]:
    """Whether the shards of one keyspace have the same tables, so that they can meet in one."""
    if len(shards) < 2:
        return []
    first, *others = shards
    shapes = {table.name: table.columns for table in first.tables}
    found = []
    for other in others:
        theirs = {table.name: table.columns for table in other.tables}
        both = shapes.keys() & theirs
        odd = sorted(name for name in both if shapes[name] != theirs[name])
        alone = sorted(shapes.keys() ^ theirs)
        where = f"{other.shard} and {first.shard}"
        if odd:
            found.append(
                _finding(
                    where,
                    "same tables",
                    "fail",
                    f"the columns of these tables differ: {_listed(odd)}",
                    "give them the same columns in the same order, or exclude them in `tables`",
                )
            )
        if alone:
            found.append(
                _finding(
                    where,
                    "same tables",
                    "warn",
                    f"only one of them has {_listed(alone)}: mirrored from that one alone",
                    "create what is missing, or exclude it in `tables`, if that is not intended",
                )
            )
        if not (odd or alone):
            found.append(_finding(where, "same tables", "ok", f"{len(both)} tables agree"))
    return found


def _finding(place: str, check: str, status: Status, text: str, mend: str = "") -> Finding:
    return Finding(place=place, check=check, status=status, text=text, mend=mend)


def _any(place: str, facts: ServerFacts) -> Iterator[Finding]:
    if facts.tables:
        rows = sum(table.rows for table in facts.tables)
        yield _finding(place, "tables", "ok", f"{len(facts.tables)}, about {rows:,} rows")
    else:
        yield _finding(
            place,
            "tables",
            "warn",
            f"no table of {facts.database} matches `tables` (or the account sees none)",
            "check `tables` and `database` in the config",
        )


def _helpers(place: str, facts: ServerFacts) -> Iterator[Finding]:
    if facts.helpers:
        text = (
            f"not mirrored, as schema change tools name theirs so: {_listed(facts.helpers)} "
            "(a pattern in `tables` that begins with _ takes them)"
        )
        yield _finding(place, "helper tables", "ok", text)


def _missing(place: str, facts: ServerFacts) -> Iterator[Finding]:
    for name, hint in sorted(facts.missing.items()):
        yield _finding(
            place,
            f"table {name}",
            "warn",
            "`tables` names it, but there is no such table",
            hint,
        )


def _unfit(place: str, facts: ServerFacts) -> Iterator[Finding]:
    trusted = "its rows may be wrong until they are verified (virtual_columns: trust)"
    for check, what, tables in (
        ("kind", "it is not mirrored", facts.unfit),
        ("columns", trusted, facts.trusted),
    ):
        for table, reason in sorted(tables.items()):
            mend = how_to_exclude(table)
            yield _finding(place, f"{check} of {table}", "warn", f"{what}: {reason}", mend)


def _keys(place: str, facts: ServerFacts) -> Iterator[Finding]:
    for table in facts.tables:
        if not table.has_key:
            name = _quoted(table.name)
            yield _finding(
                place,
                f"key of {table.name}",
                "fail",
                "neither a primary key nor a unique key over complete NOT NULL columns",
                f"ALTER TABLE {name} ADD PRIMARY KEY (...);  -- or exclude it: "
                f"{exclusion(table.name)}",
            )


def _columns(place: str, facts: ServerFacts) -> Iterator[Finding]:
    for table in facts.tables:
        if table.odd is not None:
            what = f"columns of {table.name}"
            yield _finding(place, what, "fail", table.odd.message, table.odd.hint)


def _case(place: str, facts: ServerFacts) -> Iterator[Finding]:
    names = sorted((table.name for table in facts.tables), key=lambda name: (name.lower(), name))
    for _, group in groupby(names, key=str.lower):
        same = list(group)
        if len(same) > 1:
            yield _finding(
                place,
                "table names",
                "warn",
                f"{_listed(same)} differ in letter case only: SQL in Spark cannot tell them apart "
                "(on a case-sensitive file system the mirrored tables themselves are fine)",
                f"exclude all but one: {exclusion(same[-1])}",
            )


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(repr(name) for name in names[:_SHOWN]) + more


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
