"""From batches to change rows: operations, images, tokens, places in the transaction."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest
from event_kit import MYSQL_MAP, SERVER, SHARD, Collected, Log, feed, make_reader

import ratchet.ingest.binlog.changes
from ratchet.core.change import DELETE, INSERT, UPDATE
from ratchet.core.errors import DecodeError, TableStoppedError
from ratchet.core.gtid import GtidSet
from ratchet.core.position import Position
from ratchet.core.rounds import TableEvent
from ratchet.core.schema import TableSchema
from ratchet.core.types import InvalidValuePolicy
from ratchet.ingest.binlog import changes as module
from ratchet.ingest.binlog.changes import Decoders, hand_out
from ratchet.ingest.binlog.notes import TransactionBatch
from ratchet.ingest.changes import TableChanges

pytestmark = pytest.mark.slow

OTHER_MAP = MYSQL_MAP.replace(b"\x01w", b"\x01v")
START = Position(executed=GtidSet.parse("mysql", f"{SERVER}:1-41"), server=SERVER)


def row(number: int, text: str) -> bytes:
    """A row image without NULLs."""
    return b"\0" + struct.pack("<iB", number, len(text)) + text.encode()


def insert(*rows: bytes) -> bytes:
    return b"\2\xff" + b"".join(rows)


def update(*pairs: bytes) -> bytes:
    return b"\2\xff\xff" + b"".join(pairs)


class Changes:
    """Takes batches as a slice does and keeps their rows as plain values."""

    def __init__(self, *, verified: bool = False) -> None:
        self.decoders = Decoders(InvalidValuePolicy(), verified=lambda: verified)
        self.found: list[TableChanges] = []
        self.left_out: list[TableEvent] = []

    def keep(self, batch: TransactionBatch) -> int:
        rows, left_out = hand_out(
            batch, self.decoders, self.found.extend, shard=SHARD, generation=3
        )
        self.left_out += left_out
        return rows

    def rows(self, table: str) -> list[dict[str, Any]]:
        tables = [one.rows for one in self.found if one.schema.table == table]
        return pa.concat_tables(tables).to_pylist()


def taken(*logs: Log, verified: bool = False) -> Changes:
    """Feed logs to one reader, with a flush behind each."""
    changes = Changes(verified=verified)
    reader = make_reader(START, Collected())
    reader._keep = changes.keep
    for log in logs:
        feed(reader, log.events)
        reader.flush()
    return changes


def mixed() -> Log:
    log = Log().rotate("bin.000001").gtid(42, ts=1_700_000_000_123_456).query("BEGIN")
    log.table_map(1).table_map(2, OTHER_MAP)
    log.rows(insert(row(1, "a"), row(2, "b")), 1).rows(insert(row(9, "x")), 2)
    log.rows(update(row(1, "a"), row(1, "c"), row(2, "b"), row(3, "b")), 1, 31)
    log.rows(insert(row(3, "b")), 1, 32).rows(insert(row(4, "d")), 1)
    return log.xid()


def test_rows_come_in_stream_order_with_their_operations_and_images() -> None:
    rows = taken(mixed()).rows("w")
    assert [r["op"] for r in rows] == [INSERT, INSERT, UPDATE, UPDATE, DELETE, INSERT]
    assert [r["before"] and (r["before"]["id"], r["before"]["v"]) for r in rows] == [
        None, None, (1, "a"), (2, "b"), (3, "b"), None,
    ]  # fmt: skip
    assert [r["after"] and (r["after"]["id"], r["after"]["v"]) for r in rows] == [
        (1, "a"), (2, "b"), (1, "c"), (3, "b"), None, (4, "d"),
    ]  # fmt: skip


def test_tokens_count_over_all_tables_of_a_transaction() -> None:
    changes = taken(mixed())
    assert [r["token"]["idx"] for r in changes.rows("w")] == [0, 1, 3, 4, 5, 6]
    (other,) = changes.rows("v")
    ts = other["token"].pop("ts")
    assert other["token"] == {
        "shard": "shop/-",
        "gtid": f"{SERVER}:42",
        "generation": 3,
        "seq": 42,
        "idx": 2,
    }
    assert ts.timestamp() == pytest.approx(1_700_000_000.123456, abs=1e-6)


def with_odd_bytes() -> Log:
    log = Log().rotate("bin.000001").gtid(42).query("BEGIN")
    log.table_map(1).table_map(2, OTHER_MAP)
    odd = row(1, "a").replace(b"a", b"\xff")
    return log.rows(insert(row(9, "x")), 2).rows(insert(odd), 1).xid()


def test_bytes_that_a_server_wrote_and_nobody_understands_stop_their_table() -> None:
    changes = taken(with_odd_bytes(), verified=True)
    assert [one.schema.table for one in changes.found] == ["v"]
    (told,) = changes.left_out
    assert (told.kind, told.table, told.seq) == ("unreadable", "w", 42)
    assert "holds no value of type varchar" in told.statement


def test_without_checksums_they_may_be_damage() -> None:
    with pytest.raises(DecodeError, match="holds no value"):
        taken(with_odd_bytes())


def test_a_summary_goes_with_each_table() -> None:
    by_table = {one.schema.table: one for one in taken(mixed()).found}
    assert by_table["w"].counts == (3, 2, 1)
    assert by_table["v"].counts == (1, 0, 0)
    assert (by_table["w"].min_seq, by_table["w"].max_seq) == (42, 42)
    assert by_table["w"].rows.schema.names == ["op", "token", "before", "after", "silent"]


def test_places_go_on_over_batches() -> None:
    first = Log().rotate("bin.000001").gtid(42).query("BEGIN").table_map()
    first.rows(insert(row(1, "a"), row(2, "b")))
    second = Log(position=first.position).rows(insert(row(3, "c")))
    third = Log(position=second.position).query("SAVEPOINT a").rows(insert(row(4, "d"))).xid()
    third.gtid(43).query("BEGIN").table_map().rows(insert(row(5, "e")))
    fourth = Log(position=third.position).rows(insert(row(6, "f"))).xid()
    rows = taken(first, second, third, fourth).rows("w")
    places = [(r["token"]["seq"], r["token"]["idx"]) for r in rows]
    assert places == [(42, 0), (42, 1), (42, 2), (42, 3), (43, 0), (43, 1)]


def test_a_batch_without_rows_keeps_the_count() -> None:
    first = Log().rotate("bin.000001").gtid(42).query("BEGIN").table_map()
    first.rows(insert(row(1, "a")))
    silent = Log(position=first.position).query("SAVEPOINT a")
    last = Log(position=silent.position).rows(insert(row(2, "b"))).xid()
    rows = taken(first, silent, last).rows("w")
    assert [r["token"]["idx"] for r in rows] == [0, 1]


def test_a_table_that_cannot_be_taken_stops_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the transaction of its first row; idx counts the rows that come out."""
    genuine = ratchet.ingest.binlog.changes.arrow_schema

    def refuses(schema: TableSchema, policy: InvalidValuePolicy) -> pa.Schema:
        if schema.table == "v":
            raise TableStoppedError("its column is bad", hint="rename it", table=schema.name)
        return genuine(schema, policy)

    monkeypatch.setattr(ratchet.ingest.binlog.changes, "arrow_schema", refuses)
    first = Log().rotate("bin.000001").gtid(42).query("BEGIN").table_map()
    first.rows(insert(row(1, "a"))).xid()
    second = first.gtid(43, ts=1_700_000_000_000_000).query("BEGIN")
    second.table_map(1).table_map(2, OTHER_MAP).rows(insert(row(8, "x")), 2)
    second.rows(insert(row(2, "b")), 1).rows(insert(row(9, "y")), 2).xid()
    changes = taken(second)
    assert {one.schema.table for one in changes.found} == {"w"}
    assert [(r["token"]["seq"], r["token"]["idx"]) for r in changes.rows("w")] == [(42, 0), (43, 0)]
    (event,) = changes.left_out
    assert (event.table, event.kind, event.seq) == ("v", "unreadable", 43)
    assert event.statement == "its column is bad (rename it)"
    assert (event.gtid, event.ts) == (f"{SERVER}:43", 1_700_000_000_000_000)
    assert event.shard == str(SHARD)


def several() -> Log:
    log = mixed()
    for number in range(43, 47):
        log.gtid(number).query("BEGIN").table_map(1).table_map(2, OTHER_MAP)
        for text in ("p", "q", "r")[: number % 4]:
            log.rows(insert(row(number, text), row(number + 100, text)), 1)
            log.rows(insert(row(number, text)), 2)
        log.xid()
    return log


@pytest.mark.parametrize("most", [1, 100, 300])
def test_a_batch_in_pieces_comes_to_the_same(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = taken(several(), several())
    monkeypatch.setattr(module, "_PIECE_BYTES", most)
    cut = taken(several(), several())
    assert len(cut.found) > len(whole.found)
    for table in ("w", "v"):
        assert cut.rows(table) == whole.rows(table)


def test_rows_of_nulls_take_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A NULL is a bit in the log, and as many bytes as any other value in memory."""
    monkeypatch.setattr(module, "_PIECE_BYTES", 4096)
    log = Log().rotate("bin.000001").gtid(42).query("BEGIN").table_map(1)
    for number in range(200):
        log.rows(insert(*(b"\2" + struct.pack("<i", number * 10 + n) for n in range(10))), 1)
    changes = taken(log.xid())
    assert [r["after"]["id"] for r in changes.rows("w")] == list(range(2000))
    assert max(one.rows.num_rows for one in changes.found) <= 4096 // 10


def test_a_summary_tells_of_foreign_keys() -> None:
    """When the first change began that may cut children, and what nobody looked at."""
    log = Log().rotate("bin.000001").gtid(42).query("BEGIN").table_map(1).table_map(2, OTHER_MAP)
    log.seconds = 500
    log.rows(insert(row(1, "a"), row(2, "b")), 1, flags=0x02)
    log.rows(update(row(1, "a"), row(1, "c")), 1, 31, flags=0x12)  # it is logged what they do
    log.seconds = 700
    log.rows(insert(row(3, "b")), 1, 32)
    log.seconds = 600
    log.rows(insert(row(2, "b")), 1, 32).rows(insert(row(4, "d")), 1)
    log.seconds = 400
    log.rows(insert(row(9, "x")), 2).rows(insert(row(9, "x")), 2, 32, flags=0x02)
    found = {one.schema.table: one for one in taken(log.xid()).found}
    assert (found["w"].began, found["w"].unchecked, found["w"].silent) == (600, 2, 2)
    assert (found["v"].began, found["v"].unchecked, found["v"].silent) == (0, 0, 0)
