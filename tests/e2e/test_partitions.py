"""Partitions that are dropped or emptied: their rows go, and the source is not read for that."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from altered_kit import computed
from fix_e2e import PASSWORD, Ratchet, assert_identical, end_of, execute, reading

from lab.servers import create_ratchet_user
from ratchet.store import layout
from ratchet.store.files import Lake
from ratchet.store.formats import CARRIED_FORMAT
from ratchet.store.partitionlooks import PartitionLooks

ROWS: Final = 240


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A table in four parts, `a` to `d`, of 60 rows each.

    Attributes:
        column: the type of `p`, by which it is partitioned.
        by: what stands behind RANGE.
        bounds: of the first three parts.
        value: row number -> SQL of its `p`.
        last: how the last part ends.
    """

    column: str
    by: str
    bounds: Sequence[str]
    value: Callable[[int], str]
    last: str = "MAXVALUE"


def _day(number: int) -> str:
    return f"'2023-01-01' + INTERVAL {number} DAY"


LAYOUTS: Final = {
    "number": Layout(
        column="INT", by="(p)", bounds=["-60", "0", "60"], value=lambda n: str(n - 120)
    ),
    "long_ids": Layout(
        column="BIGINT UNSIGNED", by="(p)", bounds=["60", "120", "180"], value=str, last="99999"
    ),
    "short_ids": Layout(
        column="SMALLINT", by="COLUMNS (p)", bounds=["(60)", "(120)", "(180)"], value=str
    ),
    "days": Layout(
        column="DATE",
        by="(TO_DAYS(p))",
        bounds=[f"(TO_DAYS('2023-{day}'))" for day in ("03-02", "05-01", "06-30")],
        value=_day,
    ),
    "moments": Layout(
        column="DATETIME(3)",
        by="COLUMNS (p)",
        bounds=["('2023-01-03 12:00:00')", "('2023-01-06')", "('2023-01-08 12:00')"],
        value=lambda n: f"'2023-01-01' + INTERVAL {n} HOUR + INTERVAL 7 MICROSECOND",
        last="('2030-01-01')",
    ),
    "dates": Layout(
        column="DATE",
        by="COLUMNS (p)",
        bounds=["('2023-03-02')", "('2023-05-01')", "('2023-06-30')"],
        value=_day,
    ),
    "years": Layout(
        column="DATETIME",
        by="(YEAR(p))",
        bounds=["(1960)", "(2020)", "(2080)"],
        value=lambda n: f"'1900-12-31 23:59:59' + INTERVAL {n} YEAR",
    ),
    "instants": Layout(
        column="TIMESTAMP",
        by="(UNIX_TIMESTAMP(p))",
        bounds=["(1700000060)", "(1700000120)", "(1700000180)"],
        value=lambda n: f"FROM_UNIXTIME(1700000000 + {n})",
    ),
    "seconds": Layout(
        column="DATETIME",
        by="(TO_SECONDS(p))",
        bounds=[f"(TO_SECONDS('2023-01-01 00:0{n}:00'))" for n in (1, 2, 3)],
        value=lambda n: f"'2023-01-01' + INTERVAL {n} SECOND",
    ),
}
NAMES: Final = (*LAYOUTS, "other")
# What is done to all of them, one after the other.
STEPS: Final = (
    "DROP PARTITION a",
    "TRUNCATE PARTITION c",
    "REORGANIZE PARTITION b, c INTO (PARTITION x VALUES LESS THAN {third})",
    "DROP PARTITION `D`",
)
POINTS: Final = (
    "staged.after_commit",
    pytest.param("remake.before_commit", marks=pytest.mark.long),
    pytest.param("remake.after_commit:2", marks=pytest.mark.long),
    pytest.param("staged.after_copies", marks=pytest.mark.long),
    pytest.param("staged.after_copies:2", marks=pytest.mark.long),
    pytest.param("merge.before_staged_removed", marks=pytest.mark.long),
    pytest.param("merge.before_cut:3", marks=pytest.mark.long),
)


@pytest.mark.long
def test_on_mariadb(
    mariadb: Any, database: str, make_ratchet: Callable[..., Ratchet], tmp_path: Path
) -> None:
    while_it_runs(mariadb, database, make_ratchet, tmp_path / "said")


def test_on_mysql(
    mysql: Any, database: str, make_ratchet: Callable[..., Ratchet], tmp_path: Path
) -> None:
    while_it_runs(mysql, database, make_ratchet, tmp_path / "said")


def while_it_runs(
    server: Any, database: str, make_ratchet: Callable[..., Ratchet], said: Path
) -> None:
    """Rows are written between the statements, and somebody reads all the time."""
    ratchet = begun(server, database, make_ratchet)
    running = ratchet.start("run", log=said)
    wait_until_known(ratchet, running, said)
    with reading(ratchet, [*LAYOUTS]) as seen:
        for number, step in enumerate(STEPS):
            write(server, database, number)
            alter(server, database, step)
            write(server, database, 10 + number, below=180 if step is STEPS[-1] else ROWS)
        wait_until_done(running, said)
    running.send_signal(signal.SIGTERM)
    end_of(running, 120)
    assert running.returncode == 0, said.read_text()
    assert computed(said) == {*LAYOUTS}, said.read_text()
    assert min(rows for name in LAYOUTS for rows, _ in seen[name]) > 60
    more = ratchet.run("run", "--until-caught-up").stderr
    assert "to dump" not in said.read_text() + more, said.read_text() + more
    assert_identical(ratchet.lake, [server], database, NAMES)
    ratchet.run("verify")
    form = Lake.at(ratchet.lake).read_json(layout.FORMAT_FILE)
    assert form is not None
    assert form["format"] == CARRIED_FORMAT, "files were carried over"


@pytest.mark.parametrize("point", POINTS)
def test_killed_with_a_backlog(
    mysql: Any, database: str, make_ratchet: Callable[..., Ratchet], tmp_path: Path, point: str
) -> None:
    """All statements came while no run was there."""
    ratchet = begun(mysql, database, make_ratchet)
    running = ratchet.start("run", log=tmp_path / "said")
    wait_until_known(ratchet, running, tmp_path / "said")
    running.send_signal(signal.SIGTERM)
    end_of(running, 120)
    for number, step in enumerate(STEPS):
        write(mysql, database, number)
        alter(mysql, database, step)
        write(mysql, database, 10 + number, below=180 if step is STEPS[-1] else ROWS)
    ratchet.run("run", "--until-caught-up", crash_at=point, expect=-signal.SIGKILL)
    write(mysql, database, 30, below=180)
    said = ratchet.run("run", "--until-caught-up").stderr
    assert "to dump" not in said, said
    assert_identical(ratchet.lake, [mysql], database, NAMES)
    ratchet.run("verify")


ROTATED: Final = ("added", "split")


def test_a_partition_each_day(
    mysql: Any, database: str, make_ratchet: Callable[..., Ratchet]
) -> None:
    """One comes and the oldest goes, and a run catches up behind that, as a job does each night."""
    for name in ROTATED:
        days = ", ".join(f"PARTITION p{n} VALUES LESS THAN ({10 * n})" for n in (1, 2, 3))
        last = ", PARTITION pmax VALUES LESS THAN MAXVALUE" if name == "split" else ""
        execute(
            mysql,
            f"CREATE TABLE {name} (id INT PRIMARY KEY, v INT) PARTITION BY RANGE (id) "
            f"({days}{last})",
            f"INSERT INTO {name} VALUES " + ", ".join(f"({n}, {n})" for n in range(30)),
            database=database,
        )
    create_ratchet_user(mysql, PASSWORD, [database])
    ratchet = make_ratchet({"-": mysql}, database)
    ratchet.run("run", "--until-caught-up")
    for day in (4, 5, 6, 7):
        part = f"PARTITION p{day} VALUES LESS THAN ({10 * day})"
        most = "PARTITION pmax VALUES LESS THAN MAXVALUE"
        rows = ", ".join(f"({n}, {day})" for n in range(10 * day - 12, 10 * day))
        execute(
            mysql,
            f"ALTER TABLE added ADD PARTITION ({part})",
            f"ALTER TABLE split REORGANIZE PARTITION pmax INTO ({part}, {most})",
            *(f"ALTER TABLE {name} DROP PARTITION p{day - 3}" for name in ROTATED),
            *(f"REPLACE INTO {name} VALUES {rows}" for name in ROTATED),
            database=database,
        )
        said = ratchet.run("run", "--until-caught-up").stderr
        assert "to dump" not in said, said
        assert said.count(": computed in") == len(ROTATED), said
        assert_identical(ratchet.lake, [mysql], database, ROTATED)
    ratchet.run("verify")


def begun(server: Any, database: str, make_ratchet: Callable[..., Ratchet]) -> Ratchet:
    """A mirror of all layouts."""
    for name, parted in LAYOUTS.items():
        bounds = [_in_parens(bound) for bound in (*parted.bounds, parted.last)]
        parts = ", ".join(
            f"PARTITION {part} VALUES LESS THAN {bound}"
            for part, bound in zip("abcd", bounds, strict=True)
        )
        rows = ", ".join(f"({parted.value(n)}, {n}, {n})" for n in range(ROWS))
        execute(
            server,
            f"CREATE TABLE {name} (p {parted.column} NOT NULL, id INT, v INT, PRIMARY KEY (p, id))"
            f" PARTITION BY RANGE {parted.by} ({parts})",
            f"INSERT INTO {name} VALUES {rows}",
            database=database,
        )
    execute(server, "CREATE TABLE other (id INT PRIMARY KEY, v INT)", database=database)
    create_ratchet_user(server, PASSWORD, [database])
    ratchet = make_ratchet(
        {"-": server}, database, snapshot={"chunk_rows": 50}, capture={"look_seconds": 1}
    )
    ratchet.run("run", "--until-caught-up")
    return ratchet


def _in_parens(bound: str) -> str:
    return bound if bound[0] in "(M" else f"({bound})"


def wait_until_known(ratchet: Ratchet, running: Any, said: Path) -> None:
    """Until the run has looked how all of them are partitioned."""
    deadline = time.monotonic() + 120
    looks = PartitionLooks(Lake.at(ratchet.lake))
    while not all(looks.of("shop", name) for name in LAYOUTS):
        assert running.poll() is None, said.read_text()
        assert time.monotonic() < deadline, said.read_text()
        time.sleep(0.5)


def wait_until_done(running: Any, said: Path) -> None:
    """Until the last statement is computed for all of them."""
    deadline = time.monotonic() + 120
    while said.read_text().count(f"{STEPS[-1]}: computed") < len(LAYOUTS):
        assert running.poll() is None, said.read_text()
        assert time.monotonic() < deadline, said.read_text()
        time.sleep(0.5)


def alter(server: Any, database: str, step: str) -> None:
    """Do it to all of them."""
    for name, parted in LAYOUTS.items():
        what = step.format(third=_in_parens(parted.bounds[2]))
        execute(server, f"ALTER TABLE {name} {what}", database=database)


def write(server: Any, database: str, number: int, *, below: int = ROWS) -> None:
    """Change rows of all layouts: some in each part, and some that come."""
    for name, parted in LAYOUTS.items():
        rows = [(number * 7 + 13 * n) % below for n in range(18)]
        values = ", ".join(f"({parted.value(n)}, {n}, {number})" for n in rows)
        execute(
            server,
            f"UPDATE {name} SET v = v + {number} WHERE id % 5 = {number % 5}",
            f"DELETE FROM {name} WHERE id % 17 = {number % 17}",
            f"REPLACE INTO {name} VALUES {values}",
            database=database,
        )
    execute(server, f"REPLACE INTO other VALUES ({number}, {number})", database=database)
