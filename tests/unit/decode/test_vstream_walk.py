"""The walk over VStream's bytes: equal to protobuf's own reading, and the twins to each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.wire.decode.kernels import vstream as kernel
from ratchet.wire.decode.plain import vstream as plain
from ratchet.wire.vstreamproto import messages
from tests.decode_kit import KERNEL, PLAIN, STEADY, frozen

Row = list[bytes | None]
Change = tuple[Row | None, Row | None]

COLUMNS = 3
VALUES = st.lists(st.none() | st.binary(max_size=300), min_size=COLUMNS, max_size=COLUMNS)
CHANGES = st.lists(st.tuples(st.none() | VALUES, st.none() | VALUES), max_size=4)


def row_of(values: Row) -> Any:
    return messages().Row(
        lengths=[-1 if value is None else len(value) for value in values],
        values=b"".join(value or b"" for value in values),
    )


def change_of(change: Change) -> Any:
    before, after = change
    found = messages().RowChange()
    if before is not None:
        found.before.CopyFrom(row_of(before))
    if after is not None:
        found.after.CopyFrom(row_of(after))
    return found


def response_of(events: list[list[Change]]) -> Any:
    """One response: BEGIN, a row event for each list of changes, COMMIT."""
    proto = messages()
    found = proto.Response()
    found.events.add(type=proto.BEGIN, timestamp=17, current_time=1 << 62, event_gtid="uuid:7")
    for changes in events:
        event = found.events.add(type=proto.ROW, keyspace="shop", shard="-80")
        event.row_event.table = "shop.orders"
        event.row_event.changes.extend(change_of(change) for change in changes)
    found.events.add(type=proto.COMMIT, throttled=True)
    return found


def indexed(engine: Any, data: bytes) -> tuple[Any, ...]:
    """Everything that one engine makes of some responses."""
    buf = frozen(data)
    count, *stopped = (int(value) for value in engine.count_events(buf, 0, len(buf)))
    if stopped[0] != engine.OK:
        return count, *stopped
    places = np.full((count, engine.FIELDS), -9, np.int64)
    ended = tuple(int(value) for value in engine.index_events(buf, 0, len(buf), places))
    if ended[0] != engine.OK:
        return count, *ended
    rows = places[places[:, engine.BODY_END] > 0]
    starts, ends = (np.ascontiguousarray(rows[:, c]) for c in (engine.BODY, engine.BODY_END))
    changes, *stopped = (int(value) for value in engine.count_changes(buf, starts, ends))
    if stopped[0] != engine.OK:
        return places.tolist(), changes, *stopped
    offs = np.full((2 * COLUMNS, changes), -9, np.int64)
    lens = np.full_like(offs, -9)
    images, numbers = np.full(changes, 9, np.uint8), np.full(changes, 9, np.int32)
    ended = tuple(
        int(value) for value in engine.walk_changes(buf, starts, ends, offs, lens, images, numbers)
    )
    if ended[0] != engine.OK:
        return places.tolist(), changes, *ended
    return places.tolist(), offs.tolist(), lens.tolist(), images.tolist(), numbers.tolist()


@STEADY
@given(st.lists(CHANGES, max_size=3), st.integers(0, 3))
def test_as_protobuf_reads_it(events: list[list[Change]], copies: int) -> None:
    """Several responses in one buffer are one."""
    response = response_of(events)
    data = response.SerializeToString() * (copies + 1)
    places, offs, lens, images, numbers = indexed(kernel, data)
    assert len(places) == (len(events) + 2) * (copies + 1)
    parsed = messages().Response.FromString(data)
    for place, event in zip(places, parsed.events, strict=True):
        assert place[kernel.TYPE] == event.type
        assert place[kernel.TIMESTAMP] == event.timestamp
        assert place[kernel.SENT] == event.current_time
        assert data[place[kernel.GTID] : place[kernel.GTID_END]].decode() == event.event_gtid
        own = messages().Event.FromString(data[place[kernel.START] : place[kernel.END]])
        assert own == event
    flat = [change for _ in range(copies + 1) for changes in events for change in changes]
    numbered = [n for n, changes in enumerate(events * (copies + 1)) for _ in changes]
    assert numbers == numbered
    for number, change in enumerate(flat):
        assert images[number] == (change[0] is not None) + 2 * (change[1] is not None)
        for side, row in enumerate(change):
            for column in range(COLUMNS):
                at, size = (
                    offs[side * COLUMNS + column][number],
                    lens[side * COLUMNS + column][number],
                )
                value = None if row is None else row[column]
                assert (None if at < 0 else data[at : at + size]) == value


@STEADY
@given(st.lists(CHANGES, max_size=2), st.data())
def test_twins_agree_on_damaged_bytes(events: list[list[Change]], draw: st.DataObject) -> None:
    """And neither reads outside of its buffer: numba would, silently."""
    data = bytearray(response_of(events).SerializeToString())
    for _ in range(draw.draw(st.integers(0, 3))):
        if data:
            data[draw.draw(st.integers(0, len(data) - 1))] = draw.draw(st.integers(0, 255))
    cut = bytes(data[: draw.draw(st.integers(0, len(data)))])
    for one in (cut, bytes(data)):
        found = indexed(kernel, one)
        assert found == indexed(plain, one)
        if len(found) == 5:
            offs, lens = np.array(found[1]), np.array(found[2])
            assert ((offs < 0) | (offs + lens <= len(one))).all()


@pytest.mark.parametrize("engine", [kernel, plain], ids=["kernel", "plain"])
def test_what_is_refused(engine: Any) -> None:
    proto = messages()

    def outcome(change: Any) -> int:
        response = proto.Response()
        response.events.add(type=proto.ROW).row_event.changes.append(change)
        return int(indexed(engine, response.SerializeToString())[-2])

    good = [b"a", None, b"ccc"]
    assert outcome(change_of((None, good[:2]))) == engine.WRONG_COUNT
    assert outcome(change_of((None, [*good, None]))) == engine.WRONG_COUNT
    short = change_of((good, None))
    short.before.values = b"abc"
    assert outcome(short) == engine.TRAILING
    short.before.values = b"abcdef"
    assert outcome(short) == engine.TRAILING
    partial = change_of((good, good))
    partial.data_columns.bits = b"\x05"
    assert outcome(partial) == engine.INCOMPLETE
    partial.data_columns.bits = b"\x07"
    partial.partial_json.bits = b"\x02"
    assert outcome(partial) == engine.INCOMPLETE


def test_engines_have_it() -> None:
    assert KERNEL.vstream is kernel
    assert PLAIN.vstream is plain


GTIDS = st.one_of(
    st.binary(max_size=60),
    st.builds(
        "MySQL56/{}:{}".format,
        st.sampled_from(["0cae9bd9-e609-11f1-acd4-02fc00000001", "0cae9bd9:tag", "é"]),
        st.integers(0, 10**20),
    ).map(str.encode),
)


@given(st.lists(GTIDS, max_size=6))
@STEADY
def test_names_of_transactions_are_split(names: list[bytes]) -> None:
    """By both in the same way: all before the last colon (as a hash), and the number behind."""
    buf = frozen(b"".join(names))
    ends = np.cumsum([len(name) for name in names], dtype=np.int64)
    begins = ends - np.array([len(name) for name in names], dtype=np.int64)
    found = []
    for engine in (kernel, plain):
        hashes, numbers = np.zeros((2, len(names)), np.int64)
        ended = tuple(int(v) for v in engine.split_gtids(buf, begins, ends, hashes, numbers))
        found.append((ended, hashes.tolist(), numbers.tolist()))
    assert found[0] == found[1]
    ended, hashes, numbers = found[0]
    if ended[0] == kernel.OK:
        heads = [name.rpartition(b":") for name in names]
        assert numbers == [int(head[2]) for head in heads]
        assert len(set(hashes)) == len({head[0] for head in heads})


@given(st.lists(st.text(max_size=20), max_size=5), st.binary(max_size=3))
@STEADY
def test_tables_of_row_events_are_found(names: list[str], cut: bytes) -> None:
    events = [
        messages().RowEvent(table=name, changes=[change_of(([b"1"] * 3, None))]).SerializeToString()
        for name in names
    ]
    events = [event[: len(event) - len(cut)] for event in events]
    buf = frozen(b"".join(events))
    ends = np.cumsum([len(event) for event in events], dtype=np.int64)
    starts = ends - np.array([len(event) for event in events], dtype=np.int64)
    found = []
    for engine in (kernel, plain):
        hashes, begins, stops = np.zeros((3, len(names)), np.int64)
        ended = tuple(int(v) for v in engine.find_tables(buf, starts, ends, hashes, begins, stops))
        found.append((ended, hashes.tolist(), begins.tolist(), stops.tolist()))
    assert found[0] == found[1]
    ended, _, begins, stops = found[0]
    if not cut:
        assert ended[0] == (kernel.MALFORMED if "" in names else kernel.OK)
    if ended[0] == kernel.OK:
        data = buf.tobytes()
        assert [data[a:b].decode() for a, b in zip(begins, stops, strict=True)] == names
