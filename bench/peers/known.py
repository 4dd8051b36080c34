"""Which peers there are, which Python runs each, and which races it can take part in."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lab.places import cache

RATCHET: Final = "ratchet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Somebody in the race.

    Attributes:
        name: as the report and `--only` have it.
        module: below `bench.peers`.
        own_packages: whether it runs in the peers' environment, else in Ratchet's (same Spark).
        races: what it can do.
        remark: what a reader must know to read its figures rightly.
    """

    name: str
    module: str
    own_packages: bool = False
    races: tuple[str, ...] = ("load", "follow")
    remark: str = ""

    @property
    def python(self) -> Path:
        """The interpreter that runs it."""
        return peers_python() if self.own_packages else Path(sys.executable)


def peers_python() -> Path:
    """The interpreter of the peers' environment (`make bench-peers` sets it up)."""
    return cache() / "peers" / "venv" / "bin" / "python"


PEERS: Final = (
    Peer(name=RATCHET, module="ratchet"),
    Peer(
        name="capture",
        module="capture",
        races=("follow",),
        remark="Ratchet's capture alone, to compare with debezium: nothing is merged",
    ),
    Peer(name="jdbc", module="jdbc", remark="deletes are not seen"),
    Peer(
        name="replication",
        module="replication",
        remark="keeps no position and no tokens; its load is jdbc's",
    ),
    Peer(name="dlt", module="dlt_peer", own_packages=True, remark="deletes are not seen"),
    Peer(
        name="connectorx",
        module="connectorx_peer",
        own_packages=True,
        races=("load",),
        remark="into one Parquet file, all rows in memory; cannot follow",
    ),
    Peer(name="debezium", module="debezium", remark="its changes are counted and thrown away"),
    Peer(name="flink", module="flink"),
)
