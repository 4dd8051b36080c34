"""The shards of Vitess keyspaces: which there are now, and how each is reached through its vtgate.

Lives here: from a config whose Vitess keyspaces name a vtgate only to one that names their shards.
Does not live here: following a reshard (`reshard`), what a vtgate is asked (`wire.vitess`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ratchet.core.errors import RatchetError
from ratchet.core.shard import ShardId
from ratchet.jobs.config.settings import ShardConfig, SourceSection, VtgateSection
from ratchet.jobs.config.sources import source_config, vtgate_config
from ratchet.jobs.topology.asides import name_source
from ratchet.wire.session import Session
from ratchet.wire.vitess import database_of, gateway, serving_shards
from ratchet.wire.vtgate import VStream

if TYPE_CHECKING:
    from ratchet.jobs.config.config import Config


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """A Vitess keyspace as its vtgate shows it.

    Attributes:
        serving: names of the shards that serve, in the order of their key ranges.
        database: the MySQL database behind them.
    """

    serving: tuple[str, ...]
    database: str


def topologies(config: Config, *, only: str | None = None) -> dict[str, Topology]:
    """Keyspace -> what its vtgate says, for the Vitess keyspaces of a config.

    Args:
        config: as loaded.
        only: ask for this keyspace alone.

    Raises:
        RetryableError: a vtgate cannot be reached.
        OperatorError: it refuses us, or does not know the keyspace.
    """
    found = {}
    for keyspace, source in config.sources.items():
        if source.vtgate is not None and only in {None, keyspace}:
            try:
                found[keyspace] = _ask(keyspace, source)
            except RatchetError as error:
                name_source(error, keyspace)
                raise
    return found


def with_shards(
    config: Config, shards: Mapping[str, Collection[str]], found: Mapping[str, Topology]
) -> Config:
    """The config with these shards of its Vitess keyspaces.

    Args:
        config: as loaded.
        shards: keyspace -> names of its shards.
        found: what the vtgates say; where nothing was asked the database's name is not known, which
            does for asking for positions only.
    """
    sources = {}
    for keyspace, source in config.sources.items():
        sources[keyspace] = source
        if source.vtgate is not None:
            database = found[keyspace].database if keyspace in found else ""
            sources[keyspace] = replace(
                source,
                shards={
                    name: _shard(source, source.vtgate, f"{keyspace}:{name}", database)
                    for name in shards.get(keyspace, ())
                },
            )
    return replace(config, sources=sources)


def with_serving_shards(config: Config, *, only: str | None = None) -> Config:
    """The config with the shards that serve now; asks the vtgates.

    Raises:
        RetryableError, OperatorError: see `topologies`.
    """
    found = topologies(config, only=only)
    return with_shards(config, {name: one.serving for name, one in found.items()}, found)


def try_vstream(source: SourceSection, shard: ShardId) -> None:
    """Open a shard's VStream and wait for a word from it.

    Raises:
        RetryableError: vtgate's gRPC port does not answer.
        OperatorError: it refuses us.
    """
    gate = vtgate_config(source)
    assert gate is not None  # noqa: S101 - asked of Vitess keyspaces only
    with VStream(gate, [(shard.keyspace, shard.shard, "current")]) as stream:
        stream.receive()


def _ask(keyspace: str, source: SourceSection) -> Topology:
    assert source.vtgate is not None  # noqa: S101 - asked of Vitess keyspaces only
    bare = source_config(ShardId(keyspace, ""), _shard(source, source.vtgate, "", ""))
    with gateway(bare) as query:
        serving = serving_shards(query, keyspace)
    first = ShardId(keyspace, serving[0])
    shard = _shard(source, source.vtgate, f"{keyspace}:{serving[0]}", "")
    with Session.connect(source_config(first, shard)) as session:
        return Topology(serving=serving, database=database_of(session.query, str(first)))


def _shard(source: SourceSection, gate: VtgateSection, name: str, database: str) -> ShardConfig:
    stream = vtgate_config(source)
    encrypts = stream is not None and stream.encrypts
    return ShardConfig(
        host=gate.host,
        port=gate.mysql_port,
        user=gate.user,
        password=gate.password,
        database=database,
        target=f"{name}@{source.tablet_type}" if name else "",
        tls="verify_identity" if encrypts else "disabled",
        tls_ca=gate.tls_ca,
        tls_cert=gate.tls_cert,
        tls_key=gate.tls_key,
        connect_timeout=gate.connect_timeout,
        read_timeout=gate.read_timeout,
    )
