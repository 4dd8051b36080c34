"""The reader and statements: table events, and those that come without a name of their own."""

from __future__ import annotations

import struct

import pytest
from event_kit import (
    MARIADB_MAP,
    MYSQL_MAP,
    SERVER,
    Collected,
    Log,
    NoCatalog,
    feed,
    make_reader,
)

from ratchet.core.errors import DecodeError
from ratchet.core.patterns import TablePatterns
from ratchet.core.position import Position
from ratchet.core.rounds import GtidRange
from tests.reader_kit import IMAGE, effects, mariadb, mysql, opened, read


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


def test_what_happens_to_copies_is_told_where_they_are_captured() -> None:
    log = opened().gtid(1).query("CREATE TABLE _w_gho LIKE w").gtid(2).query("DROP TABLE _w_ghc")
    log.gtid(3).query("RENAME TABLE w TO _w_del, _w_gho TO w")
    found, _, _ = read(mysql(), log, patterns=TablePatterns(copies=True))
    assert [table for table, _, _ in found.events] == ["_w_gho", "w", "_w_gho"]
    found, _, _ = read(mysql(), log)
    assert [table for table, _, _ in found.events] == ["w"]


def load_query(statement: str) -> bytes:
    """An EXECUTE_LOAD_QUERY event's body."""
    head = struct.pack("<IIBHH", 1, 0, 4, 0, 0) + struct.pack("<IIIB", 1, 9, 37, 0)
    return head + b"shop\0" + statement.encode()


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
    assert runs == (GtidRange(SERVER, 1, 2, 1),)
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
    assert runs == (GtidRange(SERVER, 1, 2, 1),)
    with pytest.raises(DecodeError, match="where it cannot be"):
        read(mysql(), opened().query("SELECT `shop`.`f`(1)"))
    with pytest.raises(DecodeError, match="where it cannot be"):
        read(mariadb(), opened().mariadb_gtid(1, flags=1).query("TRUNCATE w").query("TRUNCATE w"))


def test_a_name_that_stood_twice_of_which_the_second_was_never_finished() -> None:
    log = opened().insert(1).gtid(1).query("BEGIN").table_map().rows(IMAGE)
    log.rotate("bin.000002").format().insert(2)
    found, position, _ = read(mysql(), log)
    assert found.gtids == [f"{SERVER}:1", f"{SERVER}:2"]
    assert len(found.rows) == 2
    assert position.seq == 2
