"""Every kind of statement, on both servers: while a run streams, while it dumps, behind its back.

Each ends with the source's rows in the mirror, and with what docs/schema-changes.md says is done.
With `RATCHET_MATRIX=FOLDER` the first test leaves its figures there; `python -m scripts.ddl_table`
puts them into that document.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from altered_kit import execute, put
from ddl_kinds import COLUMNS, KINDS, ROWS, Kind, kinds_on
from deltalake import DeltaTable, QueryBuilder
from fix_e2e import PASSWORD, Ratchet, assert_identical, end_of
from worker_kit import Worker

from lab.ghost import GhostMigration
from lab.percona import alter_online
from lab.servers import create_ratchet_user
from ratchet.store.files import Lake
from ratchet.store.tables import Tables

pytestmark = [
    pytest.mark.long,
    # mysql-replication's own connection.
    pytest.mark.filterwarnings("ignore:'(db|passwd)' is deprecated:DeprecationWarning"),
]

FLAVORS: Final = ("mariadb", "mysql")
LOGGED: Final = {"slow-query-log": "1", "long-query-time": "0", "log-output": "TABLE"}
DATABASE: Final = "shop"
SETTLED: Final = 240.0  # seconds
CLOCK: Final = "clock"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of one kind.

    Attributes:
        name: the kind's.
        says: what the docs call it.
        done: what Ratchet did.
        read: rows that it read from the table.
        behind: seconds from the statement's end until rows written behind it were shown.
        fewest: of rows that a reader saw meanwhile.
        others: seconds that the other tables were behind at most meanwhile.
    """

    name: str
    says: str
    done: str
    read: int
    behind: float
    fewest: int
    others: float


@pytest.mark.parametrize("flavor", FLAVORS)
def test_while_a_run_streams(
    make_server: Callable[..., Any],
    make_ratchet: Callable[..., Ratchet],
    tmp_path: Path,
    flavor: str,
) -> None:
    """One after the other, with rows in flight on both sides of each."""
    server, ratchet = begun(make_server, make_ratchet, flavor)
    ratchet.run("run", "--until-caught-up")
    server.execute("TRUNCATE TABLE mysql.slow_log")
    said = tmp_path / "said"
    running = ratchet.start("run", log=said)
    outcomes = []
    with Clock(server) as clock:
        clock.more(20)
        for name, kind in kinds_on(flavor).items():
            outcomes.append(_followed(server, ratchet, said, name, kind))
            assert running.poll() is None, said.read_text()
            if folder := os.environ.get("RATCHET_MATRIX"):
                _keep(Path(folder, f"{flavor}.json"), outcomes[-1])
    running.send_signal(signal.SIGTERM)
    end_of(running, 120)
    ratchet.run("run", "--until-caught-up")
    assert_identical(ratchet.lake, [server], DATABASE, _all_tables(flavor))
    ratchet.run("verify")
    expected = {name: kind.does for name, kind in kinds_on(flavor).items()}
    assert {one.name: one.done for one in outcomes} == expected
    reading = {one.name for one in outcomes if one.read}
    reads = {"dumped again", "dumped", "compared", "column read"}
    assert {name for name, does in expected.items() if does in reads} >= reading


@pytest.mark.parametrize("flavor", FLAVORS)
def test_with_a_backlog_of_two(
    make_server: Callable[..., Any], make_ratchet: Callable[..., Ratchet], flavor: str
) -> None:
    """The run is away; each table gets rows, the statement, rows, another statement, and rows."""
    server, ratchet = begun(make_server, make_ratchet, flavor)
    ratchet.run("run", "--until-caught-up")
    for name, kind in kinds_on(flavor).items():
        put(server, DATABASE, name, 901)
        _do(server, name, kind)
        put(server, DATABASE, name, 902)
        execute(server, DATABASE, f"ALTER TABLE {name} ADD later INT NOT NULL DEFAULT 9")
        put(server, DATABASE, name, 903)
    ratchet.run("run", "--until-caught-up")
    assert_identical(ratchet.lake, [server], DATABASE, _all_tables(flavor))
    ratchet.run("verify")


@pytest.mark.parametrize("flavor", FLAVORS)
def test_while_a_run_dumps(
    make_server: Callable[..., Any],
    make_ratchet: Callable[..., Ratchet],
    tmp_path: Path,
    flavor: str,
) -> None:
    """The first dump of all tables is under way; the statements come in an order of their own."""
    server, ratchet = begun(make_server, make_ratchet, flavor, snapshot={"chunk_rows": 50})
    running = ratchet.start("run", log=tmp_path / "said")
    for name, kind in reversed(kinds_on(flavor).items()):
        put(server, DATABASE, name, 901)
        _do(server, name, kind)
        put(server, DATABASE, name, 902)
        assert running.poll() is None, (tmp_path / "said").read_text()
    time.sleep(5)
    running.send_signal(signal.SIGTERM)
    end_of(running, 120)
    ratchet.run("run", "--until-caught-up")
    assert_identical(ratchet.lake, [server], DATABASE, _all_tables(flavor))
    ratchet.run("verify")


class Clock(Worker):
    """A table of one row that says when it was written."""

    def __init__(self, server: Any) -> None:
        super().__init__()
        self._server = server

    def step(self) -> None:
        with self._server.connect(database=DATABASE, autocommit=True) as connection:
            cursor = connection.cursor()
            while not self.told.wait(0.2):
                cursor.execute(f"UPDATE {CLOCK} SET at = {time.time()}")
                self.done += 1


def begun(
    make_server: Callable[..., Any],
    make_ratchet: Callable[..., Ratchet],
    flavor: str,
    **config: Any,
) -> tuple[Any, Ratchet]:
    """All kinds' tables, and a config whose run reads nothing but what a statement makes it."""
    server = make_server(flavor, options=LOGGED)
    server.execute(f"CREATE DATABASE {DATABASE}")
    values = ", ".join(
        f"({n}, 'row {n}', {n}, '{'ab'[n % 2]}', 'p,q', '{n}', {n}.25, {n}.5, "
        f"'2024-02-29 12:00:00.{n:06}', '2024-03-01', {n})"
        for n in range(ROWS)
    )
    for name, kind in kinds_on(flavor).items():
        inside, _, behind = kind.table.partition(" PARTITION")
        parted = f" PARTITION{behind}" if behind else ""
        execute(server, DATABASE, f"CREATE TABLE {name} ({COLUMNS}{inside}){parted}")
        execute(server, DATABASE, f"INSERT INTO {name} VALUES {values}")
        if name == "referring":
            execute(server, DATABASE, f"CREATE TABLE {name}_up LIKE {name}")
            execute(server, DATABASE, f"INSERT INTO {name}_up SELECT * FROM {name}")
            put(server, DATABASE, f"{name}_up", 901)
        for statement in kind.before:
            execute(server, DATABASE, statement.format(t=name))
    execute(server, DATABASE, f"CREATE TABLE {CLOCK} (id INT PRIMARY KEY, at DOUBLE)")
    execute(server, DATABASE, f"INSERT INTO {CLOCK} VALUES (1, 0)")
    # MariaDB: without it a table with a VIRTUAL column is left out.
    create_ratchet_user(server, PASSWORD, [DATABASE], triggers=flavor == "mariadb")
    return server, make_ratchet({"-": server}, DATABASE, verify={"every": "off"}, **config)


def _keep(path: Path, outcome: Outcome) -> None:
    """Among those of before, in the order of the kinds."""
    found = json.loads(path.read_text()) if path.exists() else []
    every = {one["name"]: one for one in found} | {outcome.name: asdict(outcome)}
    path.write_text(json.dumps([every[name] for name in KINDS if name in every]))


def _do(server: Any, name: str, kind: Kind) -> None:
    for typed in kind.typed:
        if kind.tool == "gh-ost":
            GhostMigration(server, DATABASE, name, typed, chunk=1000).run()
        elif kind.tool == "pt-osc":
            alter_online(server, DATABASE, name, typed)
        else:
            execute(server, DATABASE, typed.format(t=name))


def _target(name: str, kind: Kind) -> str:
    return f"{name}_new" if kind.does == "dumped" else name


def _all_tables(flavor: str) -> list[str]:
    return sorted({_target(name, kind) for name, kind in kinds_on(flavor).items()})


def _followed(server: Any, ratchet: Ratchet, said: Path, name: str, kind: Kind) -> Outcome:
    """Do it, and look on until the mirror has all, and nothing of it is open."""
    target = _target(name, kind)
    put(server, DATABASE, name, 901)
    before = len(said.read_text())
    with watching(ratchet.lake, target) as seen:
        _do(server, name, kind)
        ended = time.time()
        for key in (902, 903):
            put(server, DATABASE, target, key)
        rows = int(server.execute(f"SELECT COUNT(*) FROM {DATABASE}.{target}")[0][0])
        deadline = time.monotonic() + SETTLED
        while not (seen and seen[-1].rows == rows and _is_settled(ratchet, target)):
            assert time.monotonic() < deadline, (name, said.read_text()[before:])
            time.sleep(0.3)
        # A statement that puts a table in doubt may be read behind its rows.
        time.sleep(4 if kind.does in {"compared", "streams on"} else 0)
        while not _is_settled(ratchet, target):
            assert time.monotonic() < deadline, (name, said.read_text()[before:])
            time.sleep(0.3)
    lines = [line for line in said.read_text()[before:].splitlines() if f"shop.{target}:" in line]
    shown = next(look.at for look in seen if look.rows == rows and look.at >= ended)
    return Outcome(
        name=name,
        says=kind.says,
        done=_done("\n".join(lines), kind),
        read=_rows_read(server, target),
        behind=round(max(0.0, shown - ended), 1),
        fewest=min(look.rows for look in seen),
        others=round(max(look.behind for look in seen), 1),
    )


def _done(said: str, kind: Kind) -> str:
    """What the log says was done."""
    if "its new dump is shown" in said:
        if "computed in" in said:
            return "computed" if "without reading the source" in said else "column read"
        return "taken" if "taken from the change log" in said else "dumped again"
    if kind.does == "dumped":
        return "dumped"
    return "compared" if "comparing it with its source" in said else "streams on"


def _is_settled(ratchet: Ratchet, table: str) -> bool:
    """Whether it streams, and nothing about it is in doubt."""
    state = Tables(Lake.at(ratchet.lake)).load("shop", table)
    return state is not None and state.phase == "streaming" and not state.doubts


def _rows_read(server: Any, table: str) -> int:
    found = server.execute(
        "SELECT COALESCE(SUM(rows_sent), 0) FROM mysql.slow_log WHERE user_host LIKE 'ratchet%' "
        f"AND sql_text LIKE '%`{table}`%' AND sql_text NOT LIKE '%information_schema%' "
        "AND sql_text NOT LIKE 'SHOW%'"
    )
    return int(found[0][0])


@dataclass(frozen=True)
class Look:
    """What a reader saw.

    Attributes:
        at: seconds since 1970.
        rows: of the table.
        behind: seconds that the clock's table was behind.
    """

    at: float
    rows: int
    behind: float


@contextmanager
def watching(lake: Path, table: str) -> Iterator[list[Look]]:
    """Read a table and the clock all the time; a table that cannot be read is an error."""
    seen: list[Look] = []
    # Its folder is there a moment before its first version is.
    first = lake / "shop" / table / "_delta_log" / f"{0:020d}.json"
    is_new = not first.exists()

    class Watcher(Worker):
        def step(self) -> None:
            while not self.told.wait(0.1):
                if is_new and not first.exists():
                    continue
                rows = _one(lake, table, "count(*)")
                at = _one(lake, CLOCK, "max(at)")
                seen.append(Look(time.time(), int(rows), time.time() - at))

    with Watcher():
        yield seen
    assert seen


def _one(lake: Path, table: str, what: str) -> Any:
    delta = DeltaTable(lake / "shop" / table)
    found = QueryBuilder().register("t", delta).execute(f"SELECT {what} AS v FROM t").read_all()
    return pa.table(found)["v"][0].as_py()


def test_each_kind_is_told_of() -> None:
    """At least 45 of them, none of which stops a table."""
    assert len(KINDS) >= 45
    assert "stops" not in {kind.does for kind in KINDS.values()}
