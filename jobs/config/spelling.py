"""Names as the server itself spells them: the database's, and whether letter case counts.

Lives here: asking, bringing the config in line, and the lake's note for commands that ask nobody.
Does not live here: matching (`core.patterns`).

With lower_case_table_names 1 or 2 a server takes names in any case, and writes them into its log in
lower case. What is compared with the log must be spelt as there, so the spelling is asked for once,
before anything else is asked, and everything behind goes by it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from ratchet.core.errors import DecodeError, SourceUnfitError
from ratchet.core.shard import ShardId
from ratchet.jobs.config.config import Config
from ratchet.jobs.config.settings import ShardConfig
from ratchet.jobs.config.sources import source_config
from ratchet.jobs.reporting.text import nearest
from ratchet.store import layout
from ratchet.store.files import Lake
from ratchet.store.notes import Notes
from ratchet.wire.decode.answers import as_flag, as_name, shaped
from ratchet.wire.session import Session, SourceConfig

# Anybody may log in there, whatever the mirrored database is called.
_ANYBODYS: Final = "information_schema"


@dataclass(frozen=True, slots=True)
class Spelling:
    """How a server spells.

    Attributes:
        database: the mirrored database's name.
        folded: whether names that differ in letter case only are the same to it.
    """

    database: str
    folded: bool


def ask_spelling(source: SourceConfig) -> Spelling:
    """Ask a server how it spells the database of a shard.

    Raises:
        SourceUnfitError: it has no such database, or shows it to others only.
        RetryableError: it does not answer.
    """
    if source.through_vtgate:
        return Spelling(source.database, folded=False)
    with Session.connect(replace(source, database=_ANYBODYS)) as session:
        folded = session.value("lower_case_table_names", as_flag)
        rows = shaped(session.query("SELECT SCHEMA_NAME FROM information_schema.SCHEMATA"), as_name)
    return spelled(source, [name for (name,) in rows], folded=folded)


def spelled(source: SourceConfig, names: list[str], *, folded: bool) -> Spelling:
    """The one of a server's databases that a config means.

    Args:
        source: with the config's name.
        names: the databases that the account sees.
        folded: whether letter case does not count there.

    Raises:
        SourceUnfitError: none of them.
    """
    wanted = source.database
    if wanted in names:
        return Spelling(wanted, folded)
    if folded:
        for name in names:
            if name.lower() == wanted.lower():
                return Spelling(name, folded)
    user, database = source.user, wanted.replace("`", "``")
    others = {name.lower(): name for name in names}
    case = others.get(wanted.lower())
    near = f"did you mean {case!r}? Letter case matters on this server" if case else ""
    otherwise = "correct `database` of this shard in the config, or create it"
    raise SourceUnfitError(
        f"no such database: {user!r} does not see {wanted!r} at {source.address}",
        operation="look for the database",
        source=str(source.shard),
        hint=(near or nearest(wanted, names, otherwise))
        + f". If it exists: GRANT SELECT ON `{database}`.* TO '{user}'@'%'; GRANT REPLICATION "
        f"SLAVE, REPLICATION CLIENT ON *.* TO '{user}'@'%';",
    )


def with_spelling(config: Config) -> Config:
    """The config with the servers' own spelling of databases, and of how patterns are compared.

    Raises:
        SourceUnfitError: a server has no such database.
        RetryableError: one does not answer.
    """
    found: dict[str, dict[str, Spelling]] = {}
    for shard, given in config.shards.items():
        asked = _asked(shard, given)
        found.setdefault(shard.keyspace, {})[shard.shard] = asked
    sources = {}
    for keyspace, source in config.sources.items():
        spellings: Mapping[str, Spelling] = found.get(keyspace, {})
        shards = {
            name: replace(one, database=spellings[name].database)
            for name, one in source.shards.items()
        }
        folded = any(one.folded for one in spellings.values())
        tables = replace(source.tables, folded=folded)
        sources[keyspace] = replace(source, shards=shards, tables=tables)
    return replace(config, sources=sources)


def _asked(shard: ShardId, given: ShardConfig) -> Spelling:
    return ask_spelling(source_config(shard, given))


def note_spelling(lake: Lake, config: Config) -> None:
    """Note in the lake which keyspaces' names are compared without regard to letter case."""
    before = _noted(lake)
    unasked = {name for name in before if name not in config.sources}
    found = {name for name, source in config.sources.items() if source.tables.folded}
    folded = sorted(found | unasked)
    if folded != before:
        lake.write_json(Notes(lake).own(layout.FOLDED_FILE), folded)


def with_noted_spelling(config: Config, lake: Lake) -> Config:
    """The config with patterns that are compared as the last run noted it; asks no server."""
    folded = _noted(lake)
    sources = {
        name: replace(source, tables=replace(source.tables, folded=name in folded))
        for name, source in config.sources.items()
    }
    return replace(config, sources=sources) if folded else config


def _noted(lake: Lake) -> list[str]:
    def parse(found: Any) -> list[str]:
        if not isinstance(found, list):
            raise DecodeError("it is no list")
        return [str(name) for name in found]

    return Notes(lake).read(layout.FOLDED_FILE, parse, [])
