"""Asking each shard's server whether the mirror can go on there, and whether it is the right one.

Lives here: `ask`, for `check`, `heal` and a run's beginning. Does not live here: what a server has
to have (`wire.continues`, `ingest.binlog.history`), what is done where it has not (`heal`).
"""

from __future__ import annotations

from collections.abc import Mapping

from ratchet.core.errors import ConfigError, PositionLostError, RetryableError
from ratchet.core.shell import shell_word
from ratchet.ingest.binlog.history import check_position
from ratchet.jobs.topology.lineage import keyspace_of
from ratchet.store.rounds import StreamState
from ratchet.wire.session import Session, SourceConfig


def ask(source: SourceConfig, streams: Mapping[str, StreamState]) -> None:
    """Whether a shard's stream can go on at its server; nothing if none is to go on.

    Args:
        source: how to connect.
        streams: the lake's.

    Raises:
        PositionLostError: it cannot.
        ConfigError: it is the server of another shard.
        RetryableError: it cannot yet, or it cannot be asked.
    """
    stream = streams.get(str(source.shard))
    if stream is None or stream.journal is not None:
        return

    def accept(session: Session) -> None:
        try:
            check_position(session, stream.position)
        except (PositionLostError, RetryableError) as error:
            other = _whose(session.server_identity, str(source.shard), streams)
            if other is None:
                raise
            raise ConfigError(
                f"{session.config.address} is the server that {other} was read from: "
                f"{error.message}",
                operation="open the stream",
                source=str(source.shard),
                hint=f"correct `host` and `port` of {source.shard} and {other} in the config: they "
                "may be swapped. If the shards have moved, and this server is right: "
                f"`ratchet heal CONFIG --shard {shell_word(str(source.shard))} --dump`",
            ) from error

    Session.connect(source, accept).close()


def _whose(server: str, shard: str, streams: Mapping[str, StreamState]) -> str | None:
    """The other shard of the keyspace that this server was read for; None if ours was as well."""
    readers = {
        other
        for other, stream in streams.items()
        if stream.position.server == server and keyspace_of(other) == keyspace_of(shard)
    }
    return None if shard in readers or not server else min(readers, default=None)
