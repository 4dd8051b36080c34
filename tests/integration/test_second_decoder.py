"""The change log beside the server's log as mysql-replication reads it, on both servers.

What is right compares equal, whatever the log's form; what is planted in the lake's change files is
found, each time.
"""

from __future__ import annotations

import json
import random
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from fix_servers import purge_binlogs
from mirror_kit import Mirror

from lab.servers import RATCHET_PASSWORD, RATCHET_USER, Server
from ratchet.core.position import Position
from ratchet.core.rounds import ChangeFile
from ratchet.core.schema import TableSchema
from ratchet.core.types import InvalidValuePolicy
from ratchet.ingest.logcheck import LogResult
from ratchet.ingest.logstretch import Stretch, StretchBounds, check_stretch, stretches
from ratchet.jobs.config.config import load_config
from ratchet.jobs.inspect.reading import reading_of
from ratchet.jobs.reporting.observe import StopReporter
from ratchet.jobs.watch.logsample import LOOK_EVERY, LogSamples
from ratchet.jobs.watch.verdicts import Verdicts
from ratchet.store.dumpstates import DumpState
from ratchet.store.logchecks import LogChecks
from ratchet.store.rounds import RoundLog
from ratchet.store.tables import Tables, TableState
from tests.capture_kit import Capturer, run, source_of, started
from tests.fix_faker import SQL_MODE, every_type_tables
from tests.forked import completed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

flavors = pytest.mark.parametrize("flavor", ["mariadb", "mysql"])
MakeServer = Callable[..., Server]
COMPRESSED = {
    "mariadb": {"log-bin-compress": "ON", "log-bin-compress-min-len": "10"},
    "mysql": {"binlog-transaction-compression": "ON"},
}


def checked(
    capture: Capturer,
    *,
    policy: InvalidValuePolicy | None = None,
    bounds: StretchBounds | None = None,
) -> LogResult:
    """All rounds that were captured, compared."""
    (stretch,) = stretches(capture.log.since(0), str(capture.source.shard))
    result, read = check_stretch(
        capture.lake, capture.source, stretch, policy=policy or InvalidValuePolicy(), bounds=bounds
    )
    assert read
    return result


def captured(capture: Capturer) -> int:
    """Row changes in the lake."""
    return sum(file.rows for one in capture.log.since(0) for file in one.files)


def elsewhere(position: Position) -> Position:
    """The same one, by another server."""
    return replace(position, server="another", file="other.000001", offset=4)


def assert_equal(capture: Capturer, **more: Any) -> LogResult:
    result = checked(capture, **more)
    told = "\n".join(str(one) for one in result.examples[:20])
    assert not result.differences, f"{result.differences} differences:\n{told}"
    return result


# --- what is right --------------------------------------------------------------------------------


def write_all(server: Server, database: str) -> None:
    """Every type's edge values, inserted, updated and deleted."""
    with server.connect(database=database) as connection, connection.cursor() as cursor:
        cursor.execute(f"SET time_zone = '+00:00', sql_mode = '{SQL_MODE}'")
        for table in every_type_tables(server.flavor):
            rng = random.Random(20_240_229)
            rows = table.rows(rng, 10)
            cursor.execute(table.create_sql)
            for first in range(0, len(rows), 7):
                cursor.execute(table.insert_sql(first, rows[first : first + 7]))
            rng.shuffle(rows)
            for number, row in enumerate(rows):
                cursor.execute(table.update_sql(number, row))
            cursor.execute(f"DELETE FROM `{table.name}`")


# Of which charsets values beside plain ASCII are not compared, of swe7 none.
ODD_CHARSETS = {
    "armscii8", "big5", "cp1256", "cp866", "cp932", "dec8", "eucjpms", "gb18030", "geostd8",
    "greek", "hebrew", "keybcs2", "koi8u", "sjis", "swe7", "tis620", "ujis",
}  # fmt: skip


@flavors
def test_every_type(make_server: MakeServer, flavor: str, tmp_path: Path) -> None:
    server = started(make_server, flavor)
    policies = [InvalidValuePolicy(), InvalidValuePolicy(zero_dates="text")]
    source = source_of(server, "d", triggers=True)
    captures = [
        Capturer(source, tmp_path / policy.zero_dates, policy=policy) for policy in policies
    ]
    write_all(server, "d")
    for capture, policy in zip(captures, policies, strict=True):
        capture.catch_up()
        result = assert_equal(capture, policy=policy)
        assert result.rows == captured(capture)
        assert result.values > 70_000
        left = dict(result.not_compared)
        if policy.zero_dates == "text":
            # Of such a date and time mysql-replication only says that it is none.
            left = {what: n for what, n in left.items() if "values of datetime" not in what}
        odd = [w for w in left if not any(f" in {c} that" in w for c in ODD_CHARSETS)]
        assert not odd
        # JSON, VECTOR, UUID, INET, COMPRESSED: none of these is left out.
        assert not any(what.startswith("own") for what in left)
    if flavor == "mysql":
        run(server, "SET gtid_next = 'AUTOMATIC:mark'", "INSERT INTO t (v) VALUES ('tagged')")
        captures[0].catch_up()
        tagged = assert_equal(captures[0])
        assert tagged.rows == captured(captures[0])
        assert tagged.not_compared["names of transactions (tagged GTIDs)"] == 1


@flavors
def test_compressed_and_in_all_forms(make_server: MakeServer, flavor: str, tmp_path: Path) -> None:
    server = started(make_server, flavor, options=COMPRESSED[flavor])
    capture = Capturer(source_of(server, "d", triggers=True), tmp_path)
    run(server, "CREATE TABLE m (id INT PRIMARY KEY, v TEXT) ENGINE = MyISAM",
        "CREATE TABLE p (id INT PRIMARY KEY, v TEXT) PARTITION BY HASH (id) PARTITIONS 3",
        "CREATE TABLE big (id INT PRIMARY KEY, v LONGTEXT)", "CREATE DATABASE other",
        "CREATE TABLE other.t (id INT)")  # fmt: skip
    label = "l" * 200
    run(server, f"CREATE TABLE n (id INT PRIMARY KEY, `{'日' * 64}` INT, e ENUM('a', '{label}'),"
        f" s SET('{label}', 'b'), z INT)", f"INSERT INTO n VALUES (1, 2, '{label}', 'b', 3)",
        f"UPDATE n SET e = 'a', s = '{label},b'")  # fmt: skip
    many = ", ".join(f"('v{n}', {n})" for n in range(5000))
    run(server, "BEGIN", f"INSERT INTO t (v, n) VALUES {many}", "UPDATE t SET n = n + 1",
        "DELETE FROM t WHERE n % 2", "COMMIT")  # fmt: skip
    run(server, "INSERT INTO m VALUES (1, 'a'), (2, 'b')", "REPLACE INTO m VALUES (1, 'c')",
        "INSERT INTO p VALUES (1, 'a'), (2, 'b'), (3, 'c')", "UPDATE p SET id = id + 10",
        "INSERT INTO other.t VALUES (1)", "CREATE TABLE made AS SELECT * FROM t LIMIT 7",
        "INSERT INTO big VALUES (1, REPEAT('ab', 4500000))",
        "UPDATE big SET v = CONCAT(v, 'x')", "DELETE FROM big",
        "XA START 'x'", "INSERT INTO t (v) VALUES ('xa')", "XA END 'x'",
        "XA COMMIT 'x' ONE PHASE",
        "XA START 'y'", "INSERT INTO t (v) VALUES ('later')", "XA END 'y'",
        "XA PREPARE 'y'", "XA COMMIT 'y'")  # fmt: skip
    capture.catch_up()
    run(server, "BEGIN", "INSERT INTO t (v) VALUES ('gone')", "ROLLBACK", "BEGIN",
        "INSERT INTO t (v) VALUES ('a')", "SAVEPOINT s", "INSERT INTO t (v) VALUES ('b')",
        "RELEASE SAVEPOINT s", "COMMIT", "INSERT INTO m VALUES (7, 'm')",
        "FLUSH BINARY LOGS", "ALTER TABLE t ADD x INT", "UPDATE t SET x = 1 LIMIT 3",
        "TRUNCATE TABLE m", "DROP TABLE made")  # fmt: skip
    server.restart()
    run(server, "INSERT INTO t (v) VALUES ('new life')", "INSERT INTO p VALUES (1, NULL)")
    capture.catch_up()
    result = assert_equal(capture)
    assert result.rows == captured(capture) > 12_000
    assert not result.not_compared
    # By GTIDs, as where the server is another one by now.
    moved = [
        replace(part, slice=replace(part.slice, start=elsewhere(part.slice.start)))
        for part in stretches(capture.log.since(0), "shop/-")[0].parts
    ]
    by_gtid, _ = check_stretch(
        capture.lake, capture.source, Stretch(moved), policy=InvalidValuePolicy()
    )
    assert (by_gtid.rows, by_gtid.differences) == (result.rows, 0)
    # As a sample takes it: from somewhere on, and not too much.
    (stretch,) = stretches(capture.log.since(0), "shop/-")
    after = stretch.parts[-1].slice.start.seq
    some = assert_equal(capture, bounds=StretchBounds(after=after, rows=2, largest=1 << 20))
    assert 2 <= some.rows < 9


def test_a_table_that_is_dropped_and_no_longer_mirrored_is_left_out(
    make_server: MakeServer, tmp_path: Path
) -> None:
    """Its captured rows were taken for a difference, which stopped all tables of the shard."""
    server = started(make_server, "mariadb")
    capture = Capturer(source_of(server, "d"), tmp_path)
    run(server, "CREATE TABLE gone (id INT PRIMARY KEY)", "INSERT INTO gone VALUES (1), (2)",
        "INSERT INTO t (v) VALUES ('a')")  # fmt: skip
    capture.catch_up()
    run(server, "INSERT INTO gone VALUES (3)", "INSERT INTO t (v) VALUES ('b')")
    capture.catch_up()
    (stretch,) = stretches(capture.log.since(0), str(capture.source.shard))
    result, _ = check_stretch(
        capture.lake,
        capture.source,
        stretch,
        policy=InvalidValuePolicy(),
        since={"t": 1},
        wants=lambda table: table == "t",
    )
    assert (result.rows, result.differences) == (2, 0)
    assert captured(capture) == 5


@flavors
def test_without_checksums_or_gtids_and_elsewhere(
    make_server: MakeServer, flavor: str, tmp_path: Path
) -> None:
    more = {"gtid": False} if flavor == "mysql" else {}
    server = started(make_server, flavor, options={"binlog-checksum": "NONE"}, tls=True, **more)
    assert server.tls is not None
    source = source_of(server, "d", tls="verify_identity", tls_ca=str(server.tls.ca))
    server.execute(f"ALTER USER '{RATCHET_USER}'@'%' REQUIRE SSL")
    capture = Capturer(source, tmp_path)
    run(server, "CREATE TABLE e (id INT PRIMARY KEY, v ENUM('a', 'b'))",
        "INSERT INTO e VALUES (1, 'a')", "INSERT INTO t (v) VALUES ('a')")  # fmt: skip
    server.execute("SET GLOBAL binlog_checksum = 'CRC32'")
    run(server, "UPDATE t SET v = 'b'", "UPDATE e SET v = 'b'", "DROP TABLE e")
    capture.catch_up()
    assert assert_equal(capture).rows == captured(capture) == 4
    server.execute("SET GLOBAL binlog_checksum = 'NONE'")
    run(server, "DELETE FROM t")
    capture.catch_up()
    assert assert_equal(capture).rows == captured(capture) == 5
    run(server, "INSERT INTO t (v) VALUES ('a')")
    server.restart()  # what a server says of that in its log is short
    run(server, "INSERT INTO t (v) VALUES ('b')")
    capture.catch_up()
    assert assert_equal(capture).rows == captured(capture) == 7


# --- what is planted ------------------------------------------------------------------------------


def change_files(capture: Capturer) -> list[ChangeFile]:
    return [file for one in capture.log.since(0) for file in one.files]


def other(value: Any) -> Any:
    """Another value of the same type."""
    if value is None:
        return None
    made: dict[type, Callable[[Any], Any]] = {
        bool: lambda v: not v,
        int: lambda v: v + 1 if v < 100 else v - 1,
        float: lambda v: v + 0.5,
        Decimal: lambda v: v + Decimal((0, (1,), v.as_tuple().exponent)),
        str: lambda v: v + "!" if not v.startswith("{") else '{"a": 2}',
        bytes: lambda v: v + b"\0",
        date: lambda v: v + timedelta(days=1),
        datetime: lambda v: v + timedelta(microseconds=1000),
    }
    return made[type(value)](value)


def damages(rows: list[dict[str, Any]], schema: pa.Schema) -> Iterator[tuple[str, list[Any]]]:
    """Each value of each image changed and set to NULL, each row left out, doubled, exchanged."""
    for at, row in enumerate(rows):
        yield f"row {at} is missing", [*rows[:at], *rows[at + 1 :]]
        yield f"row {at} stands twice", [*rows[:at], row, *rows[at:]]
        if at:
            swapped = [*rows[: at - 1], row, rows[at - 1], *rows[at + 1 :]]
            yield f"rows {at - 1} and {at} are exchanged", swapped
        for name, value in (("gtid", "1-2-3"), ("shard", "shop/x"), ("generation", 7),
                            ("seq", row["token"]["seq"] + 1), ("idx", row["token"]["idx"] + 1),
                            ("seq", 1)):  # fmt: skip
            token = {**row["token"], name: value}
            yield f"row {at} has another {name}", [*rows[:at], {**row, "token": token}, *rows[at + 1:]]  # fmt: skip # noqa: E501
        if row["op"] != 2:
            yield f"row {at} has another op", [*rows[:at], {**row, "op": 4 - row["op"]}, *rows[at + 1:]]  # fmt: skip # noqa: E501
        for image in ("before", "after"):
            if row[image] is None:
                continue
            yield f"row {at} has no {image}", [*rows[:at], {**row, image: None}, *rows[at + 1:]]  # fmt: skip # noqa: E501
            for field in schema.field(image).type:
                value = row[image][field.name]
                changes = [other(value), None] if value is not None else _of(field.type)
                for change in changes:
                    damaged = {**row, image: {**row[image], field.name: change}}
                    what = f"row {at}, {image}, {field.name}: {value!r} became {change!r}"
                    yield what, [*rows[:at], damaged, *rows[at + 1 :]]


def _of(kind: pa.DataType) -> list[Any]:
    """A value in place of a NULL."""
    if pa.types.is_string(kind):
        return ["x"]
    return [0] if pa.types.is_integer(kind) else []


SHAPE = (
    "id INT PRIMARY KEY, big BIGINT UNSIGNED, d DECIMAL(10,3), f FLOAT, dbl DOUBLE, b BIT(9), "
    "y YEAR, da DATE, dt DATETIME(3), ts TIMESTAMP(6) NULL, tm TIME(2), c CHAR(9), v VARCHAR(30), "
    "x BINARY(5), bl BLOB, e ENUM('a','b','c'), s SET('a','b','c'), j JSON, g POINT, n INT"
)
FULL = (
    "(1, 18446744073709551615, -1.5, 1.5, -2.25, b'101', 2024, '2024-02-29', "
    "'2024-01-01 10:00:00.123', '2024-01-01 10:00:00.123456', '-10:00:00.5', 'chär', 'vär', "
    "'ab', x'00ff', 'b', 'a,c', '{\"a\": 1}', ST_GeomFromText('POINT(1 2)'), NULL)"
)
EMPTY = (
    "(2, 0, 0, 0, 0, b'0', 1999, '1999-01-01', '1999-01-01', '1999-01-01', '00:00:00', '', '', "
    "'', '', 'a', '', '[]', NULL, 5)"
)
WORK = (
    f"CREATE TABLE w ({SHAPE})",
    f"INSERT INTO w VALUES {FULL}, {EMPTY}",
    "UPDATE w SET n = 7, v = 'w' WHERE id = 1",
    "DELETE FROM w WHERE id = 2",
)


@flavors
def test_what_is_planted_is_found(
    make_server: MakeServer, flavor: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "ratchet.ingest.segment.LARGEST", 0
    )  # files of their own can be written anew
    server = started(make_server, flavor)
    capture = Capturer(source_of(server, "d", triggers=True), tmp_path)
    run(server, "INSERT INTO t (v) VALUES ('before')", *WORK, "INSERT INTO t (v) VALUES ('a')")
    run(server, "BEGIN", "INSERT INTO t (v) VALUES ('b')", "UPDATE w SET n = 8", "COMMIT")
    capture.catch_up()
    assert assert_equal(capture).rows == 8
    found = missed = 0
    for file in change_files(capture):
        path = capture.lake.absolute(file.path)
        good = pq.read_table(path)
        assert good.num_rows in {3, 5}
        for what, rows in damages(good.to_pylist(), good.schema):
            pq.write_table(pa.Table.from_pylist(rows, schema=good.schema), path)
            result = checked(capture)
            found += bool(result.differences)
            if not result.differences:
                missed += 1
                print(f"not found: {file.table}: {what}")  # noqa: T201
        pq.write_table(good, path)
        # A file that is gone: the table is named, and nothing is said of its rows.
        Path(path).rename(f"{path}.away")
        assert any("gone from the lake" in what for what in checked(capture).not_compared)
        Path(f"{path}.away").rename(path)
    assert not missed, f"{missed} of {missed + found} planted differences were not found"
    assert found > 250
    assert_equal(capture)


# --- the command ----------------------------------------------------------------------------------


def write_config(folder: Path, server: Server) -> Path:
    shard = {"host": server.host, "port": server.port, "user": RATCHET_USER,
             "password": "${RATCHET_VERIFY_PW}", "database": "d"}  # fmt: skip
    path = folder / "ratchet.yaml"
    sources = {"shop": {"kind": "binlog", "shards": {"-": shard}}}
    path.write_text(yaml.safe_dump({"lake": "./lake", "sources": sources}))
    return path


def verify_log(folder: Path, server: Server, *args: str) -> subprocess.CompletedProcess[str]:
    path = str(write_config(folder, server))
    return completed("verify", path, "--log", *args, RATCHET_VERIFY_PW=RATCHET_PASSWORD)


@pytest.mark.quick_on("mysql")
@flavors
def test_the_command(make_server: MakeServer, flavor: str, tmp_path: Path) -> None:
    server = started(make_server, flavor)
    capture = Capturer(source_of(server, "d", triggers=True), tmp_path)
    for n in range(4):
        run(server, f"INSERT INTO t (v, n) VALUES ('a', {n}), ('b', {n})")
        capture.catch_up()
    told = verify_log(tmp_path, server)
    assert told.returncode == 0, told.stderr
    assert "log of shop/-: rounds 1 to 4: 8 row changes in 4 transactions compared" in told.stdout
    assert "0 differences" in told.stdout
    assert RATCHET_PASSWORD not in told.stdout + told.stderr

    gtid = capture.changes("t")[-1]["token"]["gtid"]
    for args, rows in ((("--from", "2", "--to", "3"), 4), (("--from", f"gtid:{gtid}"), 2),
                       (("--shard", "shop/-", "--to", "1"), 2), (("--from", "2020-01-01"), 8)):  # fmt: skip # noqa: E501
        told = verify_log(tmp_path, server, *args, "--json")
        assert told.returncode == 0, told.stderr
        data = json.loads(told.stdout)
        assert (data["same"], data["shards"][0]["rows"]) == (True, rows)

    file = change_files(capture)[2]
    path = capture.lake.absolute(file.path)
    rows_of = pq.read_table(path)
    damaged = rows_of.to_pylist()
    damaged[1]["after"]["n"] = 99
    pq.write_table(pa.Table.from_pylist(damaged, schema=rows_of.schema), path)
    told = verify_log(tmp_path, server)
    assert told.returncode == 1
    assert "1 difference " in told.stdout
    assert "row 1, column n: the value after the change: the lake has 99, the server 2" in told.stdout  # fmt: skip # noqa: E501
    assert "ratchet table CONFIG redump 'shop.t'" in told.stdout

    assert verify_log(tmp_path, server, "--shard", "shop/x").returncode == 2
    assert verify_log(tmp_path, server, "--from", "nonsense").returncode == 2
    purge_binlogs(server)
    told = verify_log(tmp_path, server)
    assert told.returncode == 7
    assert "the server has purged its binlogs of them" in told.stderr


# --- samples of a run -----------------------------------------------------------------------------


def sampler(folder: Path, capture: Capturer, server: Server) -> tuple[LogSamples, Verdicts]:
    """The background task on a lake with the tables t and u, which stream since round 1."""
    write_config(folder, server)
    config = load_config(folder / "ratchet.yaml", {"RATCHET_VERIFY_PW": RATCHET_PASSWORD})
    generations = {shard: one.generation for shard, one in capture.log.streams().items()}

    def mend(*_: object) -> str:
        raise AssertionError("rows are not mended")

    verdicts = Verdicts(capture.lake, mend=mend, stops=StopReporter(lambda _: None))
    samples = LogSamples(
        config,
        capture.lake,
        reading=reading_of(config, generations),
        verdicts=verdicts,
        observer=lambda _: None,
        stop=threading.Event(),
        rng=random.Random(7),
        clock=lambda: 0.0,  # work that takes no time
    )
    return samples, verdicts


def streaming(capture: Capturer, table: str, start_round: int = 1) -> None:
    schema = TableSchema(keyspace="shop", table=table, columns=(), key=("id",))
    dump = DumpState(id="d", start_round=start_round, start={"shop/-": capture.begin}, done=True)
    state = TableState(
        keyspace="shop", table=table, schema=schema, key=("id",), phase="streaming", dump=dump
    )
    Tables(capture.lake).save(state)


def test_a_sequence_under_the_name_of_a_table(make_server: MakeServer, tmp_path: Path) -> None:
    """MariaDB logs a sequence's changes as row events: neither decoder takes them for a table's.

    Rows of a table that had the name before are taken by both, though the server has only the
    sequence by the time the log is read.
    """
    server = started(make_server, "mariadb")
    capture = Capturer(source_of(server, "d", triggers=True), tmp_path)
    run(
        server,
        "CREATE TABLE s (id INT PRIMARY KEY)",
        "INSERT INTO s VALUES (1), (2)",
        "DROP TABLE s",
        "CREATE SEQUENCE s",
        "SELECT NEXTVAL(s)",
    )
    capture.catch_up()
    files = [file for one in capture.log.since(0) for file in one.files]
    assert [(file.table, file.rows) for file in files if file.table == "s"] == [("s", 2)]
    assert assert_equal(capture).rows == captured(capture)


@flavors
def test_samples_of_a_run(make_server: MakeServer, flavor: str, tmp_path: Path) -> None:
    server = started(make_server, flavor)
    capture = Capturer(source_of(server, "d", triggers=True), tmp_path)
    for n in range(6):
        run(server, f"INSERT INTO t (v, n) VALUES ('a', {n}), ('b', {n})")
        capture.catch_up()
    streaming(capture, "t")
    streaming(capture, "u")
    samples, verdicts = sampler(tmp_path, capture, server)
    rests = [samples.next_bite() for _ in range(8)]
    assert rests[-1] == rests[-2] == LOOK_EVERY  # each round was looked at
    found = LogChecks(capture.lake).of("shop/-")
    assert (found.samples, found.rows, found.differences) == (6, 12, 0)
    verdicts.apply()
    assert {one.phase for one in Tables(capture.lake).list()} == {"streaming"}

    path = capture.lake.absolute(change_files(capture)[4].path)
    good = pq.read_table(path)
    pq.write_table(good.slice(0, 1), path)
    samples, verdicts = sampler(tmp_path, capture, server)  # as a new run
    for _ in range(8):
        samples.next_bite()
    found = LogChecks(capture.lake).of("shop/-")
    assert (found.samples, found.different_round) == (12, 5)
    verdicts.apply()
    for state in Tables(capture.lake).list():
        assert state.phase == "stopped"
        assert state.stopped is not None
        assert (
            "a second decoder reads the log of shop/- differently: round 5" in state.stopped.message
        )
        assert "verify CONFIG --log --from 5 --to 5" in state.stopped.hint
    pq.write_table(good, path)
    # A note of a round that never was is damaged, and stops nothing.
    streaming(capture, "t")
    noted = LogChecks(capture.lake)
    noted.save(replace(found, different_round=10**15))
    samples, verdicts = sampler(tmp_path, capture, server)
    samples.next_bite()
    verdicts.apply()
    assert [one.phase for one in Tables(capture.lake).list() if one.table == "t"] == ["streaming"]
    assert noted.of("shop/-").different_round == 0
    noted.save(found)
    # A table that was dumped before that round stops as soon as it streams; one dumped since not.
    streaming(capture, "t", start_round=5)
    streaming(capture, "u", start_round=6)
    samples, verdicts = sampler(tmp_path, capture, server)
    samples.next_bite()
    verdicts.apply()
    phases = {one.table: one.phase for one in Tables(capture.lake).list()}
    assert phases == {"t": "stopped", "u": "streaming"}


@pytest.mark.spark
def test_a_run_that_reads_its_log_differently_stops_and_its_remedy_gets_out(
    mysql: Server, database: str, spark: SparkSession, tmp_path: Path
) -> None:
    run(mysql, "CREATE TABLE t (id INT PRIMARY KEY, n INT)", database=database)
    mirror = Mirror(tmp_path, mysql, spark, {"shop": {"-": database}}, {})
    mirror.config.write_text(f"{mirror.config.read_text()}verify: {{load: 100%}}\n")
    mirror.ratchet("run", "--until-caught-up")
    run(mysql, "INSERT INTO t VALUES (1, 1), (2, 2)", database=database)
    mirror.ratchet("run", "--until-caught-up")
    assert LogChecks(mirror.lake).of("shop/-").rows == 2
    assert "0 differences" in mirror.ratchet("verify", "--log").out
    told = mirror.ratchet("status").out
    assert "log of shop/-: 2 row changes of " in told

    (file,) = (file for one in RoundLog(mirror.lake).since(0) for file in one.files)
    path = mirror.lake.absolute(file.path)
    good = pq.read_table(path)
    pq.write_table(good.slice(1), path)
    said = mirror.ratchet("run", "--until-caught-up", expect=6)
    assert "a second decoder reads the log of shop/- differently" in said.err
    assert "a row change is missing in the lake" in mirror.ratchet("verify", "--log", expect=1).out
    assert mirror.ratchet("table", "redump", "shop.t").code == 0
    mirror.ratchet("run", "--until-caught-up")
    assert "identical" in mirror.ratchet("verify").out
