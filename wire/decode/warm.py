"""Compile every kernel, or load it from numba's cache, before the first rows arrive."""

from __future__ import annotations

import time

import numpy as np

from ratchet.core.change import INSERT
from ratchet.core.types import InvalidValuePolicy
from ratchet.wire.decode.engine import engine
from ratchet.wire.decode.rows import RowImageDecoder
from ratchet.wire.decode.samples import every_reader, null_row_event, null_text_row
from ratchet.wire.decode.text import TextRowDecoder


def warm() -> float:
    """Decode one row of every type in both protocols; returns the seconds that it took.

    About 0.5 s when numba's cache is filled, some 20 s when it is not.
    """
    start = time.perf_counter()
    table = every_reader()
    event = np.frombuffer(null_row_event(len(table.columns)), dtype=np.uint8)
    packet = np.frombuffer(null_text_row(len(table.columns)), dtype=np.uint8)
    zero, end = np.zeros(1, dtype=np.int64), np.full(1, len(event), dtype=np.int64)
    for policy in (InvalidValuePolicy(), InvalidValuePolicy(zero_dates="text")):
        decoder = RowImageDecoder(table, policy, implementation=engine("kernel"))
        decoder.decode(event, zero, end, INSERT)
        text = TextRowDecoder(table.schema, policy, implementation=engine("kernel"))
        text.decode(packet, 0, len(packet))
    return time.perf_counter() - start
