"""What a VStream's backlog hands out, and the feed's slices under a bound of commit time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ratchet.core.errors import RetryableError
from ratchet.core.gtid import GtidSet
from ratchet.core.patterns import TablePatterns
from ratchet.core.position import Position
from ratchet.core.shard import ShardId
from ratchet.ingest.files import ChangeFileWriter
from ratchet.ingest.slices import CaptureRequest, SliceCollector, SliceLimits
from ratchet.ingest.vstream import feed as feed_module
from ratchet.ingest.vstream.backlog import SPOOL, WITHIN, Backlog, BacklogEntry, is_end
from ratchet.ingest.vstream.feed import VStreamFeed
from ratchet.store.formats import open_lake
from ratchet.wire.binlog import DumpOptions
from ratchet.wire.connect import SourceConfig
from ratchet.wire.decode.kernels import vstream as kernels
from ratchet.wire.vstreamproto import messages
from ratchet.wire.vtgate import VtgateConfig
from tests.decode_kit import KERNEL, PLAIN

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
SECOND = 1_000_000


def transaction(number: int, seconds: int, *, size: int = 0) -> bytes:
    """A response with one transaction of a table that is not mirrored."""
    proto = messages()
    found = proto.Response()
    place = f"MySQL56/{UUID}:{number}"
    found.events.add(type=proto.BEGIN, timestamp=seconds, event_gtid=place)
    if size:
        event = found.events.add(type=proto.ROW, timestamp=seconds, event_gtid=place)
        event.row_event.table = "x" * size
    event = found.events.add(type=proto.VGTID, timestamp=seconds, event_gtid=place)
    event.vgtid.shards.add(keyspace="shop", shard="0", gtid=f"MySQL56/{UUID}:1-{number}")
    found.events.add(type=proto.COMMIT, timestamp=seconds, event_gtid=place)
    found.events.add(type=proto.HEARTBEAT, timestamp=seconds)
    data: bytes = found.SerializeToString()
    return data


def times(pieces: Sequence[BacklogEntry]) -> list[int]:
    """Commit times, in stream order."""
    return [
        int(places[kernels.TIMESTAMP])
        for piece in pieces
        for places in piece.places
        if places[kernels.TYPE] == messages().COMMIT
    ]


@pytest.mark.parametrize("engine", [KERNEL, PLAIN])
@pytest.mark.parametrize("together", [1, 3, 6])
def test_a_bound_leaves_what_is_behind_it_in_its_order(engine: Any, together: int) -> None:
    backlog = Backlog(engine)
    for number, seconds in enumerate((5, 9, 6, 20, 7, 30), 1):
        backlog.add(transaction(number, seconds))
        if number % together == 0:
            backlog.index()
    assert times(backlog.take(8 * SECOND)) == [5]
    assert backlog.held_ts == 9 * SECOND
    assert backlog.take(8 * SECOND) == []
    assert backlog.held_ts == 9 * SECOND
    assert times(backlog.take(9 * SECOND)) == [9, 6]
    assert backlog.held_ts == 20 * SECOND
    assert backlog.whole_bytes > 0
    assert times(backlog.take()) == [20, 7, 30]
    assert backlog.held_ts is None
    assert backlog.whole_bytes == 0
    assert backlog.between
    assert backlog.take(0) == []
    assert backlog.held_ts is None


def test_what_is_decoded_at_once_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction may be as large as memory holds before it is spooled; NULLs swell."""
    monkeypatch.setattr("ratchet.ingest.vstream.backlog._JOINED", 10_000)
    backlog = Backlog()
    proto = messages()
    for number in range(1, 9):
        for event in proto.Response.FromString(transaction(number, number, size=4000)).events:
            backlog.add(proto.Response(events=[event]).SerializeToString())
            backlog.index()
    whole = backlog.whole_bytes
    pieces = backlog.take()
    assert times(pieces) == list(range(1, 9))
    assert sum(piece.size for piece in pieces) == whole > 32_000
    assert 2 < len(pieces) < 8
    assert all(piece.size < 10_000 + 5000 for piece in pieces)


def test_a_spooled_transaction_is_left_and_comes_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ratchet.ingest.vstream.backlog.SPOOL", 1000)
    assert SPOOL > 1000
    backlog = Backlog()
    proto = messages()
    whole = proto.Response.FromString(transaction(1, 50, size=4000))
    for event in whole.events:
        response = proto.Response(events=[event])
        backlog.add(response.SerializeToString())
        backlog.index()
        backlog.spool()
    backlog.add(transaction(2, 5))
    backlog.index()
    assert backlog.take(8 * SECOND) == []
    assert backlog.held_ts == 50 * SECOND
    pieces = backlog.take(50 * SECOND)
    assert any(piece.spooled for piece in pieces)
    assert times(pieces) == [50, 5]
    backlog.release()
    backlog.close()


class FakeStream:
    """Answers from a list; then it is silent."""

    responses: list[bytes]

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def receive(self, _: float) -> bytes | None:
        return self.responses.pop(0) if self.responses else None

    def close(self) -> None:
        pass


@pytest.fixture
def vstream(monkeypatch: pytest.MonkeyPatch) -> type[FakeStream]:
    """A fake vtgate, and no answer to any question."""
    monkeypatch.setattr(feed_module, "VStream", FakeStream)

    def away(_: SourceConfig) -> None:
        raise RetryableError("away")

    monkeypatch.setattr("ratchet.wire.session.Session.connect", away)
    return FakeStream


def test_a_slice_ends_before_the_bound_and_the_next_one_goes_on(
    vstream: type[FakeStream], tmp_path: Path
) -> None:
    vstream.responses = [transaction(n, s) for n, s in ((1, 5), (2, 9), (3, 6), (4, 20))]
    request = CaptureRequest(
        source=SourceConfig(shard=ShardId("shop", "0"), host="h", user="u", database="vt_shop"),
        start=Position(executed=GtidSet.parse("mysql", "")),
        generation=0,
        round_number=1,
        lake="unused",
        patterns=TablePatterns(("none",)),
        dump=DumpOptions(server_id=1),
    )
    sink = SliceCollector()
    stream = VStreamFeed(request, sink, vtgate=VtgateConfig(host="h", port=1))
    lake = open_lake(tmp_path / "lake", now=1)
    found = []
    for bound in (8, 8, 9, None):
        sink.begin(ChangeFileWriter(lake, shard=request.source.shard, round_number=1), 0)
        limits = SliceLimits(max_seconds=0.05, not_after=None if bound is None else bound * SECOND)
        taken = stream.read(known=frozenset(), limits=limits)
        found.append((taken.end.seq, taken.held_ts, sink.told.last))
    stream.close()
    assert found == [
        (1, 9 * SECOND, 5 * SECOND),
        (1, 9 * SECOND, None),
        (3, 20 * SECOND, 9 * SECOND),
        (4, None, 20 * SECOND),
    ]


def ends(pieces: Sequence[BacklogEntry]) -> list[int]:
    """Commit times of what ends a transaction, in stream order."""
    return [
        int(places[kernels.TIMESTAMP])
        for piece in pieces
        for places in piece.places[is_end(piece.types())]
    ]


def table_from_select(number: int, seconds: int) -> list[Any]:
    """The events of a CREATE TABLE ... SELECT, as vtgate 24 sends them."""
    proto = messages()
    place = f"MySQL56/{UUID}:{number}"
    found = proto.Response()
    for kind in (proto.BEGIN, proto.VGTID, proto.DDL, proto.FIELD, proto.ROW, proto.VGTID):
        event = found.events.add(type=kind, timestamp=seconds, event_gtid=place)
        if kind == proto.VGTID:
            event.vgtid.shards.add(keyspace="shop", shard="0", gtid=f"MySQL56/{UUID}:1-{number}")
    found.events.add(type=proto.COMMIT, timestamp=seconds, event_gtid=place)
    return list(found.events)


@pytest.mark.parametrize("engine", [KERNEL, PLAIN])
@pytest.mark.parametrize("cut", range(8))
def test_a_statement_within_a_transaction_ends_none(engine: Any, cut: int) -> None:
    """Its rows and its end come behind it: one transaction, wherever its responses end."""
    backlog = Backlog(engine)
    backlog.add(transaction(1, 5))
    events = table_from_select(2, 6)
    for part in (events[:cut], events[cut:]):
        backlog.add(messages().Response(events=part).SerializeToString())
        backlog.index()
    proto = messages()
    alone = proto.Response()
    alone.events.add(type=proto.DDL, timestamp=7, event_gtid=f"MySQL56/{UUID}:3")
    backlog.add(alone.SerializeToString())
    backlog.add(transaction(4, 8))
    backlog.index()
    pieces = backlog.take()
    assert ends(pieces) == [5, 6, 7, 8]
    assert sum((piece.types() == WITHIN).sum() for piece in pieces) == 1


@pytest.mark.parametrize("engine", [KERNEL, PLAIN])
@pytest.mark.parametrize("cut", range(1, 8))
def test_a_statement_whose_rows_nobody_can_send(engine: Any, cut: int) -> None:
    """Its table is gone by now: what comes behind it is the next transaction, or nothing."""
    proto = messages()
    backlog = Backlog(engine)
    backlog.add(transaction(1, 5))
    found = proto.Response()
    found.events.extend(table_from_select(2, 6)[:3])
    found.events.extend(table_from_select(3, 7)[:3])
    found.MergeFromString(transaction(4, 8))
    events = list(found.events)
    for part in (events[:cut], events[cut:]):
        backlog.add(proto.Response(events=part).SerializeToString())
        backlog.index()
    assert ends(backlog.take()) == [5, 6, 7, 8]
    assert backlog.between
    assert not backlog.holds_statement
    backlog.add(proto.Response(events=table_from_select(5, 9)[:3]).SerializeToString())
    backlog.index()
    assert backlog.holds_statement
    assert backlog.take() == []
    assert not backlog.between
    assert backlog.end_statement()
    assert backlog.between
    assert ends(backlog.take()) == [9]
    assert not backlog.end_statement()
    assert backlog.whole_bytes == backlog.open_bytes == 0
