"""From the config's shards to what the other rooms take: connections' settings and server ids."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ratchet.core.shard import ShardId
from ratchet.jobs.config.config import Config
from ratchet.jobs.config.settings import ShardConfig, SourceSection
from ratchet.wire.binlog import replica_server_id
from ratchet.wire.connect import SourceConfig
from ratchet.wire.vtgate import VtgateConfig


def source_config(shard: ShardId, config: ShardConfig) -> SourceConfig:
    """How to connect to a shard's server."""
    return SourceConfig(
        shard=shard,
        host=config.host,
        port=config.port,
        standbys=config.standbys,
        user=config.user,
        password=config.password,
        database=config.database,
        target=config.target,
        tls=config.tls,
        tls_ca=config.tls_ca,
        tls_cert=config.tls_cert,
        tls_key=config.tls_key,
        connect_timeout=config.connect_timeout,
        read_timeout=config.read_timeout,
        trusts_virtual=config.trusts_virtual,
    )


def vtgate_config(source: SourceSection) -> VtgateConfig | None:
    """How to open a VStream of a Vitess keyspace; None for other kinds."""
    gate = source.vtgate
    if gate is None:
        return None
    return VtgateConfig(
        host=gate.host,
        port=gate.grpc_port,
        user=gate.user,
        password=gate.password,
        tls=gate.tls,
        tls_ca=gate.tls_ca,
        tls_cert=gate.tls_cert,
        tls_key=gate.tls_key,
        tablet_type=source.tablet_type,
        cells=gate.cells,
        connect_timeout=gate.connect_timeout,
    )


def source_configs(config: Config) -> Mapping[ShardId, SourceConfig]:
    """All shards', in the file's order."""
    return {shard: source_config(shard, given) for shard, given in config.shards.items()}


def replica_configs(shard: ShardId, config: ShardConfig) -> tuple[SourceConfig, ...]:
    """How to connect to the replicas whose lag holds a dump of the shard back."""
    own = source_config(shard, config)
    return tuple(replace(own, host=host, port=port, standbys=()) for host, port in config.replicas)


def server_ids(config: Config) -> Mapping[ShardId, int]:
    """The replication server id of each shard's stream.

    Without `capture.server_id_base` they follow from the lake's address, so two mirrors of one
    server differ, and a mirror's stream takes the place of its own old one after a kill.
    """
    base = config.capture.server_id_base
    if base is None:
        return {shard: replica_server_id(config.lake, shard) for shard in config.shards}
    return {shard: base + number for number, shard in enumerate(config.shards)}
