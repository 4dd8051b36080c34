"""Chunks by key on both servers: any key is walked in the server's order, once, along its index."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from lab.servers import Server
from lab.template import root_password
from ratchet.core.errors import TableStoppedError
from ratchet.core.schema import Column, ColumnType, TableSchema
from ratchet.core.shard import ShardId
from ratchet.snapshot import chunks
from ratchet.snapshot.keys import ChunkRange, KeyPlan, find_plan
from ratchet.wire.session import Session, SourceConfig, quoted

_NUMBERS = range(40)
# A server makes its estimates anew by itself, in its own time: then there are none for a moment.
_STILL = "STATS_AUTO_RECALC=0"
_WORDS = ["a", "B", "b1", "ä", "á1", "Z", "zz", "ß1", "", "_", "%", "O''x", "\\\\", "日本", "1"]

# name -> (columns, key, rows as SQL value lists)
TABLES: dict[str, tuple[str, str, list[str]]] = {
    "int": ("k INT", "k", [f"{n}" for n in range(-40, 40)]),
    "unsigned": (
        "k BIGINT UNSIGNED",
        "k",
        [str(n) for n in (*range(5), *range(2**63 - 9, 2**63 + 9), *range(2**64 - 9, 2**64))],
    ),
    "gap": ("k BIGINT", "k", [str(n) for n in (-(2**63), *range(1, 50), 2**62, 2**63 - 1)]),
    "falling": ("k INT, j INT", "k DESC, j", [f"{n}, {m}" for n in range(9) for m in range(9)]),
    "four": (
        "a INT, b VARCHAR(9), c DATE, d DECIMAL(30,10)",
        "a, b, c, d",
        [
            f"{a}, '{b}', '2020-01-0{c}', {d}"
            for a in (-1, 0, 7)
            for b in ("", "x", "X1", "é")
            for c in (1, 2, 3)
            for d in ("-1.5", "0", "99999999999999999999.0000000001")
        ],
    ),
    "enum": (
        "k ENUM('z','b','a','c'), j INT",
        "k, j",
        [f"'{m}', {n}" for m in ("z", "b", "a", "c") for n in range(12)],
    ),
    "enum_invalid": (
        "k ENUM('z','b'), j INT",
        "k, j",
        [f"'{m}', {n}" for m in ("z", "b", "wrong") for n in range(12)],
    ),
    "enum_behind": (
        "j INT, k ENUM('z','b','a','c')",
        "j, k",
        [f"{n}, '{m}'" for m in ("z", "b", "a", "c") for n in range(12)],
    ),
    "set": (
        "k SET('z','b','a'), j INT",
        "k, j",
        [f"'{m}', {n}" for m in ("", "z", "b,a", "z,b,a") for n in range(9)],
    ),
    "decimal": (
        "k DECIMAL(65,30)",
        "k",
        [f"{n}.{'0' * 29}{d}" for n in (-(10**34), -3, 0, 5, 10**34) for d in range(1, 9)],
    ),
    "date": (
        "k DATE",
        "k",
        ["'0000-00-00'", "'2020-00-00'", "'9999-12-31'", "'1000-01-01'"]
        + [f"'2020-01-{d:02}'" for d in range(1, 32)],
    ),
    "datetime": (
        "k DATETIME(6)",
        "k",
        ["'0000-00-00 00:00:00'", "'9999-12-31 23:59:59.999999'"]
        + [f"'2020-01-01 00:00:00.{n:06}'" for n in _NUMBERS],
    ),
    "timestamp": (
        "k TIMESTAMP(3)",
        "k",
        ["'0000-00-00 00:00:00'", "'1970-01-01 00:00:01'"]
        + [f"'2020-10-25 0{h}:30:00.{n:03}'" for h in range(4) for n in range(12)],
    ),
    "time": (
        "k TIME(6)",
        "k",
        ["'-838:59:59'", "'838:59:59'", "'-00:00:00.5'", "'00:00:00'", "'100:00:00'"]
        + [f"'-00:00:{n:02}.000001'" for n in _NUMBERS],
    ),
    "year": ("k YEAR", "k", ["0000", "1901", "2155", *(str(1970 + n) for n in _NUMBERS)]),
    "bit": ("k BIT(64)", "k", [str(n) for n in (*range(30), 2**63, 2**64 - 1)]),
    "binary": ("k BINARY(3)", "k", [f"x'{n:02x}00'" for n in range(0, 256, 7)]),
    "varbinary": (
        "k VARBINARY(20)",
        "k",
        ["''", "x'00'", "x'0000'", "'a'", "'a '", "x'ff'", "x'276100'", "'\\\\'"]
        + [f"x'fe{n:02x}'" for n in range(30)],
    ),
    "collated": (
        "k VARCHAR(20) CHARSET utf8mb4 COLLATE utf8mb4_general_ci",
        "k",
        [f"'{w}'" for w in ("a", "A1", "á2", "b ", "", *_WORDS[5:], "e", "É1", "日", "😀")],
    ),
    "latin1": (
        "k CHAR(20) CHARSET latin1 COLLATE latin1_german1_ci",
        "k",
        [f"'{w}{n}'" for w in ("a", "ä", "Z", "ß", "ü") for n in range(9)],
    ),
    "cp932": (
        "k CHAR(20) CHARSET cp932",
        "k",
        [f"'{w}{n}'" for w in ("a", "日本", "表", "①", "~") for n in range(9)],
    ),
    "utf16le": (
        "k VARCHAR(20) CHARSET utf16le",
        "k",
        [f"'{w}{n}'" for w in ("a", "日本", "😀", "ä") for n in range(9)],
    ),
    "binary_text": (
        "k VARCHAR(20) CHARSET utf8mb4 COLLATE utf8mb4_bin",
        "k",
        [f"'{w}'" for w in ("a", "A", "á", "Á", "ab", "a b", "😀", "ﬁ", "fi", *_WORDS[5:])],
    ),
    "unique": ("j INT, k VARCHAR(20), UNIQUE u (k)", "", [f"1, 'x{n}'" for n in _NUMBERS]),
    "prefix": ("k TEXT", "k(5)", [f"'{n:03}xx'" for n in _NUMBERS]),
    "0900": (
        "k VARCHAR(20) CHARSET utf8mb4 COLLATE utf8mb4_0900_ai_ci",
        "k",
        [f"'{w}{n}'" for w in ("a", "a ", "á2", "Å3", "") for n in range(9)],
    ),
    "nopad": (
        "k CHAR(20) CHARSET utf8mb4 COLLATE utf8mb4_general_nopad_ci",
        "k",
        [f"'{w}'" for w in ("a", " a", "a1", "", "á2", "b", "e", "f", "g", "h", "i", "j")],
    ),
    "uca1400": (
        "k VARCHAR(20) CHARSET utf8mb4 COLLATE utf8mb4_uca1400_ai_ci",
        "k",
        [f"'{w}{n}'" for w in ("a", "á2", "b", "") for n in range(9)],
    ),
    "uuid": ("k UUID", "k", [f"'{n:08x}-0000-1000-8000-0000000000{n:02x}'" for n in _NUMBERS]),
    "inet6": ("k INET6", "k", [f"'::{n:x}'" for n in _NUMBERS]),
    "inet4": ("k INET4", "k", [f"'1.2.3.{n}'" for n in _NUMBERS]),
}
ONLY = {
    "0900": "mysql",
    "nopad": "mariadb",
    "uca1400": "mariadb",
    "uuid": "mariadb",
    "inet6": "mariadb",
    "inet4": "mariadb",
}
# Read as a whole, in one piece.
UNORDERED = {"prefix"}
# The server finds the place in the index by scanning it: right, and slower.
SCANNED = {"set", "enum_invalid"}


@pytest.fixture
def session(server: Server, database: str) -> Iterator[Session]:
    """A session as Ratchet opens it."""
    config = SourceConfig(
        shard=ShardId("shop", "-"),
        host=server.host,
        port=server.port,
        user="root",
        password=root_password(),
        database=database,
        tls="disabled",
    )
    with Session.connect(config) as opened:
        yield opened


def _schema(session: Session, table: str, key: tuple[str, ...]) -> TableSchema:
    """The parts of a schema that a key plan looks at."""
    rows = session.query(
        "SELECT COLUMN_NAME, DATA_TYPE, COLUMN_TYPE FROM information_schema.COLUMNS"
        " WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION",
        (table,),
    )
    columns = tuple(
        Column(
            name=name,
            type=ColumnType(
                name=kind, members=("?",) * (full.count("'") // 2) if kind == "enum" else ()
            ),
        )
        for name, kind, full in rows
    )
    return TableSchema(keyspace="shop", table=table, columns=columns, key=key)


def _plan(session: Session, table: str, key: tuple[str, ...] = ("k",)) -> KeyPlan:
    return find_plan(
        session.query,
        database=session.config.database,
        schema=_schema(session, table, key),
        mariadb=session.is_mariadb,
    )


def _create(session: Session, name: str, *, filler: int = 0) -> KeyPlan:
    columns, key, rows = TABLES[name]
    parts = ", ".join(f"{c} NOT NULL" if "UNIQUE" not in c else c for c in _parts(columns))
    primary = f", PRIMARY KEY ({key})" if key else ""
    session.execute(
        f"CREATE TABLE `{name}` ({parts}{primary}, filler TEXT) CHARSET utf8mb4 {_STILL}"
    )
    for row in rows:
        session.execute(f"INSERT IGNORE INTO `{name}` VALUES ({row}, REPEAT('x', {filler}))")
    names = tuple(part.split()[0].split("(")[0] for part in _parts(key))
    return _plan(session, name, names or ("k",))


def _parts(text: str) -> list[str]:
    """Split at commas outside brackets."""
    found, depth = [""], 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            found.append("")
        else:
            found[-1] += letter
    return [part.strip() for part in found if part.strip()]


def _rows(session: Session, plan: KeyPlan, keys: ChunkRange, limit: int = 10**9) -> list[Any]:
    sql = f"SELECT {plan.texts} FROM {plan.source}{plan.where(keys)}{plan.order()} LIMIT {limit}"
    return [plan.bound(row) for row in session.query(sql)]


def _in_order(session: Session, plan: KeyPlan) -> list[Any]:
    """The whole table in the server's own order, without any of our conditions."""
    order = ", ".join(f"{quoted(c.name)}{' DESC' if c.descending else ''}" for c in plan.columns)
    sql = f"SELECT {plan.texts} FROM {quoted(plan.table)} ORDER BY {order}"
    return [plan.bound(row) for row in session.query(sql)]


def _reads(session: Session, plan: KeyPlan, keys: ChunkRange, *, limit: int = 10**9) -> int:
    """How many rows the server's engine hands over for a range."""
    session.execute("FLUSH STATUS")
    _rows(session, plan, keys, limit)
    rows = session.query("SHOW SESSION STATUS LIKE 'Handler_read%'")
    return sum(int(value) for _, value in rows)


@pytest.mark.parametrize("name", list(TABLES))
def test_any_key_is_walked_once_in_the_servers_order(
    session: Session, server: Server, name: str
) -> None:
    """Chunks of five rows, each beginning where the last one ended, give the table in order."""
    if ONLY.get(name, server.flavor) != server.flavor:
        return
    plan = _create(session, name)
    expected = _in_order(session, plan)
    assert len(expected) >= len(set(expected)) >= 10
    if name in UNORDERED:
        assert not plan.walkable
        assert sorted(_rows(session, plan, ChunkRange())) == sorted(expected)
        return
    found: list[Any] = []
    keys = ChunkRange()
    while rows := _rows(session, plan, keys, 5):
        found += rows
        keys = ChunkRange(after=rows[-1])
    assert found == expected


@pytest.mark.parametrize("name", [n for n in TABLES if n not in UNORDERED | SCANNED])
def test_a_chunk_reads_no_more_than_its_rows(session: Session, server: Server, name: str) -> None:
    """The engine hands over the chunk's rows and little more, wherever in the table it lies."""
    if ONLY.get(name, server.flavor) != server.flavor:
        return
    plan = _create(session, name, filler=900)
    session.query(f"ANALYZE TABLE {quoted(name)}")
    expected = _in_order(session, plan)
    for at in (0, len(expected) // 3, len(expected) - 6):
        keys = ChunkRange(after=expected[at])
        assert _reads(session, plan, keys, limit=5) <= 5 + 4
        keys = ChunkRange(after=expected[at], upto=expected[at + 5])
        assert _reads(session, plan, keys) <= 5 + 8
        assert _rows(session, plan, keys) == expected[at + 1 : at + 6]


@pytest.mark.parametrize("name", [n for n in TABLES if n not in UNORDERED])
def test_splitting_keeps_every_row_once(session: Session, server: Server, name: str) -> None:
    """A table cut in ever smaller ranges still has each row in exactly one range, in order."""
    if ONLY.get(name, server.flavor) != server.flavor:
        return
    plan = _create(session, name)
    session.query(f"ANALYZE TABLE {quoted(name)}")
    ranges = chunks.first_ranges(session.query, plan, 8, smallest=2)
    assert len(ranges) >= 4
    assert ranges[0].after is None
    assert ranges[-1].upto is None
    assert all(a.upto == b.after for a, b in itertools.pairwise(ranges))
    found = [row for keys in ranges for row in _rows(session, plan, keys)]
    assert found == _in_order(session, plan)


def test_a_huge_gap_costs_only_a_few_steps(session: Session) -> None:
    """60,000 rows at the beginning of 2**64 numbers are split among readers all the same."""
    session.execute(f"CREATE TABLE t (k BIGINT UNSIGNED PRIMARY KEY) {_STILL}")
    _fill(session, "t", 60_000)
    session.execute("INSERT INTO t VALUES (18446744073709551615)")
    session.query("ANALYZE TABLE t")
    asked: list[str] = []

    def query(sql: str) -> list[tuple[Any, ...]]:
        asked.append(sql)
        return session.query(sql)

    plan = _plan(session, "t")
    ranges = chunks.first_ranges(query, plan, 4, smallest=1000)
    sizes = [len(_rows(session, plan, keys)) for keys in ranges]
    assert sum(sizes) == 60_001
    assert len(sizes) == 4
    assert max(sizes) < 30_000
    assert len(asked) < 200


def test_one_number_in_front_is_split_behind_it(session: Session) -> None:
    """Where all rows share the first column, the second one is cut."""
    session.execute(f"CREATE TABLE t (a INT, k INT, PRIMARY KEY (a, k)) {_STILL}")
    _fill(session, "t", 20_000, "7, {n}")
    session.query("ANALYZE TABLE t")
    plan = _plan(session, "t", ("a", "k"))
    ranges = chunks.first_ranges(session.query, plan, 4, smallest=1000)
    sizes = [len(_rows(session, plan, keys)) for keys in ranges]
    assert sum(sizes) == 20_000
    assert len(sizes) == 4
    assert max(sizes) < 10_000


def test_an_empty_table_has_no_ranges(session: Session) -> None:
    """An empty table needs no reader; a table of one row needs one."""
    session.execute("CREATE TABLE t (k INT PRIMARY KEY)")
    plan = _plan(session, "t")
    assert chunks.split(session.query, plan, ChunkRange()) == ()
    session.execute("INSERT INTO t VALUES (1)")
    assert chunks.split(session.query, plan, ChunkRange()) == (ChunkRange(),)


@pytest.mark.parametrize(
    ("columns", "key"),
    [
        ("k INT", ()),
        ("k INT NULL UNIQUE", ()),
        ("k DOUBLE PRIMARY KEY", ("k",)),
        ("j INT, k FLOAT, PRIMARY KEY (j, k)", ("j", "k")),
    ],
)
def test_no_usable_key_stops_the_table(
    session: Session, columns: str, key: tuple[str, ...]
) -> None:
    """Without a key that identifies rows a table stops, and the error says how to go on."""
    session.execute(f"CREATE TABLE t ({columns})")
    with pytest.raises(TableStoppedError) as error:
        _plan(session, "t", key)
    assert "ALTER TABLE `t` " in error.value.hint
    # "Add a primary key" is no remedy for a table that has one.
    assert ("MODIFY `k` DECIMAL" if key else "ADD PRIMARY KEY (...);") in error.value.hint
    assert '"!t"' in error.value.hint


def _fill(session: Session, table: str, rows: int, values: str = "{n}") -> None:
    for first in range(0, rows, 5000):
        lists = ", ".join(f"({values.format(n=n)})" for n in range(first, min(first + 5000, rows)))
        session.execute(f"INSERT INTO {quoted(table)} VALUES {lists}")
