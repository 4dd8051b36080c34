"""What the walker has noted, as values: transactions, row events, table events.

Lives here: `TransactionBatch` and the arithmetic over a batch's transactions (names, runs, the set
they make). Does not live here: how they were found (`walk`, `reader`), the rows' values
(`ingest.changes`).
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ratchet.core.gtid import Flavor, Gtid, GtidSet, format_gtid
from ratchet.core.rounds import GtidRange, TableEvent
from ratchet.wire.decode.tablemap import TableMap

Bytes = npt.NDArray[np.uint8]
Records = npt.NDArray[np.void]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionBatch:
    """Transactions in stream order and the row events of mirrored tables in them.

    Attributes:
        flavor: the stream's flavour.
        txns: records of places.TXN; the last one may be open still.
        rows: records of places.ROWS, in stream order.
        names: origin number -> origin.
        maps: slot -> table map of a mirrored table, None for others.
        buffers: what `rows.where` stands for: the receive buffer and the side buffer.
        rows_before: row changes of the first transaction that earlier batches held.
        ended: how many of `txns` are whole.
        events: table events, in stream order.
    """

    flavor: Flavor
    txns: Records
    rows: Records
    names: Sequence[str]
    maps: Sequence[TableMap | None]
    buffers: tuple[Bytes, Bytes]
    rows_before: int
    ended: int
    events: tuple[TableEvent, ...]

    def gtids(self) -> list[str]:
        """The transactions' names in the server's notation."""
        txns = self.txns
        origins, numbers = txns["origin"].tolist(), txns["number"].tolist()
        if self.flavor == "mysql":
            heads = [f"{name}:" for name in self.names]
            return [f"{heads[o]}{n}" for o, n in zip(origins, numbers, strict=True)]
        parts = zip(origins, txns["server"].tolist(), numbers, strict=True)
        if self.flavor == "mariadb":
            return [f"{self.names[o]}-{s}-{n}" for o, s, n in parts]
        return [format_gtid("file", Gtid(self.names[o], n)) for o, _, n in parts]


def origin_name(flavor: Flavor, raw: bytes) -> str:
    """An origin as the walker notes it (16 bytes) in the form of core.gtid."""
    if flavor == "mariadb":
        return str(int.from_bytes(raw[:4], "little"))
    return str(uuid.UUID(bytes=raw))


def origin_bytes(flavor: Flavor, name: str) -> bytes:
    """The other way round, for origins that events carry as bytes (not tagged ones)."""
    if flavor == "mariadb":
        return int(name).to_bytes(4, "little") + bytes(12)
    return uuid.UUID(name).bytes


def runs_of(flavor: Flavor, txns: Records, names: Sequence[str]) -> list[GtidRange]:
    """Whole transactions, in stream order, as runs."""
    if not txns.size:
        return []
    origins, numbers = txns["origin"], txns["number"]
    breaks = origins[1:] != origins[:-1]
    if flavor == "mysql":
        breaks |= numbers[1:] != numbers[:-1] + 1
    firsts = np.flatnonzero(np.concatenate(([True], breaks)))
    lasts = np.append(firsts[1:], txns.size) - 1
    return [
        GtidRange(names[int(origins[a])], int(numbers[a]), int(numbers[b]), int(txns["seq"][a]))
        for a, b in zip(firsts, lasts, strict=True)
    ]


def join_runs(flavor: Flavor, earlier: list[GtidRange], later: list[GtidRange]) -> list[GtidRange]:
    """Two lists of runs that follow each other as one."""
    if not earlier or not later:
        return earlier + later
    a, b = earlier[-1], later[0]
    follows = b.first == a.last + 1 if flavor == "mysql" else b.first > a.last
    if a.origin != b.origin or not follows:
        return earlier + later
    return [*earlier[:-1], GtidRange(a.origin, a.first, b.last, a.seq), *later[1:]]


def add_runs(executed: GtidSet, runs: Sequence[GtidRange], servers: dict[str, int]) -> GtidSet:
    """The set with these transactions; `servers`: MariaDB domain -> server of its last one."""
    added: dict[str, list[tuple[int, int]]] = {}
    for run in runs:
        # MariaDB and files: numbers only rise, so what was skipped will never come.
        first = run.first if executed.flavor == "mysql" else 1
        added.setdefault(run.origin, []).append((first, run.last))
    return executed.with_intervals(added, servers)


def last_servers(flavor: Flavor, txns: Records, names: Sequence[str]) -> dict[str, int]:
    """MariaDB: domain -> id of the server that wrote its last one of these transactions."""
    if flavor != "mariadb":
        return {}
    origins = txns["origin"][::-1]
    firsts = np.unique(origins, return_index=True)[1]
    return {names[int(origins[i])]: int(txns["server"][::-1][i]) for i in firsts}
