"""What a slice says of the moment when it was read."""

from __future__ import annotations

from pathlib import Path

import pytest

from ratchet.core.gtid import GtidSet
from ratchet.core.patterns import TablePatterns
from ratchet.core.position import Position
from ratchet.core.shard import ShardId
from ratchet.ingest import capture
from ratchet.ingest.slices import CaptureRequest, SliceCollector, SliceLimits, SliceSummary
from ratchet.wire.binlog import DumpOptions
from ratchet.wire.connect import SourceConfig


class _AtItsEnd:
    """A feed that has nothing more to give."""

    def __init__(self, position: Position, *, is_worn: bool = False) -> None:
        self._position = position
        self.is_worn = is_worn
        self.closed = False

    def read(self, *, known: frozenset[str], limits: SliceLimits) -> SliceSummary:
        del known, limits
        return SliceSummary(end=self._position, runs=(), bytes=0, caught_up=True)

    def close(self) -> None:
        """See Feed."""
        self.closed = True


def _request(lake: Path) -> CaptureRequest:
    start = Position(executed=GtidSet.parse("mariadb", "0-1-5"))
    return CaptureRequest(
        source=SourceConfig(
            shard=ShardId("shop", "-"), host="127.0.0.1", port=1, user="u", database="d"
        ),
        start=start,
        generation=0,
        round_number=1,
        lake=str(lake),
        patterns=TablePatterns(),
        dump=DumpOptions(server_id=1),
    )


def test_a_slow_lake_does_not_make_a_stream_look_read_for_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was committed while files were closed has not been read; skew and lag count on it."""
    request = _request(tmp_path)
    start = request.start
    stream = capture._Open("", _AtItsEnd(start), SliceCollector(), start)
    monkeypatch.setattr(capture, "_open", lambda *_, **__: stream)
    monkeypatch.setattr(capture, "_keep", lambda *_: None)
    now = [100.0]
    # The crash points stand before and behind the closing of the files.
    monkeypatch.setattr(capture, "reach", lambda _: now.__setitem__(0, now[0] + 30))
    piece = capture.capture_slice(request, clock=lambda: now[0]).slice
    assert piece is not None
    assert piece.caught_up
    assert piece.observed_at == 100_000_000


@pytest.mark.parametrize("is_worn", [False, True])
def test_a_stream_that_has_gathered_much_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_worn: bool
) -> None:
    """What it knows of shapes that tables once had would fill the memory."""
    request = _request(tmp_path)
    feed = _AtItsEnd(request.start, is_worn=is_worn)
    stream = capture._Open("", feed, SliceCollector(), request.start)
    monkeypatch.setattr(capture, "_open", lambda *_, **__: stream)
    assert capture.capture_slice(request).slice is not None
    assert feed.closed == is_worn
    capture.close_streams()
    assert feed.closed
