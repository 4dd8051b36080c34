"""Statements on real servers: which leave rows alone, and what capture says of those that may not.

Many statements on one server: each gets a table of its own, then all are captured at once.
"""

# ruff: noqa: E501 - a statement stands on one line

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from capture_kit import Capturer, close_streams, run, server_rows, source_of
from pymysql.err import IntegrityError

from lab.servers import RATCHET_USER, Server
from ratchet.ingest.binlog.history import check_position
from ratchet.wire.session import Session

SHAPE = (
    "id INT NOT NULL PRIMARY KEY, a INT, b VARCHAR(20), c CHAR(5) NOT NULL DEFAULT '',"
    " d DECIMAL(10,2), e ENUM('x','y'), f DATETIME(3), KEY ia (a), UNIQUE KEY ub (b)"
)
ROWS = (
    "(1, 5, 'eins ', 'a', 1.25, 'x', '2026-01-02 03:04:05.678'),"
    "(2, NULL, NULL, '', NULL, NULL, NULL), (3, -7, 'drei', 'ü', -9.99, 'y', '1999-12-31')"
)
BOTH, MYSQL, MARIADB = "both", "mysql", "mariadb"

# Statements that leave rows and values alone: what is to be run before, what is told of, where.
HARMLESS: list[tuple[str, str, str]] = [
    ("", "ALTER TABLE {t} ADD INDEX i (a), ADD KEY (d), ADD UNIQUE KEY u2 (id, a) COMMENT 'x'", BOTH),
    ("", "ALTER TABLE {t} ADD FULLTEXT KEY x (b)", BOTH),
    ("", "ALTER TABLE {t} ADD CONSTRAINT {t}_ck CHECK (a < 100)", BOTH),
    ("", "ALTER TABLE {t} ADD CONSTRAINT {t}_cn CHECK (a < 0) NOT ENFORCED", MYSQL),
    ("ALTER TABLE {t} ADD CONSTRAINT {t}_cd CHECK (a < 99)", "ALTER TABLE {t} DROP CHECK {t}_cd", MYSQL),
    ("", "ALTER TABLE {t} RENAME INDEX ia TO `in`", BOTH),
    ("", "ALTER TABLE {t} ALTER COLUMN a SET DEFAULT -5, ALTER b DROP DEFAULT", BOTH),
    ("", "ALTER TABLE {t} ALTER a SET DEFAULT (1 + 1)", BOTH),
    ("", "ALTER TABLE {t} ALTER INDEX ia INVISIBLE", MYSQL),
    ("", "ALTER TABLE {t} ALTER INDEX ia IGNORED", MARIADB),
    ("", "ALTER TABLE {t} COMMENT 'see #42, DROP COLUMN a'", BOTH),
    ("", "ALTER TABLE {t} AUTO_INCREMENT=100, ALGORITHM=INPLACE, LOCK=NONE", BOTH),
    ("", "ALTER TABLE {t} ENGINE=InnoDB", BOTH),
    ("", "ALTER TABLE {t} ENGINE = 'innodb' ROW_FORMAT=DYNAMIC", BOTH),
    ("", "ALTER TABLE {t} ENGINE MyISAM", BOTH),
    ("", "ALTER TABLE {t} ENGINE=MEMORY", BOTH),
    ("", "ALTER TABLE {t} ENGINE=Aria TRANSACTIONAL=1", MARIADB),
    ("", "ALTER TABLE {t} ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE=8", BOTH),
    ("", "ALTER TABLE {t} FORCE", BOTH),
    ("", "ALTER TABLE {t} FORCE, ALGORITHM=COPY", BOTH),
    ("ALTER TABLE {t} ENGINE=MyISAM", "ALTER TABLE {t} ORDER BY a, b DESC", BOTH),
    ("", "ALTER TABLE {t} STATS_PERSISTENT=1, STATS_AUTO_RECALC=DEFAULT, STATS_SAMPLE_PAGES=20", BOTH),
    ("", "ALTER TABLE {t} MAX_ROWS=2 MIN_ROWS=1 AVG_ROW_LENGTH=3 CHECKSUM=1 PACK_KEYS=DEFAULT", BOTH),
    ("", "ALTER TABLE {t} DISABLE KEYS", BOTH),
    ("", "/*!40000 ALTER TABLE `{t}` ENABLE KEYS */", BOTH),
    ("", "ALTER TABLE {t} DEFAULT CHARSET=latin1, COLLATE latin1_bin", BOTH),
    ("ALTER TABLE {t} DROP INDEX ub", "ALTER TABLE {t} PARTITION BY HASH (id) PARTITIONS 4", BOTH),
    ("{ranges}", "ALTER TABLE {t} ADD PARTITION (PARTITION p2 VALUES LESS THAN (99) ENGINE = InnoDB)", BOTH),
    ("{ranges}", "ALTER TABLE {t} REORGANIZE PARTITION p0, p1 INTO (PARTITION p VALUES LESS THAN (9))", BOTH),
    ("{ranges}", "ALTER TABLE {t} REBUILD PARTITION ALL", BOTH),
    ("{ranges}", "ALTER TABLE {t} OPTIMIZE PARTITION p0, p1", BOTH),
    ("{ranges}", "ALTER TABLE {t} REMOVE PARTITIONING", BOTH),
    ("ALTER TABLE {t} DROP INDEX ub; ALTER TABLE {t} PARTITION BY KEY (id) PARTITIONS 3", "ALTER TABLE {t} COALESCE PARTITION 2", BOTH),
    ("ALTER TABLE {t} DROP INDEX ub; ALTER TABLE {t} PARTITION BY KEY (id) PARTITIONS 3", "ALTER TABLE {t} ADD PARTITION PARTITIONS 2", BOTH),
    ("", "ALTER TABLE {t} WAIT 5 ADD INDEX (d)", MARIADB),
    ("", "SET STATEMENT max_statement_time=60 FOR ALTER TABLE {t} ADD INDEX (d)", MARIADB),
    ("", "CREATE UNIQUE INDEX i USING BTREE ON {t} (id, a) COMMENT 'x' ALGORITHM=INPLACE LOCK=NONE", BOTH),
    ("", "CREATE INDEX i ON {t} ((a + 1))", MYSQL),
    ("", "CREATE VIEW v_{t} AS SELECT * FROM {t}", BOTH),
    ("", "CREATE TRIGGER tr_{t} BEFORE INSERT ON {t} FOR EACH ROW SET @a=1", BOTH),
    ("", "CREATE PROCEDURE p_{t}() DELETE FROM {t}", BOTH),
    ("", "CREATE EVENT e_{t} ON SCHEDULE EVERY 1 DAY DISABLE DO DELETE FROM {t}", BOTH),
    ("", "GRANT SELECT ON {d}.{t} TO {user}", BOTH),
    ("", "LOCK TABLES {t} WRITE", BOTH),
    ("", "UNLOCK TABLES", BOTH),
    ("", "FLUSH TABLES {t}", BOTH),
    ("", "ANALYZE TABLE {t}", BOTH),
    ("", "OPTIMIZE TABLE {t}", BOTH),
    ("", "CHECK TABLE {t}", BOTH),
    ("", "CREATE TABLE copy_{t} LIKE {t}", BOTH),
    ("", "CREATE TABLE sel_{t} AS SELECT * FROM {t}", BOTH),
    ("", "CREATE TABLE IF NOT EXISTS {t} (z INT)", BOTH),
    ("", "CREATE TABLE kid_{t} (i INT PRIMARY KEY, FOREIGN KEY (i) REFERENCES {t} (id))", BOTH),
    ("", "CREATE TEMPORARY TABLE {t} (z INT)", BOTH),
    ("CREATE TEMPORARY TABLE {t} (z INT)", "DROP TEMPORARY TABLE {t}", BOTH),
    ("", "ALTER DATABASE {d} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", BOTH),
]  # fmt: skip
RANGES = (
    "ALTER TABLE {t} DROP INDEX ub; ALTER TABLE {t} PARTITION BY RANGE (id)"
    " (PARTITION p0 VALUES LESS THAN (2), PARTITION p1 VALUES LESS THAN (9))"
)


class Bench:
    """Tables of one database, statements about them, and what was captured."""

    def __init__(self, server: Server, database: str, folder: Path) -> None:
        self.server, self.database = server, database
        self.capturer = Capturer(source_of(server, database), folder)
        self.names: list[str] = []

    def table(self, shape: str = SHAPE, rows: str = ROWS, name: str = "") -> str:
        name = name or f"t{len(self.names)}"
        self.names.append(name)
        run(self.server, f"CREATE TABLE {name} ({shape})", database=self.database)
        if rows:
            run(self.server, f"INSERT INTO {name} VALUES {rows}", database=self.database)
        return name

    def run(self, *statements: str, settings: str = "") -> None:
        run(self.server, *([settings] if settings else []), *statements, database=self.database)

    def rows(self, table: str) -> dict[Any, Any]:
        return server_rows(self.server, self.database, table)

    def begin(self) -> None:
        """From here on statements count."""
        with Session.connect(self.capturer.source) as session:
            self.capturer.begin = session.executed()

    def captured(self) -> dict[str, set[str]]:
        """Table -> effects (and "truncate") since the last call, besides that rows were rewritten."""
        seen = len(self.capturer.events())
        self.capturer.catch_up(known=tuple(self.names))
        found: dict[str, set[str]] = {}
        for event in self.capturer.events()[seen:]:
            told = event.effect if event.kind == "ddl" else event.kind
            assert event.reason or told in {"columns", "truncate"}
            if told == "rebuild":  # any ALTER says so
                assert re.search("alter|index|optimize", event.statement, re.IGNORECASE)
                continue
            found.setdefault(event.table, set()).add(told)
        return {table: found[table] for table in found if table in self.names}


@pytest.fixture
def bench(server: Server, database: str, tmp_path: Path) -> Iterator[Bench]:
    yield Bench(server, database, tmp_path)
    close_streams()


def test_forms_that_are_said_to_be_harmless_leave_all_rows_as_they_are(bench: Bench) -> None:
    cases = [one for one in HARMLESS if one[2] in {BOTH, bench.server.flavor}]
    for before, _, _ in cases:
        if before == "{ranges}":
            before = RANGES  # noqa: PLW2901 - short for it
        names = {"t": bench.table(), "d": bench.database, "user": RATCHET_USER}
        if before and not before.startswith("CREATE TEMPORARY"):
            bench.run(*before.format(**names).split("; "))
    bench.begin()
    failed = []
    for number, (before, text, _) in enumerate(cases):
        table = f"t{number}"
        names = {"t": table, "d": bench.database, "user": f"{RATCHET_USER}@'%'"}
        rows = bench.rows(table)
        # A temporary table lives on one connection.
        more = [before.format(**names)] if before.startswith("CREATE TEMPORARY") else []
        try:
            bench.run(*more, text.format(**names))
        except Exception as error:  # noqa: BLE001 - all of them are shown at once
            failed.append(f"{text}: {error}")
        assert bench.rows(table) == rows, text
    assert not failed, failed
    assert bench.captured() == {}


IMPLICIT = "SET explicit_defaults_for_timestamp=0"
# What was run before, the statement, its effects, where, and how the session was set.
EFFECTS: list[tuple[str, str, set[str], str, str]] = [
    ("", "ALTER TABLE {t} ADD COLUMN n INT, ADD m VARCHAR(10) DEFAULT NULL AFTER a", {"columns"}, BOTH, ""),
    ("", "ALTER TABLE {t} /* NOT NULL */ ADD COLUMN n INT -- DEFAULT 5\n COMMENT '#'", {"columns"}, BOTH, ""),
    ("", "SET STATEMENT max_statement_time=9 FOR ALTER TABLE {t} ADD n INT", {"columns"}, MARIADB, ""),
    ("", "ALTER TABLE {t} ADD COLUMN n INT DEFAULT (NULL), ADD m VARCHAR(9) NULL DEFAULT ( null )", {"columns"}, BOTH, ""),
    ("", "ALTER TABLE {t} ADD COLUMN n DATETIME ON UPDATE CURRENT_TIMESTAMP", {"columns"}, BOTH, ""),
    ("", "ALTER TABLE {t} ADD COLUMN n TIMESTAMP NULL ON UPDATE CURRENT_TIMESTAMP", {"columns"}, BOTH, ""),
    ("", "ALTER TABLE {t} ADD COLUMN n TIMESTAMP ON UPDATE CURRENT_TIMESTAMP", {"rows"}, BOTH, ""),
    ("", "ALTER TABLE {t} ADD COLUMN x INT NOT NULL DEFAULT 7", {"rows"}, BOTH, ""),
    # MariaDB fills the new column with what is said of it later on.
    ("", "ALTER TABLE {t} ADD COLUMN x INT, ALTER x SET DEFAULT 5", {"rows"}, MARIADB, ""),
    ("", "ALTER TABLE {t} ADD COLUMN x INT, MODIFY x INT NOT NULL", {"rows"}, MARIADB, ""),
    ("", "ALTER TABLE {t} ADD x INT AS (a + 1) STORED", {"rows"}, BOTH, ""),
    ("", "ALTER TABLE {t} ADD x TIMESTAMP", {"rows"}, BOTH, ""),
    # With the setting off MariaDB passes over DEFAULT NULL, but not over NULL; MySQL refuses it.
    ("", "ALTER TABLE {t} ADD x TIMESTAMP DEFAULT NULL", {"columns"}, BOTH, "SET explicit_defaults_for_timestamp=1"),
    ("", "ALTER TABLE {t} ADD x TIMESTAMP DEFAULT NULL", {"rows"}, MARIADB, IMPLICIT),
    ("", "ALTER TABLE {t} ADD x TIMESTAMP NULL DEFAULT NULL, ADD y INT DEFAULT NULL", {"columns"}, BOTH, IMPLICIT),
    ("", "ALTER TABLE {t} ADD (y INT DEFAULT NULL, x TIMESTAMP(3) DEFAULT NULL)", {"rows"}, MARIADB, IMPLICIT),
    ("", "SET STATEMENT explicit_defaults_for_timestamp=0 FOR ALTER TABLE {t} ADD x TIMESTAMP DEFAULT NULL", {"rows"}, MARIADB, ""),
    ("", "ALTER TABLE {t} /* deploy 42 */ DROP COLUMN a, ADD COLUMN a INT", {"rows"}, BOTH, ""),
    ("", "ALTER TABLE {t} -- drop it\n DROP COLUMN a, ADD COLUMN a INT", {"rows"}, BOTH, ""),
    ("", "ALTER TABLE {t} # drop it\n DROP COLUMN a, ADD COLUMN a INT", {"rows"}, BOTH, ""),
    ("", "ALTER TABLE {t} /* it's time */ CHANGE a z INT, CHANGE b y VARCHAR(20) /* don't wait */", {"rows"}, BOTH, ""),
    ("", "ALTER TABLE {t} CHANGE a A INT", {"rows"}, BOTH, ""),
    ("", "ALTER TABLE {t} COMMENT 'see #42', RENAME TO {t}_old", {"rows"}, BOTH, ""),
    ("CREATE TABLE `x#{t}` (i INT)", "DROP TABLE `x#{t}`, {t}", {"rows"}, BOTH, ""),
    ("", "/*!50000 DROP */ TABLE /* x */ `{t}`", {"rows"}, BOTH, ""),
    ("", 'DROP TABLE "{t}"', {"rows"}, BOTH, "SET sql_mode='ANSI_QUOTES'"),
    ("", "ALTER TABLE {t} COMMENT 'a\\', DROP COLUMN a, COMMENT 'b'", {"rows"}, BOTH, "SET sql_mode='NO_BACKSLASH_ESCAPES'"),
    ("", "ALTER TABLE {t} COMMENT 'a\\', DROP COLUMN a, COMMENT \\'b'", set(), BOTH, ""),
    ("", "SET STATEMENT lock_wait_timeout=5 FOR RENAME TABLE {t} TO {t}_gone", {"rows"}, MARIADB, ""),
    ("{ranges}", "SET STATEMENT max_statement_time=60 FOR ALTER TABLE {t} DROP PARTITION p0", {"rows"}, MARIADB, ""),
    ("{ranges}", "ALTER TABLE {t} /*!50100 TRUNCATE PARTITION p0 */", {"rows"}, BOTH, ""),
    ("", "CREATE OR REPLACE TABLE {t} (i INT)", {"rows"}, MARIADB, ""),
    ("", "CREATE OR REPLACE SEQUENCE {t}", {"rows"}, MARIADB, ""),
    ("", "ALTER TABLE {t} ENGINE=BLACKHOLE", {"rows"}, MYSQL, ""),
    ("", "ALTER TABLE {t} ENGINE=ARCHIVE", {"doubt"}, "neither", ""),
    ("", "ALTER TABLE {t} DROP PRIMARY KEY, ADD PRIMARY KEY (id, c)", {"rows"}, BOTH, ""),
    ("", "ALTER TABLE {t} DROP INDEX ia", {"key"}, BOTH, ""),
    ("", "DROP INDEX ub ON {t}", {"key"}, BOTH, ""),
    ("CREATE TABLE o_{t} (id INT PRIMARY KEY)", "ALTER TABLE {t} ADD x INT, ADD FOREIGN KEY (x) REFERENCES o_{t} (id) ON DELETE CASCADE", {"columns", "foreign_key"}, BOTH, ""),
    ("", "ALTER TABLE {t} MODIFY b VARCHAR(200)", {"types"}, BOTH, ""),
    ("", "ALTER TABLE {t} MODIFY b VARCHAR(20) NOT NULL", {"types"}, BOTH, "SET sql_mode=''"),
    ("", "ALTER TABLE {t} MODIFY a INT UNSIGNED", {"types"}, BOTH, "SET sql_mode=''"),
    ("", "ALTER TABLE {t} MODIFY c VARCHAR(5), MODIFY f DATETIME, MODIFY e VARCHAR(5)", {"types"}, BOTH, ""),
    ("", "ALTER TABLE {t} CONVERT TO CHARACTER SET latin1", {"types"}, BOTH, ""),
    ("", "ALTER TABLE {t} MODIFY a DOUBLE(10,2)", {"types", "doubt"}, BOTH, ""),
    ("", "ALTER TABLE {t} MODIFY a INT AS (id * 3) STORED", {"types", "doubt"}, BOTH, ""),
    ("", "ALTER TABLE {t} MODIFY id INT NOT NULL AUTO_INCREMENT", {"types", "doubt"}, BOTH, ""),
    ("", "ALTER IGNORE TABLE {t} ADD UNIQUE (c)", {"doubt"}, MARIADB, ""),
    ("", "ALTER TABLE {t} ADD SYSTEM VERSIONING", {"doubt"}, MARIADB, ""),
    ("ALTER TABLE {t} DROP INDEX ub", "ALTER TABLE {t} MODIFY b VARCHAR(20) COMPRESSED", {"types", "doubt"}, MARIADB, ""),
    ("ALTER TABLE {t} ENGINE=MyISAM", "REPAIR TABLE {t}", {"doubt"}, BOTH, ""),
    ("", "TRUNCATE TABLE {t}", {"truncate"}, BOTH, ""),
    ("", "SET STATEMENT max_statement_time=9 FOR TRUNCATE {t}", {"truncate"}, MARIADB, ""),
]  # fmt: skip


def test_what_statements_do_is_captured_with_them(bench: Bench) -> None:
    """Of tables in which nothing is written behind the statement."""
    cases = [one for one in EFFECTS if one[3] in {BOTH, bench.server.flavor}]
    for before, *_ in cases:
        table = bench.table()
        if before:
            text = RANGES if before == "{ranges}" else before
            bench.run(*text.format(t=table).split("; "))
    bench.begin()
    for number, (_, text, _, _, settings) in enumerate(cases):
        bench.run(text.format(t=f"t{number}"), settings=settings)
    found = bench.captured()
    wanted = {f"t{number}": one[2] for number, one in enumerate(cases) if one[2]}
    differing = {
        cases[int(table[1:])][1]: (found.get(table), wanted.get(table))
        for table in {*found, *wanted}
        if found.get(table) != wanted.get(table)
    }
    assert differing == {}


def test_a_database_that_goes_takes_all_its_tables(bench: Bench) -> None:
    for _ in range(2):
        bench.table()
    bench.begin()
    bench.run(f'DROP DATABASE "{bench.database}"', settings="SET sql_mode='ANSI_QUOTES'")
    bench.server.execute(f"CREATE DATABASE {bench.database}")
    assert bench.captured() == {"t0": {"rows"}, "t1": {"rows"}}


def test_names_go_by_letters_where_the_server_goes_by_them(bench: Bench) -> None:
    """`T0` and `t0` are two tables here: what empties one says nothing of the other."""
    bench.table()
    bench.table(name="T0")
    bench.begin()
    bench.run("TRUNCATE T0", "ALTER TABLE T0 DROP COLUMN a")
    assert bench.captured() == {"T0": {"truncate", "rows"}}


def test_names_go_without_case_where_the_server_folds_them(
    make_server: Callable[..., Server], tmp_path: Path
) -> None:
    server = make_server("mariadb", options={"lower-case-table-names": "1"})
    server.execute("CREATE DATABASE d")
    bench = Bench(server, "d", tmp_path)
    for _ in range(2):
        bench.table()
    bench.begin()
    bench.run("TRUNCATE TABLE T0", "ALTER TABLE D.T1 DROP a")
    assert bench.captured() == {"t0": {"truncate"}, "t1": {"rows"}}
    close_streams()


def test_temporary_tables_of_a_mirrored_tables_name(bench: Bench) -> None:
    """In a session that logs statements they stand in the log like the real one's."""
    bench.table()
    bench.begin()
    bench.run(
        "SET SESSION binlog_format=STATEMENT",
        "CREATE TEMPORARY TABLE t0 (id INT)",
        "TRUNCATE t0",
        "ALTER TABLE t0 ADD x INT",
        "DROP TEMPORARY TABLE t0",
    )
    assert len(bench.rows("t0")) == 3
    assert bench.captured() == {"t0": {"doubt"}}


def other_database(bench: Bench) -> str:
    """Another database with tables of which some lead to the mirrored one."""
    other, d = f"{bench.database}_o", bench.database
    server = bench.server
    server.execute(f"CREATE DATABASE {other}")
    server.execute("SET GLOBAL log_bin_trust_function_creators=1")
    for table in ("plain", "hooked", "parent"):
        server.execute(f"CREATE TABLE {other}.{table} (id INT PRIMARY KEY, ts INT)")
        server.execute(f"INSERT INTO {other}.{table} VALUES (1, 1)")
    run(
        server,
        f"CREATE TRIGGER tr AFTER UPDATE ON hooked FOR EACH ROW UPDATE {d}.t0 SET a = a + 1",
        f"CREATE VIEW seen AS SELECT * FROM {d}.t0",
        f"CREATE FUNCTION f() RETURNS INT BEGIN UPDATE {d}.t0 SET a = a + 1; RETURN 1; END",
        f"CREATE PROCEDURE p() UPDATE {d}.t0 SET a = a + 1",
        database=other,
    )
    return other


def test_a_grant_that_comes_while_the_log_is_read(bench: Bench) -> None:
    """What the doubt advises helps at once; and a trigger is seen that was not before."""
    bench.table()
    for table in ("lone", "hooked"):
        bench.run(f"CREATE TABLE {table} (id INT PRIMARY KEY, n INT)")
        bench.run(f"INSERT INTO {table} VALUES (1, 1)")
    bench.run("CREATE TRIGGER tr AFTER UPDATE ON hooked FOR EACH ROW UPDATE t0 SET a = a + 1")
    bench.begin()

    def after(table: str) -> dict[str, set[str]]:
        bench.run("SET SESSION binlog_format=STATEMENT", f"UPDATE {table} SET n = n + 1")
        return bench.captured()

    everything = {"t0": {"untold"}}
    assert [after("lone"), after("hooked")] == [everything, everything]
    grant = f"SELECT, TRIGGER ON `{bench.database}`.*"
    bench.server.execute(f"GRANT {grant} TO {RATCHET_USER}@'%'")
    assert [after("lone"), after("hooked")] == [{}, everything]
    bench.server.execute(f"REVOKE {grant} FROM {RATCHET_USER}@'%'")


def test_rows_changed_by_statements_concern_only_who_they_may_reach(
    server: Server, database: str, tmp_path: Path
) -> None:
    """As pt-heartbeat and Amazon's own heartbeat do it; what led on is what the server said."""
    bench = Bench(server, database, tmp_path)
    bench.table()
    bench.table()
    other = other_database(bench)
    everything = {"t0": {"untold"}, "t1": {"untold"}}
    mysql = server.flavor == "mysql"

    def after(*statements: str) -> dict[str, set[str]]:
        texts = [one.format(o=other, d=database) for one in statements]
        bench.run("SET SESSION binlog_format=STATEMENT", *texts)
        return bench.captured()

    try:
        bench.begin()
        harmless = (
            "REPLACE INTO {o}.plain VALUES (1, 2)",
            "UPDATE {o}.plain SET ts=UNIX_TIMESTAMP()",
        )
        # MySQL's log tells which databases were written to. MariaDB has to be asked, and does not
        # show its triggers to everybody.
        assert after(*harmless) == ({} if mysql else everything)
        server.execute(f"GRANT SELECT, TRIGGER ON `{other}`.* TO {RATCHET_USER}@'%'")
        assert after(*harmless) == {}
        # Reading a mirrored table changes nothing, as pt-table-checksum does it.
        sums = "INSERT INTO {o}.plain SELECT 3, COUNT(*) FROM {d}.t0"
        assert after("DELETE FROM {o}.plain", sums) == {}
        for reaching in (
            "UPDATE {o}.hooked SET ts = ts + 1",
            "UPDATE {o}.seen SET b = NULL",
            "INSERT INTO {o}.plain VALUES (5 + {o}.f(), 1)",
            "CALL {o}.p()",
            "SELECT {o}.f()",
            "UPDATE {o}.plain, {d}.t0 SET a = 2 WHERE t0.id = 1",
        ):
            before = bench.rows("t0")
            assert after(reaching) == everything, reaching
            assert bench.rows("t0") != before, reaching
        # A trigger that is gone when the server is asked: its end stands in the log.
        bench.run(
            "SET SESSION binlog_format=STATEMENT",
            f"UPDATE {other}.hooked SET ts = ts + 1",
            f"DROP TRIGGER {other}.tr",
        )
        assert bench.captured() == everything
        # Foreign keys lead on as well.
        run(
            server,
            f"CREATE TABLE child (id INT PRIMARY KEY, FOREIGN KEY (id) REFERENCES {other}.parent (id)"
            " ON DELETE CASCADE)",
            "INSERT INTO child VALUES (1)",
            database=database,
        )
        bench.captured()
        assert after("DELETE FROM {o}.parent") == everything
        assert after("SET SESSION binlog_format=STATEMENT", "UPDATE t0 SET b = NULL") == everything
        # Beside rows in one transaction; the stream goes on, and so does a new one.
        with server.connect(database=database, autocommit=False) as connection:
            with connection.cursor() as cursor:
                cursor.execute("SET SESSION binlog_format=STATEMENT")
                cursor.execute(f"REPLACE INTO {other}.plain VALUES (9, 9)")
                cursor.execute("UPDATE t0 SET a = 4 WHERE id = 2")
            connection.commit()
        assert bench.captured() == everything
        with Session.connect(bench.capturer.source) as session:
            check_position(session, bench.capturer.position)
        bench.run("UPDATE t1 SET a = 77 WHERE id = 1")
        bench.captured()
        assert bench.capturer.final("t1")[1]["a"] == 77
        close_streams()
        after("REPLACE INTO {o}.plain VALUES (8, 8)")
        with Session.connect(bench.capturer.source) as session:
            check_position(session, bench.capturer.position)
    finally:
        close_streams()
        server.execute(f"DROP DATABASE IF EXISTS {database}")
        server.execute(f"DROP DATABASE {other}")


def test_a_file_that_a_statement_loads(make_server: Callable[..., Server], tmp_path: Path) -> None:
    """LOAD DATA in a session that logs statements: the file's bytes, then the statement."""
    rows = tmp_path / "rows.csv"
    rows.write_text("".join(f"{n},{n}\n" for n in range(10, 40_000)))
    for flavor in ("mariadb", "mysql"):
        server = make_server(flavor, options={"secure-file-priv": ""})
        server.execute("CREATE DATABASE d")
        bench = Bench(server, "d", tmp_path / flavor)
        bench.table("id INT PRIMARY KEY, a INT", "(1, 1)")
        bench.table("id INT PRIMARY KEY, a INT", "(1, 1)")
        bench.begin()
        load = f"LOAD DATA INFILE '{rows}' INTO TABLE t0 FIELDS TERMINATED BY ','"
        rows.chmod(0o644)
        bench.run("SET SESSION binlog_format=STATEMENT", load)
        assert bench.captured() == {"t0": {"untold"}, "t1": {"untold"}}
        bench.run("UPDATE t1 SET a = 7")
        assert bench.captured() == {}
        assert bench.capturer.final("t1") == {1: {"id": 1, "a": 7}}
        close_streams()


def test_an_alter_in_two_phases_counts_once_and_only_if_it_succeeds(
    make_server: Callable[..., Server], tmp_path: Path
) -> None:
    """MariaDB logs its start, and later how it ended; others write in between."""
    server = make_server("mariadb", options={"binlog-alter-two-phase": "ON"})
    server.execute("CREATE DATABASE d")
    bench = Bench(server, "d", tmp_path)
    for _ in range(3):
        bench.table()
    bench.begin()
    bench.run("ALTER TABLE t0 MODIFY b VARCHAR(200)")
    with pytest.raises(IntegrityError):
        bench.run("ALTER TABLE t1 DROP COLUMN a, ADD z INT DEFAULT 1, ADD UNIQUE (z)")
    # One that waits for a transaction which holds the table, and others that end meanwhile.
    with server.connect(database="d", autocommit=False) as holder:
        with holder.cursor() as cursor:
            cursor.execute("UPDATE t2 SET a = 1")
        with server.connect(database="d") as altering:
            altering.query("SELECT 1")
            altering._execute_command(3, "ALTER TABLE t2 ADD COLUMN n INT")
            wait_for_start(server)
            bench.run("UPDATE t1 SET a = 5 WHERE id = 1", "ALTER TABLE t0 ADD m INT")
            holder.commit()
            altering._read_query_result()
    bench.run("UPDATE t2 SET n = 5 WHERE id = 1")
    assert bench.captured() == {"t0": {"types", "columns"}, "t2": {"columns"}}
    kinds = [event.effect for event in bench.capturer.events() if event.table == "t0"]
    assert kinds == ["types", "rebuild", "columns", "rebuild"]
    assert bench.capturer.changes("t2")[-1]["after"]["n"] == 5
    close_streams()


def wait_for_start(server: Server) -> None:
    """Until an ALTER waits for the table."""
    deadline = time.monotonic() + 60
    while not any("metadata lock" in str(row[6]) for row in server.execute("SHOW PROCESSLIST")):
        assert time.monotonic() < deadline, "no ALTER waits"
        time.sleep(0.02)
