"""The dump on real servers: what lies in the lake is what the server's own SELECT shows.

The comparison is that of the end-to-end kit, which shares no code with Ratchet.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from fix_dump import (
    SHARD,
    Dump,
    config_of,
    dump_commits,
    insert_rows,
    make_table,
    wanted,
)
from fix_e2e import assert_identical, mirror_rows

from lab.servers import Server
from ratchet.core.change import FLOOR_IDX
from ratchet.core.errors import LakeError
from ratchet.core.gtid import GtidSet
from ratchet.core.rounds import GtidRange, Round, ShardSlice
from ratchet.snapshot.dump import Dumper
from ratchet.snapshot.reader import ChunkRequest, ChunkResult, read_chunk
from ratchet.snapshot.records import (
    ChunkDone,
    DumpSettings,
    Progress,
    ShardSource,
    TableDone,
    TableDumpRequest,
    Waiting,
)
from ratchet.snapshot.sessions import open_session
from ratchet.snapshot.start import start_round
from ratchet.snapshot.tasks import near_reader, spark_reader
from ratchet.store.files import Lake
from ratchet.store.rounds import RoundLog
from ratchet.store.tables import Tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES = {
    "four": (
        "a INT, b VARCHAR(9), c DATE, d DECIMAL(30,10), v BLOB, PRIMARY KEY (a, b, c, d)",
        [
            f"{a}, '{b}', '2020-01-0{c}', {d}, x'00ff'"
            for a in (-1, 0, 7)
            for b in ("", "a", "B ", "á1", "z")
            for c in (1, 2, 3)
            for d in ("-1.5", "0", "99999999999999999999.0000000001")
        ],
    ),
    "hostile": (
        "k VARCHAR(20) CHARSET utf8mb4 COLLATE utf8mb4_general_ci PRIMARY KEY, v DOUBLE",
        [f"'{w}', 0.1" for w in ("a", "A1", "á2", "b ", "", "%", "_", "ß", "日", "😀", "\\\\")],
    ),
    "unsigned": (
        "k BIGINT UNSIGNED PRIMARY KEY, v INT",
        [f"{n}, 1" for n in (0, 1, *range(2**63 - 5, 2**63 + 5), 2**64 - 1)],
    ),
    "gaps": (
        "k BIGINT PRIMARY KEY, v INT",
        [f"{n}, NULL" for n in (-(2**63), *range(-20, 20), 2**40, 2**63 - 1)],
    ),
    "enum": (
        "k ENUM('z','b','a'), j DATETIME(3), v CHAR(3), PRIMARY KEY (k, j)",
        [f"'{m}', '2020-01-01 00:00:{n:02}.5', 'x'" for m in ("z", "b", "a") for n in range(20)],
    ),
    "latin": (
        "k CHAR(9) CHARSET latin1 COLLATE latin1_german1_ci PRIMARY KEY, v TEXT",
        [f"'{w}{n}', 'ü'" for w in ("b", "ö", "Z", "ß") for n in range(9)],
    ),
    "bits": ("k BIT(64) PRIMARY KEY, v YEAR", [f"{n}, 1999" for n in (*range(20), 2**64 - 1)]),
    "bytes": ("k BINARY(4) PRIMARY KEY, v TIME(6)", [f"x'{n:02x}00', '-1:00'" for n in range(50)]),
    "times": ("k TIME(2) PRIMARY KEY, v FLOAT", [f"'-{n}:00:00.25', {n}.1" for n in range(50)]),
    "stamps": (
        "k TIMESTAMP(6) PRIMARY KEY, v INT",
        [f"'2020-10-25 0{h}:30:00.00000{n}', 1" for h in range(5) for n in range(9)],
    ),
    "prefix": ("k TEXT, v INT, PRIMARY KEY (k(6))", [f"'{n:03}xxx', {n}" for n in range(30)]),
    "other_key": ("j INT, k VARCHAR(20) NOT NULL UNIQUE", [f"1, 'x{n}'" for n in range(30)]),
    "falling": (
        "k INT, j INT, PRIMARY KEY (k DESC, j)",
        [f"{n}, {m}" for n in range(9) for m in range(9)],
    ),
    "odd `name`": ("`a ``b``, c` INT PRIMARY KEY, `%s` INT", [f"{n}, {n}" for n in range(30)]),
    "empty": ("k INT PRIMARY KEY", []),
    "one": ("k INT PRIMARY KEY, v JSON", ["1, '[1, 2]'"]),
}


def test_every_key_kind_is_dumped_whole(dump: Dump, server: Server, database: str) -> None:
    """Tables with all kinds of keys, read seven rows at a time, equal the server's own SELECT."""
    for name, (columns, rows) in TABLES.items():
        quoted = name.replace("`", "``")
        server.execute(f"CREATE TABLE `{quoted}` ({columns})", database=database)
        if rows:
            values = ", ".join(f"({row})" for row in rows)
            server.execute(f"INSERT INTO `{quoted}` VALUES {values}", database=database)
    dump.settings = DumpSettings(chunk_rows=7)
    outcome = dump.run(*(wanted(name) for name in TABLES))
    assert outcome.failed == {}
    assert set(outcome.done) == {f"shop.{name}" for name in TABLES}
    plain = [name for name in TABLES if " " not in name]
    assert assert_identical(Path(dump.lake.root), [server], database, plain) > 600
    state = Tables(dump.lake).load("shop", "odd `name`")
    assert state is not None
    odd = QueryBuilder().register("t", DeltaTable(dump.lake.delta_uri(state.path)))
    found = pa.table(odd.execute("SELECT * FROM t").read_all())
    assert sorted(found["a `b`, c"].to_pylist()) == list(range(30))
    assert len([c for c in dump.chunks() if c.table == "shop.four"]) > 15


def test_tokens_and_books(dump: Dump, server: Server, database: str) -> None:
    """Rows carry their chunk's token, commits the floors, and the state start and end."""
    make_table(server, database)
    insert_rows(server, database, range(2000, 2010))
    dump.run(wanted())
    state = Tables(dump.lake).load("shop", "t")
    assert state is not None
    assert state.dump is not None
    assert state.dump.end is not None
    assert (state.phase, state.dump.done, state.key) == ("catching_up", True, ("id",))
    start, end = state.dump.start[SHARD], state.dump.end[SHARD]
    commits = dump_commits(dump.lake)
    floors = {c.number: c for commit in commits for c in commit.chunks}
    assert commits[0].rows == 1010
    assert all(not ranges for ranges in commits[0].todo.values())
    reader = QueryBuilder().register("t", DeltaTable(f"{dump.lake.root}/shop/t"))
    sql = "SELECT _token['idx'] i, _token['seq'] s, _token['shard'] h, COUNT(*) n, COUNT(DISTINCT id) d, COUNT(_token['gtid']) g FROM t GROUP BY 1, 2, 3"  # noqa: E501
    rows = pa.table(reader.execute(sql).read_all()).to_pylist()
    assert sum(row["d"] for row in rows) == 1010
    for row in rows:
        chunk = floors[row["i"] - FLOOR_IDX]
        assert (row["s"], row["h"], row["g"]) == (chunk.floor.seq, SHARD, 0)
        assert row["n"] == chunk.rows
        assert chunk.floor.executed.contains_all(start.executed)
        assert end.executed.contains_all(chunk.floor.executed)


def test_two_shards_into_one_table(
    lake: Lake, mariadb: Server, mysql: Server, database: str
) -> None:
    """A MariaDB and a MySQL hold a part each; the lake has both, each row with its shard."""
    make_table(mariadb, database)
    mysql.execute(
        "CREATE TABLE t (at TIMESTAMP(6) NULL, name VARCHAR(40) CHARSET latin1, id INT UNSIGNED"
        " PRIMARY KEY, amount DECIMAL(18,2))",
        database=database,
    )
    mysql.execute(
        "INSERT INTO t VALUES (NULL, 'other', 1, 0.5), (NULL, 'o', 3, 1)", database=database
    )
    shards = {
        f"shop/{name}": ShardSource(
            config=config_of(server, database, f"shop/{name}"), generation=g
        )
        for name, server, g in (("-80", mariadb, 1), ("80-", mysql, 2))
    }
    dumper = Dumper(lake, shards, read_chunk, settings=DumpSettings(chunk_rows=100))
    wanted = TableDumpRequest(keyspace="shop", table="t", shards=tuple(shards), shard_in_key=True)
    assert dumper.run([wanted]).done == ("shop.t",)
    assert_identical(Path(lake.root), [mariadb, mysql], database, ["t"])
    reader = QueryBuilder().register("t", DeltaTable(f"{lake.root}/shop/t"))
    sql = "SELECT _token['shard'] s, _token['generation'] g, COUNT(*) n FROM t GROUP BY 1, 2"
    rows = pa.table(reader.execute(sql).read_all()).to_pylist()
    assert {tuple(r.values()) for r in rows} == {("shop/-80", 1, 1000), ("shop/80-", 2, 2)}


def test_shards_that_differ_stop_the_table(
    lake: Lake, mariadb: Server, mysql: Server, database: str
) -> None:
    """A column that one shard lacks stops the table, by name; nothing of it is in the lake."""
    make_table(mariadb, database, 1)
    mysql.execute("CREATE TABLE t (id INT UNSIGNED PRIMARY KEY)", database=database)
    shards = {
        f"shop/{name}": ShardSource(config=config_of(server, database, f"shop/{name}"))
        for name, server in (("-80", mariadb), ("80-", mysql))
    }
    wanted = TableDumpRequest(keyspace="shop", table="t", shards=tuple(shards))
    (error,) = Dumper(lake, shards, read_chunk).run([wanted]).failed.values()
    assert "amount, at, name" in error.message
    assert not lake.exists("shop/t")


def test_locked_tables_of_one_source_hold_up_no_other(
    lake: Lake, server: Server, database: str
) -> None:
    """Each of them holds a thread for as long as the session waits, again and again.

    The other source's table gets one all the same, and the next one that is free is for the table
    that comes while they wait.
    """
    for table in ("a", "b", "c", "t", "u"):
        make_table(server, database, 5, table)
    bad, good = (
        ShardSource(config=config_of(server, database, f"{keyspace}/-"))
        for keyspace in ("bad", "good")
    )
    locked = [TableDumpRequest(keyspace="bad", table=t, shards=("bad/-",)) for t in "abc"]
    free, late = (
        TableDumpRequest(keyspace="good", table=t, shards=("good/-",)) for t in ("t", "u")
    )
    records: list[Progress] = []
    holder = server.connect(database=database)

    def on_progress(record: Progress) -> None:
        records.append(record)
        if isinstance(record, TableDone) and record.table == "good.u":
            holder.close()  # and its locks end

    dumper = Dumper(
        lake,
        {"bad/-": bad, "good/-": good},
        read_chunk,
        settings=DumpSettings(parallel=2),
        on_progress=on_progress,
    )

    def more() -> list[TableDumpRequest]:
        done = {record.table for record in records if isinstance(record, TableDone)}
        coming = [late] if "good.t" in done and late not in asked else []
        asked.extend(coming)
        return coming

    asked: list[TableDumpRequest] = []
    with holder.cursor() as cursor:
        cursor.execute("LOCK TABLES a WRITE, b WRITE, c WRITE")
    outcome = dumper.run([*locked, free], more=more)
    assert set(outcome.done) == {"bad.a", "bad.b", "bad.c", "good.t", "good.u"}
    done = [record for record in records if isinstance(record, TableDone | Waiting)]
    assert isinstance(done[0], TableDone)  # before any wait was over
    assert done[0].table == "good.t"
    tables = [record.table for record in done if isinstance(record, TableDone)]
    assert tables[:2] == ["good.t", "good.u"]
    assert len(done) - len(tables) <= 2  # one wait of each thread at most


def test_a_table_that_comes_when_all_others_are_dumped(
    lake: Lake, server: Server, database: str
) -> None:
    """And is made when all others were known: what the servers have is asked again."""
    make_table(server, database, 5, "t")
    coming = [wanted("u")]

    def more() -> list[TableDumpRequest]:
        # The threads have gone by then: one dumps five rows in far less than the time to look.
        if not coming or not any(isinstance(record, TableDone) for record in records):
            return []
        make_table(server, database, 5, "u")
        return [coming.pop()]

    records: list[Progress] = []
    shards = {SHARD: ShardSource(config=config_of(server, database))}
    dumper = Dumper(lake, shards, read_chunk, on_progress=records.append)
    assert dumper.run([wanted("t")], more=more).done == ("shop.t", "shop.u")

    def lost() -> list[TableDumpRequest]:
        raise LakeError("the lease is lost")

    with pytest.raises(LakeError):
        dumper.run([wanted("t", again=True)], more=lost)


def test_again_leaves_the_history(dump: Dump, server: Server, database: str) -> None:
    """Dumped again, a table holds the new rows and columns once, and its old version stays."""
    make_table(server, database)
    dump.run(wanted())
    before = DeltaTable(f"{dump.lake.root}/shop/t").version()
    server.execute("DELETE FROM t WHERE id < 600", database=database)
    server.execute("ALTER TABLE t ADD COLUMN extra DATETIME, DROP COLUMN name", database=database)
    dump.run(wanted(again=True))
    assert_identical(Path(dump.lake.root), [server], database, ["t"])
    old = DeltaTable(f"{dump.lake.root}/shop/t", version=before)
    found = QueryBuilder().register("t", old).execute("SELECT name FROM t").read_all()
    assert pa.table(found).num_rows == 1000
    assert len({commit.dump for commit in dump_commits(dump.lake)}) == 2


def test_written_while_dumped(dump: Dump, server: Server, database: str) -> None:
    """Rows that nobody touches are there once, whatever is deleted and inserted around them."""
    make_table(server, database)
    dump.settings = DumpSettings(chunk_rows=40, parallel=2)
    step = iter(range(10_000))

    def write(record: Progress) -> None:
        if isinstance(record, ChunkDone):
            n = next(step)
            for sql in (
                f"DELETE FROM t WHERE id % 4 = 1 AND id DIV 400 = {n % 8}",
                f"INSERT IGNORE INTO t VALUES ({n * 97 % 3000 // 3 * 3 + 1}, 'new', 1, NULL)",
            ):
                server.execute(sql, database=database)

    dump.on_record = write
    dump.run(wanted())
    found = [row["id"] for row in mirror_rows(Path(dump.lake.root), "shop", "t")]
    untouched = [n * 3 for n in range(1000) if n * 3 % 4 != 1]
    assert len(found) == len(set(found))
    assert set(untouched) <= set(found)
    assert next(step) >= 15
    state = Tables(dump.lake).load("shop", "t")
    assert state is not None
    assert state.dump is not None
    assert state.dump.end is not None
    ends = state.dump.end[SHARD].executed
    floors = [c.floor.executed for commit in dump_commits(dump.lake) for c in commit.chunks]
    assert len({str(floor) for floor in floors}) > 1
    assert all(ends.contains_all(floor) for floor in floors)


def test_first_round_that_chunks_may_lack(lake: Lake, server: Server, database: str) -> None:
    """Rounds inside the start position are not needed again; the first one outside is."""
    with open_session(config_of(server, database)) as session:
        server.execute("CREATE TABLE t (id INT PRIMARY KEY)", database=database)
        early = session.executed()
        for n in range(3):
            server.execute(f"INSERT INTO t VALUES ({n})", database=database)
        late = session.executed()
    assert start_round(lake, {SHARD: late}) == 1
    log = RoundLog(lake)
    for number, (shard, end) in enumerate(
        [(SHARD, early), ("shop/x", early), (SHARD, late), ("shop/x", late)], start=1
    ):
        piece = ShardSlice(
            shard=shard,
            generation=0,
            start=early,
            end=end,
            runs=(GtidRange("0", 1, 2, 1),),
            transactions=1,
            rows=1,
            bytes=1,
            min_ts=None,
            max_ts=None,
            observed_at=0,
            caught_up=True,
        )
        log.append(Round(number=number, committed_at=0, slices=(piece,), files=(), events=()))
    assert start_round(lake, {SHARD: late}) == 5
    assert start_round(lake, {SHARD: early}) == 3
    assert start_round(lake, {SHARD: late, "shop/x": early}) == 4
    assert start_round(lake, {SHARD: replace(early, executed=GtidSet.empty(early.flavor))}) == 1


@pytest.mark.quick_on("mysql")
def test_in_spark_tasks(dump: Dump, server: Server, database: str, spark: SparkSession) -> None:
    """Read in Spark tasks the dump is the same; Spark finds each row by its key, and only there."""
    server.execute(
        "CREATE TABLE t (d DECIMAL(20,4), s VARCHAR(60), at DATETIME(6), v INT,"
        " PRIMARY KEY (d, s, at))",
        database=database,
    )
    rows = [
        (f"{n}.1234", f"{'é' * 40}{n % 3}" if n % 2 else f"k{n}", f"2024-01-01 00:00:00.{n:06}")
        for n in range(0, 3000, 10)
    ]
    values = ", ".join(f"({d}, '{s}', '{at}', 1)" for d, s, at in rows)
    server.execute(f"INSERT INTO t VALUES {values}", database=database)
    server.execute("CREATE TABLE none (v INT)", database=database)
    dump.read = spark_reader(spark)
    outcome = dump.run(wanted(), wanted("none"))
    assert outcome.done == ("shop.t",)
    assert_identical(Path(dump.lake.root), [server], database, ["t"])
    table = spark.read.format("delta").load(f"{dump.lake.root}/shop/t")
    assert table.count() == 300
    for d, s, at in rows[::60]:
        for condition in (f"d = {d}", f"s = '{s}' AND d = {d}", f"at = TIMESTAMP_NTZ'{at}'"):
            assert table.where(condition).count() == 1, condition
    assert table.where("s > 'k' AND s < 'l'").count() == sum(s < "l" for _, s, _ in rows)


def test_the_beginning_of_a_table_is_read_here(dump: Dump, server: Server, database: str) -> None:
    """A small table without a task at all; of a larger one 10,000 rows, or some 4 MiB of them."""
    # The server's estimate of a row is the one that is waited for below: it is not made again.
    columns = "(id INT AUTO_INCREMENT PRIMARY KEY, v INT, s MEDIUMTEXT) STATS_AUTO_RECALC=0"
    for name in ("t", "small", "wide"):
        server.execute(f"CREATE TABLE {name} {columns}", database=database)
    server.execute("INSERT INTO small (v) VALUES (1), (2)", database=database)
    for name, times, text in (("t", 14, "''"), ("wide", 5, "REPEAT('x', 1000000)")):
        server.execute(f"INSERT INTO {name} (v, s) VALUES (1, {text})", database=database)
        for _ in range(times):
            doubled = f"INSERT INTO {name} (v, s) SELECT v, s FROM {name}"
            server.execute(doubled, database=database)
    length, until = 0, time.monotonic() + 30
    while length < 500_000:
        assert time.monotonic() < until
        server.execute("ANALYZE TABLE wide", database=database)
        ((length,),) = server.execute(
            "SELECT avg_row_length FROM information_schema.tables "
            "WHERE table_schema = %s AND table_name = 'wide'",
            [database],
        )
    far: list[ChunkRequest] = []

    def read(request: ChunkRequest) -> ChunkResult:
        far.append(request)
        return read_chunk(request)

    dump.read, dump.settings = near_reader(read), DumpSettings()
    outcome = dump.run(*(wanted(name) for name in ("t", "small", "wide")))
    assert (outcome.failed, len(outcome.done)) == ({}, 3)
    assert_identical(Path(dump.lake.root), [server], database, ["t", "small", "wide"])
    assert {request.schema.name for request in far} == {"shop.t", "shop.wide"}
    first = {c.table: c for c in sorted(dump.chunks(), key=lambda c: -c.number)}
    assert first["shop.t"].chunk_rows == 10_000
    assert 2 <= first["shop.wide"].chunk_rows <= 12


def test_errors_come_back_from_spark_tasks(
    dump: Dump, server: Server, database: str, spark: SparkSession
) -> None:
    """An error in a task arrives as the same error, not as a Java trace."""
    make_table(server, database, 10)
    read = spark_reader(spark)

    def wrong(request: ChunkRequest) -> ChunkResult:
        return read(replace(request, config=replace(request.config, password="no", user="ghost")))

    dump.read = wrong
    with pytest.raises(Exception, match="login refused") as error:
        dump.run(wanted())
    assert type(error.value).__name__ == "SourceUnfitError"
    assert "GRANT" in getattr(error.value, "hint", "")


def test_without_gtids(lake: Lake, make_server: Callable[..., Server]) -> None:
    """By file and position, too, every floor lies between the dump's start and its end."""
    server = make_server("mysql", gtid=False)
    server.execute("CREATE DATABASE d")
    make_table(server, "d")
    dump = Dump(lake, config_of(server, "d"))
    dump.on_record = lambda _: server.execute("UPDATE t SET amount = amount + 1", database="d")
    dump.run(wanted())
    state = Tables(lake).load("shop", "t")
    assert state is not None
    assert state.dump is not None
    assert state.dump.end is not None
    start, end = state.dump.start[SHARD].executed, state.dump.end[SHARD].executed
    assert (start.flavor, end.contains_all(start), start == end) == ("file", True, False)
    for chunk in (chunk for commit in dump_commits(lake) for chunk in commit.chunks):
        assert chunk.floor.executed.contains_all(start)
        assert end.contains_all(chunk.floor.executed)
    assert {row["id"] for row in mirror_rows(Path(lake.root), "shop", "t")} == set(
        range(0, 3000, 3)
    )
