"""`ratchet check` for a shard that is reached through a vtgate: its own questions and rules.

Lives here: what a vtgate and its tablets are asked beside what every server is (`facts`), and the
rules that only hold for them. Does not live here: rules about the MySQL behind them (`fitness`) and
about tables (`tablefitness`), which hold as they are.

Invariant: as in `fitness`; and no finding is about the account, because the tablet's MySQL is read
with the vttablet's own. What vttablets do not tell through vtgate (their flags, as the transaction
timeout) is not guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ratchet.core.errors import SourceUnfitError
from ratchet.core.patterns import TablePatterns
from ratchet.core.shard import ShardId
from ratchet.core.vitess import is_internal
from ratchet.jobs.preflight.facts import ServerFacts, gather
from ratchet.jobs.preflight.finding import Finding, finding
from ratchet.jobs.preflight.fitness import judge_tablet
from ratchet.jobs.preflight.tablefitness import judge_tables
from ratchet.jobs.reporting.text import duration, how_to_exclude
from ratchet.wire.session import Session, SourceConfig
from ratchet.wire.vitess import ServingTablet, gateway, serving_shards, tablets, target_of, version

_TESTED: Final = "24.0"
_TABLETS_OWN: Final = "vt_"  # what vttablets put before the keyspace's name
_LARGEST_SET: Final = 63  # vtgate 24 loses the 64th member in VStream
_LABEL: Final = re.compile(r"'(?:[^']|'')*'")


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayFacts:
    """What a vtgate says of itself and of one shard.

    Attributes:
        version: as it says, "Version: 24.0.0 (...".
        tablets: the tablets that serve the shard.
    """

    version: str
    tablets: tuple[ServingTablet, ...]


def gather_vitess(
    config: SourceConfig, patterns: TablePatterns
) -> tuple[ServerFacts, GatewayFacts]:
    """Ask a shard's vtgate, and through it the shard's MySQL.

    Args:
        config: the shard, with a `target`.
        patterns: which tables the config mirrors.

    Raises:
        RetryableError: vtgate or the shard does not answer.
        SourceUnfitError: vtgate refuses us, the shard does not serve, or our settings do not reach
            its MySQL.
        ConfigError: there is no such keyspace.
    """
    keyspace, shard = target_of(config)
    with gateway(config) as query:
        _refuse_idle(config, shard, serving_shards(query, keyspace))
        found = tablets(query, keyspace)
        behind = GatewayFacts(
            version=version(query),
            tablets=tuple(t for t in found if t.shard == shard and t.serving),
        )
    with Session.connect(config) as session:
        facts = gather(
            session,
            shard=config.shard,
            host=config.host,
            user=config.user,
            database=config.database,
            patterns=patterns,
        )
    mirrored = tuple(table for table in facts.tables if not is_internal(table.name))
    return replace(facts, tables=mirrored), behind


def _refuse_idle(config: SourceConfig, shard: str, serving: Sequence[str]) -> None:
    if shard not in serving:
        raise SourceUnfitError(
            f"the shard does not serve: the keyspace's shards are {', '.join(serving)}",
            operation="look for a shard",
            source=str(config.shard),
            hint="correct the shards in the config: after a reshard the new ones serve",
        )


def judge_vitess(facts: ServerFacts, behind: GatewayFacts, *, clock_bound: float) -> list[Finding]:
    """All findings about one shard behind a vtgate and its tables.

    Args:
        facts: what its MySQL answers.
        behind: what vtgate says.
        clock_bound: how far clocks may be apart, seconds.
    """
    return [
        *_vtgate(facts, behind),
        *_tablets(facts, behind),
        *judge_tablet(facts, clock_bound=clock_bound),
        *_time_limit(facts),
        *judge_tables(facts),
        *_large_sets(facts),
        *_documents(facts),
    ]


def judge_name(shard: ShardId, database: str) -> Iterator[Finding]:
    """Whether a source that is read as plain MySQL looks like a Vitess tablet's."""
    if database.startswith(_TABLETS_OWN):
        yield Finding(
            place=str(shard),
            check="database",
            status="warn",
            text=f"{database} looks like a Vitess tablet's database: reshards are not followed",
            mend="if it is one: vitess: true, and name the shards as SHOW VITESS_SHARDS does",
        )


def _vtgate(facts: ServerFacts, behind: GatewayFacts) -> Iterator[Finding]:
    number = behind.version.removeprefix("Version: ").partition(" ")[0]
    note = "" if number.startswith(f"{_TESTED}.") else f" (tests run on {_TESTED})"
    yield finding(facts, "vtgate", "ok", f"{number}{note}")


def _tablets(facts: ServerFacts, behind: GatewayFacts) -> Iterator[Finding]:
    listed = ", ".join(f"{t.alias} ({t.kind.lower()})" for t in behind.tablets)
    yield finding(facts, "tablets", "ok", f"serving: {listed}")


def _time_limit(facts: ServerFacts) -> Iterator[Finding]:
    limit = int(facts.variables.get("max_execution_time", 0))
    if limit:
        yield finding(
            facts,
            "max_execution_time",
            "warn",
            f"{duration(limit / 1000)}: vtgate lets no session change it; a longer read fails",
            "SET PERSIST max_execution_time = 0;  -- or make snapshot.chunk_seconds smaller",
        )


def _large_sets(facts: ServerFacts) -> Iterator[Finding]:
    for table in facts.tables:
        for name, kind in table.columns:
            if kind.startswith("set(") and len(_LABEL.findall(kind)) > _LARGEST_SET:
                yield finding(
                    facts,
                    f"columns of {table.name}",
                    "fail",
                    f"{name} is a SET of 64 members: vtgate silently loses the last one",
                    how_to_exclude(table.name),
                )


def _documents(facts: ServerFacts) -> Iterator[Finding]:
    for table in facts.tables:
        names = [name for name, kind in table.columns if kind == "json"]
        if names:
            yield finding(
                facts,
                f"columns of {table.name}",
                "info",
                f"JSON in {', '.join(names)}: inside documents vtgate silently changes TIME values "
                "that are negative or at least 32 hours, and loses binary values (these end the "
                "run)",
                "if there are any, mirror the tablets' MySQL: kind: binlog, vitess: true",
            )
