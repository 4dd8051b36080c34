"""The reader on streams made by hand: transactions, names, files, refusals."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable

import pyarrow as pa
import pytest
from event_kit import (
    MARIADB_MAP,
    OTHER,
    SERVER,
    Collected,
    Log,
    NoCatalog,
    feed,
    framed,
    make_reader,
)

from ratchet.core.errors import DecodeError, PositionLostError, RatchetError, SourceUnfitError
from ratchet.core.gtid import GtidSet, pack_file
from ratchet.core.patterns import TablePatterns
from ratchet.core.position import LastTransaction, Position
from ratchet.core.rounds import GtidRange
from ratchet.ingest.binlog import reader as reader_module
from tests.reader_kit import IMAGE, in_file, mariadb, mysql, opened, read


def test_transactions_with_their_names_ranks_and_rows() -> None:
    log = opened().insert(11, IMAGE).insert(12, IMAGE)
    found, position, runs = read(mysql(f"{SERVER}:1-10"), log)
    assert found.gtids == [f"{SERVER}:11", f"{SERVER}:12"]
    assert found.seqs == [11, 12]
    assert found.ts == [5, 5]
    assert found.rows == [(f"{SERVER}:{n}", "w", 1, IMAGE) for n in (11, 12)]
    assert str(position.executed) == f"{SERVER}:1-12"
    assert (position.file, position.offset) == ("bin.000001", log.position)
    assert runs == (GtidRange(SERVER, 11, 12, 11),)


def test_operations_and_post_headers_of_both_versions() -> None:
    log = opened().gtid(1).query("BEGIN").table_map()
    for kind in (23, 24, 25, 30, 31, 32):
        log.rows(bytes([kind]) + IMAGE, kind=kind)
    found, _, _ = read(mysql(), log.xid())
    assert [op for _, _, op, _ in found.rows] == [1, 2, 3, 1, 2, 3]
    assert [image[0] for _, _, _, image in found.rows] == [23, 24, 25, 30, 31, 32]


def test_a_contained_transaction_leaves_no_trace() -> None:
    """Also one that stands behind newer ones, as on a replica that commits in another order."""
    log = opened().insert(7).insert(5)
    log.gtid(4).query("ALTER TABLE w ADD x INT").insert(9)
    found, position, runs = read(mysql(f"{SERVER}:1-4:6"), log)
    assert found.gtids == [f"{SERVER}:{n}" for n in (7, 5, 9)]
    assert found.seqs == [6, 7, 8]
    assert found.events == []
    assert [gtid for gtid, *_ in found.rows] == found.gtids
    assert str(position.executed) == f"{SERVER}:1-7:9"
    assert runs == (
        GtidRange(SERVER, 7, 7, 6),
        GtidRange(SERVER, 5, 5, 7),
        GtidRange(SERVER, 9, 9, 8),
    )


def test_many_origins_and_tags() -> None:
    log, names = opened(), []
    for n in range(150):
        names.append(f"{n:08x}-0000-0000-0000-000000000000:1")
        log.gtid(1, server=names[-1][:-2]).query("BEGIN").table_map().rows(IMAGE).xid()
    found, position, _ = read(mysql(f"{OTHER}:1-5"), log)
    assert found.gtids == names
    assert position.seq == 155


def test_the_log_moves_on_for_other_databases() -> None:
    other = b"\x05other" + MARIADB_MAP[5:]
    log = opened().gtid(1).query("BEGIN").table_map(8, other).rows(IMAGE, 8).xid()
    found, position, _ = read(mysql(), log)
    assert found.gtids == [f"{SERVER}:1"]
    assert found.rows == []
    assert position.seq == 1


def test_what_the_patterns_exclude_is_left_out() -> None:
    patterns = TablePatterns(("*", "!w"))
    found, _, _ = read(mysql(), opened().insert(1), patterns=patterns)
    assert found.rows == []


def test_names_are_compared_as_the_server_does() -> None:
    """lower_case_table_names: the log has lower case, whatever a table is called (2)."""

    class AsCreated(NoCatalog):
        def spelling(self, table: str) -> str:
            return {"w": "W"}.get(table.lower(), table)

        def folds(self) -> bool:
            return True

    patterns = TablePatterns(("W", "!x*"), folded=True)
    log = opened().insert(1).gtid(2).query("TRUNCATE w", "SHOP").gtid(3).query("TRUNCATE Shop.`w`")
    found = Collected()
    reader = make_reader(mysql(), found, database="Shop", patterns=patterns)
    reader._slots._catalog = reader._watch._hooks = AsCreated()
    reader.start_slice(known=frozenset({"W"}), limit=1 << 60)
    feed(reader, log.events)
    reader.flush()
    assert [table for _, table, _, _ in found.rows] == ["W"]
    told = [table for table, kind, _ in found.events if kind == "truncate"]
    assert told == ["W", "W"]
    assert {table for table, _, _ in found.events} == {"W"}
    plain, _, _ = read(mysql(), log, database="Shop", patterns=TablePatterns(("W",)))
    assert plain.rows == []


def test_a_partial_update_stops_its_table_only() -> None:
    other = b"\x05other" + MARIADB_MAP[5:]
    partial = (7).to_bytes(6, "little") + b"\1\0" + IMAGE
    elsewhere = (8).to_bytes(6, "little") + b"\1\0" + IMAGE
    log = opened().gtid(1).query("BEGIN").table_map().add(39, partial).add(39, partial).xid()
    log.gtid(2).query("BEGIN").table_map(8, other).add(39, elsewhere).xid().insert(3)
    found, position, _ = read(mysql(), log)
    assert found.events == [("w", "unreadable", f"{SERVER}:1")]
    assert len(found.rows) == 1
    assert position.seq == 3


def test_table_ids_are_taken_anew_with_each_file() -> None:
    """After a restart of the server an id stands for another table."""
    second = MARIADB_MAP.replace(b"\x01w", b"\x01v")
    log = opened().insert(1)
    log.gtid(2).query("BEGIN").table_map(7, second).rows(IMAGE).xid()
    log.format().gtid(3).query("BEGIN").table_map(7).rows(IMAGE).xid()
    found, _, _ = read(mysql(), log)
    assert [table for _, table, _, _ in found.rows] == ["w", "v", "w"]


def test_mariadb_groups_statements_and_domains() -> None:
    log = opened().mariadb_gtid(8).table_map(body=MARIADB_MAP).rows(b"\2\3\xfc", kind=23).xid()
    log.mariadb_gtid(3, domain=2, flags=1).query("DROP TABLE w")
    log.mariadb_gtid(12).table_map(body=MARIADB_MAP).rows(b"\2\3\xfc", kind=25).query("COMMIT")
    found, position, runs = read(mariadb("0-1-7"), log)
    assert found.gtids == ["0-1-8", "2-1-3", "0-1-12"]
    assert found.seqs == [8, 11, 15]
    assert found.ts == [1_700_000_000_000_000] * 3
    assert str(position.executed) == "0-1-12,2-1-3"
    assert runs == (GtidRange("0", 8, 8, 8), GtidRange("2", 3, 3, 11), GtidRange("0", 12, 12, 15))


def test_mariadb_numbers_that_fall_are_refused() -> None:
    log = opened().mariadb_gtid(7, flags=1).query("DROP TABLE w")
    with pytest.raises(SourceUnfitError, match="not above") as caught:
        read(mariadb("0-1-7"), log)
    assert "gtid_strict_mode" in caught.value.hint


def test_mariadbs_compressed_rows() -> None:
    image = b"\2\3" + b"\xfc" + b"i" * 500
    packed = b"\2\3" + b"\x82" + (501).to_bytes(2, "big") + zlib.compress(image[2:])
    log = opened().mariadb_gtid(1).table_map(body=MARIADB_MAP).rows(packed, kind=166)
    log.rows(b"\2\3\xfd", kind=23)
    found, _, _ = read(mariadb(), log.xid())
    assert [image for _, _, _, image in found.rows] == [image, b"\2\3\xfd"]


def payload(log: Log) -> bytes:
    """The body of a TRANSACTION_PAYLOAD with the events of another log in it."""
    whole = b"".join(log.bare())
    packed = pa.Codec("zstd").compress(whole).to_pybytes()
    sizes = (
        b"\1\3\xfc" + struct.pack("<H", len(packed)) + b"\3\3\xfc" + struct.pack("<H", len(whole))
    )
    return b"\2\1\0" + sizes + b"\0" + packed


def test_a_compressed_transaction() -> None:
    inner = Log(checksum=False).query("BEGIN").table_map().rows(IMAGE).rows(IMAGE, kind=32).xid()
    log = opened().gtid(1).add(40, payload(inner)).insert(2)
    found, position, _ = read(mysql(), log)
    assert found.gtids == [f"{SERVER}:1", f"{SERVER}:2"]
    assert [op for _, _, op, _ in found.rows] == [1, 3, 1]
    assert position.offset == log.position


def test_a_compressed_transaction_that_is_contained() -> None:
    inner = Log(checksum=False).query("BEGIN").table_map().rows(IMAGE).xid()
    found, position, _ = read(mysql(f"{SERVER}:1-3"), opened().gtid(2).add(40, payload(inner)))
    assert found == Collected()
    assert position.seq == 3


def test_a_compressed_transaction_must_end() -> None:
    inner = Log(checksum=False).query("BEGIN").table_map().rows(IMAGE)
    with pytest.raises(DecodeError, match="does not end"):
        read(mysql(), opened().gtid(1).add(40, payload(inner)))


def anonymous(log: Log) -> Log:
    """A transaction without a GTID, which tells its length."""
    draft = Log(position=log.position).gtid(0, kind=34).query("BEGIN").table_map().rows(IMAGE).xid()
    log.gtid(0, kind=34, length=draft.position - log.position)
    return log.query("BEGIN").table_map().rows(IMAGE).xid()


def test_files_name_transactions_by_their_end() -> None:
    log = opened()
    ends = [anonymous(log).position for _ in range(3)]
    found, position, _ = read(in_file(), log)
    assert found.gtids == [f"bin.000001:{end}" for end in ends]
    assert found.seqs == [pack_file("bin.000001", end).number for end in ends]
    assert position == Position(
        executed=GtidSet.parse("file", f"bin.000001:{ends[-1]}"),
        server="s",
        file="bin.000001",
        offset=ends[-1],
        last=LastTransaction(
            gtid=pack_file("bin.000001", ends[-1]), committed=5, file="bin.000001", offset=ends[-2]
        ),
    )


def test_the_last_transaction_keeps_its_file_when_the_log_goes_on_in_another() -> None:
    log = opened()
    anonymous(log)
    begin = log.position
    anonymous(log)
    log.add(4, struct.pack("<Q", 4) + b"bin.000002").rotate("bin.000002").format().add(35, bytes(8))
    _, position, _ = read(in_file(), log)
    assert position.file == "bin.000002"
    assert position.last is not None
    assert (position.last.file, position.last.offset) == ("bin.000001", begin)
    _, again, _ = read(position, Log().rotate("bin.000002").format())
    assert again.last == position.last


def test_an_idle_file_still_moves_the_position() -> None:
    log = opened()
    log.add(4, struct.pack("<Q", 4) + b"bin.000002").rotate("bin.000002").format().add(35, bytes(8))
    _, position, _ = read(in_file(), log)
    assert str(position.executed) == f"bin.000002:{log.position}"


def test_files_beyond_four_gigabytes() -> None:
    begin = (1 << 32) - 100
    log = Log().rotate("bin.000001", begin)
    for _ in range(4):
        anonymous(log)
    found, position, _ = read(in_file(begin), log)
    assert position.offset == log.position > 1 << 32
    assert found.gtids[-1] == f"bin.000001:{log.position}"


def test_the_limit_stops_behind_a_transaction() -> None:
    found = Collected()
    reader = make_reader(mysql(), found)
    reader.start_slice(known=frozenset(), limit=1)
    log = Log().insert(1).insert(2)
    with pytest.raises(AssertionError):  # the kit wants all events to be used
        feed(reader, log.events)
    assert reader.between
    reader.flush()
    assert found.gtids == [f"{SERVER}:1"]


def test_many_columns_of_new_maps_end_a_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve tables of 1,000 columns, altered each second: decoding them held up all sources."""
    monkeypatch.setattr("ratchet.ingest.binlog.slots.MOST_NEW_COLUMNS", 4)  # two maps of two
    log = opened()
    tables = (b"w", b"v", b"u", b"w", b"t", b"v")
    for n, name in enumerate(tables, 1):
        table_map = MARIADB_MAP.replace(b"\x01w", b"\x01" + name)
        log.gtid(n).query("BEGIN").table_map(20 + name[0], table_map).rows(IMAGE, 20 + name[0])
        log.xid()
    found = Collected()
    reader = make_reader(mysql(), found)
    data, index, count = framed(log.events)
    at, ends = 0, []
    while at < count:
        reader.start_slice(known=frozenset(), limit=1 << 60)
        at, limited = reader.feed(data, index, at, count)
        reader.flush()
        assert reader.between
        ends.append((len(found.rows), limited))
    # w and v; then u, the known w, and t; then v, which is known.
    assert ends == [(2, True), (5, True), (6, False)]
    assert [table.encode() for _, table, _, _ in found.rows] == list(tables)


def test_a_bound_stops_before_a_transaction_and_leaves_no_trace_of_it() -> None:
    """Where it stops is a place to resume from, and what it waits before comes later, once."""
    log = Log().rotate("bin.000001").gtid(1, ts=5).query("BEGIN").xid()
    place = log.position
    log.gtid(2, ts=9).query("BEGIN").xid().gtid(3, ts=6).query("BEGIN").xid()
    log.gtid(4, ts=99).query("BEGIN").xid()
    found = Collected()
    reader = make_reader(mysql(), found)
    data, index, count = framed(log.events)

    def go_on(at: int, not_after: int | None) -> int:
        reader.start_slice(known=frozenset(), limit=1 << 60, not_after=not_after)
        at, limited = reader.feed(data, index, at, count)
        assert limited == (reader.held_ts is not None)
        assert reader.between
        reader.flush()
        return at

    at = go_on(0, 8)
    assert (found.gtids, reader.held_ts) == ([f"{SERVER}:1"], 9)
    assert (reader.position().offset, reader.position().seq) == (place, 1)
    assert go_on(at, 8) == at
    assert (reader.position().offset, reader.runs) == (place, ())
    at = go_on(at, 9)
    assert (found.ts, reader.held_ts) == ([5, 9, 6], 99)
    assert reader.runs == (GtidRange(SERVER, 2, 3, 2),)
    assert go_on(at, None) == count
    assert (found.seqs, reader.held_ts) == ([1, 2, 3, 4], None)
    assert reader.position().offset == log.position


def test_what_is_contained_is_passed_over_behind_the_bound() -> None:
    log = opened().gtid(3, ts=50).query("BEGIN").xid().gtid(7, ts=5).query("BEGIN").xid()
    found = Collected()
    reader = make_reader(mysql(f"{SERVER}:1-6"), found)
    reader.start_slice(known=frozenset(), limit=1 << 60, not_after=8)
    feed(reader, log.events)
    assert reader.held_ts is None
    assert reader.position().seq == 7


def test_a_full_batch_is_handed_out_inside_a_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_module, "NOTES", 4)
    log = opened().gtid(1).query("BEGIN").table_map()
    for n in range(11):
        log.rows(bytes([n]))
    log.xid().insert(2).insert(3).insert(4).insert(5).insert(6)
    found, position, _ = read(mysql(), log)
    assert [image[0] for gtid, _, _, image in found.rows if gtid.endswith(":1")] == list(range(11))
    assert found.gtids == [f"{SERVER}:{n}" for n in range(1, 7)]
    assert position.seq == 6


REFUSED: list[tuple[Callable[[Log], Log], type[RatchetError], str]] = [
    (lambda log: log.add(200), DecodeError, "does not know"),
    (lambda log: log.gtid(1).query("BEGIN").add(26, b"\1\0\0"), PositionLostError, "incident"),
    (lambda log: log.gtid(1).query("BEGIN").add(39, bytes(20)), DecodeError, "partial"),
    (lambda log: log.gtid(1).query("BEGIN").add(6, bytes(40)), SourceUnfitError, "text"),
    (lambda log: log.gtid(1).query("BEGIN").add(18, bytes(20)), DecodeError, "too early"),
    (lambda log: log.query("XA COMMIT X'61',X'',1"), DecodeError, "where it cannot be"),
    (lambda log: log.xid(), DecodeError, "where it cannot be"),
    (lambda log: log.gtid(1).gtid(2), DecodeError, "where it cannot be"),
    (lambda log: log.gtid(1).query("BEGIN").rows(IMAGE, 99), DecodeError, "table map"),
    (lambda log: log.gtid(1, kind=34), SourceUnfitError, "no GTID"),
    (lambda log: log.gtid(1).query("BEGIN").add(30, b"\7"), DecodeError, "shorter"),
    (lambda log: log.add(33, b"\7"), DecodeError, "shorter"),
    (lambda log: log.add(2, b"\7"), DecodeError, "shorter"),
    (lambda log: log.gtid(1).query("BEGIN").add(19, b"\7" * 9), DecodeError, "table map"),
]  # fmt: skip


@pytest.mark.parametrize(("build", "kind", "text"), REFUSED)
def test_what_is_refused(build: Callable[[Log], Log], kind: type[RatchetError], text: str) -> None:
    with pytest.raises(kind, match=text) as caught:
        read(mysql(), build(opened().insert(900)))
    assert caught.value.hint
    assert caught.value.source == "shop/-"
    assert caught.value.position.startswith("bin.000001:")


def test_what_the_server_has_lost_puts_all_tables_in_doubt() -> None:
    """MySQL gives an incident a GTID; on MariaDB the transaction before stands for it."""
    lost = b"\1\0\4lost"
    known = frozenset({"w", "other"})
    log = opened().insert(1).gtid(2).add(26, lost).insert(3)
    found, position, _ = read(mysql(), log, known=known)
    told = [(one.table, one.effect, one.seq, one.gtid) for one in found.told]
    assert told == [(name, "restored", 2, f"{SERVER}:2") for name in ("other", "w")]
    assert (position.seq, len(found.rows)) == (3, 2)
    # It is behind what was read.
    found, _, _ = read(mysql(f"{SERVER}:1-2"), log, known=known)
    assert (found.told, len(found.rows)) == ([], 1)
    log = opened().mariadb_gtid(1).table_map(7, MARIADB_MAP).rows(IMAGE, kind=23).xid()
    log.add(26, lost)
    end = log.position
    found, position, _ = read(mariadb(), log, known=known)
    told = [(one.table, one.effect, one.seq, one.gtid) for one in found.told]
    assert told == [(name, "restored", 1, "0-1-1") for name in ("other", "w")]
    assert (position.seq, position.offset) == (1, end)
    # For the first one that a new mirror reads, any that the server had executed stands.
    found, position, _ = read(mariadb("0-1-4,3-7-2"), opened().add(26, lost), known=known)
    told = [(one.table, one.effect, one.seq) for one in found.told]
    assert told == [(name, "restored", 6) for name in ("other", "w")]
    assert {one.gtid for one in found.told} <= {"0-1-4", "3-7-2"}
    # Where it had executed nothing, and within a transaction, it ends the run.
    for log in (opened().add(26, lost), opened().mariadb_gtid(1).add(26, lost)):
        with pytest.raises(PositionLostError, match="incident"):
            read(mariadb(), log, known=known)


def test_a_statement_without_a_name_counts_whatever_a_dump_contains() -> None:
    """It goes by the transaction before it, which a dump may contain without the statement."""
    log = opened().insert(1).query("SELECT `shop`.`f`(1)").insert(2)
    found, _, _ = read(mysql(), log, known=frozenset({"w"}))
    told = [(one.table, one.effect, one.seq, one.gtid) for one in found.told]
    assert told == [("w", "restored", 1, f"{SERVER}:1")]
    named = opened().insert(1).gtid(2).query("BEGIN").query("SELECT `shop`.`f`(1)").query("COMMIT")
    found, _, _ = read(mysql(), named, known=frozenset({"w"}))
    assert [(one.table, one.effect, one.seq) for one in found.told] == [("w", "untold", 2)]


def test_what_a_log_without_checksums_leaves_out_puts_all_tables_in_doubt() -> None:
    """MariaDB: an event that was torn swallows what is behind it, and nothing else tells of it."""

    def log(*, checksum: bool) -> Log:
        made = Log(checksum=checksum).rotate("bin.000001").format()
        for number, domain in ((5, 0), (6, 0), (9, 0), (7, 4), (10, 0), (9, 4)):
            made.mariadb_gtid(number, domain=domain)
            made.table_map(7, MARIADB_MAP).rows(IMAGE, kind=23).xid()
        return made

    known = frozenset({"w", "other"})
    found, position, _ = read(mariadb("0-1-4"), log(checksum=False), known=known)
    told = [(one.table, one.effect, one.gtid, one.seq, one.reason[-20:]) for one in found.told]
    assert told == [
        (table, "restored", gtid, seq, f": {numbers}"[-20:])
        for gtid, seq, numbers in (
            ("0-1-9", 9, "7 to 8 of domain 0"),
            ("4-1-9", 19, "8 to 8 of domain 4"),
        )
        for table in ("other", "w")
    ]
    assert position.seq == 19
    found, _, _ = read(mariadb("0-1-4"), log(checksum=True), known=known)
    assert found.told == []


def test_maps_that_are_not_kept_are_taken_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that is altered all the time has another map each time: they filled the memory."""
    log = opened()
    for n in range(1, 9):
        log.insert(n, bytes([n]))
        log.gtid(100 + n).query("BEGIN").table_map(n + 20, b"\x05other" + MARIADB_MAP[5:])
        log.rows(IMAGE, n + 20).xid()
    expected = read(mysql(), log)[0].rows
    assert len(expected) == 8
    monkeypatch.setattr("ratchet.ingest.binlog.slots.MOST_MAPS", 1)
    found = Collected()
    reader = make_reader(mysql(), found)
    for at in range(0, len(log.events), 3):
        feed(reader, log.events[at : at + 3])
        reader.flush()
    assert found.rows == expected
    assert len(reader._slots.maps) <= 2
    assert reader._slots.tables == {"w"}


def test_old_shapes_of_a_table_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand columns are 1.6 MB: a table altered all the time filled the memory with them."""
    monkeypatch.setattr("ratchet.ingest.shapes.MOST_OLD", 6)
    log = opened()
    for n, column in enumerate(b"abcdefghi", 1):
        table_map = MARIADB_MAP.replace(b"\x01v\x08", b"\x01" + bytes([column]) + b"\x08")
        log.gtid(n).query("BEGIN").table_map(20, table_map).rows(bytes([n]), 20).xid()
    found = Collected()
    reader = make_reader(mysql(), found)
    kept = []
    feed(reader, log.events[:2])
    for at in range(2, len(log.events), 5):
        feed(reader, log.events[at : at + 5])
        reader.flush()
        kept.append(len(reader._slots.maps))
    assert kept == [1, 2, 3, 4, 0, 1, 2, 3, 4]  # four old ones of two columns are more than six
    assert [image[0] for _, _, _, image in found.rows] == list(range(1, 10))
    assert reader._slots.tables == {"w"}


@pytest.mark.parametrize("limit", ["MOST_MAPS", "MOST_BYTES"])
def test_a_transaction_with_more_maps_than_any_has(
    monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    """They are kept until it ends: a proxy that sent them without end took all memory."""
    log = opened()
    log.insert(1, b"a")
    log.gtid(100).query("BEGIN")
    for n in range(8):
        log.table_map(n + 20, bytes([6]) + b"other%d" % n + MARIADB_MAP[5:])
    log.xid()
    expected = read(mysql(), log)[0].rows
    assert len(expected) == 1
    monkeypatch.setattr(f"ratchet.ingest.binlog.slots.{limit}", 1)
    reader = make_reader(mysql(), Collected())
    with pytest.raises(DecodeError, match="one transaction has"):
        feed(reader, log.events)
