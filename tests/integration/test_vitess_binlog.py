"""A tablet's binlog: journals end it, and copies of what is mirrored are left out.

A plain MySQL, on which the test writes what VReplication and a reshard were seen to write on real
tablets (docs/decisions/0072-tablets.md); tests/e2e/test_vitess_tablets.py has the real thing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from capture_kit import QUICK, Capturer, close_streams, source_of

from lab.servers import Server
from ratchet.core.errors import PositionLostError
from ratchet.core.gtid import GtidSet
from ratchet.core.position import Position
from ratchet.core.shard import ShardId
from ratchet.ingest.binlog import feed
from ratchet.ingest.binlog.seek import check_follows, position_at
from ratchet.wire.binlog import DumpOptions, replica_server_id
from ratchet.wire.session import Session

DATABASE = "vt_shop"
UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
SOURCE = "shop/0"
OPTIONS = DumpOptions(server_id=replica_server_id("seek", ShardId("shop", "-80")))
SIDECAR = (
    "CREATE DATABASE _vt",
    """CREATE TABLE _vt.vreplication (id INT PRIMARY KEY, workflow VARBINARY(1000),
       source MEDIUMBLOB NOT NULL, pos LONGBLOB NOT NULL, state VARBINARY(100) NOT NULL,
       message VARBINARY(1000), db_name VARBINARY(255) NOT NULL, options JSON NOT NULL)""",
    """CREATE TABLE _vt.copy_state (id BIGINT UNSIGNED PRIMARY KEY AUTO_INCREMENT,
       vrepl_id INT NOT NULL, table_name VARBINARY(128) NOT NULL, lastpk VARBINARY(2000))""",
    """CREATE TABLE _vt.resharding_journal (id BIGINT PRIMARY KEY, db_name VARBINARY(255),
       val LONGBLOB)""",
)


class Tablet:
    """The MySQL of a shard that rows are copied to.

    Args:
        server: it.
        folder: for the lake.
    """

    def __init__(self, server: Server, folder: Path) -> None:
        self.server = server
        self.folder = folder
        self.journals = 0

    def write(self, *statements: str) -> None:
        """One transaction."""
        with self.server.connect(autocommit=False) as connection, connection.cursor() as cursor:
            cursor.execute(f"USE {DATABASE}")
            for statement in statements:
                cursor.execute(statement)
            connection.commit()

    def follow(self, number: int = 1, shard: str = "0") -> None:
        """A stream of VReplication that has copied everything, and follows."""
        text = f'keyspace:"shop" shard:"{shard}" filter:{{rules:{{match:"/.*" filter:"-80"}}}}'
        self.write(
            f"INSERT INTO _vt.vreplication VALUES ({number}, 'r1', '{text}', '{at(1)}', 'Running',"
            f" '', '{DATABASE}', '{{}}')"
        )

    def copy(self, upto: int, *statements: str, number: int = 1) -> None:
        """A transaction that brings some of the source's."""
        moved = f"UPDATE _vt.vreplication SET pos = '{at(upto)}' WHERE id = {number}"
        self.write(*statements, moved)

    def note(self, **columns: str) -> None:
        """A change of the stream's row that is none of its position."""
        text = ", ".join(f"{name} = '{value}'" for name, value in columns.items())
        self.write(f"UPDATE _vt.vreplication SET {text} WHERE id = 1")

    def journal(self, kind: str = "SHARDS", database: str = DATABASE, shard: str = "-80") -> None:
        """What is written when traffic is switched away from here."""
        self.journals += 1
        value = (
            f'id:{self.journals} migration_type:{kind}  tables:"/.*" local_position:"{at(9)}" '
            f'shard_gtids:{{keyspace:"shop" shard:"-40" gtid:"{at(5)}"}} '
            f'shard_gtids:{{keyspace:"shop"  shard:"40-80" gtid:"{at(6)}"}} '
            f'participants:{{keyspace:"shop" shard:"{shard}"}}'
        )
        self.write(
            f"INSERT INTO _vt.resharding_journal VALUES ({self.journals}, '{database}', '{value}')"
        )

    def capturer(self, **seen: int) -> Capturer:
        """Takes rounds from now on; `seen`: how many transactions of which shards are mirrored."""
        return Capturer(
            source_of(self.server, DATABASE, "-80"),
            self.folder,
            vitess=True,
            limits=QUICK,
            seen={f"shop/{name.strip('_')}": position(upto) for name, upto in seen.items()},
        )


@pytest.fixture
def tablet(mysql: Server, tmp_path: Path) -> Iterator[Tablet]:
    yield prepared(mysql, tmp_path)
    close_streams()
    for database in ("_vt", DATABASE):
        mysql.execute(f"DROP DATABASE {database}")


@pytest.fixture
def own(make_server: Callable[..., Server], tmp_path: Path) -> Tablet:
    """On a server whose binlogs are the test's alone."""
    return prepared(make_server("mysql"), tmp_path)


def prepared(server: Server, folder: Path) -> Tablet:
    for statement in (*SIDECAR, f"CREATE DATABASE {DATABASE}"):
        server.execute(statement)
    server.execute("CREATE TABLE t (id INT PRIMARY KEY, v LONGTEXT)", database=DATABASE)
    return Tablet(server, folder)


def at(upto: int) -> str:
    return f"MySQL56/{UUID}:1-{upto}"


def position(upto: int) -> Position:
    return Position(executed=GtidSet.parse("mysql", f"{UUID}:1-{upto}"))


def ids(capture: Capturer) -> list[int]:
    return [(change["after"] or change["before"])["id"] for change in capture.changes("t")]


def insert(number: int) -> str:
    return f"INSERT INTO t VALUES ({number}, 'v')"


@pytest.mark.parametrize("setting", ["OFF", "ON"])
def test_a_journal_ends_the_stream(tablet: Tablet, setting: str) -> None:
    """Also in a compressed transaction."""
    capture = tablet.capturer()
    tablet.server.execute(f"SET GLOBAL binlog_transaction_compression = {setting}")
    tablet.write(insert(1))
    tablet.journal()
    tablet.server.execute("SET GLOBAL binlog_transaction_compression = OFF")
    with Session.connect(capture.source) as session:
        end = session.head().executed
    tablet.write(insert(2))
    (piece,) = capture.take().slices
    assert ids(capture) == [1]
    assert piece.end.executed == end
    assert piece.journal is not None
    assert piece.journal.sources == ("shop/-80",)
    assert piece.journal.targets == {"shop/-40": position(5), "shop/40-80": position(6)}


def test_journals_that_do_not_concern_the_stream(tablet: Tablet) -> None:
    """Tables that move to another keyspace, and another database on the same server."""
    capture = tablet.capturer()
    tablet.write(insert(1))
    tablet.journal(kind="TABLES")
    tablet.write(insert(2))
    tablet.journal(database="vt_other", shard="0")
    tablet.write(insert(3))
    capture.catch_up()
    assert ids(capture) == [1, 2, 3]
    tablet.journal()
    tablet.write(insert(4))
    (piece,) = capture.take().slices
    assert piece.journal is not None
    assert ids(capture) == [1, 2, 3]


def test_a_journal_of_another_shard_is_refused(tablet: Tablet) -> None:
    capture = tablet.capturer()
    tablet.journal(shard="80-")
    assert "a journal that is not of shop/-80" in str(capture.fail())


def test_without_vitess_nothing_is_looked_at(tablet: Tablet) -> None:
    capture = tablet.capturer()
    tablet.journal()
    tablet.write(insert(2))
    capture.catch_up(vitess=False)
    assert ids(capture) == [2]


def test_copies_of_what_is_mirrored_are_left_out(tablet: Tablet) -> None:
    tablet.follow()
    capture = tablet.capturer(_0=40)
    tablet.copy(39, insert(1))
    tablet.write(insert(2))  # no copy
    tablet.copy(40, insert(3), insert(4))
    tablet.copy(42, insert(5))  # from 41 on nothing of it is mirrored
    tablet.copy(43, insert(6))
    capture.catch_up()
    assert ids(capture) == [2, 5, 6]
    (piece,) = capture.log.since(0)[-1].slices
    assert piece.seen == {}


def test_what_may_still_come_is_remembered(tablet: Tablet) -> None:
    tablet.follow()
    capture = tablet.capturer(_0=40)
    tablet.copy(38, insert(1))
    tablet.write(insert(2))
    (piece,) = capture.take().slices
    assert piece.seen == {SOURCE: position(40)}
    close_streams()
    tablet.copy(39, insert(3))
    tablet.copy(41, insert(4))
    capture.catch_up()
    assert ids(capture) == [2, 4]


def test_a_copy_of_both_is_kept(tablet: Tablet) -> None:
    """VReplication takes transactions together: what is not mirrored of them must not be lost."""
    tablet.follow()
    capture = tablet.capturer(_0=40)
    tablet.copy(39, insert(1))
    tablet.copy(44, insert(2), insert(3))
    capture.catch_up()
    assert ids(capture) == [2, 3]


def test_two_sources_are_told_apart(tablet: Tablet) -> None:
    tablet.follow(1, "0")
    tablet.follow(2, "1")
    capture = tablet.capturer(_0=40, _1=10)
    tablet.copy(40, insert(1))
    tablet.copy(41, insert(2))
    tablet.copy(9, insert(3), number=2)
    tablet.copy(11, insert(4), number=2)
    capture.catch_up()
    assert ids(capture) == [2, 4]


@pytest.mark.parametrize("end", ["frozen", "deleted"])
def test_what_is_written_after_the_shard_took_over_is_kept(tablet: Tablet, end: str) -> None:
    tablet.follow()
    capture = tablet.capturer(_0=40)
    tablet.copy(40, insert(1))
    tablet.note(state="Stopped", message="stopped for cutover")
    tablet.write(insert(2))
    if end == "frozen":
        tablet.note(message="FROZEN")
    else:
        tablet.write("DELETE FROM _vt.vreplication")
    tablet.write(insert(3))
    capture.catch_up()
    assert ids(capture) == [2, 3]
    (piece,) = capture.log.since(0)[-1].slices
    assert piece.seen == {}


@pytest.mark.parametrize("end", ["frozen", "deleted"])
def test_a_shard_that_took_over_with_more_than_was_seen_is_refused(
    tablet: Tablet, end: str
) -> None:
    """The stream begins too late (a clock is off by minutes): copies have gone by unseen."""
    tablet.follow()
    tablet.copy(45)
    capture = tablet.capturer(_0=40)
    if end == "frozen":
        tablet.note(state="Stopped", message="FROZEN")
    else:
        tablet.write("DELETE FROM _vt.vreplication")
    tablet.write(insert(3))
    assert isinstance(capture.fail(), PositionLostError)


def test_statements_count_once_the_shard_takes_over(tablet: Tablet) -> None:
    """The tables were made there before anything was copied to them."""
    tablet.follow()
    capture = tablet.capturer(_0=40)
    tablet.write("CREATE TABLE made (id INT PRIMARY KEY)")
    tablet.copy(40, insert(1))
    tablet.note(state="Stopped", message="stopped for cutover")
    tablet.write("TRUNCATE TABLE t")
    capture.catch_up()
    assert [(event.kind, event.table) for event in capture.events()] == [("truncate", "t")]


def copied_later(tablet: Tablet) -> None:
    tablet.note(state="Copying")
    tablet.copy(41)


def jumped(tablet: Tablet) -> None:
    """The first position that is seen is beyond what is mirrored: what came before it?"""
    tablet.copy(45)


@pytest.mark.parametrize("gap", [copied_later, jumped], ids=lambda one: one.__name__)
def test_rows_that_were_copied_too_late_are_refused(
    tablet: Tablet, gap: Callable[[Tablet], None]
) -> None:
    tablet.follow()
    tablet.copy(44 if gap is jumped else 39)
    capture = tablet.capturer(_0=40)
    gap(tablet)
    error = capture.fail()
    assert isinstance(error, PositionLostError)
    assert "copied here from a later position than the mirror's" in error.message


def test_rows_copied_in_bulk(tablet: Tablet) -> None:
    """They are as they were at their stream's position."""
    tablet.follow()
    capture = tablet.capturer(_0=40)
    turn = "INSERT INTO _vt.copy_state (vrepl_id, table_name, lastpk) VALUES (1, 't', {})"
    tablet.write(turn.format("NULL"))
    tablet.copy(30)
    tablet.write(insert(1), insert(2), turn.format("'2'"))
    tablet.note(state="Running")
    tablet.copy(41, insert(3))
    capture.catch_up()
    assert ids(capture) == [3]


def test_rows_copied_in_bulk_at_an_unknown_position_are_refused(tablet: Tablet) -> None:
    tablet.follow()
    capture = tablet.capturer(_0=40)
    tablet.write(
        insert(1), "INSERT INTO _vt.copy_state (vrepl_id, table_name, lastpk) VALUES (1, 't', '1')"
    )
    assert isinstance(capture.fail(), PositionLostError)


def large(first: int, rows: int) -> str:
    """A statement that brings so many rows of 1 MB: the receive buffer holds some 16."""
    values = ", ".join(f"({n}, REPEAT('x', 1000000))" for n in range(first, first + rows))
    return f"INSERT INTO t VALUES {values}"


def test_copies_larger_than_the_receive_buffer(tablet: Tablet) -> None:
    """What they are is told by their ends; also where the buffer ends amidst a small one."""
    tablet.follow()
    capture = tablet.capturer(_0=40)
    tablet.copy(9, large(100, 50))
    tablet.write(large(200, 40))  # no copy
    for number in range(30):
        tablet.copy(10 + number, large(300 + number, 1))
    tablet.copy(40, large(400, 40))
    tablet.copy(41, large(500, 40), insert(1))
    tablet.write(insert(2))
    capture.catch_up()
    assert ids(capture) == [*range(200, 240), *range(500, 540), 1, 2]


def test_a_transaction_too_large_to_be_kept_is_refused(
    tablet: Tablet, monkeypatch: pytest.MonkeyPatch
) -> None:
    tablet.follow()
    capture = tablet.capturer(_0=40)
    monkeypatch.setattr(feed, "HELD", 10 << 20)
    tablet.copy(40, large(1, 60))
    assert "too large to be kept until its end" in str(capture.fail())


# --- beginning at a time --------------------------------------------------------------------------


def now() -> int:
    return time.time_ns() // 1000


def waited() -> int:
    """A moment that nothing is committed at."""
    time.sleep(0.05)
    moment = now()
    time.sleep(0.05)
    return moment


def test_a_position_is_found_by_its_time(own: Tablet) -> None:
    """Over several binlog files, an empty one among them."""
    source = source_of(own.server, DATABASE, "-80")
    moments: list[tuple[int, GtidSet]] = []

    def note() -> None:
        with Session.connect(source) as session:
            moments.append((waited(), session.head().executed))

    note()
    for number in range(2):
        own.write(insert(number))
        note()
        own.server.execute("FLUSH BINARY LOGS")
        own.write(insert(10 + number))
    own.server.execute("FLUSH BINARY LOGS")
    own.server.execute("FLUSH BINARY LOGS")
    note()
    for moment, executed in moments:
        assert position_at(source, moment, OPTIONS).executed == executed
    assert position_at(source, now(), OPTIONS).executed == moments[-1][1]
    assert position_at(source, 0, OPTIONS).executed == GtidSet.empty("mysql")


def test_a_time_before_the_oldest_binlog_is_refused(own: Tablet) -> None:
    source = source_of(own.server, DATABASE, "-80")
    moment = waited()
    own.write(insert(1))
    own.server.execute("FLUSH BINARY LOGS")
    own.write(insert(2))
    with own.server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SHOW BINARY LOGS")
        newest = cursor.fetchall()[-1][0]
        cursor.execute(f"PURGE BINARY LOGS TO '{newest}'")
    with pytest.raises(PositionLostError, match="reach back only to"):
        position_at(source, moment, OPTIONS)


def test_a_log_is_looked_through_for_gaps(tablet: Tablet) -> None:
    tablet.follow()
    tablet.copy(39)
    source = source_of(tablet.server, DATABASE, "-80")
    start = position_at(source, waited(), OPTIONS)
    seen = {SOURCE: position(40)}
    check_follows(source, start, seen, OPTIONS, generation=1)
    tablet.copy(40, insert(1))
    tablet.copy(41, insert(2))
    tablet.note(state="Copying")
    tablet.copy(42, insert(3))
    check_follows(source, start, seen, OPTIONS, generation=1)
    with pytest.raises(PositionLostError, match="copied here from a later position"):
        check_follows(source, start, {SOURCE: position(41)}, OPTIONS, generation=1)
