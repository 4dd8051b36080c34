"""The reader on streams made by hand: transactions, names, files, refusals."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from event_kit import (
    MARIADB_MAP,
    MYSQL_MAP,
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
from ratchet.core.position import Position, Witness
from ratchet.core.rounds import Run
from ratchet.ingest.binlog import reader as reader_module
from ratchet.ingest.binlog.reader import UnfinishedError

IMAGE = b"\2\xff\0\1\0\0\0\1a"


def mysql(executed: str = "") -> Position:
    return Position(executed=GtidSet.parse("mysql", executed), server=SERVER)


def mariadb(executed: str = "") -> Position:
    return Position(executed=GtidSet.parse("mariadb", executed), server="1@h:1")


def in_file(offset: int = 4) -> Position:
    executed = GtidSet.parse("file", f"bin.000001:{offset}")
    return Position(executed=executed, server="s", file="bin.000001", offset=offset)


def opened() -> Log:
    return Log().rotate("bin.000001").format()


def read(start: Position, log: Log, **more: Any) -> tuple[Collected, Position, tuple[Run, ...]]:
    found = Collected()
    reader = make_reader(start, found, **more)
    feed(reader, log.events)
    reader.flush()
    return found, reader.position(), reader.runs


def test_transactions_with_their_names_ranks_and_rows() -> None:
    log = opened().insert(11, IMAGE).insert(12, IMAGE)
    found, position, runs = read(mysql(f"{SERVER}:1-10"), log)
    assert found.gtids == [f"{SERVER}:11", f"{SERVER}:12"]
    assert found.seqs == [11, 12]
    assert found.ts == [5, 5]
    assert found.rows == [(f"{SERVER}:{n}", "w", 1, IMAGE) for n in (11, 12)]
    assert str(position.executed) == f"{SERVER}:1-12"
    assert (position.file, position.offset) == ("bin.000001", log.position)
    assert runs == (Run(SERVER, 11, 12, 11),)


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
    assert runs == (Run(SERVER, 7, 7, 6), Run(SERVER, 5, 5, 7), Run(SERVER, 9, 9, 8))


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


def test_statements_become_table_events() -> None:
    log = opened().gtid(1).query("ALTER TABLE w ADD x INT").gtid(2).query("TRUNCATE w")
    log.gtid(3).query("CREATE USER x").gtid(4).query("ALTER TABLE other.w ADD x INT")
    log.gtid(5).query("BEGIN").query("CREATE TABLE `y` (i INT) START TRANSACTION").xid()
    found, position, _ = read(mysql(), log)
    assert found.events == [
        ("w", "ddl", f"{SERVER}:1"),  # the column that comes
        ("w", "ddl", f"{SERVER}:1"),  # and rows that may be written anew
        ("w", "truncate", f"{SERVER}:2"),
        ("y", "ddl", f"{SERVER}:5"),
    ]
    assert position.seq == 5


def test_excluded_tables_have_no_events() -> None:
    log = opened().gtid(1).query("DROP TABLE tmp_x, w")
    found, _, _ = read(mysql(), log, patterns=TablePatterns(("*", "!tmp_*")))
    assert [table for table, _, _ in found.events] == ["w"]


def test_mariadb_groups_statements_and_domains() -> None:
    log = opened().mariadb_gtid(8).table_map(body=MARIADB_MAP).rows(b"\2\3\xfc", kind=23).xid()
    log.mariadb_gtid(3, domain=2, flags=1).query("DROP TABLE w")
    log.mariadb_gtid(12).table_map(body=MARIADB_MAP).rows(b"\2\3\xfc", kind=25).query("COMMIT")
    found, position, runs = read(mariadb("0-1-7"), log)
    assert found.gtids == ["0-1-8", "2-1-3", "0-1-12"]
    assert found.seqs == [8, 11, 15]
    assert found.ts == [1_700_000_000_000_000] * 3
    assert str(position.executed) == "0-1-12,2-1-3"
    assert runs == (Run("0", 8, 8, 8), Run("2", 3, 3, 11), Run("0", 12, 12, 15))


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
        last=Witness(
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
    assert reader.runs == (Run(SERVER, 2, 3, 2),)
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


def test_a_server_that_died_in_a_transaction_never_made_it() -> None:
    log = opened().insert(1).gtid(2).query("BEGIN").table_map().rows(b"lost")
    log.rotate("bin.000002").format().insert(2, b"kept")
    found, position, runs = read(mysql(), log)
    assert found.gtids == [f"{SERVER}:1", f"{SERVER}:2"]
    assert [image for _, _, _, image in found.rows][1:] == [b"kept"]
    assert found.seqs == [1, 2]
    assert runs == (Run(SERVER, 1, 2, 1),)
    assert (position.file, position.offset) == ("bin.000002", log.position)


def test_rows_of_it_that_were_handed_out_already_are_asked_back() -> None:
    log = opened().insert(1)
    begin = log.position
    log.gtid(2).query("BEGIN").table_map().rows(b"lost")
    head = len(log.events)
    log.rotate("bin.000002").format().insert(2, b"kept")
    found = Collected()
    reader = make_reader(mysql(), found)
    feed(reader, log.events[:head])
    reader.flush()
    with pytest.raises(UnfinishedError) as caught:
        feed(reader, log.events[head:])
    assert caught.value.place == ("bin.000001", begin)
    again, position, _ = read(mysql(), log, unfinished=caught.value.place)
    assert [image for _, _, _, image in again.rows][1:] == [b"kept"]
    assert str(position.executed) == f"{SERVER}:1-2"


REFUSED: list[tuple[Callable[[Log], Log], type[RatchetError], str]] = [
    (lambda log: log.add(200), DecodeError, "does not know"),
    (lambda log: log.gtid(1).query("BEGIN").add(26, b"\1\0\0"), PositionLostError, "incident"),
    (lambda log: log.gtid(1).query("BEGIN").add(39, bytes(20)), DecodeError, "partial"),
    (lambda log: log.gtid(1).query("BEGIN").add(6, bytes(40)), SourceUnfitError, "text"),
    (lambda log: log.gtid(1).query("BEGIN").add(18, bytes(20)), DecodeError, "too early"),
    (lambda log: log.query("XA COMMIT X'61',X'',1"), DecodeError, "cannot stand"),
    (lambda log: log.xid(), DecodeError, "cannot stand"),
    (lambda log: log.gtid(1).gtid(2), DecodeError, "cannot stand"),
    (lambda log: log.gtid(1).query("BEGIN").rows(IMAGE, 99), DecodeError, "table map"),
    (lambda log: log.gtid(1, kind=34), SourceUnfitError, "no GTID"),
    (lambda log: log.gtid(1).query("BEGIN").add(30, b"\7"), DecodeError, "shorter"),
    (lambda log: log.add(33, b"\7"), DecodeError, "shorter"),
    (lambda log: log.add(2, b"\7"), DecodeError, "shorter"),
    (lambda log: log.gtid(1).query("BEGIN").add(19, b"\7" * 9), DecodeError, "table map"),
]  # fmt: skip
XA_PREPARE = b"\0" + struct.pack("<III", 1, 1, 0) + b"a"


@pytest.mark.parametrize(("build", "kind", "text"), REFUSED)
def test_what_is_refused(build: Callable[[Log], Log], kind: type[RatchetError], text: str) -> None:
    with pytest.raises(kind, match=text) as caught:
        read(mysql(), build(opened().insert(900)))
    assert caught.value.hint
    assert caught.value.source == "shop/-"
    assert caught.value.position.startswith("bin.000001:")


def test_xa_in_one_phase_and_xa_of_other_tables_pass() -> None:
    log = opened().gtid(1).query("XA START X'61',X'',1").table_map().rows(IMAGE)
    log.query("XA END X'61',X'',1").add(38, b"\1" + XA_PREPARE[1:])
    other = b"\x05other" + MARIADB_MAP[5:]
    log.gtid(2).query("XA START X'61',X'',1").table_map(9, other).rows(IMAGE, 9)
    log.query("XA END X'61',X'',1").add(38, XA_PREPARE)
    log.gtid(3).query("XA COMMIT X'61',X'',1")
    found, position, _ = read(mysql(), log)
    assert len(found.rows) == 1
    assert position.seq == 3


def test_a_prepared_transaction_counts_when_it_is_committed() -> None:
    """Its rows are left out, and its tables are told of at the commit; at no other end."""
    prepared = opened().gtid(1).query("XA START X'61',X'',1").table_map().rows(IMAGE)
    prepared.query("XA END X'61',X'',1").add(38, XA_PREPARE).insert(2)
    log = prepared.gtid(3).query("XA COMMIT X'61',X'',1").insert(4)
    found, position, _ = read(mysql(), log, known=frozenset({"w", "other"}))
    assert len(found.rows) == 2
    assert position.seq == 4
    assert [(one.table, one.effect, one.seq) for one in found.told] == [("w", "prepared", 3)]
    undone = opened().gtid(1).query("XA START X'61',X'',1").table_map().rows(IMAGE)
    undone.query("XA END X'61',X'',1").add(38, XA_PREPARE).gtid(2).query("XA ROLLBACK X'61',X'',1")
    found, position, _ = read(mysql(), undone, known=frozenset({"w"}))
    assert (found.rows, found.told, position.seq) == ([], [], 2)
    unseen = opened().gtid(1).query("XA COMMIT X'61',X'',1")
    found, _, _ = read(mysql(), unseen, known=frozenset({"w", "other"}))
    told = [(one.table, one.effect, one.seq) for one in found.told]
    assert told == [("other", "prepared", 1), ("w", "prepared", 1)]
    # Prepared before our start, and sent again: what its rows are of was known then, not now.
    again = opened().gtid(1).query("XA START X'61',X'',1").table_map().rows(IMAGE)
    again.query("XA END X'61',X'',1").add(38, XA_PREPARE).gtid(2).query("XA COMMIT X'61',X'',1")
    found, _, _ = read(mysql(f"{SERVER}:1"), again, known=frozenset({"w", "other"}))
    told = [(one.table, one.effect, one.seq) for one in found.told]
    assert told == [("other", "prepared", 2), ("w", "prepared", 2)]


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
    # Where nothing before it is known, and within a transaction, it ends the run.
    for log in (opened().add(26, lost), opened().mariadb_gtid(1).add(26, lost)):
        with pytest.raises(PositionLostError, match="incident"):
            read(mariadb(), log, known=known)


def test_rolled_back_without_rows_of_ours_passes() -> None:
    log = opened().gtid(1).query("BEGIN").query("SAVEPOINT a").query("ROLLBACK TO a")
    _, position, _ = read(mysql(), log.query("ROLLBACK"))
    assert position.seq == 1


def test_rows_that_were_rolled_back_are_left_out_and_their_tables_are_in_doubt() -> None:
    log = opened().gtid(1).query("BEGIN").table_map().rows(b"\0first")
    log.query("SAVEPOINT `a`").rows(b"\0second").query("SAVEPOINT `b`").rows(b"\0third")
    log.query("ROLLBACK TO `A`").rows(b"\0fourth").xid()
    log.gtid(2).query("BEGIN").table_map().rows(b"\0fifth").query("ROLLBACK")
    log.gtid(3).query("BEGIN").table_map().rows(b"\0sixth").query("ROLLBACK TO `c`").xid()
    log.gtid(4).query("BEGIN").table_map().rows(b"\0last").query("SAVEPOINT `a`").xid()
    found, position, _ = read(mysql(), log)
    kept = [b"\0first", b"\0fourth", b"\0sixth", b"\0last"]
    assert [image for _, _, _, image in found.rows] == kept
    told = [(one.seq, one.table, one.effect) for one in found.told]
    assert told == [(1, "w", "untold"), (2, "w", "untold"), (3, "w", "untold")]
    assert position.seq == 4


def test_rows_that_were_rolled_back_and_are_handed_out_already() -> None:
    """They cannot be taken back: their table is in doubt."""
    log = opened().gtid(1).query("BEGIN").table_map().query("SAVEPOINT `a`").rows(b"\0first")
    head = len(log.events)
    log.rows(b"\0second").query("ROLLBACK TO `a`").rows(b"\0third").query("ROLLBACK")
    found = Collected()
    reader = make_reader(mysql(), found)
    feed(reader, log.events[:head])
    reader.flush()
    feed(reader, log.events[head:])
    reader.flush()
    assert [image for _, _, _, image in found.rows] == [b"\0first"]
    assert [(one.table, one.effect) for one in found.told] == [("w", "untold")] * 2


# --- statements -----------------------------------------------------------------------------------


def load_query(statement: str) -> bytes:
    """An EXECUTE_LOAD_QUERY event's body."""
    head = struct.pack("<IIBHH", 1, 0, 4, 0, 0) + struct.pack("<IIIB", 1, 9, 37, 0)
    return head + b"shop\0" + statement.encode()


def effects(found: Collected) -> list[tuple[str, str]]:
    return [(event.table, event.effect) for event in found.told]


@pytest.mark.parametrize("start", [mysql(), mariadb()])
def test_rows_changed_by_a_statement_end_no_stream(start: Position) -> None:
    """They stand in a transaction beside row events, alone, and read from a file."""

    def begun(log: Log, number: int) -> Log:
        if start.flavor == "mariadb":
            return log.mariadb_gtid(number)
        return log.gtid(number).query("BEGIN")

    body = MARIADB_MAP if start.flavor == "mariadb" else MYSQL_MAP
    log = begun(opened(), 1).query("UPDATE other.h SET a=1")
    log.table_map(7, body).rows(IMAGE).query("REPLACE INTO w VALUES (1)").rows(IMAGE).xid()
    begun(log, 2).add(5, bytes(9)).add(17, bytes(9)).add(9, bytes(9))
    log.add(18, load_query("LOAD DATA INFILE 'x' INTO TABLE v")).xid()
    log = log.mariadb_gtid(3, flags=1) if start.flavor == "mariadb" else log.gtid(3)
    log.query("CREATE TABLE w SELECT 1")
    found, position, _ = read(start, log, known=frozenset({"v", "w"}))
    assert [row[2] for row in found.rows] == [1, 1]
    assert position.executed.cardinality == start.executed.cardinality + 3
    assert sorted(set(effects(found))) == [("v", "untold"), ("w", "rows"), ("w", "untold")]
    assert [event.seq for event in found.told if event.effect == "rows"] == [position.seq]


def test_a_two_phase_alter_counts_where_it_is_committed() -> None:
    """The extra flags stand behind a group commit's number and an XA transaction's name, if any."""

    def log_of(extra: int, flags: int, front: bytes = b"") -> list[tuple[str, str]]:
        log = opened().add(162, struct.pack("<QIB", 1, 0, 1 | flags) + front + bytes([extra]) * 9)
        log.query("ALTER TABLE w DROP a")
        # What the next transaction says is not said of this one.
        log.mariadb_gtid(2, flags=1).query("ALTER TABLE w ADD b INT")
        found, _, _ = read(mariadb(), log)
        return effects(found)

    whole, later = ("w", "rows"), [("w", "columns"), ("w", "rebuild")]
    xa = struct.pack("<IBB", 1, 2, 1) + b"abc"
    for flags, front in ((0, b""), (2, bytes(8)), (64, xa), (2 | 128, bytes(8) + xa)):
        assert log_of(0, flags, front) == [whole, *later]
        assert log_of(1, flags, front) == [whole, *later]  # several engines: nothing to do with it
        assert log_of(2, flags, front) == later  # START
        assert log_of(4, flags, front) == [whole, *later]  # COMMIT
        assert log_of(8, flags, front) == later  # ROLLBACK
    short = opened().add(162, struct.pack("<QIB", 1, 0, 1 | 64) + b"\1\2")
    assert effects(read(mariadb(), short.query("ALTER TABLE w DROP a"))[0]) == [whole]


def test_statements_of_a_prepared_transaction_count_when_it_is_committed() -> None:
    begin = opened().gtid(1).query("XA START X'61',X'',1").query("UPDATE w SET a=1")
    begin.query("XA END X'61',X'',1").add(38, XA_PREPARE)
    begin.gtid(2).query("ALTER TABLE w ADD b INT").gtid(3).query("XA COMMIT X'61',X'',1")
    found, _, _ = read(mysql(), begin, known=frozenset({"w"}))
    told = [(event.effect, event.seq) for event in found.told if event.table == "w"]
    assert told == [("untold", 1), ("columns", 2), ("rebuild", 2), ("untold", 3)]
    undone = opened().gtid(1).query("XA START X'61',X'',1").query("UPDATE w SET a=1")
    undone.query("XA END X'61',X'',1").add(38, XA_PREPARE).gtid(2).query("XA ROLLBACK X'61',X'',1")
    found, _, _ = read(mysql(), undone, known=frozenset({"w"}))
    assert [event.seq for event in found.told if event.table == "w"] == [1]
    # One that did nothing by statements has nothing of the transaction before.
    log = opened().gtid(1).query("TRUNCATE w").gtid(2).query("XA START X'61',X'',1")
    log.query("XA END X'61',X'',1").add(38, XA_PREPARE).gtid(3).query("XA COMMIT X'61',X'',1")
    found, _, _ = read(mysql(), log, known=frozenset({"w"}))
    assert [(event.kind, event.seq) for event in found.told] == [("truncate", 1)]


class Telling(NoCatalog):
    """A catalog that knows of plain tables."""

    def __init__(self, plain: bool) -> None:  # noqa: FBT001 - a fake's one value
        self.plain = plain
        self.asked: list[tuple[str, str]] = []

    def folds(self) -> bool | None:
        return False

    def is_plain(self, database: str, table: str) -> bool:
        self.asked.append((database, table))
        return self.plain


def heartbeats(catalog: Telling, *between: str) -> tuple[list[tuple[str, str]], int]:
    """The effects of statements between some heartbeats; how often the server was asked."""
    log = opened()
    for number, text in enumerate(("", *between), 1):
        log.gtid(2 * number).query("BEGIN").query("REPLACE INTO other.h VALUES (1)").xid()
        log.gtid(2 * number + 1).query("BEGIN").query("UPDATE other.h SET a=1").xid()
        if text:
            log.gtid(100 + number).query(text)
    found, _, _ = read(mysql(), log, catalog=catalog, known=frozenset({"v", "w"}))
    return effects(found), len(catalog.asked)


def test_a_heartbeat_in_another_database_is_harmless_where_the_server_says_so() -> None:
    everything = [("v", "untold"), ("w", "untold")]
    assert heartbeats(Telling(plain=True)) == ([], 1)
    assert heartbeats(Telling(plain=False)) == (everything * 2, 1)
    # What makes a trigger makes it ask again; what takes one away puts all in doubt.
    assert heartbeats(Telling(plain=True), "CREATE TRIGGER x BEFORE INSERT ON other.h", "") == (
        [],
        2,
    )
    assert heartbeats(Telling(plain=True), "DROP TRIGGER x", "") == (everything, 2)
    assert heartbeats(Telling(plain=True), "DROP TABLE other.h", "") == (everything, 2)
    assert heartbeats(Telling(plain=True), "DROP TABLE other.g", "") == ([], 2)
    assert heartbeats(Telling(plain=False), "DROP TRIGGER x", "")[0] == everything * 6
    # Nor does a privilege that was lacking hold longer than until the next one is given.
    assert heartbeats(Telling(plain=False), "GRANT TRIGGER ON other.* TO r@'%'", "")[1] == 2
    # Nobody is asked where nothing is mirrored.
    quiet = Telling(plain=False)
    log = opened().gtid(1).query("BEGIN").query("UPDATE other.h SET a=1").xid()
    found, _, _ = read(mysql(), log, catalog=quiet)
    assert (found.told, quiet.asked) == ([], [])


def test_a_name_that_stands_twice_in_one_log() -> None:
    """MySQL 9.7: `PURGE BINARY LOGS BEFORE f()`, where f changes tables of two engines."""
    once = opened().insert(1).insert(2)
    before = read(mysql(), once)[1]
    log = once.insert(1)
    found, position, runs = read(mysql(), log)
    assert found.gtids == [f"{SERVER}:1", f"{SERVER}:2"]
    assert len(found.rows) == 2
    assert found.events == [("w", "ddl", f"{SERVER}:2")]
    assert (position.executed, position.last) == (before.executed, before.last)
    assert runs == (Run(SERVER, 1, 2, 1),)
    # The server leaves out what it is told.
    assert read(mysql(f"{SERVER}:1-2"), log)[0].events == []


def test_what_is_told_of_without_a_transaction_is_not_lost() -> None:
    log = opened().insert(1)
    head = len(log.events)
    log.insert(1).query("SELECT `shop`.`f`(1)")
    found = Collected()
    reader = make_reader(mysql(), found)
    reader.start_slice(known=frozenset({"v"}), limit=1 << 60)
    for part in (log.events[:head], log.events[head:]):
        feed(reader, part)
        reader.flush()
    assert len(found.rows) == 1
    assert [table for table, _, _ in found.events] == ["w", "v", "w"]
    assert reader.position().seq == 1


def test_a_statement_without_a_name() -> None:
    """MySQL 9.7: `SHOW TABLES WHERE f()` of a session that logs statements."""
    log = opened().insert(1).query("SELECT `shop`.`f`(1)").insert(2).query("TRUNCATE w")
    found, position, runs = read(mysql(), log, known=frozenset({"w", "v"}))
    assert found.gtids == [f"{SERVER}:1", f"{SERVER}:2"]
    assert found.events == [
        ("v", "ddl", f"{SERVER}:1"), ("w", "ddl", f"{SERVER}:1"), ("w", "truncate", f"{SERVER}:2"),
    ]  # fmt: skip
    assert (position.seq, position.offset) == (2, log.position)
    assert runs == (Run(SERVER, 1, 2, 1),)
    with pytest.raises(DecodeError, match="cannot stand"):
        read(mysql(), opened().query("SELECT `shop`.`f`(1)"))
    with pytest.raises(DecodeError, match="cannot stand"):
        read(mariadb(), opened().mariadb_gtid(1, flags=1).query("TRUNCATE w").query("TRUNCATE w"))


def test_a_name_that_stood_twice_of_which_the_second_was_never_finished() -> None:
    log = opened().insert(1).gtid(1).query("BEGIN").table_map().rows(IMAGE)
    log.rotate("bin.000002").format().insert(2)
    found, position, _ = read(mysql(), log)
    assert found.gtids == [f"{SERVER}:1", f"{SERVER}:2"]
    assert len(found.rows) == 2
    assert position.seq == 2


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
