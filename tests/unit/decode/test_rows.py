"""Row events and text rows: whole, split, cut short, with bytes behind them, and of any bytes."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ratchet.core.change import DELETE, INSERT, UPDATE
from ratchet.core.errors import DecodeError, RatchetError, TableStoppedError
from ratchet.core.schema import Column, ColumnType, TableSchema
from ratchet.core.types import InvalidValuePolicy
from ratchet.wire.decode import plan
from ratchet.wire.decode.engine import Engine
from ratchet.wire.decode.plan import WireColumn, walk_plan
from ratchet.wire.decode.rows import DecodedRows, RowImageDecoder
from ratchet.wire.decode.samples import every_reader
from ratchet.wire.decode.tablemap import TableMap
from ratchet.wire.decode.text import TextRowDecoder
from tests.decode_kit import KERNEL, PLAIN, STEADY, frozen

NULLS = InvalidValuePolicy()
TEXT = InvalidValuePolicy(zero_dates="text")
FAIL = InvalidValuePolicy(zero_dates="fail")
ENGINES = pytest.mark.parametrize("engine", [KERNEL, PLAIN], ids=lambda e: e.name)


def table(*columns: tuple[str, ColumnType, int, int, int], key: tuple[str, ...] = ()) -> TableMap:
    """A table map out of (name, type, code, prefix, size)."""
    wires = tuple(
        WireColumn(name=n, type=t, nullable=True, code=c, prefix=p, size=s)
        for n, t, c, p, s in columns
    )
    shape = tuple(Column(name=wire.name, type=wire.type) for wire in wires)
    return TableMap(
        table_id=1,
        database="db",
        table="t",
        schema=TableSchema(keyspace="shop", table="t", columns=shape, key=key),
        columns=wires,
        plan=walk_plan(wires),
    )


TWO = table(
    ("id", ColumnType(name="int"), plan.LONG, 0, 4),
    ("name", ColumnType(name="varchar", length=40, charset="utf8mb4"), plan.VARCHAR, 1, 0),
    key=("id",),
)
DAY = table(("day", ColumnType(name="date"), plan.DATE, 0, 3), key=("day",))


def image(columns: tuple[WireColumn, ...], values: Sequence[bytes | None]) -> bytes:
    """One row image."""
    nulls = bytearray((len(columns) + 7) // 8)
    out = b""
    for number, (column, value) in enumerate(zip(columns, values, strict=True)):
        if value is None:
            nulls[number // 8] |= 1 << number % 8
        elif column.prefix:
            out += len(value).to_bytes(column.prefix, "little") + value
        else:
            out += value
    return bytes(nulls) + out


def event(columns: int, images: Sequence[bytes], *, bitmaps: int = 1) -> bytes:
    """A row event from its column count on."""
    width = (columns + 7) // 8
    full = bytes([0xFF] * width)
    return bytes([columns]) + full * bitmaps + b"".join(images)


def decode(
    engine: Engine,
    shape: TableMap,
    events: Sequence[bytes],
    op: int | np.ndarray[Any, Any] = INSERT,
    *,
    policy: InvalidValuePolicy = NULLS,
    tail: bytes = b"",
) -> DecodedRows:
    """The rows of events that lie behind each other, each with `tail` behind it."""
    buf, starts, ends = b"head", [], []
    for body in events:
        starts.append(len(buf))
        buf += body
        ends.append(len(buf))
        buf += tail
    decoder = RowImageDecoder(shape, policy, implementation=engine)
    places = np.array([starts, ends], dtype=np.int64)
    return decoder.decode(frozen(buf), places[0], places[1], op)


def int_and_name(number: int, name: str | None) -> bytes:
    value = None if name is None else name.encode()
    return image(TWO.columns, [struct.pack("<i", number), value])


ROWS = [(1, "one"), (-2, None), (3, ""), (4, "vier €")]


@ENGINES
@pytest.mark.parametrize("tail", [b"", b"\x00", b"\xff" * 9])
def test_rows_are_the_same_however_they_are_split_into_events(engine: Engine, tail: bytes) -> None:
    """One event with four rows, four events, or any cut between; bytes behind are no matter."""
    images = [int_and_name(*row) for row in ROWS]
    for cut in range(5):
        parts = [part for part in (images[:cut], images[cut:]) if part]
        found = decode(engine, TWO, [event(2, part) for part in parts], tail=tail)
        assert found.after is not None
        assert [tuple(row.values()) for row in found.after.to_pylist()] == ROWS
        assert found.before is None
        numbers = [n for n, part in enumerate(parts) for _ in part]
        assert found.event.tolist() == numbers


@ENGINES
def test_updates_have_both_images_and_deletes_the_one_before(engine: Engine) -> None:
    pairs = [int_and_name(1, "a") + int_and_name(2, "b"), int_and_name(3, "") * 2]
    found = decode(engine, TWO, [event(2, pairs, bitmaps=2)], UPDATE)
    assert found.before is not None
    assert found.after is not None
    assert found.before.to_pylist() == [{"id": 1, "name": "a"}, {"id": 3, "name": ""}]
    assert found.after.to_pylist() == [{"id": 2, "name": "b"}, {"id": 3, "name": ""}]
    gone = decode(engine, TWO, [event(2, [int_and_name(7, None)])], DELETE)
    assert gone.after is None
    assert gone.before is not None
    assert gone.before.to_pylist() == [{"id": 7, "name": None}]


@STEADY
@given(
    st.lists(
        st.tuples(
            st.sampled_from([INSERT, UPDATE, DELETE]),
            st.lists(st.tuples(st.integers(-9, 9), st.none() | st.text(max_size=3)), max_size=3),
        ),
        max_size=5,
    )
)
def test_events_of_several_operations_are_as_each_by_itself(
    events: list[tuple[int, list[tuple[int, str | None]]]],
) -> None:
    """In the order of the events; an image that a row does not have is NULL, and no misfit."""
    bodies = [
        event(
            2,
            [int_and_name(*row) * (2 if op == UPDATE else 1) for row in rows],
            bitmaps=2 if op == UPDATE else 1,
        )
        for op, rows in events
    ]
    ops = np.array([op for op, _ in events], np.int8)
    for implementation in (KERNEL, PLAIN):
        found = decode(implementation, TWO, bodies, ops)
        images: dict[str, list[object]] = {"before": [], "after": []}
        for op, body in zip(ops.tolist(), bodies, strict=True):
            one = decode(implementation, TWO, [body], op)
            for name, values in images.items():
                image_of = getattr(one, name)
                values.extend(image_of.to_pylist() if image_of else [None] * one.event.size)
        assert (found.before is None) == all(op == INSERT for op, _ in events)
        assert (found.after is None) == all(op == DELETE for op, _ in events)
        for name, values in images.items():
            whole = getattr(found, name)
            assert (whole.to_pylist() if whole else [None] * found.event.size) == values
        numbers = [n for n, (_, rows) in enumerate(events) for _ in rows]
        assert found.event.tolist() == numbers
        assert found.misfits == {}


@ENGINES
def test_misfits_are_counted_in_images_that_are_there(engine: Engine) -> None:
    """An insert has no image before: nothing of it is missing there."""
    shape = table(
        ("id", ColumnType(name="int"), plan.LONG, 0, 4),
        ("day", ColumnType(name="date"), plan.DATE, 0, 3),
    )
    row = image(shape.columns, [struct.pack("<i", 1), b"\0\0\0"])
    bodies = [event(2, [row]), event(2, [row * 2], bitmaps=2), event(2, [row])]
    found = decode(engine, shape, bodies, np.array([INSERT, UPDATE, DELETE], np.int8))
    assert found.misfits == {"day": 4}


@ENGINES
def test_an_event_cut_at_any_byte_is_an_error_or_ends_between_rows(engine: Engine) -> None:
    """No cut gives rows that were not there."""
    body = event(2, [int_and_name(*row) for row in ROWS])
    for length in range(len(body)):
        try:
            found = decode(engine, TWO, [body[:length]])
        except DecodeError as error:
            assert "byte" in error.position  # noqa: PT017 - an error is one of two good ends
            continue
        assert found.after is not None
        rows = [tuple(row.values()) for row in found.after.to_pylist()]
        assert rows == ROWS[: len(rows)]
        assert length == len(event(2, [int_and_name(*row) for row in rows]))


@ENGINES
def test_no_events_and_events_without_rows(engine: Engine) -> None:
    for events in ([], [event(2, [])], [event(2, []), event(2, [])]):
        found = decode(engine, TWO, events)
        assert found.after is not None
        assert len(found.after) == 0


@ENGINES
def test_one_event_with_more_rows_than_memory_is_meant_for(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """6 MB of rows of two bytes took 330 MB: the network, or a setting, may make such events."""
    many = event(2, [int_and_name(*row) for row in ROWS])
    monkeypatch.setattr("ratchet.wire.decode.rows.MOST_OF_AN_EVENT", 300)
    with pytest.raises(TableStoppedError, match="a single row event holds 4 rows") as caught:
        decode(engine, TWO, [many])
    assert "binlog_row_event_max_size" in caught.value.hint
    one = event(2, [int_and_name(1, "x" * 200)])
    assert decode(engine, TWO, [one]).event.size == 1  # a single row may be large


@pytest.mark.parametrize("columns", [2, 9, 300])
def test_which_images_lack_columns(columns: int) -> None:
    """Whatever the length of their count and their bitmaps."""
    shape = table(*((f"c{n}", ColumnType(name="int"), plan.LONG, 0, 4) for n in range(columns)))
    decoder = RowImageDecoder(shape, InvalidValuePolicy())
    count = bytes([columns]) if columns < 251 else b"\xfc" + columns.to_bytes(2, "little")
    whole = ((1 << columns) - 1).to_bytes((columns + 7) // 8, "little")
    last = ((1 << (columns - 1)) - 1).to_bytes(len(whole), "little")
    first = ((1 << columns) - 2).to_bytes(len(whole), "little")
    events = [
        (INSERT, whole), (INSERT, last), (DELETE, first), (UPDATE, whole + whole),
        (UPDATE, whole + first), (UPDATE, last + whole), (UPDATE, first + last),
    ]  # fmt: skip
    bodies = [b"\xff" + count + maps for _, maps in events]
    ends = np.cumsum([len(body) for body in bodies])
    starts = ends - [len(body) - 1 for body in bodies]
    ops = np.array([op for op, _ in events], np.int8)
    before, after = decoder.lacking(np.frombuffer(b"".join(bodies), np.uint8), starts, ops)
    assert before.tolist() == [False, False, True, False, False, True, True]
    assert after.tolist() == [False, True, False, False, True, False, True]


@ENGINES
def test_incomplete_images_say_which_setting_is_wrong(engine: Engine) -> None:
    """As binlog_row_image=MINIMAL makes them; in the first bitmap or in the second."""
    body = b"\x02\xff\x01" + int_and_name(1, "a") * 2
    with pytest.raises(TableStoppedError, match="columns") as caught:
        decode(engine, TWO, [event(2, [int_and_name(1, "a")] * 2, bitmaps=2), body], UPDATE)
    assert "binlog_row_image=FULL" in caught.value.hint
    assert caught.value.position.startswith("event 1 ")
    with pytest.raises(TableStoppedError):
        decode(engine, TWO, [b"\x02\xfd" + int_and_name(1, "a")])


@ENGINES
def test_another_number_of_columns_is_an_error(engine: Engine) -> None:
    with pytest.raises(DecodeError, match="different numbers of columns"):
        decode(engine, TWO, [event(3, [int_and_name(1, "a")])])


@ENGINES
def test_misfits_become_null_text_or_an_error(engine: Engine) -> None:
    """By the policy; in a key's column never NULL."""
    loose = table(("day", ColumnType(name="date"), plan.DATE, 0, 3))
    days = [(2024 << 9 | 2 << 5 | 29), 0, (2024 << 9 | 2 << 5 | 31), (2024 << 9 | 0 << 5 | 1)]
    body = event(1, [image(loose.columns, [day.to_bytes(3, "little")]) for day in days])
    found = decode(engine, loose, [body])
    assert found.misfits == {"day": 3}
    assert found.after is not None
    assert [str(row["day"]) for row in found.after.to_pylist()] == ["2024-02-29"] + ["None"] * 3
    text = decode(engine, loose, [body], policy=TEXT)
    assert text.misfits == {}
    assert text.after is not None
    texts = [row["day"] for row in text.after.to_pylist()]
    assert texts == ["2024-02-29", "0000-00-00", "2024-02-31", "2024-00-01"]
    with pytest.raises(TableStoppedError, match="column day holds 3 zero") as caught:
        decode(engine, loose, [body], policy=FAIL)
    assert caught.value.table == "shop.t"
    with pytest.raises(TableStoppedError, match="part of the key") as caught:
        decode(engine, DAY, [body])
    assert "text" in caught.value.hint


def test_hidden_columns_are_walked_over() -> None:
    """MariaDB's hash of a long unique key is in the images, and is no column of the table."""
    hash_column = WireColumn(
        name="DB_ROW_HASH_1",
        type=ColumnType(name="bigint"),
        nullable=True,
        code=plan.LONGLONG,
        prefix=0,
        size=8,
        hidden=True,
    )
    columns = (TWO.columns[0], hash_column, TWO.columns[1])
    shape = TableMap(
        table_id=1,
        database="db",
        table="t",
        schema=TWO.schema,
        columns=columns,
        plan=walk_plan(columns),
    )
    body = event(3, [image(columns, [b"\1\0\0\0", b"h" * 8, b"x"])])
    for engine in (KERNEL, PLAIN):
        found = decode(engine, shape, [body])
        assert found.after is not None
        assert found.after.to_pylist() == [{"id": 1, "name": "x"}]


def both(call: Callable[[Engine], Any]) -> None:
    """The engines give the same, or the same error."""
    assert repr(outcome(lambda: call(KERNEL))) == repr(outcome(lambda: call(PLAIN)))


def outcome(call: Callable[[], Any]) -> object:
    """What a call gives, or the error's class and message."""
    try:
        found = call()
    except RatchetError as error:
        return type(error), error.message, error.position
    if isinstance(found, DecodedRows):
        images = [found.before, found.after]
        return (
            [None if i is None else i.to_pylist() for i in images],
            found.event.tolist(),
            found.misfits,
        )
    return found.batch.to_pylist(), found.misfits


EVERY = every_reader()
START = bytes([len(EVERY.columns)]) + b"\xff" * ((len(EVERY.columns) + 7) // 8)


@STEADY
@given(st.binary(max_size=300), st.sampled_from([NULLS, TEXT]), st.sampled_from([b"", START]))
@example(b"", NULLS, b"")
def test_any_bytes_decode_or_raise_alike(
    rest: bytes, policy: InvalidValuePolicy, head: bytes
) -> None:
    """Random bytes as a row event: rows or an error of ours, from both engines the same."""
    body = head + rest
    both(lambda engine: decode(engine, EVERY, [body], policy=policy))


def some_value(column: WireColumn) -> st.SearchStrategy[bytes | None]:
    """Bytes of the right size for a column; often a small number or zeros, and often NULL."""
    if column.prefix:
        return st.none() | st.binary(max_size=12) | st.text(max_size=4).map(str.encode)
    zeros = st.just(bytes(column.size))
    return st.none() | zeros | st.binary(min_size=column.size, max_size=column.size)


@STEADY
@given(st.data(), st.sampled_from([NULLS, TEXT]))
def test_any_values_of_one_column_decode_or_raise_alike(
    data: st.DataObject, policy: InvalidValuePolicy
) -> None:
    """Well-formed events over each type, so that its reader sees sound and unsound values."""
    column = data.draw(st.sampled_from(EVERY.columns))
    shape = table((column.name, column.type, column.code, column.prefix, column.size))
    values = data.draw(st.lists(some_value(column), max_size=4))
    body = event(1, [image(shape.columns, [value]) for value in values])
    both(lambda engine: decode(engine, shape, [body], policy=policy))


# --- text rows ---


def lenenc(value: bytes | None) -> bytes:
    """A value of a text row."""
    if value is None:
        return b"\xfb"
    size = len(value)
    if size < 251:
        return bytes([size]) + value
    if size < 1 << 16:
        return b"\xfc" + size.to_bytes(2, "little") + value
    if size < 1 << 24:
        return b"\xfd" + size.to_bytes(3, "little") + value
    return b"\xfe" + size.to_bytes(8, "little") + value


def packets(row: bytes) -> bytes:
    """A row in as many packets as it takes."""
    out, number = b"", 0
    while True:
        part, row = row[:0xFFFFFF], row[0xFFFFFF:]
        out += len(part).to_bytes(3, "little") + bytes([number % 256]) + part
        number += 1
        if len(part) < 0xFFFFFF:
            return out


def text(engine: Engine, shape: TableMap, data: bytes, policy: InvalidValuePolicy = NULLS) -> Any:
    decoder = TextRowDecoder(shape.schema, policy, implementation=engine)
    return decoder.decode(frozen(b"head" + data + b"tail"), 4, 4 + len(data))


def text_row(*values: str | None) -> bytes:
    return packets(b"".join(lenenc(None if v is None else v.encode()) for v in values))


@ENGINES
def test_text_rows(engine: Engine) -> None:
    rows = [text_row(str(number), name) for number, name in ROWS]
    found = text(engine, TWO, b"".join(rows))
    assert [tuple(row.values()) for row in found.batch.to_pylist()] == ROWS
    assert text(engine, TWO, b"").batch.num_rows == 0


@ENGINES
@pytest.mark.parametrize("size", [250, 251, 65535, 65536])
def test_text_values_of_every_length_form(engine: Engine, size: int) -> None:
    found = text(engine, TWO, text_row("1", "x" * size))
    assert found.batch.column("name").to_pylist() == ["x" * size]


@ENGINES
@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_rows_of_16_megabytes_are_put_together(engine: Engine, extra: int) -> None:
    """A packet of 2^24-1 bytes goes on in the next one, which may be empty."""
    size = 0xFFFFFF - 2 - 4 + extra  # behind the integer and the string's length
    data = text_row("1", "a") + text_row("2", "é" + "x" * (size - 2)) + text_row("3", None)
    found = text(engine, TWO, data)
    names = found.batch.column("name").to_pylist()
    assert [len(name or "") for name in names] == [1, size - 1, 0]
    assert found.batch.column("id").to_pylist() == [1, 2, 3]
    with pytest.raises(DecodeError):
        text(engine, TWO, data[: 0xFFFFFF + 10])


@ENGINES
def test_text_rows_cut_at_any_byte_are_an_error_or_end_between_rows(engine: Engine) -> None:
    data = b"".join(text_row(str(number), name) for number, name in ROWS)
    for length in range(len(data)):
        try:
            found = text(engine, TWO, data[:length])
        except DecodeError:
            continue
        rows = [tuple(row.values()) for row in found.batch.to_pylist()]
        assert rows == ROWS[: len(rows)]
        assert length == sum(len(text_row(str(a), b)) for a, b in rows)


@ENGINES
def test_a_text_row_with_too_many_values_is_an_error(engine: Engine) -> None:
    with pytest.raises(DecodeError, match="continues after its last column") as caught:
        text(engine, TWO, text_row("1", "a") + text_row("1", "a", "b"))
    assert caught.value.position == "row 1 of this batch"


@ENGINES
def test_text_that_is_no_value_of_its_column(engine: Engine) -> None:
    with pytest.raises(TableStoppedError, match="column id: row 1 holds no value of type int"):
        text(engine, TWO, text_row("1", "a") + text_row("2147483648", "a"))


@STEADY
@given(st.data(), st.sampled_from([NULLS, TEXT]))
def test_any_text_decodes_or_raises_alike(data: st.DataObject, policy: InvalidValuePolicy) -> None:
    """Also for columns that only Arrow's own casts read."""
    column = data.draw(st.sampled_from(EVERY.columns))
    shape = table((column.name, column.type, column.code, column.prefix, column.size))
    likely = st.sampled_from(
        [b"0", b"-1", b"1.5", b"5e-324", b"-0", b"0000-00-00", b"2024-02-30", b"2024-02-29"]
    )
    values = data.draw(st.lists(st.none() | likely | st.binary(max_size=8), max_size=3))
    rows = b"".join(packets(lenenc(value)) for value in values)
    both(lambda engine: text(engine, shape, rows, policy))


@STEADY
@given(st.binary(max_size=80))
def test_any_bytes_as_packets_decode_or_raise_alike(data: bytes) -> None:
    both(lambda engine: text(engine, TWO, data))


def test_the_buffer_may_be_used_again() -> None:
    """What is decoded does not point into the caller's buffer."""
    body = event(2, [int_and_name(*row) for row in ROWS])
    buf = np.frombuffer(bytearray(body), dtype=np.uint8)
    decoder = RowImageDecoder(TWO, NULLS)
    found = decoder.decode(buf, np.array([0]), np.array([len(body)]), INSERT)
    buf[:] = 0xFF
    assert found.after is not None
    assert [tuple(row.values()) for row in found.after.to_pylist()] == ROWS
    assert buf.flags.writeable
    assert pa.types.is_struct(found.after.type)


def squeezed(size: int) -> bytes:
    """So many bytes as MariaDB stores them in a COMPRESSED column."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return b"\x8b" + size.to_bytes(3, "big") + packer.compress(b"a" * size) + packer.flush()


@ENGINES
def test_one_event_whose_compressed_columns_come_to_more_than_memory_is_meant_for(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of its columns may be small enough: 9 MB of log of 300 of them took 16 GB."""
    monkeypatch.setattr("ratchet.wire.decode.rows.MOST_OF_AN_EVENT", 40_000)
    shape = table(
        *((f"c{n}", ColumnType(name="longblob"), plan.BLOB_COMPRESSED, 4, 0) for n in range(4))
    )
    fits = image(shape.columns, [squeezed(10_000), None, squeezed(20_000), squeezed(10_000)])
    assert decode(engine, shape, [event(4, [fits])]).event.size == 1
    more = image(shape.columns, [squeezed(10_000), b"\x00y", squeezed(20_000), squeezed(10_000)])
    for events, op in (
        ([event(4, [more])], INSERT),
        (
            [event(4, [fits]), event(4, [image(shape.columns, [b"\x00x", None, None, None])])],
            DELETE,
        ),
        ([event(4, [fits, fits], bitmaps=2)], UPDATE),
    ):
        with pytest.raises(TableStoppedError, match="compressed columns of 0 MB"):
            decode(engine, shape, events, op)
