"""`ratchet check` for a mirror that is there already: does the config fit it, can it go on?

Lives here: the rules that `run` would refuse by, asked beforehand. Does not live here: what servers
need in any case (`fitness`), going on (`reshard`, `tablets`, `begin`).

Invariant: nothing is changed; no stream is opened and none begins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from ratchet.core.errors import ConfigError, RatchetError
from ratchet.core.shard import ShardId
from ratchet.jobs.config.config import Config
from ratchet.jobs.preflight.finding import Finding, Status
from ratchet.jobs.reporting.text import counted
from ratchet.jobs.topology.begin import dumped_without, refuse_unfitting
from ratchet.jobs.topology.lineage import of_keyspace
from ratchet.jobs.topology.positions import ask
from ratchet.jobs.topology.tablets import check_listed, keyspaces
from ratchet.store.files import Lake
from ratchet.store.rounds import RoundLog, StreamState
from ratchet.store.tables import Tables
from ratchet.wire.session import SourceConfig

_LOOK: Final = "`ratchet status` shows the reason for each"


def judge_mirror(config: Config, lake: Lake, streams: Mapping[str, StreamState]) -> list[Finding]:
    """Whether a run with this config would go on with this lake.

    Args:
        config: as loaded.
        lake: the lake.
        streams: its streams.

    Raises:
        LakeError: the lake cannot be read.
    """
    states = Tables(lake).list()
    found = []
    try:
        refuse_unfitting(config, lake)
        for keyspace in keyspaces(config):
            check_listed(config, keyspace, of_keyspace(keyspace, streams))
    except ConfigError as error:
        found.append(_finding("lake", "mirror", "fail", error.message, error.hint))
    for shard in dumped_without(states, config.sources, RoundLog(lake)):
        text = f"the tables were dumped without {shard}, which the config lacked then"
        mend = "a run dumps those again that it has; nothing is to be typed"
        found.append(_finding(shard, "rows", "warn", text, mend))
    stopped = [state.name for state in states if state.phase == "stopped"]
    stopped = [name for name in stopped if config.mirrors(*name.split(".", 1))]
    if stopped:
        text = f"{counted(len(stopped), 'table')} stopped: {', '.join(stopped)}"
        found.append(_finding("lake", "stopped tables", "warn", text, _LOOK))
    if states and not found:
        text = f"{counted(len(states), 'table')}, {counted(len(streams), 'stream')}"
        found.append(_finding("lake", "mirror", "ok", f"{text}; the config fits them"))
    return found


def judge_position(
    source: SourceConfig, shard: ShardId, streams: Mapping[str, StreamState]
) -> Iterator[Finding]:
    """Whether a shard's server can go on from where the mirror stands; nothing if it is not read.

    Args:
        source: how to connect.
        shard: the shard.
        streams: the lake's.
    """
    stream = streams.get(str(shard))
    if stream is None or stream.journal is not None:
        return
    try:
        ask(source, streams)
    except RatchetError as error:
        yield _finding(str(shard), "position", "fail", error.message, error.hint)
    else:
        yield _finding(str(shard), "position", "ok", "the mirror can continue from its position")


def _finding(place: str, check: str, status: Status, text: str, mend: str = "") -> Finding:
    return Finding(place=place, check=check, status=status, text=text, mend=mend)
