"""A VStream goes on: failovers, restarts, throttling, moved tables, Online DDL; nothing is missing.

In each test a thread writes through vtgate and another one captures, while something happens to the
cluster. In the end the changes add up to what a SELECT gives.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pymysql
import pytest
from capture_kit import Capturer, close_streams, server_rows
from worker_kit import Worker

from lab.vitess import Tablet, VitessCluster
from ratchet.core.change import DELETE
from ratchet.core.errors import PositionLostError, RatchetError, RetryableError
from ratchet.core.patterns import TablePatterns
from ratchet.core.rounds import TableEvent
from ratchet.core.shard import ShardId
from ratchet.ingest import capture as capture_module
from ratchet.ingest.capture import capture_slice
from ratchet.ingest.slices import SliceLimits
from ratchet.wire.session import SourceConfig
from ratchet.wire.vtgate import VtgateConfig
from tests.fix_vitess import TabletServer

BRISK = SliceLimits(max_seconds=1.5, min_seconds=0.2)
CREATE = "CREATE TABLE {} (id BIGINT PRIMARY KEY, v VARCHAR(200), n INT)"


@pytest.fixture(autouse=True)
def _streams_closed() -> Iterator[None]:
    yield
    close_streams()


@pytest.fixture(scope="module")
def pair() -> Iterator[VitessCluster]:
    """A cluster with the keyspace `shop`, whose one shard has a primary and a replica."""
    with VitessCluster() as cluster:
        cluster.add_keyspace("shop", ["0"])
        cluster.add_tablet("shop", "0", primary=False)
        cluster.wait(lambda: replica_serves(cluster), "vtgate knows the replica")
        yield cluster
        close_streams()


def capturer(
    cluster: VitessCluster, folder: Path, keyspace: str = "shop", kind: Any = "primary"
) -> Capturer:
    source = SourceConfig(
        shard=ShardId(keyspace, "0"),
        host="127.0.0.1",
        port=cluster.mysql_port,
        user="root",
        database=f"vt_{keyspace}",
        target=f"{keyspace}:0@{kind}",
        tls="disabled",
    )
    vtgate = VtgateConfig(host="127.0.0.1", port=cluster.grpc_port, tablet_type=kind)
    return Capturer(source, folder, vtgate=vtgate, patterns=TablePatterns(), limits=BRISK)


class Writer(Worker):
    """Inserts, updates and deletes rows of a table through vtgate, in small transactions."""

    def __init__(self, cluster: VitessCluster, table: str, keyspace: str = "shop") -> None:
        super().__init__()
        self._cluster, self._table, self._keyspace = cluster, table, keyspace
        self._random = random.Random(table)
        self._numbers = itertools.count(1)
        self._connection: Any = None
        self.failed = 0
        self.pause = 0.005  # seconds between transactions

    def step(self) -> None:
        try:
            if self._connection is None:
                self._connection = self._cluster.connect(self._keyspace, read_timeout=10)
            with self._connection.cursor() as cursor:
                self._transaction(cursor)
        except (pymysql.err.Error, OSError):
            # Whether it was committed is not known: keys are never used again.
            self.failed += 1
            self._connection = None
            time.sleep(0.05)
        else:
            self.done += 1
            time.sleep(self.pause)

    def _transaction(self, cursor: Any) -> None:
        number = next(self._numbers)
        some = self._random.randint(1, number)
        cursor.execute("BEGIN")
        cursor.execute(
            f"INSERT INTO {self._table} (id, v, n) VALUES ({number}, 'v{number}', {some})"
        )
        cursor.execute(f"UPDATE {self._table} SET v = CONCAT(v, '+') WHERE id = {some}")
        if number % 3 == 0:
            cursor.execute(f"DELETE FROM {self._table} WHERE id = {number - some}")
        cursor.execute("COMMIT")


class Follower(Worker):
    """Captures, and goes on after errors that go away by themselves."""

    def __init__(self, capture: Capturer) -> None:
        super().__init__()
        self._capture = capture
        self.retried: list[RatchetError] = []

    def step(self) -> None:
        try:
            self._capture.take()
        except RetryableError as error:
            self.retried.append(error)
        else:
            self.done += 1


@contextmanager
def under_way(
    cluster: VitessCluster, capture: Capturer, table: str, keyspace: str = "shop"
) -> Iterator[tuple[Writer, Follower]]:
    """Writing and capturing; both have ended well afterwards."""
    writer, follower = Writer(cluster, table, keyspace), Follower(capture)
    writer.start()
    follower.start()
    try:
        writer.more(50)
        follower.more(2)
        yield writer, follower
        writer.more(50)
        follower.more(2)
    finally:
        writer.end()
        follower.end()


def tablets(cluster: VitessCluster, keyspace: str = "shop") -> list[Tablet]:
    """Those of its shard, the primary first."""
    lines = cluster.ctl("GetTablets", f"--keyspace={keyspace}").splitlines()
    kinds = {int(name.partition("-")[2]): kind for name, _, _, kind, *_ in map(str.split, lines)}
    found = [one for one in cluster.tablets.values() if one.keyspace == keyspace]
    return sorted(found, key=lambda one: kinds[one.uid] != "primary")


def statements(capture: Capturer) -> list[TableEvent]:
    """Table events; a statement in the second in which its table was described is doubted too."""
    return [event for event in capture.events() if event.kind != "doubt"]


def check(cluster: VitessCluster, capture: Capturer, table: str, keyspace: str = "shop") -> None:
    """All is captured that is in the table, and nothing else."""
    capture.catch_up()
    primary = TabletServer(tablets(cluster, keyspace)[0])
    wanted = server_rows(primary, f"vt_{keyspace}", table)  # type: ignore[arg-type]
    assert wanted
    assert capture.final(table) == wanted


@pytest.mark.long
@pytest.mark.usefixtures("vitess")
@pytest.mark.parametrize("kind", ["primary", "replica"])
def test_planned_reparents(pair: VitessCluster, tmp_path: Path, kind: str) -> None:
    """There and back, from the primary's stream and from a replica's."""
    table = f"planned_{kind}"
    pair.query(CREATE.format(table), target="shop")
    capture = capturer(pair, tmp_path, kind=kind)
    with under_way(pair, capture, table) as (writer, follower):
        for _ in range(2):
            pair.reparent(tablets(pair)[1])
            writer.more(100)
            follower.more(3)
    check(pair, capture, table)


@pytest.mark.long
@pytest.mark.usefixtures("vitess")
def test_a_replica_that_is_behind_is_not_caught_up(pair: VitessCluster, tmp_path: Path) -> None:
    """Its stream has nothing more to give, and still the primary has more."""
    pair.query(CREATE.format("behind"), target="shop")
    primary, replica = tablets(pair)
    pair.wait(lambda: gtids(primary) == gtids(replica), "the replica has everything")
    capture = capturer(pair, tmp_path, kind="replica")
    assert capture.take().caught_up
    pair.ctl("StopReplication", replica.alias)
    pair.query("INSERT INTO behind VALUES (1, 'v', 1)", target="shop")
    assert not capture.take().caught_up
    pair.ctl("StartReplication", replica.alias)
    pair.wait(lambda: bool(capture.take().caught_up), "the stream has caught up")
    assert list(capture.final("behind")) == [1]


@pytest.mark.long
@pytest.mark.usefixtures("vitess")
def test_restarts(pair: VitessCluster, tmp_path: Path) -> None:
    """Of the primary's vttablet, and of vtgate."""
    pair.query(CREATE.format("restarts"), target="shop")
    capture = capturer(pair, tmp_path)
    with under_way(pair, capture, "restarts") as (writer, follower):
        primary = tablets(pair)[0]
        pair.stop_tablet(primary)
        pair.start_tablet(primary)
        writer.more(100)
        follower.more(3)
        pair.stop_vtgate()
        pair.start_vtgate()
        writer.more(100)
        follower.more(3)
    check(pair, capture, "restarts")


@pytest.mark.long
@pytest.mark.usefixtures("vitess")
def test_a_throttled_stream(pair: VitessCluster, tmp_path: Path) -> None:
    """It stands still without an error, and goes on afterwards."""
    pair.query(CREATE.format("throttled"), target="shop")
    capture = capturer(pair, tmp_path)
    with under_way(pair, capture, "throttled") as (writer, follower):
        pair.ctl("UpdateThrottlerConfig", "--enable", "--throttle-app=vstreamer", "shop")
        before = None
        while before != capture.position.executed:
            before = capture.position.executed
            writer.more(100)
            follower.more(2)
        pair.ctl("UpdateThrottlerConfig", "--disable", "--unthrottle-app=vstreamer", "shop")
    assert not follower.retried
    check(pair, capture, "throttled")


@pytest.fixture
def own() -> Iterator[VitessCluster]:
    """A cluster as `pair`, which may lose its primary."""
    with VitessCluster() as cluster:
        cluster.add_keyspace("shop", ["0"])
        cluster.add_tablet("shop", "0", primary=False)
        cluster.wait(lambda: replica_serves(cluster), "vtgate knows the replica")
        yield cluster
        close_streams()


def replica_serves(cluster: VitessCluster) -> bool:
    try:
        return bool(cluster.query("SELECT 1", target="shop:0@replica"))
    except pymysql.err.OperationalError:
        return False


def gtids(tablet: Tablet) -> str:
    return str(TabletServer(tablet).execute("SELECT @@GLOBAL.gtid_executed")[0][0])


@pytest.mark.long
@pytest.mark.usefixtures("vitess")
def test_an_emergency_that_lost_nothing(own: VitessCluster, tmp_path: Path) -> None:
    own.query(CREATE.format("emergency"), target="shop")
    capture = capturer(own, tmp_path)
    with under_way(own, capture, "emergency"):
        pass
    first, second = tablets(own)
    own.wait(lambda: gtids(first) == gtids(second), "the replica has everything")
    own.kill_tablet(first)
    own.fail_over(second)
    own.query("INSERT INTO emergency VALUES (-1, 'after', 1)", target="shop")
    check(own, capture, "emergency")


@pytest.mark.long
@pytest.mark.usefixtures("vitess")
def test_an_emergency_that_lost_transactions(own: VitessCluster, tmp_path: Path) -> None:
    """The mirror holds rows that no server has any more: that is said, and nothing is mixed."""
    own.query(CREATE.format("emergency"), target="shop")
    first, second = tablets(own)
    capture = capturer(own, tmp_path)
    with under_way(own, capture, "emergency"):
        pass
    TabletServer(second).execute("STOP REPLICA")
    own.query("INSERT INTO emergency VALUES (-1, 'lost', 1)", target="shop")
    capture.catch_up()
    own.kill_tablet(first)
    own.fail_over(second)
    own.query("INSERT INTO emergency VALUES (-2, 'after', 1)", target="shop")
    error, deadline = None, time.monotonic() + 120
    while not isinstance(error, PositionLostError):
        assert time.monotonic() < deadline, error
        found = capture_slice(capture.request())
        error = found.error
        assert isinstance(error, PositionLostError | RetryableError | None), error
        assert not found.files
    assert "failover" in error.hint
    assert "ratchet heal CONFIG" in error.hint


@pytest.mark.long
@pytest.mark.usefixtures("vitess")
def test_a_table_that_moves_away(pair: VitessCluster, tmp_path: Path) -> None:
    """Until the move is completed its writes come back to the source; then it is dropped there."""
    pair.query(CREATE.format("moved"), target="shop")
    pair.query(CREATE.format("stays"), target="shop")
    pair.add_keyspace("depot", ["0"])
    capture = capturer(pair, tmp_path)
    mover = Writer(pair, "moved")
    mover.start()
    with under_way(pair, capture, "stays") as (writer, follower):
        move = pair.move_tables("shop", "depot", ["moved"])
        move.wait_until_running()
        mover.more(50)
        move.switch()
        mover.more(50)
        mover.end()
        wanted = server_rows(TabletServer(tablets(pair, "depot")[0]), "vt_depot", "moved")  # type: ignore[arg-type]
        pair.wait(lambda: capture.final("moved") == wanted, "the source follows the target")
        move.complete()
        pair.query("INSERT INTO moved VALUES (-1, 'behind', 1)", target="depot")
        writer.more(50)
        follower.more(3)
    check(pair, capture, "stays")
    assert capture.final("moved") == wanted
    drops = [event for event in statements(capture) if event.table == "moved"]
    assert [event.kind for event in drops] == ["ddl"]
    assert "drop table" in drops[0].statement.lower()
    assert {change["token"]["seq"] < drops[0].seq for change in capture.changes("moved")} == {True}
    assert {event.table for event in statements(capture)} == {"moved"}


def test_tables_of_vitess(vitess: VitessCluster, tmp_path: Path) -> None:
    """Neither their rows nor what becomes of them, from one table's end on its way to the next."""
    tablet = TabletServer(vitess.tablets[1])
    held = "_vt_hld_6ace8bcef73211ea87e9f875a4d24e90_20990915120410_"
    tablet.execute(CREATE.format("leaves"), database="vt_commerce")
    capture = capturer(vitess, tmp_path, "commerce")
    for statement in (  # captured one by one: a tablet forgets at once what a table was
        "INSERT INTO leaves VALUES (1, 'mine', 1)",
        f"RENAME TABLE leaves TO {held}",
        f"INSERT INTO {held} VALUES (2, 'held', 1)",
        f"ALTER TABLE {held} ADD COLUMN more INT",
        f"DROP TABLE {held}",
    ):
        tablet.execute(statement, database="vt_commerce")
        capture.catch_up()
    assert [change["after"]["id"] for change in capture.changes("leaves")] == [1]
    assert {file.table for one in capture.log.since(0) for file in one.files} == {"leaves"}
    (event,) = statements(capture)
    assert event.table == "leaves"
    assert "rename" in event.statement.lower()


@pytest.mark.parametrize("statement", ["DROP TABLE behind", "ALTER TABLE behind DROP COLUMN v"])
def test_rows_from_before_a_statement(
    vitess: VitessCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    """A vttablet cannot read rows of a table that is another one now: they are passed over.

    Of many in a row, more and more at once.

    If there is no end to them, that is said.
    """
    monkeypatch.setattr(capture_module, "_MOST_PASSED_OVER", 3)
    vitess.query("DROP TABLE IF EXISTS behind", target="commerce")
    vitess.query(CREATE.format("behind"), target="commerce")
    capture = capturer(vitess, tmp_path, "commerce")
    for number in range(3):
        vitess.query(f"INSERT INTO behind VALUES ({number}, 'old', 1)", target="commerce")
    vitess.query(statement, target="commerce")
    capture.catch_up(known=("behind",))
    passed = [event for event in capture.events() if event.effect == "restored"]
    assert [event.table for event in passed] == ["behind"] * 3
    assert capture.changes("behind") == []
    begin = capture.position
    close_streams()
    vitess.query("DROP TABLE IF EXISTS behind", target="commerce")
    vitess.query(CREATE.format("behind"), target="commerce")
    for number in range(4):
        vitess.query(f"INSERT INTO behind VALUES ({number}, 'old', 1)", target="commerce")
    vitess.query(statement, target="commerce")
    with pytest.raises(PositionLostError) as caught:
        capture.catch_up(known=("behind",))
    assert "before such a statement" in caught.value.hint
    assert capture.position != begin
    capture.catch_up(known=("behind",))  # asked again, as after a rest
    close_streams()
    monkeypatch.setattr(capture_module, "_MOST_PASSED_OVER", 100)
    vitess.query("DROP TABLE IF EXISTS behind", target="commerce")
    vitess.query(CREATE.format("behind"), target="commerce")
    for number in range(40):
        vitess.query(f"INSERT INTO behind VALUES ({number}, 'old', 1)", target="commerce")
    vitess.query(statement, target="commerce")
    begin = capture.log.last_number()
    capture.catch_up(known=("behind",))
    events = [e for one in capture.log.since(begin) for e in one.events if e.effect == "restored"]
    assert len(events) < 15, "5 one by one, then 2, 4, 8, 16, 32"
    vitess.query("DROP TABLE IF EXISTS behind", target="commerce")


@pytest.mark.long
def test_online_ddl(vitess: VitessCluster, tmp_path: Path) -> None:
    """Rows on both sides of the cut-over are captured, in the shape they had; the copy is not."""
    tablet = TabletServer(vitess.tablets[1])
    vitess.query(CREATE.format("online"), target="commerce")
    capture = capturer(vitess, tmp_path, "commerce")
    with under_way(vitess, capture, "online", "commerce") as (writer, _):
        writer.pause = 0.03  # the cut-over waits until the new table has caught up
        with vitess.connect("commerce") as connection, connection.cursor() as cursor:
            cursor.execute("SET @@ddl_strategy = 'vitess'")
            cursor.execute(
                "ALTER TABLE online ADD COLUMN more INT NOT NULL DEFAULT 7, MODIFY n BIGINT"
            )
            ((name,),) = cursor.fetchall()
            vitess.wait(lambda: "complete" in status(cursor, name), "the ALTER TABLE is done")
        writer.more(50)
    capture.catch_up()
    assert {file.table for one in capture.log.since(0) for file in one.files} == {"online"}
    events = statements(capture)
    assert {(event.table, event.kind) for event in events} == {("online", "ddl")}
    (cut,) = {event.seq for event in events}
    rows: dict[int, dict[str, Any]] = {}
    for change in capture.changes("online"):
        for image in (change["before"], change["after"]):
            assert image is None or ("more" in image) == (change["token"]["seq"] > cut)
        rows.pop((change["before"] or change["after"])["id"], None)
        if change["op"] != DELETE:
            rows[change["after"]["id"]] = {"more": 7, **change["after"]}
    assert rows == server_rows(tablet, "vt_commerce", "online")  # type: ignore[arg-type]
    tablet.execute("DROP TABLE online", database="vt_commerce")


def status(cursor: Any, migration: str) -> str:
    """How far an Online DDL is."""
    cursor.execute(f"SHOW VITESS_MIGRATIONS LIKE '{migration}'")
    names = [column[0] for column in cursor.description]
    (row,) = cursor.fetchall()
    found = dict(zip(names, row, strict=True))
    assert found["migration_status"] != "failed", found["message"]
    return str(found["migration_status"])
