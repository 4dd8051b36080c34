"""Capture through a real vtgate: the mirror of the change log, positions, refusals, the journal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from capture_kit import Capturer, close_streams, server_rows
from fix_servers import purge_binlogs

from lab.vitess import VitessCluster
from ratchet.core.errors import PositionLostError
from ratchet.core.gtid import GtidSet
from ratchet.core.patterns import TablePatterns
from ratchet.core.shard import ShardId
from ratchet.core.types import InvalidValuePolicy
from ratchet.ingest.slices import SliceLimits
from ratchet.ingest.vstream import backlog, feed
from ratchet.wire.session import SourceConfig
from ratchet.wire.vtgate import VtgateConfig
from tests.fix_vitess import TabletServer

DATABASE = "vt_commerce"


@pytest.fixture(autouse=True)
def _streams_closed() -> Iterator[None]:
    yield
    close_streams()


def source_of(vitess: VitessCluster, keyspace: str = "commerce", shard: str = "0") -> SourceConfig:
    return SourceConfig(
        shard=ShardId(keyspace, shard),
        host="127.0.0.1",
        port=vitess.mysql_port,
        user="root",
        database=f"vt_{keyspace}",
        target=f"{keyspace}:{shard}@primary",
        tls="disabled",
    )


def capturer(vitess: VitessCluster, folder: Path, **request: Any) -> Capturer:
    request = {"patterns": TablePatterns(("cap_*",)), **request}
    vtgate = VtgateConfig(host="127.0.0.1", port=vitess.grpc_port)
    return Capturer(source_of(vitess), folder, vtgate=vtgate, **request)


@pytest.fixture
def tablet(vitess: VitessCluster) -> Iterator[TabletServer]:
    """The shard's MySQL, rid of this module's tables afterwards."""
    server = TabletServer(vitess.tablets[1])
    yield server
    names = server.execute(
        "SELECT table_name FROM information_schema.tables WHERE table_name LIKE 'cap%%'"
    )
    for (name,) in names:
        server.execute(f"DROP TABLE `{name}`", database=DATABASE)


def run(vitess: VitessCluster, *statements: str) -> None:
    """One transaction through vtgate."""
    with vitess.connect("commerce", autocommit=False) as connection:
        with connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
        connection.commit()


def test_rows_are_those_of_the_server(
    vitess: VitessCluster, tablet: TabletServer, tmp_path: Path
) -> None:
    """Inserts, updates, deletes, changes of key, several tables, rollbacks to savepoints."""
    run(vitess, "CREATE TABLE cap_t (id BIGINT PRIMARY KEY, v VARCHAR(500), e ENUM('a','b'))")
    run(vitess, "CREATE TABLE cap_u (id BIGINT PRIMARY KEY, n DOUBLE, KEY (n))")
    run(vitess, "CREATE TABLE other (id BIGINT PRIMARY KEY)")
    capture = capturer(vitess, tmp_path)
    for n in range(0, 300, 3):
        run(
            vitess,
            f"INSERT INTO cap_t VALUES ({n}, 'v{n}', 'a'), ({n + 1}, NULL, 'b')",
            f"INSERT INTO cap_u VALUES ({n}, {n} / 7)",
            f"INSERT INTO other VALUES ({n})",
            f"UPDATE cap_t SET v = CONCAT(v, 'x'), e = 'b' WHERE id <= {n} AND id % 5 = 0",
            "SAVEPOINT here",
            f"DELETE FROM cap_t WHERE id < {n}",
            "ROLLBACK TO here",
            f"UPDATE cap_t SET id = -id WHERE id = {n + 1}",
            f"DELETE FROM cap_t WHERE id = {n - 3}",
        )
    rounds = capture.catch_up()
    for table in ("cap_t", "cap_u"):
        assert capture.final(table) == server_rows(tablet, DATABASE, table)  # type: ignore[arg-type]
    assert not capture.changes("other")
    changes = [*capture.changes("cap_t"), *capture.changes("cap_u")]
    places = [(c["token"]["seq"], c["token"]["idx"]) for c in changes]
    assert len(set(places)) == len(places)
    by_gtid: dict[str, list[int]] = {}
    for change in changes:
        by_gtid.setdefault(change["token"]["gtid"], []).append(change["token"]["idx"])
    assert all(sorted(found) == list(range(len(found))) for found in by_gtid.values())
    executed = tablet.execute("SELECT @@GLOBAL.gtid_executed")[0][0].replace("\n", "")
    assert capture.position.executed.contains_all(GtidSet.parse("mysql", executed))
    runs = [run for one in rounds for piece in one.slices for run in piece.runs]
    number = capture.begin.seq
    for one in runs:
        assert one.seq == number + 1
        number += one.last - one.first + 1
    assert number == capture.position.seq
    run(vitess, "DROP TABLE other")


def test_small_slices_and_new_streams(
    vitess: VitessCluster, tablet: TabletServer, tmp_path: Path
) -> None:
    """Wherever a slice ends, the next one goes on, on the same stream or on a new one."""
    run(vitess, "CREATE TABLE cap_t (id BIGINT PRIMARY KEY, v VARCHAR(5000))")
    capture = capturer(vitess, tmp_path, limits=SliceLimits(max_bytes=1, max_seconds=5))
    for n in range(40):
        run(vitess, f"INSERT INTO cap_t VALUES ({n}, REPEAT('x', 2000)), ({-n - 1}, '')")
    for n in range(200):
        capture.take()
        if n % 3 == 0:
            close_streams()
        if len(capture.final("cap_t")) == 80:
            break
    assert capture.final("cap_t") == server_rows(tablet, DATABASE, "cap_t")  # type: ignore[arg-type]


def test_a_bound_of_commit_time_stops_slices(
    vitess: VitessCluster, tablet: TabletServer, tmp_path: Path
) -> None:
    """Before the first transaction behind it; the next slice goes on there, on any stream."""
    run(vitess, "CREATE TABLE cap_t (id BIGINT PRIMARY KEY)")
    capture = capturer(vitess, tmp_path)
    began = 1_700_000_000  # one of the future would not be believed, and not held
    with tablet.connect(database=DATABASE) as connection, connection.cursor() as cursor:
        for number, seconds in enumerate((0, 5, 2, 60)):
            cursor.execute(f"SET timestamp = {began + seconds}")
            cursor.execute(f"INSERT INTO cap_t VALUES ({number})")
    found = []
    for bound in (1, 4, 5, 59, 60):
        limits = SliceLimits(max_seconds=20, min_seconds=0.0, not_after=(began + bound) * 10**6)
        piece = capture.take(limits=limits).slices[0]
        held = None if piece.held_ts is None else piece.held_ts // 10**6 - began
        found.append((bound, sorted(capture.final("cap_t")), held))
        if bound == 5:
            close_streams()
    assert found == [
        (1, [0], 5),
        (4, [0], 5),
        (5, [0, 1, 2], 60),
        (59, [0, 1, 2], 60),
        (60, [0, 1, 2, 3], None),
    ]


@pytest.mark.parametrize("held", [100_000, 64 << 20])
def test_a_transaction_larger_than_memory_allows(
    vitess: VitessCluster,
    tablet: TabletServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    held: int,
) -> None:
    """It waits, in a temporary file or in memory, over slices' limits, and stays whole."""
    monkeypatch.setattr(backlog, "SPOOL", held)
    monkeypatch.setattr(backlog, "_JOINED", 100_000)  # what is decoded at once
    monkeypatch.setattr(feed, "_INDEX", 50_000)
    run(vitess, "CREATE TABLE cap_t (id BIGINT PRIMARY KEY AUTO_INCREMENT, v VARCHAR(500), n INT)")
    run(vitess, "CREATE TABLE cap_u (id BIGINT PRIMARY KEY)")
    capture = capturer(vitess, tmp_path, limits=SliceLimits(max_bytes=100_000, max_seconds=20))
    run(
        vitess,
        "INSERT INTO cap_u VALUES (1)",
        "INSERT INTO cap_t (v, n) VALUES (REPEAT('y', 300), 1), ('', 2)",
        *["INSERT INTO cap_t (v, n) SELECT v, n + 1 FROM cap_t LIMIT 5000"] * 13,
        "INSERT INTO cap_u VALUES (2)",
    )
    capture.catch_up()
    rows = server_rows(tablet, DATABASE, "cap_t")  # type: ignore[arg-type]
    assert len(rows) > 8000
    assert capture.final("cap_t") == rows
    changes = [*capture.changes("cap_t"), *capture.changes("cap_u")]
    assert len({change["token"]["gtid"] for change in changes}) == 1
    assert sorted(c["token"]["idx"] for c in changes) == list(range(len(changes)))


@pytest.mark.usefixtures("tablet")
def test_statements_about_tables(vitess: VitessCluster, tmp_path: Path) -> None:
    """They come between the rows that they stand between; rows behind have the new shape."""
    run(vitess, "CREATE TABLE cap_t (id BIGINT PRIMARY KEY, v INT)")
    capture = capturer(vitess, tmp_path)
    run(vitess, "INSERT INTO cap_t VALUES (1, 1)")
    capture.catch_up()
    run(vitess, "ALTER TABLE cap_t ADD COLUMN w VARCHAR(20) CHARACTER SET latin1 DEFAULT 'é'")
    run(vitess, "INSERT INTO cap_t VALUES (2, 2, 'ü')")
    run(vitess, "TRUNCATE TABLE cap_t")
    run(vitess, "INSERT INTO cap_t VALUES (3, 3, 'ß')")
    capture.catch_up()
    changes = capture.changes("cap_t")
    assert [change["after"] for change in changes] == [
        {"id": 1, "v": 1},
        {"id": 2, "v": 2, "w": "ü"},
        {"id": 3, "v": 3, "w": "ß"},
    ]
    # A statement in the second in which the table was described is doubted as well.
    events = [event for event in capture.events() if event.kind != "doubt"]
    assert [(event.kind, event.table) for event in events] == [
        ("ddl", "cap_t"), ("truncate", "cap_t"),
    ]  # fmt: skip
    order = [change["token"]["seq"] for change in changes]
    first, second = (event.seq for event in events)
    assert order[0] < first < order[1] < second < order[2]


def test_a_table_made_of_a_select(vitess: VitessCluster, tmp_path: Path) -> None:
    """A statement and rows in one transaction: the stream goes on behind it."""
    run(vitess, "CREATE TABLE cap_f (id BIGINT PRIMARY KEY, v INT)")
    run(vitess, "INSERT INTO cap_f VALUES (1, 1), (2, 2)")
    capture = capturer(vitess, tmp_path)
    run(vitess, "CREATE TABLE cap_s (PRIMARY KEY (id)) AS SELECT id, v FROM cap_f")
    run(vitess, "INSERT INTO cap_s VALUES (3, 3)")
    capture.catch_up()
    run(vitess, "CREATE TABLE cap_s2 (PRIMARY KEY (id)) AS SELECT id, v FROM cap_f")
    capture.catch_up()
    assert [change["after"]["id"] for change in capture.changes("cap_s")] == [1, 2, 3]
    assert [change["after"]["id"] for change in capture.changes("cap_s2")] == [1, 2]
    created = [event for event in capture.events() if event.table == "cap_s"]
    assert created
    born = [change["token"]["seq"] for change in capture.changes("cap_s")]
    assert {event.seq for event in created} == {born[0]} == {born[1]} != {born[2]}


def test_a_table_that_is_gone_before_its_rows_are_read(
    vitess: VitessCluster, tmp_path: Path
) -> None:
    """No tablet can send them. The stream goes on behind, and all tables are compared."""
    run(vitess, "CREATE TABLE cap_k (id BIGINT PRIMARY KEY)")
    capture = capturer(vitess, tmp_path)
    run(vitess, "INSERT INTO cap_k VALUES (1)")
    for number in (2, 3):
        run(vitess, "CREATE TABLE cap_gone (id BIGINT PRIMARY KEY)")
        run(vitess, f"INSERT INTO cap_gone VALUES ({number})")
        run(vitess, f"INSERT INTO cap_k VALUES ({number})")
        run(vitess, "DROP TABLE cap_gone")
    run(vitess, "INSERT INTO cap_k VALUES (4)")
    capture.catch_up(known=("cap_k",))
    assert [change["after"]["id"] for change in capture.changes("cap_k")] == [1, 2, 3, 4]
    assert capture.changes("cap_gone") == []
    doubts = [event for event in capture.events() if event.effect == "restored"]
    assert len([event for event in doubts if event.table == "cap_k"]) == 2
    assert len({event.seq for event in doubts}) == 2


def test_tables_made_of_a_select_that_are_gone(vitess: VitessCluster, tmp_path: Path) -> None:
    """Nothing of their rows comes, nor of their end; and a transaction behind cannot be sent."""
    run(vitess, "CREATE TABLE cap_h (id BIGINT PRIMARY KEY)")
    run(vitess, "INSERT INTO cap_h VALUES (1)")
    capture = capturer(vitess, tmp_path)
    for number in (2, 3):
        run(vitess, "CREATE TABLE cap_x (PRIMARY KEY (id)) AS SELECT id FROM cap_h")
        run(vitess, f"INSERT INTO cap_x VALUES ({number})")
        run(vitess, f"INSERT INTO cap_h VALUES ({number})")
        run(vitess, "DROP TABLE cap_x")
    run(vitess, "CREATE TABLE cap_x (PRIMARY KEY (id)) AS SELECT id FROM cap_h")
    run(vitess, "DROP TABLE cap_x")
    capture.catch_up(known=("cap_h",))
    assert [change["after"]["id"] for change in capture.changes("cap_h")] == [2, 3]
    assert capture.changes("cap_x") == []


def test_a_table_that_cannot_be_taken_stops_and_no_other(
    vitess: VitessCluster, tablet: TabletServer, tmp_path: Path
) -> None:
    """For its columns' names, for what vtgate loses, for what the config refuses."""
    members = ",".join(f"'m{n}'" for n in range(64))
    tablet.execute("CREATE TABLE cap_t (id INT PRIMARY KEY, v INT)", database=DATABASE)
    refused = {
        "cap_own": ("`_TOKEN` INT", "1", "Ratchet's own column"),
        "cap_many": (f"s SET({members})", "'m0,m63'", "SET of 64 members"),
        "cap_dated": ("day DATE", "'2024-00-00'", "zero or invalid dates"),
        "cap_doc": ("j JSON", "JSON_OBJECT('a', 1, 'b', CAST('x' AS BINARY))", "not JSON as MySQL"),
    }
    for table, (column, _, _) in refused.items():
        tablet.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, {column})", database=DATABASE)
    capture = capturer(vitess, tmp_path, policy=InvalidValuePolicy(zero_dates="fail"))
    run(vitess, "INSERT INTO cap_t VALUES (1, 1), (2, 2)")
    rows = [f"INSERT INTO {table} VALUES (1, {value})" for table, (_, value, _) in refused.items()]
    run(vitess, "SET sql_mode = ''", *rows, "INSERT INTO cap_t VALUES (3, 3)")
    run(vitess, "UPDATE cap_t SET v = v + 1", *(f"DELETE FROM {table}" for table in refused))
    capture.catch_up()
    assert capture.final("cap_t") == server_rows(tablet, DATABASE, "cap_t")  # type: ignore[arg-type]
    told = {one.table: one.statement for one in capture.events() if one.kind == "unreadable"}
    assert set(told) == set(refused)
    for table, (_, _, words) in refused.items():
        assert words in told[table]
        assert not capture.changes(table)


def test_purged_transactions_are_found_before_the_stream_is_opened(
    vitess: VitessCluster, tablet: TabletServer, tmp_path: Path
) -> None:
    """Because vtgate says nothing of them for minutes."""
    run(vitess, "CREATE TABLE cap_t (id BIGINT PRIMARY KEY)")
    capture = capturer(vitess, tmp_path)
    run(vitess, "INSERT INTO cap_t VALUES (1)")
    purge_binlogs(tablet)  # type: ignore[arg-type]
    error = capture.fail()
    assert isinstance(error, PositionLostError)
    assert "purged" in error.message


def test_a_shard_that_is_no_more(vitess: VitessCluster, tmp_path: Path) -> None:
    """As after `Reshard complete`, when nobody has read the old shard's stream to its end."""
    capture = capturer(vitess, tmp_path)
    gone = replace(
        capture.source, shard=ShardId("commerce", "80-c0"), target="commerce:80-c0@primary"
    )
    error = capture.fail(source=gone)
    assert isinstance(error, PositionLostError)
    assert "reshard" in error.message
