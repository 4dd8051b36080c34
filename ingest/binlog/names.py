"""The names of transactions in the server's notation, as an Arrow column.

Lives here: the kernel and what calls it. Does not live here: the plain twin
(`notes.TransactionBatch.gtids`).

A stream of single-row transactions has as many names as rows: made by Python they were a fifth of
all that was done for it.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from ratchet.ingest.binlog.notes import TransactionBatch
from ratchet.wire.decode.arrays import Bytes, Int, Longs
from ratchet.wire.kernel import kernel

_ZERO: Final = 48
_DASH: Final = 45
_DIGITS: Final = 19  # of a number, at most
_SERVER_DIGITS: Final = 10


def gtid_column(batch: TransactionBatch) -> pa.StringArray:
    """The same as `TransactionBatch.gtids`, per transaction."""
    if batch.flavor == "file":
        return pa.array(batch.gtids(), pa.string())
    mariadb = batch.flavor == "mariadb"
    heads = [f"{name}{'-' if mariadb else ':'}".encode() for name in batch.names]
    ends = np.cumsum([0, *map(len, heads)], dtype=np.int64)
    data, places = _names(
        np.frombuffer(b"".join(heads), dtype=np.uint8),
        ends,
        batch.txns["origin"].astype(np.int64),
        batch.txns["server"].astype(np.int64) if mariadb else np.zeros(0, dtype=np.int64),
        batch.txns["number"].astype(np.int64),
    )
    buffers = [None, pa.py_buffer(places.astype(np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.string(), len(batch.txns), buffers)


@kernel
def _names(
    heads: Bytes, head_ends: Longs, origins: Longs, servers: Longs, numbers: Longs
) -> tuple[Bytes, Longs]:
    """Names: head, server and a dash (if there are servers), number; and where each ends.

    Args:
        heads: what names begin with, one behind the other.
        head_ends: where each ends, a 0 in front.
        origins: per transaction the number of its head.
        servers: per transaction its server, or none at all.
        numbers: per transaction its number.
    """
    longest = np.int64(0)
    for head in range(len(head_ends) - 1):
        longest = max(longest, head_ends[head + 1] - head_ends[head])
    count = len(numbers)
    data = np.empty(count * (longest + _SERVER_DIGITS + 1 + _DIGITS), dtype=np.uint8)
    places = np.zeros(count + 1, dtype=np.int64)
    at = np.int64(0)
    for i in range(count):
        for byte in range(head_ends[origins[i]], head_ends[origins[i] + 1]):
            data[at] = heads[byte]
            at += 1
        if len(servers):
            at = _number(data, at, servers[i])
            data[at] = _DASH
            at += 1
        at = _number(data, at, numbers[i])
        places[i + 1] = at
    return data[:at].copy(), places


@kernel
def _number(data: Bytes, at: Int, value: Int) -> np.int64:
    """Write a number that is not negative in decimal; returns the place behind it."""
    end = at + 1
    rest = value // 10
    while rest:
        end += 1
        rest //= 10
    place = end
    while place > at:
        place -= 1
        data[place] = _ZERO + value % 10
        value //= 10
    return np.int64(end)
