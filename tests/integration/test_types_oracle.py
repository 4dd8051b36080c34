"""Every type on both servers: the log, the snapshot's rows and the server's own SELECT agree.

Rows are inserted, updated and deleted. Each image that the log holds, and each row as a snapshot
reads it, must equal what the server's own SELECT gave at that moment. What SELECT gives is made
into Python values here, by code that shares nothing with `wire.decode`.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lab.accounts import RATCHET_PASSWORD, RATCHET_USER, create_ratchet_user
from lab.servers import Server
from ratchet.core.change import DELETE, INSERT, UPDATE
from ratchet.core.schema import TableSchema
from ratchet.core.shard import ShardId
from ratchet.core.types import InvalidValuePolicy, ZeroDates
from ratchet.wire.decode.catalog import hints, read_schemas
from ratchet.wire.decode.engine import engine
from ratchet.wire.decode.rows import RowImageDecoder
from ratchet.wire.decode.tablemap import parse_table_map
from ratchet.wire.decode.text import TextRowDecoder
from ratchet.wire.session import Session, SourceConfig, quoted
from tests.binlog_file import DELETES, INSERTS, UPDATES, rotate, rows_events
from tests.fix_faker import SQL_MODE, FakeColumn, FakeTable, every_type_tables

Row = tuple[Any, ...]
Misfits = Counter[str]  # column -> how many values
Rows = dict[int, Row]  # by id

MISFIT = object()  # stands for a value that the lake cannot hold, and shows as NULL
SEED = 20_240_229
EXTRA = 20  # random rows of each table, without and with NULLs
NAMES = [table.name for table in every_type_tables("mysql")]
OPERATIONS = (
    dict.fromkeys(INSERTS, INSERT) | dict.fromkeys(UPDATES, UPDATE) | dict.fromkeys(DELETES, DELETE)
)


# --- what the server says ------------------------------------------------------------------


def own_expression(column: FakeColumn) -> str:
    """SQL whose text shows the value without loss, by other means than `select_list`."""
    name = column.quoted
    if column.kind in {"float", "double"}:
        return f"{name} * 1e0"
    if column.kind in {"bit", "bytes"}:
        return f"HEX({name})"
    if column.kind == "text":
        return f"HEX(CONVERT({name} USING utf8mb4))"
    return f"CONCAT({name})"


def own_value(column: FakeColumn, text: str | None, zero_dates: ZeroDates) -> object:
    """The value that the lake should have, from the text of `own_expression`."""
    if text is None:
        return None
    if column.kind in {"date", "datetime", "timestamp"}:
        return text if zero_dates == "text" else _moment(column.kind, text)
    readers: dict[str, Callable[[str], object]] = {
        "int": int,
        "decimal": Decimal,
        "float": lambda found: float(np.float32(found)),
        "double": float,
        "bit": lambda found: int(found, 16),
        "year": _year,
        "time": _microseconds,
        "text": lambda found: bytes.fromhex(found).decode(),
        "bytes": bytes.fromhex,
        "json": str,
    }
    return readers[column.kind](text)


def _year(text: str) -> int:
    """Of YEAR(2) the server shows two digits."""
    return int(text) if len(text) == 4 else int(text) + (2000 if int(text) < 70 else 1900)


def _moment(kind: str, text: str) -> object:
    """A day or an instant; MISFIT if the calendar has no such day."""
    try:
        if kind == "date":
            return date.fromisoformat(text)
        found = datetime.fromisoformat(text)
    except ValueError:
        return MISFIT
    return found.replace(tzinfo=UTC) if kind == "timestamp" else found


def _microseconds(text: str) -> int:
    hours, minutes, seconds = text.lstrip("-").split(":")
    whole, _, fraction = seconds.partition(".")
    span = timedelta(hours=int(hours), minutes=int(minutes), seconds=int(whole))
    micros = span // timedelta(microseconds=1) + int(fraction.ljust(6, "0"))
    return -micros if text.startswith("-") else micros


def own_rows(server: Server, database: str, table: FakeTable, zero_dates: ZeroDates) -> Rows:
    """All rows as the server's own SELECT shows them."""
    expressions = ", ".join(["id", *map(own_expression, table.columns)])
    with server.connect(database=database, conv={}) as connection, connection.cursor() as cursor:
        cursor.execute("SET time_zone = '+00:00', sql_mode = ''")
        cursor.execute(f"SELECT {expressions} FROM {quoted(table.name)}")
        return {
            int(row[0]): (int(row[0]), *(
                own_value(column, _text(found), zero_dates)
                for column, found in zip(table.columns, row[1:], strict=True)
            ))
            for row in cursor.fetchall()
        }  # fmt: skip


def _text(value: object) -> str | None:
    return value.decode() if isinstance(value, bytes) else None if value is None else str(value)


# --- what Ratchet says ---------------------------------------------------------------------


def lake_rows(columns: Sequence[pa.Array]) -> list[Row]:
    """Arrow columns as rows of Python values."""
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


def snapshot_rows(
    server: Server, database: str, schema: TableSchema, policy: InvalidValuePolicy
) -> tuple[Rows, Misfits]:
    """All rows as a snapshot reads them; the kernels and their twins must agree."""
    create_ratchet_user(server, databases=[database], triggers=True)
    config = SourceConfig(
        shard=ShardId("k", "-"), host=server.host, port=server.port, user=RATCHET_USER,
        password=RATCHET_PASSWORD, database=database,
    )  # fmt: skip
    session = Session.connect(config)
    found: list[Row] = []
    misfits: Misfits = Counter()
    decoders = [
        TextRowDecoder(schema, policy, implementation=engine(name)) for name in ("kernel", "plain")
    ]
    sql = f"SELECT {', '.join(decoders[0].select_list)} FROM {quoted(schema.table)}"
    try:
        for buf, start, end in session.stream_rows(sql):
            fast, plain = (decoder.decode(buf, start, end) for decoder in decoders)
            assert fast.batch.equals(plain.batch)
            assert fast.misfits == plain.misfits
            fast.batch.validate(full=True)
            found += lake_rows(fast.batch.columns)
            misfits.update(fast.misfits)
    finally:
        session.close()
    return {row[0]: row for row in found}, misfits


def logged(
    binlog: Path, database: str, schema: TableSchema, policy: InvalidValuePolicy
) -> Iterator[tuple[int, Rows, Rows, Misfits]]:
    """Operation, images before, images after and their misfits of each row event in the log."""
    for event in rows_events(binlog, database, schema.table):
        table_map = parse_table_map(event.table_map, keyspace="k", hints=hints(schema))
        assert table_map.schema == schema, "the log and information_schema differ"
        op = OPERATIONS[event.kind]
        body = np.frombuffer(event.body, np.uint8)
        span = np.zeros(1, np.int64), np.array([body.size], np.int64)
        fast, plain = (
            RowImageDecoder(table_map, policy, implementation=engine(name)).decode(body, *span, op)
            for name in ("kernel", "plain")
        )
        assert (fast.before, fast.after) == (plain.before, plain.after)
        assert fast.misfits == plain.misfits
        yield op, image_rows(fast.before), image_rows(fast.after), Counter(fast.misfits)


def image_rows(images: pa.StructArray | None) -> Rows:
    """A struct array's rows by id."""
    if images is None:
        return {}
    images.validate(full=True)
    return {row[0]: row for row in lake_rows(images.flatten())}


# --- the comparison ------------------------------------------------------------------------


def same(found: object, expected: object) -> bool:
    """Equal, of the same sign where zero has one, and in as many digits."""
    if expected is MISFIT:
        return found is None
    if isinstance(found, float) and isinstance(expected, float):
        return np.float64(found).tobytes() == np.float64(expected).tobytes()
    if isinstance(expected, Decimal):
        # A decimal of more than 38 digits is a text in the lake.
        return Decimal(found).as_tuple() == expected.as_tuple()  # type: ignore[arg-type]
    return found == expected


def compare(what: str, table: FakeTable, found: Rows, expected: Rows) -> None:
    assert found.keys() == expected.keys(), what
    names = ["id", *(f"{column.name} {column.definition}"[:100] for column in table.columns)]
    wrong = [
        f"{what}, row {number}, {name}: {a!r} instead of {b!r}"
        for number, row in expected.items()
        for name, a, b in zip(names, found[number], row, strict=True)
        if not same(a, b)
    ]
    assert not wrong, f"{len(wrong)} values differ:\n" + "\n".join(wrong[:40])


def misfits_of(table: FakeTable, *images: Rows) -> Misfits:
    """How many values of each column the lake cannot hold."""
    return Counter(
        column.name
        for rows in images
        for row in rows.values()
        for column, value in zip(table.columns, row[1:], strict=True)
        if value is MISFIT
    )


def write(server: Server, database: str, table: FakeTable) -> Iterator[str]:
    """Insert, update and delete all rows; after each step the caller looks around."""
    rng = random.Random(SEED)
    rows = table.rows(rng, EXTRA)
    with server.connect(database=database) as connection, connection.cursor() as cursor:
        cursor.execute(f"SET time_zone = '+00:00', sql_mode = '{SQL_MODE}'")
        cursor.execute(table.create_sql)
        for first in range(0, len(rows), 7):
            cursor.execute(table.insert_sql(first, rows[first : first + 7]))
        yield "insert"
        rng.shuffle(rows)
        for number, row in enumerate(rows):
            cursor.execute(table.update_sql(number, row))
        yield "update"
        cursor.execute(f"DELETE FROM {quoted(table.name)}")
        yield "delete"


@pytest.mark.parametrize(
    ("name", "zero_dates"), [*((name, "null") for name in NAMES), ("times", "text")]
)
def test_every_type(server: Server, database: str, name: str, zero_dates: ZeroDates) -> None:
    table = next(t for t in every_type_tables(server.flavor) if t.name == name)
    policy = InvalidValuePolicy(zero_dates=zero_dates)
    binlog = rotate(server)
    after: dict[str, Rows] = {}
    for step in write(server, database, table):
        after[step] = own_rows(server, database, table, zero_dates)
        if step == "insert":
            schema = read_schemas(server.execute, keyspace="k", database=database)[name]
        found, misfits = snapshot_rows(server, database, schema, policy)
        compare(f"the snapshot after {step}", table, found, after[step])
        assert misfits == misfits_of(table, after[step])
    assert not after["delete"]
    images: dict[int, tuple[Rows, Rows, Misfits]]
    images = {op: ({}, {}, Counter()) for op in (INSERT, UPDATE, DELETE)}
    for op, before, behind, misfits in logged(binlog, database, schema, policy):
        images[op][0].update(before)
        images[op][1].update(behind)
        images[op][2].update(misfits)
    compare("inserted", table, images[INSERT][1], after["insert"])
    compare("deleted", table, images[DELETE][0], after["update"])
    assert images[INSERT][2] == misfits_of(table, after["insert"])
    assert images[DELETE][2] == misfits_of(table, after["update"])
    # An update that changes nothing is not logged.
    changed = {n for n, row in after["insert"].items() if repr(row) != repr(after["update"][n])}
    updated = images[UPDATE][0].keys()
    assert changed <= updated
    first, then = ({n: after[step][n] for n in updated} for step in ("insert", "update"))
    compare("before an update", table, images[UPDATE][0], first)
    compare("after an update", table, images[UPDATE][1], then)
    assert images[UPDATE][2] == misfits_of(table, first, then)


def test_rows_of_more_than_a_packet(server: Server, database: str) -> None:
    """A packet holds 16 MB - 1; longer rows come in several, and a value may end at the border."""
    border = (1 << 24) - 1
    sizes = [border - 30, border, border + 1, 2 * border + 17, 3]
    policy = InvalidValuePolicy()
    binlog = rotate(server)
    (allowed,) = server.execute("SELECT @@GLOBAL.max_allowed_packet")[0]
    server.execute("SET GLOBAL max_allowed_packet = 128 * 1024 * 1024")
    try:
        with server.connect(database=database) as connection, connection.cursor() as cursor:
            cursor.execute("CREATE TABLE t (id INT PRIMARY KEY, a LONGBLOB, b LONGTEXT, c INT)")
            for size in sizes:
                cursor.execute(
                    "INSERT INTO t VALUES (%s, REPEAT(x'00ff', %s), REPEAT('b', %s), 7)",
                    (size, size // 2, 1 << 24 if size == 3 else 5),
                )
        schema = read_schemas(server.execute, keyspace="k", database=database)["t"]
        found, _ = snapshot_rows(server, database, schema, policy)
    finally:
        server.execute(f"SET GLOBAL max_allowed_packet = {allowed}")
    images: Rows = {}
    for _, _, behind, _ in logged(binlog, database, schema, policy):
        images.update(behind)
    expected = {
        size: (size, b"\0\xff" * (size // 2), "b" * (1 << 24 if size == 3 else 5), 7)
        for size in sizes
    }
    for rows in (found, images):
        assert rows.keys() == expected.keys()
        for size, row in expected.items():
            assert rows[size] == row, f"the row of {size} bytes"
