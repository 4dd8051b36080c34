"""Each refusal is provoked on a real server, and its printed remedy typed: it gets out.

A case says what brings the refusal about and what is expected to be said. The rest is the same for
all: the SQL and the `ratchet` commands are taken from the printed text, run, and the mirror is
compared with its source. Between two cases nothing else is done to the lake.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pymysql
import pytest
import yaml
from fix_e2e import PASSWORD, Ratchet, assert_identical, mirror_rows, status

from lab.servers import create_ratchet_user

SQL = re.compile(r"(?:SET (?:GLOBAL|PERSIST)|ALTER TABLE|GRANT|STOP|START|CHANGE|FLUSH)\b[^;]*;")
EXCLUDED = re.compile(r'"(![^"]+)"')
COMMAND = re.compile(r"`ratchet ([^`]*)`")


@dataclass(frozen=True)
class Case:
    """A refusal.

    Attributes:
        name: for messages.
        provoke: brings it about, right behind what is mirrored.
        exit: of `run --until-caught-up`.
        says: a part of what is printed.
        flavor: of the servers that can be brought to it; empty: both.
    """

    name: str
    provoke: Callable[[Any], None]
    exit: int
    says: str
    flavor: str = ""


def execute(*statements: str, refused: str = "") -> Callable[[Any], None]:
    """In one session; `refused` in another one, which the server refuses."""

    def provoke(server: Any) -> None:
        with server.connect(database="shop") as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
        if refused:
            with pytest.raises(pymysql.err.Error):
                server.execute(refused, database="shop")

    return provoke


def put_into_the_log(kind: int, body: bytes) -> Callable[[Any], None]:
    """An event that no statement brings about, at the end of the newest file."""

    def provoke(server: Any) -> None:
        # MariaDB begins with the next file where all of this one was read.
        execute("UPDATE t SET v = v + 1")(server)
        server.stop()
        name = max(server.datadir.glob("bin.[0-9]*"))
        raw = name.read_bytes()
        size = 19 + len(body) + 4
        event = struct.pack("<IBIIIH", 1, kind, 1, size, len(raw) + size, 0) + body
        name.write_bytes(raw + event + struct.pack("<I", zlib.crc32(event)))
        server.start()
        execute("UPDATE t SET v = v + 1")(server)  # else nothing behind it is asked for

    return provoke


# A statement of which the server can log a part only.
LARGE = (
    "INSERT INTO my (v) SELECT 1 FROM information_schema.COLUMNS",
    "SET GLOBAL binlog_stmt_cache_size = 4096",
    "SET GLOBAL max_binlog_stmt_cache_size = 4096",
)
LOST = execute(*LARGE, refused="INSERT INTO my (v) SELECT v FROM my")


def tear(statement: str) -> Callable[[Any], None]:
    """A statement that does not fit either, of which the server writes a torn event."""

    def provoke(server: Any) -> None:
        server.execute("SET GLOBAL max_binlog_stmt_cache_size = 4294967296")
        execute(*LARGE, refused=statement)(server)

    return provoke


# These stop the stream of the whole server.
STREAM = (
    Case("lost", LOST, 0, "lacks changes"),
    Case("incident", put_into_the_log(26, struct.pack("<HB", 1, 4) + b"lost"), 0, "lacks changes",
         "mariadb"),
    Case("anonymous", execute("SET GLOBAL gtid_mode = ON_PERMISSIVE", "SET gtid_next = 'ANONYMOUS'",
                              "INSERT INTO t VALUES (60, 1)", "SET gtid_next = 'AUTOMATIC'",
                              "SET GLOBAL gtid_mode = ON"), 3, "has no GTID", "mysql"),
    Case("unknown", put_into_the_log(200, b"of a later version"), 8, "does not know", "mariadb"),
    Case("order", execute("SET SESSION gtid_seq_no = 100000", "INSERT INTO t VALUES (70, 1)",
                          "SET SESSION gtid_seq_no = 50000", "INSERT INTO t VALUES (71, 1)"),
         3, "is not above the last one", "mariadb"),
    Case("torn", tear("UPDATE my SET v = v + 1"), 5, "ends within a transaction", "mysql"),
    Case("torn", tear("DELETE FROM my"), 5, "ends within a transaction", "mariadb"),
)  # fmt: skip
# These stop one table.
JSON = "UPDATE j SET doc = JSON_SET(doc, '$.b', v), v = v + 1"
TABLES = (
    Case("image", execute("SET binlog_row_image = 'MINIMAL'", "UPDATE t SET v = 9 WHERE id = 1"),
         6, "row events do not hold all columns"),
    Case("mixed", execute("ALTER TABLE j ADD UNIQUE (v)", "SET binlog_format = 'MIXED'",
                          "INSERT INTO j (id, v) VALUES (5, 5) ON DUPLICATE KEY UPDATE v = 6"),
         0, "1 row corrected", "mariadb"),
    Case("json", execute("SET binlog_row_value_options = 'PARTIAL_JSON'", JSON), 6,
         "logged as a partial update", "mysql"),
    Case("metadata", execute("SET GLOBAL binlog_row_metadata = 'MINIMAL'", "UPDATE t SET v = 8"),
         3, "binlog_row_metadata: MINIMAL"),
    Case("token", execute("ALTER TABLE t ADD COLUMN _token INT", "UPDATE t SET v = 7, _token = 1"),
         6, "the name of Ratchet's own column"),
    Case("row_index", execute("CREATE TABLE odd (id INT PRIMARY KEY, _tmp_metadata_row_index INT)",
                              "INSERT INTO odd VALUES (1, 1)"),
         6, "the name of Spark's own column"),
    Case("float", execute("CREATE TABLE f (k DOUBLE NOT NULL PRIMARY KEY, v INT)",
                          "INSERT INTO f VALUES (0.5, 1), (1.25, 2)"),
         6, "is a DOUBLE, which is no exact value"),
    Case("key", execute("CREATE TABLE nokey (a INT NOT NULL)", "INSERT INTO nokey VALUES (1)"), 6,
         "neither a primary key nor a unique key"),
)  # fmt: skip

SWAPPED = Case(
    "swapped",
    execute(
        "CREATE TABLE t_new LIKE t",
        "INSERT INTO t_new SELECT * FROM t",
        "RENAME TABLE t TO t_old, t_new TO t",
    ),
    6,
    "RENAME TABLE t TO t_old",
)
ENUM = "ALTER TABLE e MODIFY c ENUM('b', 'a')"
# These stop one table by what a statement does to it, whether rows follow or not.
STATEMENTS = (
    Case("added", execute("ALTER TABLE t ADD COLUMN n INT NOT NULL DEFAULT 5"), 6, "n"),
    Case("renamed column", execute("ALTER TABLE t CHANGE n m INT NOT NULL DEFAULT 5"), 6, "m"),
    Case("dropped column", execute("ALTER TABLE t DROP COLUMN m"), 6, "a column goes"),
    Case("wider", execute("ALTER TABLE t MODIFY v BIGINT NOT NULL"), 6, "v from int32 to int64"),
    Case("other key", execute("ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (id, v)"), 6, "key"),
    SWAPPED,
    Case("told", execute("SET binlog_format = 'STATEMENT'", "UPDATE t SET v = v + 1 LIMIT 1"), 0,
         "corrected"),
    Case("nulls", execute("CREATE TABLE n (id INT PRIMARY KEY, v INT)",
                          "INSERT INTO n VALUES (1, NULL)"), 0, ""),
    Case("no nulls", execute("SET sql_mode = ''", "alter table n modify v INT NOT NULL"), 0,
         "1 row corrected"),
    Case("order of members", execute("CREATE TABLE e (id INT PRIMARY KEY, c ENUM('a', 'b'))",
                                     "INSERT INTO e VALUES (1, 'a')"), 0, ""),
    Case("members", execute(ENUM), 0, ""),
    Case("emptied partition", execute("ALTER TABLE t PARTITION BY HASH (id) PARTITIONS 3",
                                      "ALTER TABLE t TRUNCATE PARTITION p1"), 6, "TRUNCATE"),
    Case("gone", execute("DROP TABLE t_old"), 6, "DROP TABLE `t_old`"),
    Case("engine", execute("ALTER TABLE my ENGINE = BLACKHOLE"), 6, "its engine is BLACKHOLE",
         "mysql"),  # the MariaDB of the lab has no such engine
    Case("virtual", execute("ALTER TABLE e ADD COLUMN g DECIMAL(30,15) AS (id / 3) VIRTUAL"), 6,
         "div_precision_increment"),
)  # fmt: skip


@pytest.fixture
def stage(
    make_server: Callable[..., Any], make_ratchet: Callable[..., Ratchet]
) -> Callable[[str], tuple[Any, Ratchet]]:
    def make(flavor: str) -> tuple[Any, Ratchet]:
        server = make_server(flavor)
        server.execute("CREATE DATABASE shop")
        execute(
            "CREATE TABLE t (id INT NOT NULL PRIMARY KEY, v INT)",
            "INSERT INTO t VALUES (1, 1), (2, 2)",
            "CREATE TABLE my (id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, v INT) ENGINE=MyISAM",
            "CREATE TABLE j (id INT NOT NULL PRIMARY KEY, doc JSON, v INT)",
            "INSERT INTO j VALUES (1, CONCAT('{\"a\": \"', REPEAT('x', 300), '\", \"b\": 1}'), 1)",
        )(server)
        create_ratchet_user(server, PASSWORD, ["shop"])
        ratchet = make_ratchet({"-": server}, "shop", source={"schema_changes": "stop"})
        ratchet.run("run", "--until-caught-up")
        return server, ratchet

    return make


def remedies(ratchet: Ratchet, said: str) -> str:
    """What is printed: by the command that failed, and of stopped tables by `status`."""
    tables = status(ratchet)["tables"]
    hints = [one["stopped"] + " " + one["hint"] for one in tables if one["phase"] == "stopped"]
    return " ".join(hints) or " ".join(said.split())


def type_remedy(server: Any, ratchet: Ratchet, said: str) -> None:
    """Type what the text says, word for word; a key's columns are the reader's to fill in.

    Where it gives the choice between an exclusion and a new dump, the table is excluded.
    """
    for statement in SQL.findall(said.replace("(...)", "(a)")):
        server.execute(statement, database="shop")
    for table in EXCLUDED.findall(said):
        config = yaml.safe_load(ratchet.config.read_text())
        (source,) = config["sources"].values()
        source["tables"] = [*source.get("tables", ["*"]), table]
        ratchet.config.write_text(yaml.safe_dump(config))
    for command in dict.fromkeys(COMMAND.findall(said)):
        words = [word.strip("'\"") for word in command.split() if word != "CONFIG"]
        excluded = {f"shop.{table.removeprefix('!')}" for table in EXCLUDED.findall(said)}
        if words[0] in {"dump", "heal", "table", "repair"} and not excluded & set(words):
            ratchet.run(*words)


def play(server: Any, ratchet: Ratchet, cases: Sequence[Case]) -> None:
    for case in cases:
        if case.flavor not in {"", server.flavor}:
            continue
        case.provoke(server)
        done = ratchet.run("run", "--until-caught-up", expect=None)
        said = " ".join(done.stderr.split())
        assert done.returncode == case.exit, f"{case.name}: {done.returncode} {said}"
        assert case.says in said, f"{case.name}: {said}"
        text = remedies(ratchet, said)
        type_remedy(server, ratchet, text)
        done = ratchet.run("run", "--until-caught-up", expect=None)
        if done.returncode:  # what the setting did meanwhile, to which table
            text = remedies(ratchet, " ".join(done.stderr.split()))
            type_remedy(server, ratchet, text)
            ratchet.run("run", "--until-caught-up")
        tables = {one["table"]: one["phase"] for one in status(ratchet)["tables"]}
        tables = {name: phase for name, phase in tables.items() if phase != "excluded"}
        assert set(tables.values()) == {"streaming"}, f"{case.name}: {tables}; {text}"
        execute("UPDATE t SET v = v + 1")(server)
        ratchet.run("run", "--until-caught-up")
        assert_identical(ratchet.lake, [server], "shop", sorted(tables))


def of_flavor(cases: Sequence[Case], flavor: str) -> list[Case]:
    return [case for case in cases if case.flavor in {"", flavor}]


CORE = [("mysql", STREAM[0]), ("mariadb", STREAM[1]), ("mysql", TABLES[0])]
OTHERS = [
    (flavor, case)
    for flavor in ("mariadb", "mysql")
    for case in (*of_flavor(STREAM, flavor), *of_flavor(TABLES, flavor))
    if (flavor, case) not in CORE
]


@pytest.mark.long
@pytest.mark.parametrize("flavor", ["mariadb", "mysql"])
def test_remedies(stage: Callable[[str], tuple[Any, Ratchet]], flavor: str) -> None:
    """The core of the table."""
    server, ratchet = stage(flavor)
    play(server, ratchet, [case for on, case in CORE if on == flavor])


@pytest.mark.long
@pytest.mark.parametrize(
    ("flavor", "case"), OTHERS, ids=[f"{flavor}-{case.name}" for flavor, case in OTHERS]
)
def test_the_other_remedies(
    stage: Callable[[str], tuple[Any, Ratchet]], flavor: str, case: Case
) -> None:
    """The rest of it."""
    play(*stage(flavor), [case])


@pytest.mark.long
@pytest.mark.parametrize("half", [0, 1])
@pytest.mark.parametrize("flavor", ["mariadb", "mysql"])
def test_remedies_of_statements(
    stage: Callable[[str], tuple[Any, Ratchet]], flavor: str, half: int
) -> None:
    """What a statement stops is excluded or dumped again, as is said."""
    server, ratchet = stage(flavor)
    middle = STATEMENTS.index(SWAPPED)
    play(server, ratchet, (STATEMENTS[:middle], STATEMENTS[middle:])[half])


@pytest.mark.long
@pytest.mark.parametrize("flavor", ["mariadb", "mysql"])
def test_zero_dates_in_a_key(stage: Callable[[str], tuple[Any, Ratchet]], flavor: str) -> None:
    """The key of the config as it is printed; tables with dates of the old types do not go on."""
    server, ratchet = stage(flavor)
    execute(
        "SET sql_mode = ''",
        "CREATE TABLE z (d DATE NOT NULL PRIMARY KEY, v INT)",
        "INSERT INTO z VALUES ('0000-00-00', 1), ('2026-01-02', 2)",
        "CREATE TABLE day (id INT NOT NULL PRIMARY KEY, d DATE)",
        "INSERT INTO day VALUES (1, '2026-01-02')",
    )(server)
    said = ratchet.run("run", "--until-caught-up", expect=6).stderr
    assert "is part of the key" in said
    found = re.search(r'set types: (\{zero_dates: "text"\})', " ".join(said.split()))
    assert found is not None
    text = remedies(ratchet, said)
    ratchet.config.write_text(f"{ratchet.config.read_text()}\ntypes: {found[1]}\n")
    execute("INSERT INTO day VALUES (2, '2026-02-03')")(server)
    said = ratchet.run("run", "--until-caught-up", expect=6).stderr
    assert "zero_dates in the config gives d another type" in " ".join(said.split())
    type_remedy(server, ratchet, text)
    ratchet.run("run", "--until-caught-up")
    assert {one["phase"] for one in status(ratchet)["tables"]} == {"streaming"}
    execute("INSERT INTO day VALUES (3, '2026-03-04')", "UPDATE z SET v = 9")(server)
    ratchet.run("run", "--until-caught-up")
    days = sorted(row["d"] for row in mirror_rows(ratchet.lake, "shop", "day"))
    assert days == ["2026-01-02", "2026-02-03", "2026-03-04"]
    rows = {row["d"]: row["v"] for row in mirror_rows(ratchet.lake, "shop", "z")}
    assert rows == {"0000-00-00": 9, "2026-01-02": 9}


@pytest.mark.long
@pytest.mark.parametrize("flavor", ["mariadb", "mysql"])
def test_an_event_of_too_many_rows(
    make_server: Callable[..., Any], make_ratchet: Callable[..., Ratchet], flavor: str
) -> None:
    """As a server writes it that was told to, of rows that are small there and large decoded."""
    server = make_server(flavor, options={"binlog-row-event-max-size": str(1 << 26)})
    server.execute("CREATE DATABASE shop")
    columns = ", ".join(f"c{number} TINYINT" for number in range(1000))
    execute(
        f"CREATE TABLE wide (id INT NOT NULL PRIMARY KEY, {columns})",
        "CREATE TABLE digits (d INT NOT NULL PRIMARY KEY)",
        f"INSERT INTO digits VALUES {', '.join(f'({digit})' for digit in range(10))}",
    )(server)
    create_ratchet_user(server, PASSWORD, ["shop"])
    ratchet = make_ratchet({"-": server}, "shop")
    ratchet.run("run", "--until-caught-up")
    numbers = " + ".join(f"{10**power} * {name}.d" for power, name in enumerate("abcde"))
    tables = ", ".join(f"digits {name}" for name in "abcde")
    execute(f"INSERT INTO wide (id) SELECT {numbers} FROM {tables}")(server)
    said = " ".join(ratchet.run("run", "--until-caught-up", expect=6).stderr.split())
    assert "start the server with a smaller binlog_row_event_max_size" in said
    server.restart(options={"binlog-row-event-max-size": "8192"})
    type_remedy(server, ratchet, remedies(ratchet, said))
    ratchet.run("run", "--until-caught-up")
    execute("UPDATE wide SET c7 = 7 WHERE id % 1000 = 0")(server)
    ratchet.run("run", "--until-caught-up")
    assert {one["phase"] for one in status(ratchet)["tables"]} == {"streaming"}
    ratchet.run("verify", "--table", "shop.wide")
