"""Which servers on other machines are read with less than verified TLS, because the config says so.

Lives here: what is said of that at each start. Does not live here: what a connection turned out to
be (`fitness`), what TLS is used (`wire.connect`, `wire.vtgate`).

Invariant: no server is asked.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import Final

from ratchet.core.shard import ShardId
from ratchet.jobs.config.config import Config
from ratchet.jobs.config.sources import replica_configs, source_config, vtgate_config
from ratchet.jobs.preflight.finding import Finding
from ratchet.wire.connect import SourceConfig, TlsMode
from ratchet.wire.peer import is_local

log: Final = logging.getLogger(__name__)

MEND: Final = (
    "set tls: verify_identity for it in the config, or leave `tls` out; tls_ca names the authority"
)
WEAKER: Final[dict[TlsMode, str]] = {
    "disabled": "no TLS: anybody on the network path can read and change the rows",
    "preferred": "TLS only if the server offers it, not verified: anybody on the network path can "
    "switch it off, and read and change the rows",
    "required": "TLS, not verified: anybody on the network path can pose as the server, and read "
    "and change the rows",
    "verify_password": "TLS, the server is verified by the password alone: somebody on the network "
    "path can try passwords on what we send, or log in with it himself once",
    "verify_ca": "TLS, the host's name not verified: anybody with a certificate of the same "
    "authority can pose as the server",
}


def warn_of_weak_links(config: Config) -> None:
    """Log each, at the start of a run."""
    for one in (*_weak_servers(config), *weak_replicas(config), *weak_gates(config)):
        log.warning("%s: %s; %s", one.place, one.text, one.mend)


def weak_gates(config: Config) -> Iterator[Finding]:
    """The vtgates that are spoken with in the clear."""
    for keyspace, source in config.sources.items():
        gate = vtgate_config(source)
        if gate is not None and not gate.encrypts and not is_local(gate.host):
            yield Finding(
                place=keyspace,
                check="encryption",
                status="warn",
                text=f"{gate.host}: no TLS: anybody on the network path to vtgate can read rows",
                mend="give vtgate's ports a certificate, and set tls: required",
            )


def weak_replicas(config: Config) -> Iterator[Finding]:
    """The replicas whose lag is asked for."""
    for keyspace, source in config.sources.items():
        for name, shard in source.shards.items():
            yield from _weak(replica_configs(ShardId(keyspace, name), shard))


def _weak_servers(config: Config) -> Iterator[Finding]:
    for keyspace, source in config.sources.items():
        if source.vtgate is None:
            for name, shard in source.shards.items():
                yield from _weak(source_config(ShardId(keyspace, name), shard).servers())


def _weak(servers: Iterable[SourceConfig]) -> Iterator[Finding]:
    for server in servers:
        if server.tls_mode != "verify_identity" and not is_local(server.host):
            yield Finding(
                place=str(server.shard),
                check="encryption",
                status="warn",
                text=f"{server.address}: {WEAKER[server.tls_mode]}",
                mend=MEND,
            )
