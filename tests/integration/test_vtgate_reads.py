"""Reading a shard through vtgate's MySQL port: the session, its floors, the dump, and the check.

What holds for a server must hold for a shard behind vtgate, where one session is many connections.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pymysql
import pytest
from busy_kit import running_statements
from deltalake import DeltaTable, QueryBuilder
from fix_dump import Dump
from fix_e2e import assert_identical

from lab.vitess import VitessCluster
from ratchet.core.dumps import DumpCommit
from ratchet.core.errors import ConfigError, RetryableError, SourceUnfitError
from ratchet.core.gtid import GtidSet
from ratchet.core.patterns import TablePatterns
from ratchet.core.position import Position
from ratchet.core.shard import ShardId
from ratchet.jobs.config.settings import SourceSection
from ratchet.jobs.preflight.vitessfitness import gather_vitess, judge_vitess
from ratchet.jobs.topology.discover import look
from ratchet.snapshot.records import DumpSettings, Progress, TableDumpRequest, Waiting
from ratchet.snapshot.throttle import Throttle, ThrottleLimits
from ratchet.store.files import Lake
from ratchet.store.tables import Tables
from ratchet.wire.session import Session, Snapshot, SourceConfig, quoted
from ratchet.wire.vitess import database_of, gateway, keyspaces, on_primary, serving_shards, tablets
from tests.fix_faker import every_type_tables
from tests.fix_vitess import TabletServer
from tests.integration.test_dump import TABLES as KEYED
from tests.integration.test_floor_positions import BUMP, WRITERS, transactions, writing_all_along
from tests.integration.test_types_oracle import compare, lake_rows, own_rows, write
from tests.integration.test_vitess_lab import VSCHEMA

log = logging.getLogger(__name__)

DATABASE = "vt_commerce"
SHARD = "commerce/0"
OTHERS = {
    "time_zone": "'+05:00'",
    "sql_mode": "'PAD_CHAR_TO_FULL_LENGTH,ANSI_QUOTES'",
    "transaction_isolation": "'READ-COMMITTED'",
}


@pytest.fixture
def tablet(vitess: VitessCluster) -> TabletServer:
    return TabletServer(vitess.tablets[1])


T = TypeVar("T")


def config(cluster: VitessCluster, shard: str = "0", kind: str = "primary") -> SourceConfig:
    return SourceConfig(
        shard=ShardId("commerce", shard),
        host="127.0.0.1",
        port=cluster.mysql_port,
        user="root",
        database=DATABASE,
        target=f"commerce:{shard}@{kind}",
        tls="disabled",
    )


def use_up_killed_connections(vitess: VitessCluster) -> None:
    """Let the vttablet find out which connections of its pool are dead: it tries each once."""
    with ExitStack() as stack:
        for _ in range(16):  # at once, so that no two get the same one
            connection = stack.enter_context(vitess.connect("commerce:0@primary"))
            for _ in range(40):
                try:
                    connection.begin()
                    connection.cursor().execute("SELECT 1")
                    break
                except pymysql.err.Error:
                    connection.rollback()


@contextmanager
def global_settings(
    vitess: VitessCluster, tablet: TabletServer, settings: dict[str, str]
) -> Iterator[None]:
    """Other global variables, also for the connections that the vttablet keeps."""

    def renew() -> None:
        for (thread,) in tablet.execute(
            "SELECT id FROM information_schema.processlist WHERE user = 'vt_app'"
        ):
            with suppress(pymysql.err.OperationalError):  # it has just ended by itself
                tablet.execute(f"KILL {thread}")
        use_up_killed_connections(vitess)

    before = {name: tablet.execute(f"SELECT @@GLOBAL.{name}")[0][0] for name in settings}
    for name, value in settings.items():
        tablet.execute(f"SET GLOBAL {name} = {value}")
    renew()
    try:
        yield
    finally:
        for name, old in before.items():
            tablet.execute(f"SET GLOBAL {name} = %s", (old,))
        renew()


def answered(work: Callable[[], T]) -> T:
    """Do it until no connection of the vttablet's pool turns out to have been killed."""
    for _ in range(40):
        try:
            return work()
        except RetryableError as error:
            last = error
    raise last


# --- what vtgate is asked --------------------------------------------------------------------


def test_what_vtgate_knows(vitess: VitessCluster) -> None:
    with gateway(config(vitess)) as query:
        assert "commerce" in keyspaces(query)
        assert serving_shards(query, "commerce") == ("0",)
        assert [(t.shard, t.kind, t.serving) for t in tablets(query, "commerce")] == [
            ("0", "PRIMARY", True)
        ]
        with pytest.raises(ConfigError) as caught:
            serving_shards(query, "comerce")
    assert "did you mean 'commerce'" in caught.value.hint
    with Session.connect(config(vitess)) as session:
        assert database_of(session.query, SHARD) == DATABASE
        assert session.query("SELECT DATABASE()") == [("commerce:0@primary",)]


def test_a_shard_that_is_not_there(vitess: VitessCluster) -> None:
    with pytest.raises(RetryableError, match="no healthy tablet"):
        Session.connect(config(vitess, "-80"))


# --- the session -----------------------------------------------------------------------------


def test_settings_reach_the_tablets_mysql(vitess: VitessCluster, tablet: TabletServer) -> None:
    """On a MySQL whose own settings would change times, strings and what a read is."""
    tablet.execute("CREATE TABLE mode (c CHAR(5), t TIMESTAMP)", database=DATABASE)
    with tablet.connect(database=DATABASE) as connection, connection.cursor() as cursor:
        cursor.execute("SET time_zone = '+00:00'")
        cursor.execute("INSERT INTO mode VALUES ('a', '2024-01-01')")

    def look(*, inside: bool) -> tuple[dict[str, str], list[tuple[Any, ...]]]:
        with (
            Session.connect(config(vitess)) as session,
            session.snapshot() if inside else nullcontext(),
        ):
            shown = dict(session.query("SHOW SESSION VARIABLES"))
            return shown, session.query('SELECT CONCAT(c, "|"), CONCAT(t) FROM mode')

    with global_settings(vitess, tablet, OTHERS):
        for inside in (False, True):
            shown, rows = answered(partial(look, inside=inside))
            assert rows == [("a|", "2024-01-01 00:00:00")]
            assert shown["time_zone"] == "+00:00"
            assert shown["sql_mode"] == ""
            assert shown["transaction_isolation"] == "REPEATABLE-READ"
            assert shown["autocommit"] == "ON"
            assert shown["information_schema_stats_expiry"] == "0"
            assert shown["character_set_results"] == "utf8mb4"
    tablet.execute("DROP TABLE mode", database=DATABASE)


def test_a_limit_that_would_cut_results_is_refused(
    vitess: VitessCluster, tablet: TabletServer
) -> None:
    """vtgate keeps SET sql_select_limit to itself, so the tablet's own would leave rows out."""
    with (
        global_settings(vitess, tablet, {"sql_select_limit": "7"}),
        pytest.raises(SourceUnfitError, match="sql_select_limit = '7'"),
    ):
        answered(lambda: Session.connect(config(vitess)))


def test_a_consistent_snapshot_is_passed_on(vitess: VitessCluster, tablet: TabletServer) -> None:
    """What is committed between START TRANSACTION and the first SELECT of a table is not seen."""
    tablet.execute("CREATE TABLE seen (n INT PRIMARY KEY)", database=DATABASE)
    with Session.connect(config(vitess)) as session:
        with session.snapshot() as snapshot:
            tablet.execute("INSERT INTO seen VALUES (1)", database=DATABASE)
            assert session.query("SELECT * FROM seen") == []
            tablet.execute("INSERT INTO seen VALUES (2)", database=DATABASE)
            assert session.query("SELECT * FROM seen") == []
        assert len(session.query("SELECT * FROM seen")) == 2
        after = session.executed().executed
    tablet.execute("DROP TABLE seen", database=DATABASE)
    assert after.minus(snapshot.floor.executed).cardinality == 2


def test_a_read_that_takes_too_long_says_why(vitess: VitessCluster) -> None:
    """vttablet ends it and vtgate hangs up; the session is not used again."""
    with Session.connect(config(vitess)) as session:
        session.execute("SET transaction_timeout = 1000")
        with pytest.raises(RetryableError) as caught, session.snapshot():
            list(session.stream_rows("SELECT SLEEP(5)"))
        assert not session.usable
    assert "olap-transaction-timeout" in caught.value.hint


@contextmanager
def counters(server: TabletServer, writers: int) -> Iterator[None]:
    """A table of counters on a tablet's MySQL, and what raises them."""
    server.execute("CREATE TABLE counters (id INT PRIMARY KEY, n BIGINT)", database=DATABASE)
    values = ", ".join(f"({w}, 0)" for w in range(writers))
    server.execute(f"INSERT INTO counters VALUES {values}", database=DATABASE)
    server.execute(BUMP, database=DATABASE)
    try:
        yield
    finally:
        server.execute("DROP PROCEDURE bump", database=DATABASE)
        server.execute("DROP TABLE counters", database=DATABASE)


def test_a_snapshot_contains_its_floor(vitess: VitessCluster, tablet: TabletServer) -> None:
    assert floors(config(vitess), tablet)[0] == 0


def floors(
    source: SourceConfig,
    writing_on: TabletServer,
    *,
    writers: int = WRITERS,
    claim: Callable[[Snapshot], Position] = lambda snapshot: snapshot.floor,
) -> tuple[int, set[str]]:
    """How many snapshots showed less than is claimed of them, and the servers they came from."""
    with counters(writing_on, writers), Session.connect(source) as session:
        found: list[tuple[Position, int, str]] = []
        with writing_all_along(
            lambda writer: writing_on.execute(f"CALL bump({writer}, 1)", database=DATABASE)
        ) as writing:
            while writing(len(found) > 50):
                with session.snapshot() as snapshot:
                    found.append((claim(snapshot), transactions(session), snapshot.floor.server))
        ((final,),) = writing_on.execute("SELECT SUM(n) FROM counters", database=DATABASE)
        ((end,),) = writing_on.execute("SELECT @@GLOBAL.gtid_executed")
    # Counted from the end, which holds all: nobody else writes meanwhile.
    before = GtidSet.parse("mysql", end).cardinality - int(final)
    less = sum(seen < claimed.seq - before for claimed, seen, _ in found)
    exact = sum(seen == claimed.seq - before for claimed, seen, _ in found)
    log.info("%s: %d transactions, %d readings, %d exact, %d LESS",
             source.target, final, len(found), exact, less)  # fmt: skip
    assert len(found) > 50
    return less, {server for _, _, server in found}


# --- the dump --------------------------------------------------------------------------------


@pytest.fixture
def through(lake: Lake, vitess: VitessCluster) -> Dump:
    """A dump of the shard through vtgate."""
    return Dump(lake, config(vitess))


def wanted(*tables: str) -> list[TableDumpRequest]:
    return [TableDumpRequest(keyspace="commerce", table=table, shards=(SHARD,)) for table in tables]


def mirrored(lake: Lake, table: str) -> pa.Table:
    state = Tables(lake).load("commerce", table)
    assert state is not None
    reader = QueryBuilder().register("t", DeltaTable(lake.delta_uri(state.path)))
    return pa.table(reader.execute("SELECT * FROM t").read_all()).drop_columns(["_token"])


@contextmanager
def tables_of(tablet: TabletServer, tables: dict[str, tuple[str, list[str]]]) -> Iterator[None]:
    """These tables (columns, rows) while the block runs."""
    with tablet.connect(database=DATABASE) as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_mode = '', time_zone = '+00:00'")
        for name, (columns, rows) in tables.items():
            cursor.execute(f"CREATE TABLE {quoted(name)} ({columns})")
            if rows:
                values = ", ".join(f"({row})" for row in rows)
                cursor.execute(f"INSERT INTO {quoted(name)} VALUES {values}")
        try:
            yield
        finally:
            for name in tables:
                cursor.execute(f"DROP TABLE {quoted(name)}")


def test_every_key_kind(through: Dump, tablet: TabletServer) -> None:
    """Few rows at a time, so that each key is written down and compared."""
    tables = {name: given for name, given in KEYED.items() if " " not in name}
    with tables_of(tablet, tables):
        through.settings = DumpSettings(chunk_rows=20)
        outcome = through.run(*wanted(*tables))
        assert outcome.failed == {}
        lake = Path(through.lake.root)
        assert assert_identical(lake, [tablet], DATABASE, list(tables), "commerce") > 600


def test_every_type(through: Dump, tablet: TabletServer) -> None:
    """Each value equals what the server's own SELECT shows."""
    tables = every_type_tables("mysql")
    try:
        for table in tables:
            next(iter(write(tablet, DATABASE, table)))  # type: ignore[arg-type]
        outcome = through.run(*wanted(*(table.name for table in tables)))
        assert outcome.failed == {}
        for table in tables:
            own = own_rows(tablet, DATABASE, table, "null")  # type: ignore[arg-type]
            names = ["id", *(column.name for column in table.columns)]
            found = lake_rows(mirrored(through.lake, table.name).select(names).columns)
            compare(table.name, table, {row[0]: row for row in found}, own)
    finally:
        for table in tables:
            tablet.execute(f"DROP TABLE IF EXISTS {quoted(table.name)}", database=DATABASE)


def test_many_rows_and_no_key(through: Dump, tablet: TabletServer) -> None:
    """More rows than vtgate gives outside of the OLAP workload, in one SELECT."""
    with tables_of(tablet, {"many": ("id BIGINT PRIMARY KEY, v VARCHAR(20)", []),
                            "keyless": ("id BIGINT, v INT", ["1, 2"])}):  # fmt: skip
        fill(tablet, "many", 200_000)
        through.settings = DumpSettings(chunk_rows=200_000, parallel=1)
        outcome = through.run(*wanted("many", "keyless"))
        assert list(outcome.failed) == ["commerce.keyless"]
        assert outcome.done == ("commerce.many",)
        assert max(chunk.chunk_rows for chunk in through.chunks()) > 90_000
        found = mirrored(through.lake, "many")
    assert sorted(found["id"].to_pylist()) == list(range(1, 200_001))


def fill(tablet: TabletServer, table: str, rows: int) -> None:
    with tablet.connect(database=DATABASE) as connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION cte_max_recursion_depth = 2000000")
        cursor.execute(
            f"INSERT INTO {table} WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s "
            f"WHERE n < {rows}) SELECT n, CONCAT('name ', n) FROM s"
        )


def test_the_throttle_asks_the_shards_own_mysql(
    vitess: VitessCluster, tablet: TabletServer
) -> None:
    """Running threads are those of the tablet's MySQL; a primary is refused as a replica."""
    with Session.connect(config(vitess)) as session:
        busy = Throttle(ThrottleLimits(threads_running=1), clock=lambda: 0.0)
        assert busy.reason(session) == "", "its own streams and what asks are nobody's load"
        with running_statements(tablet, tablet.execute, tablet.execute):
            busy = Throttle(ThrottleLimits(threads_running=1))
            assert "2 threads of others running on commerce/0" in busy.reason(session)
        lag = Throttle(ThrottleLimits(replica_lag=1))
        with pytest.raises(SourceUnfitError, match="not a replica"):
            lag.reason(session, [session])


# --- the check -------------------------------------------------------------------------------


def test_check_and_discovery(vitess: VitessCluster, tablet: TabletServer) -> None:
    """What matters is found; Vitess's own tables are not."""
    members = ",".join(f"'m{n}'" for n in range(64))
    tables: dict[str, tuple[str, list[str]]] = {
        "good": ("id INT PRIMARY KEY", []),
        "keyless": ("id INT", []),
        "large": (f"id INT PRIMARY KEY, s SET({members})", []),
        "_vt_hld_6ace8bcef73211ea87e9f875a4d24e90_20200915120410_": ("id INT", []),
    }
    source = config(vitess)
    patterns = TablePatterns(tuple(tables))
    with tables_of(tablet, tables):
        facts, behind = gather_vitess(source, patterns)
        section = SourceSection(kind="vitess", shards={}, tables=patterns, key="primary")
        found = look({"commerce": section}, {source.shard: source})
    assert {one.table for one in found} == {"good", "keyless", "large"}
    findings = {f.check: f for f in judge_vitess(facts, behind, clock_bound=0.5)}
    assert {check for check, f in findings.items() if f.status == "fail"} == {
        "key of keyless",
        "columns of large",
    }
    assert findings["vtgate"].text.startswith("24.")
    assert findings["version"].text.startswith("MySQL 9.7")
    assert "zone1-0000000001 (primary)" in findings["tablets"].text
    assert findings["gtid_mode"].text == "ON"
    assert findings["clock"].status == "ok"


def test_check_of_a_shard_that_does_not_serve(vitess: VitessCluster) -> None:
    with pytest.raises(SourceUnfitError, match="the keyspace's shards are 0"):
        gather_vitess(config(vitess, "-80"), TablePatterns())


# --- clusters of their own -------------------------------------------------------------------


@pytest.fixture
def own() -> Iterator[VitessCluster]:
    with VitessCluster() as cluster:
        cluster.add_keyspace("commerce", ["0"])
        yield cluster


@pytest.mark.long
@pytest.mark.usefixtures("vitess")
def test_replicas_that_are_not_equally_far(own: VitessCluster, lake: Lake) -> None:
    """Each read comes from one replica with that replica's floor, and none from behind a start."""
    primary = TabletServer(own.tablets[1])
    replicas = [own.add_tablet("commerce", "0", primary=False) for _ in range(2)]
    source = config(own, kind="replica")
    with gateway(source) as query:
        own.wait(
            lambda: sum(t.kind == "REPLICA" and t.serving for t in tablets(query, "commerce")) == 2,
            "two replicas serve",
        )
    less, servers = floors(source, primary, writers=2)
    assert less == 0
    assert len(servers) == 2
    with Session.connect(on_primary(source)) as ahead:
        less, _ = floors(source, primary, writers=2, claim=lambda _: ahead.executed())
        assert less > 0, "the experiment does not notice"
    primary.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v VARCHAR(20))", database=DATABASE)
    ((made,),) = primary.execute("SELECT @@GLOBAL.gtid_executed")
    for replica in replicas:
        TabletServer(replica).execute(f"SELECT WAIT_FOR_EXECUTED_GTID_SET('{made}', 60)")
    own.ctl("StopReplication", replicas[1].alias)
    fill(primary, "t", 1000)
    ((all_rows,),) = primary.execute("SELECT @@GLOBAL.gtid_executed")
    TabletServer(replicas[0]).execute(f"SELECT WAIT_FOR_EXECUTED_GTID_SET('{all_rows}', 60)")
    dump = Dump(lake, source)
    dump.settings = DumpSettings(chunk_rows=40, parallel=2)

    def catch_up(record: Progress) -> None:
        if isinstance(record, Waiting):
            own.ctl("StartReplication", replicas[1].alias)

    dump.on_record = catch_up
    assert dump.run(*wanted("t")).failed == {}
    waits = [record.reason for record in dump.records if isinstance(record, Waiting)]
    assert any("behind the position at which the dump began" in reason for reason in waits)
    assert sorted(mirrored(lake, "t")["id"].to_pylist()) == list(range(1, 1001))
    state = Tables(lake).load("commerce", "t")
    assert state is not None
    assert state.dump is not None
    assert state.dump.end is not None
    begun, ended = state.dump.start[SHARD].executed, state.dump.end[SHARD].executed
    history = DeltaTable(lake.delta_uri(state.path)).history()
    commits = [DumpCommit.from_text(commit.get("userMetadata")) for commit in history]
    read = [chunk.floor.executed for commit in commits if commit for chunk in commit.chunks]
    assert read
    assert all(floor.contains_all(begun) and ended.contains_all(floor) for floor in read)
    assert ended.contains_all(GtidSet.parse("mysql", all_rows))


@pytest.mark.long
@pytest.mark.usefixtures("vitess")
def test_shards_in_a_reshard(own: VitessCluster) -> None:
    """The new shards can be read long before they serve; vtgate lists those that serve."""
    own.add_keyspace("shop", ["0"])
    own.apply_schema("shop", "CREATE TABLE t (id BIGINT PRIMARY KEY, v INT)")
    own.query("INSERT INTO t VALUES (1, 1), (2, 2), (3, 3), (4, 4)", target="shop")
    own.apply_vschema("shop", VSCHEMA)
    halves = ("-80", "80-")
    with gateway(config(own)) as query:
        reshard = own.reshard("shop", ["0"], halves)
        assert serving_shards(query, "shop") == ("0",)
        reshard.wait_until_running()
        assert serving_shards(query, "shop") == ("0",)
        assert own.query("SELECT COUNT(*) FROM t", target="shop:-80@primary") == ((3,),)
        reshard.switch()
        own.wait(lambda: serving_shards(query, "shop") == halves, "the new shards are listed")
        reshard.reverse()
        own.wait(lambda: serving_shards(query, "shop") == ("0",), "the old shard is listed")
        reshard.switch()
        reshard.complete()
        own.wait(lambda: serving_shards(query, "shop") == halves, "the new shards are listed")
        assert {t.shard for t in tablets(query, "shop") if t.serving} == set(halves)


@pytest.mark.long
@pytest.mark.usefixtures("vitess")
def test_a_vtgate_that_drops_settings_is_refused() -> None:
    with VitessCluster(vtgate_flags=["--enable-system-settings=false"]) as cluster:
        cluster.add_keyspace("commerce", ["0"])
        with pytest.raises(SourceUnfitError, match="time_zone") as caught:
            Session.connect(config(cluster))
    assert "--enable-system-settings" in caught.value.hint


@pytest.mark.long
def test_a_chunk_of_a_million_rows(through: Dump, tablet: TabletServer) -> None:
    with tables_of(tablet, {"million": ("id BIGINT PRIMARY KEY, v VARCHAR(20)", [])}):
        fill(tablet, "million", 1_000_000)
        through.settings = DumpSettings(chunk_rows=1_000_000, parallel=1)
        assert through.run(*wanted("million")).failed == {}
        found = mirrored(through.lake, "million")
    assert pc.sum(found["id"]).as_py() == 500_000_500_000
    assert max(chunk.chunk_rows for chunk in through.chunks()) == 1_000_000
