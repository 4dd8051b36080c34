"""End-to-end support: a config, the `ratchet` command as users run it, a live writer, and a
comparison of source and mirror that shares no code with Ratchet.

The comparison reads the source by PyMySQL and the mirror by deltalake's query engine, and knows
the documented mapping of types (docs/types.md) in its own words.
"""

from __future__ import annotations

import json
import os
import random
import re
import shlex
import signal
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pymysql
import pytest
import yaml
from deltalake import DeltaTable, QueryBuilder
from pymysql.constants import FIELD_TYPE

from ratchet.store.layout import encode_part
from tests.forked import ForkedProcess, is_alike

ROOT = Path(__file__).resolve().parent.parent
# A JVM that lives for seconds spends them compiling: the quick compiler alone does it in less.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
PASSWORD = "s3cret-Only-In-Env"
Process: TypeAlias = ForkedProcess | subprocess.Popen[str]


@dataclass
class Ratchet:
    """One config and the command line on it.

    Attributes:
        config: the file.
        lake: the folder.
        env: what the command gets besides our own environment.
        inside: head of the command line, for one that runs somewhere else.
        forks: whether its commands are forked from a process that has imported Ratchet
            (`forked`), where that makes no difference; else each is started.
        started: all that was ever started.
    """

    config: Path
    lake: Path
    env: dict[str, str] = field(default_factory=dict)
    inside: tuple[str, ...] = ()
    forks: bool = True
    started: list[Process] = field(default_factory=list)

    def start(self, *args: str, crash_at: str = "", log: Path | None = None, **env: str) -> Process:
        """Start `ratchet ARGS[0] CONFIG ARGS[1:]`; at `crash_at` it kills itself.

        `log` gets what it says, for a test that looks at it meanwhile.
        """
        command = [args[0], str(self.config), *args[1:]]
        extra = {"RATCHET_CRASH_AT": crash_at} if crash_at else {}
        environment = {**os.environ, **self.env, **extra, **env}
        with nullcontext() if log is None else log.open("w") as said:
            if self.forks and not self.inside and is_alike(environment):
                process: Process = ForkedProcess(command, environment, said)
                SEEN["forked"] += 1
            else:
                SEEN["started"] += 1
                process = subprocess.Popen(
                    [*self.inside, sys.executable, "-m", "ratchet.jobs.cli", *command],
                    cwd=ROOT,
                    env=environment,
                    stdout=subprocess.PIPE,
                    stderr=said or subprocess.PIPE,
                    text=True,
                    start_new_session=True,
                )
        self.started.append(process)
        return process

    def end_all(self) -> None:
        """Kill whatever a failed test left running, with everything it started."""
        for process in self.started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()

    def run(
        self,
        *args: str,
        crash_at: str = "",
        expect: int | None = 0,
        timeout: float = 600,
        **env: str,
    ) -> subprocess.CompletedProcess[str]:
        """Run it to its end and check the exit code (`expect=None`: any)."""
        process = self.start(*args, crash_at=crash_at, log=None, **env)
        out, err = end_of(process, timeout)
        done = subprocess.CompletedProcess(args, process.wait(), out, err)
        if expect is not None and process.returncode != expect:
            pytest.fail(f"ratchet {args}: exit {process.returncode}\n{out[-3000:]}\n{err[-6000:]}")
        assert PASSWORD not in out + err
        return done

    def redump_as_told(self, said: str) -> list[str]:
        """Type each `ratchet table CONFIG redump ...` of a message, and give them."""
        told = re.findall(r"`ratchet (table CONFIG redump [^`]+)`", said)
        for remedy in told:
            self.run(*(word for word in shlex.split(remedy) if word != "CONFIG"))
        return told


def end_of(process: Process, timeout: float) -> tuple[str, str]:
    """Wait until it ends; what it wrote. One that does not is killed, and what it wrote is told."""
    try:
        return process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        pytest.fail(f"{process.args!r} did not end in {timeout} s\n{out[-3000:]}\n{err[-9000:]}")


def execute(server: Any, *statements: str, database: str = "shop") -> None:
    """Execute statements in one session, each committed by itself."""
    with server.connect(database=database, autocommit=True) as connection:
        for statement in statements:
            connection.cursor().execute(statement)


def wait_while_running(running: Process, until: Callable[[], bool], *, within: float) -> None:
    """Wait until something holds; the run must live, and it must come in so many seconds."""
    deadline = time.monotonic() + within
    while not until():
        assert running.poll() is None, running.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def make_ratchet(tmp_path: Path) -> Iterator[Callable[..., Ratchet]]:
    """A factory: shard name -> server, database, more config; gives the command on that config.

    `folder` is for a test that has several.
    """

    def make(servers: dict[str, Any], database: str, folder: str = "", **more: Any) -> Ratchet:
        shards = {
            name: {
                "host": server.host,
                "port": server.port,
                "user": "ratchet",
                "password": "${RATCHET_TEST_PASSWORD}",
                "database": database,
            }
            for name, server in servers.items()
        }
        source = {"kind": "binlog", "shards": shards, "tables": ["*"], **more.pop("source", {})}
        config = {
            "lake": "./lake",
            "sources": {"shop": source},
            "capture": {"look_seconds": 3, **more.pop("capture", {})},
            "spark": {"conf": {"spark.driver.extraJavaOptions": SHORT_LIVED}},
            **more,
        }
        path = tmp_path / folder / "ratchet.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(yaml.safe_dump(config))
        lake = path.parent / "lake"
        made.append(Ratchet(path, lake, {"RATCHET_TEST_PASSWORD": PASSWORD}))
        return made[-1]

    made: list[Ratchet] = []
    yield make
    for ratchet in made:
        ratchet.end_all()


# --- the comparison -------------------------------------------------------------------------------

# What the tests of this process have read of mirrors to compare it, rows and bytes of Arrow data;
# and how many commands they have forked and started.
SEEN: Counter[str] = Counter()


class _Figures:
    """Tells at the end how much was compared, summed up over the workers of pytest-xdist."""

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["seen"] = dict(SEEN)

    def pytest_testnodedown(self, node: Any) -> None:
        SEEN.update(getattr(node, "workeroutput", {}).get("seen", {}))

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if SEEN:
            terminalreporter.write_line(
                f"mirrors read for a comparison: {SEEN['rows']:,} rows, {SEEN['bytes']:,} bytes; "
                f"commands: {SEEN['forked']:,} forked, {SEEN['started']:,} started"
            )


def pytest_configure(config: pytest.Config) -> None:
    """Register what counts."""
    config.pluginmanager.register(_Figures(), "figures")


def source_rows(server: Any, database: str, table: str) -> list[dict[str, Any]]:
    """All rows as the server's own SELECT gives them, in the lake's documented form."""
    connection = server.connect(database=database, conv=_converters(), charset="utf8mb4")
    with connection, connection.cursor() as cursor:
        cursor.execute("SET time_zone = '+00:00'")
        cursor.execute(
            "SELECT COLUMN_NAME, DATA_TYPE, COLUMN_TYPE FROM information_schema.COLUMNS "
            "WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION",
            (database, table),
        )
        columns = [(n, t.lower(), ct.lower()) for n, t, ct in cursor.fetchall()]
        names = ", ".join(_select(name, kind) for name, kind, _ in columns)
        cursor.execute(f"SELECT {names} FROM {_quoted(table)}")
        return [
            {
                name: _expected(value, kind, full)
                for (name, kind, full), value in zip(columns, row, strict=True)
            }
            for row in cursor.fetchall()
        ]


def mirror_rows(lake: Path | str, keyspace: str, table: str) -> list[dict[str, Any]]:
    """All rows of the mirror, without the token; of a lake in a folder or at a URL."""
    folder = encode_part(table)  # where it lies, not what is in it
    options = None if isinstance(lake, Path) else {"AWS_ALLOW_HTTP": "true"}
    delta = DeltaTable(f"{lake}/{keyspace}/{folder}", storage_options=options)
    reader = QueryBuilder().register("t", delta)
    found = pa.table(reader.execute("SELECT * FROM t").read_all())
    rows = found.drop_columns(["_token"])
    SEEN["rows"] += rows.num_rows
    SEEN["bytes"] += rows.nbytes
    kinds = {field.name: field.type for field in rows.schema}
    return [
        {name: _plain(value, kinds[name]) for name, value in row.items()}
        for row in rows.to_pylist()
    ]


def assert_identical(
    lake: Path | str,
    servers: Sequence[Any],
    database: str,
    tables: Sequence[str],
    keyspace: str = "shop",
) -> int:
    """Every table of the mirror holds exactly the rows of all its shards. Returns rows compared."""
    total = 0
    for table in tables:
        expected = Counter(
            _frozen(row) for server in servers for row in source_rows(server, database, table)
        )
        found = Counter(_frozen(row) for row in mirror_rows(lake, keyspace, table))
        missing, extra = expected - found, found - expected
        assert (missing, extra) == (Counter(), Counter()), (
            f"{table}: {sum(missing.values())} rows missing, {sum(extra.values())} extra; "
            f"missing {list(missing)[:3]}; extra {list(extra)[:3]}"
        )
        total += sum(expected.values())
    return total


def _frozen(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(sorted(row.items(), key=lambda item: item[0]))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _select(name: str, kind: str) -> str:
    column = _quoted(name)
    if kind in {"float", "double"}:
        # The text protocol rounds FLOAT to six digits, and DOUBLE(M,D) to D; a product is not.
        return f"{column} * 1e0"
    if kind == "vector":
        return f"CAST({column} AS BINARY)"
    if kind == "bit":
        return f"{column} + 0"
    if kind in {"time", "date", "datetime", "timestamp", "json", "inet4", "inet6", "uuid"}:
        return f"CAST({column} AS CHAR)"
    return column


def _converters() -> dict[Any, Any]:
    conv = dict(pymysql.converters.conversions)
    for kind in (FIELD_TYPE.TIME, FIELD_TYPE.DATE, FIELD_TYPE.DATETIME, FIELD_TYPE.TIMESTAMP):
        conv[kind] = str
    return conv


def _expected(value: Any, kind: str, full: str) -> Any:  # noqa: PLR0911 - one line per family
    if value is None:
        return None
    if kind == "float":
        return struct.pack("<f", float(value))
    if kind == "double":
        return struct.pack("<d", float(value))
    if kind == "decimal":
        digits = int(full.split("(")[1].split(",", maxsplit=1)[0].split(")", maxsplit=1)[0])
        return f"{value:f}" if digits > 38 else Decimal(str(value))
    if full.startswith("year(2)"):
        return value + (2000 if value < 70 else 1900)
    if kind == "time":
        return _time(str(value))
    if kind in {"date", "datetime", "timestamp"}:
        return _moment(str(value), kind)
    if kind == "bigint" and "unsigned" in full:
        return Decimal(value)
    if kind in {"enum", "set"} and isinstance(value, bytes):  # labels in the charset `binary`
        return value.decode()
    return value


def _time(text: str) -> int:
    sign = -1 if text.startswith("-") else 1
    hours, minutes, seconds = text.lstrip("-").split(":")
    whole, _, fraction = seconds.partition(".")
    total = (int(hours) * 60 + int(minutes)) * 60 + int(whole)
    return sign * (total * 1_000_000 + int(fraction.ljust(6, "0")))


def _moment(text: str, kind: str) -> Any:
    try:
        if kind == "date":
            return date.fromisoformat(text)
        return datetime.fromisoformat(text)
    except ValueError:
        return None  # zero and invalid dates are NULL in the lake by default


def _plain(value: Any, kind: pa.DataType) -> Any:
    if value is not None and pa.types.is_floating(kind):
        return struct.pack("<f" if pa.types.is_float32(kind) else "<d", value)
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).replace(tzinfo=None)
    if isinstance(value, timedelta):
        return value // timedelta(microseconds=1)
    return value


# --- the writer -----------------------------------------------------------------------------------

SCHEMA = """
CREATE TABLE orders (
  id BIGINT UNSIGNED NOT NULL PRIMARY KEY, customer INT NOT NULL, status ENUM('new','paid','sent'),
  total DECIMAL(18,2), note VARCHAR(60), placed DATETIME(3), changed TIMESTAMP(6) NULL);
CREATE TABLE items (
  order_id BIGINT NOT NULL, line SMALLINT NOT NULL, sku CHAR(8) NOT NULL, qty INT UNSIGNED,
  tags SET('a','b','c'), raw VARBINARY(20), PRIMARY KEY (order_id, line));
CREATE TABLE people (
  name VARCHAR(40) COLLATE utf8mb4_general_ci NOT NULL PRIMARY KEY,
  born DATE, score DOUBLE, t TIME(2));
"""
TABLES = ("orders", "items", "people")


class Writer(threading.Thread):
    """Inserts, updates, deletes, key changes and multi-table transactions until told to stop.

    Keys of different writers do not meet: `first` and `step` give each its own residue.
    """

    def __init__(
        self, server: Any, database: str, *, seed: int, first: int = 0, step: int = 1
    ) -> None:
        super().__init__(daemon=True)
        self._server, self._database = server, database
        self._random = random.Random(seed)
        self._first, self._step = first, step
        self._halt = threading.Event()
        self.transactions = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        """Write until stopped; a lost server is waited for, other errors are for the test."""
        connection = None
        while not self._halt.is_set():
            try:
                if connection is None:
                    connection = self._server.connect(database=self._database)
                self._one(connection)
                self.transactions += 1
            except pymysql.err.OperationalError:
                connection = None
                self._halt.wait(0.2)
            except BaseException as error:  # noqa: BLE001 - handed to the test
                self.error = error
                return
            self._halt.wait(0.01)  # the machine may have two cores for everything

    def finish(self) -> None:
        """Stop, and pass on what went wrong."""
        self._halt.set()
        self.join(30)
        if self.error is not None:
            raise self.error

    def _key(self, upto: int = 3000) -> int:
        return self._random.randrange(upto) * self._step + self._first

    def _one(self, connection: Any) -> None:
        rng = self._random
        with connection.cursor() as cursor:
            cursor.execute("BEGIN")
            for _ in range(rng.choice((1, 1, 1, 3, 20))):
                rng.choice(_ACTIONS)(self, cursor, rng)
            cursor.execute(rng.choice(("COMMIT", "COMMIT", "COMMIT", "ROLLBACK")))

    def _order(self, cursor: Any, rng: random.Random) -> None:
        cursor.execute(
            "REPLACE INTO orders VALUES (%s,%s,%s,%s,%s,NOW(3),NOW(6))",
            (
                self._key(),
                rng.randrange(1000),
                rng.choice(("new", "paid", "sent", None)),
                Decimal(rng.randrange(-(10**9), 10**9)) / 100,
                rng.choice(("", "ß → é", "x" * 60, None, "'quoted' \\ \n")),
            ),
        )

    def _pay(self, cursor: Any, rng: random.Random) -> None:
        cursor.execute(
            "UPDATE orders SET status=%s, total=total+1, changed=NOW(6) WHERE id=%s",
            (rng.choice(("paid", "sent")), self._key()),
        )

    def _drop(self, cursor: Any, _: random.Random) -> None:
        key = self._key()
        cursor.execute("DELETE FROM orders WHERE id=%s", (key,))
        cursor.execute("DELETE FROM items WHERE order_id=%s", (key,))

    def _move(self, cursor: Any, _: random.Random) -> None:
        cursor.execute("UPDATE IGNORE orders SET id=%s WHERE id=%s", (self._key(), self._key()))
        cursor.execute(
            "UPDATE IGNORE items SET order_id=%s WHERE order_id=%s", (self._key(), self._key())
        )

    def _line(self, cursor: Any, rng: random.Random) -> None:
        cursor.execute(
            "INSERT INTO items VALUES (%s,%s,%s,%s,%s,%s) ON DUPLICATE KEY UPDATE qty=qty+1",
            (
                self._key(),
                rng.randrange(4),
                f"sku{rng.randrange(999)}",
                rng.randrange(2**32),
                rng.choice(("", "a", "a,c")),
                rng.randbytes(rng.randrange(20)) + b"\0",
            ),
        )

    def _person(self, cursor: Any, rng: random.Random) -> None:
        name = f"{rng.choice(('ann', 'Ann', 'änn', 'bob '))}{self._key(400)}"
        cursor.execute(
            "REPLACE INTO people VALUES (%s,%s,%s,%s)",
            (name, date(1950, 1, 1) + timedelta(rng.randrange(20000)), rng.random(), "-12:00:00.5"),
        )
        if rng.random() < 0.3:
            cursor.execute("UPDATE people SET name=UPPER(name) WHERE name=%s", (name,))


_ACTIONS = (
    Writer._order,
    Writer._order,
    Writer._pay,
    Writer._drop,
    Writer._move,
    Writer._line,
    Writer._person,
)


def create_tables(server: Any, database: str) -> None:
    """The writer's three tables."""
    with server.connect(database=database) as connection, connection.cursor() as cursor:
        for statement in filter(str.strip, SCHEMA.split(";")):
            cursor.execute(statement)


def status(ratchet: Ratchet) -> dict[str, Any]:
    """`ratchet status --json`, parsed."""
    parsed: dict[str, Any] = json.loads(ratchet.run("status", "--json").stdout)
    return parsed


@contextmanager
def reading(ratchet: Ratchet, tables: Sequence[str]) -> Iterator[dict[str, list[tuple[int, int]]]]:
    """Rows and versions of some Delta tables, as somebody sees them who reads all the time."""
    seen: dict[str, list[tuple[int, int]]] = {table: [] for table in tables}
    failures: list[Exception] = []
    over = threading.Event()

    def read() -> None:
        while not over.wait(0.1):
            for table, found in seen.items():
                try:
                    delta = DeltaTable(ratchet.lake / "shop" / table)
                    answer = QueryBuilder().register("t", delta).execute("SELECT count(*) n FROM t")
                    rows = int(pa.table(answer.read_all())["n"][0].as_py())
                    found.append((rows, delta.version()))
                except Exception as error:  # noqa: BLE001 - told below
                    failures.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()
    assert not failures
