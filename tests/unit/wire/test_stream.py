"""Receive buffers and raw rows: however the bytes arrive, whole rows come out in order."""

from __future__ import annotations

import numpy as np
import pytest
from event_kit import packet
from hypothesis import given
from hypothesis import strategies as st

from ratchet.core.errors import RatchetError, RetryableError
from ratchet.wire import stream
from ratchet.wire.stream import LEAST_PACE, ReceiveBuffer, RowStream, scan_rows, scan_rows_plain

HEAD = packet(b"\2") + packet(b"def1") + packet(b"def2") + packet(b"\xfe\0\0\2\0")
END = packet(b"\xfe\0\0\2\0")


class Pieces:
    """A socket that has bytes in pieces, then ends."""

    def __init__(self, *pieces: bytes) -> None:
        self.pieces = list(pieces)

    def recv_into(self, buffer: memoryview, nbytes: int = 0, flags: int = 0, /) -> int:
        del nbytes, flags
        if not self.pieces:
            return 0
        piece = self.pieces.pop(0)
        count = min(len(piece), len(buffer))
        buffer[:count] = piece[:count]
        if piece[count:]:
            self.pieces.insert(0, piece[count:])
        return count

    def settimeout(self, value: float | None, /) -> None:
        del value


def rows_of(*pieces: bytes, region: int = 1) -> list[bytes]:
    broken: list[bool] = []
    rows = RowStream(
        Pieces(*pieces), source="s", on_broken=lambda: broken.append(True), region=region
    )
    assert rows.columns == 2
    found = [data[start:end].tobytes() for data, start, end in rows]
    rows.close()
    assert not broken
    return found


def test_hands_out_whole_rows_however_they_arrive() -> None:
    rows = [packet(b"\1" + bytes([n]) + b"\xfb") for n in range(20)]
    raw = HEAD + b"".join(rows) + END
    for size in (1, 2, 3, 7, 50, len(raw)):
        pieces = [raw[at : at + size] for at in range(0, len(raw), size)]
        assert b"".join(rows_of(*pieces)) == b"".join(rows)


def test_an_empty_result_has_no_region() -> None:
    assert rows_of(HEAD + END) == []


def test_a_row_over_several_packets_stays_together() -> None:
    big = packet(b"\xfe" + (1 << 24).to_bytes(8, "little") + b"z" * (1 << 24))
    found = rows_of(HEAD + packet(b"\1a\1b"), big, packet(b"\1c\1d") + END)
    assert any(region.startswith(big[:20]) or big[:20] in region for region in found)
    assert b"".join(found) == packet(b"\1a\1b") + big + packet(b"\1c\1d")


def test_an_error_in_the_middle_is_raised_after_the_rows_before_it() -> None:
    failed = packet(b"\xff\x25\x05#70100Query execution was interrupted")
    rows = RowStream(Pieces(HEAD + packet(b"\1a\1b") + failed), source="s", on_broken=list)
    with pytest.raises(RetryableError, match="interrupted"):
        list(rows)


def test_an_error_instead_of_a_result_leaves_the_session_usable() -> None:
    broken: list[bool] = []
    failed = packet(b"\xff\x7a\x04#42S02Table 'x' doesn't exist")
    with pytest.raises(RatchetError, match="doesn't exist"):
        RowStream(Pieces(failed), source="s", on_broken=lambda: broken.append(True))
    assert not broken


def test_a_lost_connection_breaks_the_session() -> None:
    broken: list[bool] = []
    rows = RowStream(
        Pieces(HEAD + packet(b"\1a\1b")[:-1]), source="s", on_broken=lambda: broken.append(True)
    )
    with pytest.raises(RetryableError, match="closed"):
        list(rows)
    assert broken


@pytest.mark.parametrize(("pace", "ends"), [(0.5, True), (2.0, False)])
def test_rows_that_come_drop_by_drop(
    monkeypatch: pytest.MonkeyPatch, *, pace: float, ends: bool
) -> None:
    """They held up the dump of all sources, each drop within the read time-out."""
    row = packet(b"\1a\1b")
    now = [0.0]

    class Drops(Pieces):
        def recv_into(self, buffer: memoryview, nbytes: int = 0, flags: int = 0, /) -> int:
            now[0] += len(row) / (LEAST_PACE * pace)
            return super().recv_into(buffer, nbytes, flags)

    monkeypatch.setattr("ratchet.wire.stream.time.monotonic", lambda: now[0])
    broken: list[bool] = []
    rows = RowStream(
        Drops(HEAD, *[row] * 2000, END),
        source="s",
        on_broken=lambda: broken.append(True),
        patience=30.0,
    )
    if ends:
        with pytest.raises(RetryableError, match="fewer than 64 bytes a second"):
            list(rows)
        assert broken
        assert now[0] < 60
    else:
        assert sum(end - start for _, start, end in rows) == 2000 * len(row)


def test_leaving_early_breaks_the_session() -> None:
    broken: list[bool] = []
    raw = HEAD + packet(b"\1a\1b") + END
    with RowStream(Pieces(raw), source="s", on_broken=lambda: broken.append(True)):
        pass
    assert broken


def test_a_buffer_grows_moves_and_shrinks_without_losing_bytes() -> None:
    buffer = ReceiveBuffer(size=8)
    buffer.receive(Pieces(b"abcdef"), room=6)
    buffer.start = 4
    buffer.reserve(6)
    assert (buffer.data.size, bytes(buffer.data[buffer.start : buffer.end])) == (8, b"ef")
    buffer.reserve(100)
    assert buffer.data.size >= 102
    buffer.shrink()
    assert bytes(buffer.data[buffer.start : buffer.end]) == b"ef"
    assert buffer.data.size == stream.BUFFER_SIZE


@given(st.lists(st.binary(max_size=12), max_size=6), st.integers(0, 120))
def test_the_scan_and_its_twin_agree(payloads: list[bytes], cut: int) -> None:
    raw = b"".join(packet(p) for p in payloads)[:cut]
    data = np.frombuffer(bytearray(raw), np.uint8)
    assert scan_rows(data, 0, data.size) == scan_rows_plain(data, 0, data.size)
