"""A thousand tables in one schema: dumped, followed, changed in many places at once, begun again.

Its figures are printed (`pytest -rP`): for docs/testing.md.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from fix_e2e import PASSWORD, Ratchet, assert_identical, end_of, mirror_rows, source_rows, status

from lab.servers import create_ratchet_user

COUNT: Final = 1000
NAMES: Final = tuple(f"t{number:04d}" for number in range(COUNT))
CHANGED: Final = NAMES[:: COUNT // 60][:60]
ALTERED, DROPPED, FRESH = NAMES[1], NAMES[2], "fresh"
# A table's first merge takes some 3 s of processor time, and other machines are slower than ours.
FACTOR: Final = 6.0
IDLE: Final = 30.0  # seconds that are watched
_TICKS: Final = os.sysconf("SC_CLK_TCK")


@pytest.mark.long
def test_a_thousand_tables(
    mariadb: Any, database: str, make_ratchet: Callable[..., Ratchet]
) -> None:
    """Every one of them is compared at the end."""
    _create(mariadb, database)
    create_ratchet_user(mariadb, PASSWORD, [database])
    ratchet = make_ratchet({"-": mariadb}, database)

    began = time.monotonic()
    running = ratchet.start("run")
    _wait(running, lambda: _streaming(ratchet.lake) == set(NAMES), 400)
    _tell("dump, s", _since(began))

    watched = _Usage.of(running.pid)
    time.sleep(IDLE)
    for kind, seconds in (_Usage.of(running.pid).minus(watched)).items():
        _tell(f"{kind} at rest, % of a core", round(seconds / IDLE * 100, 1))

    began = time.monotonic()
    _change(mariadb, database)
    left = [*CHANGED, ALTERED]
    _wait(running, lambda: _merged(ratchet, mariadb, database, left), 300)
    _tell(f"first changes in {len(CHANGED) + 1} tables, s", _since(began))
    _wait(running, lambda: FRESH in _streaming(ratchet.lake), 120)
    _tell("and the new table, s", _since(began))

    began = time.monotonic()
    _change(mariadb, database, note="second")
    left = [*CHANGED, ALTERED]
    _wait(running, lambda: _merged(ratchet, mariadb, database, left), 300)
    _tell("second changes in them, s", _since(began))
    for kind, peak in _peaks(running.pid).items():
        _tell(f"{kind}, peak MB", peak)
    began = time.monotonic()
    _stop(running)
    _tell("stop, s", _since(began))

    mariadb.execute(f"UPDATE `{database}`.`{NAMES[-1]}` SET note = 'while nobody looked'")
    began = time.monotonic()
    running = ratchet.start("run")
    _wait(running, lambda: _merged(ratchet, mariadb, database, [NAMES[-1]]), 120)
    _tell("begun again until a change of the pause is merged, s", _since(began))
    _stop(running)

    began = time.monotonic()
    shown = {table["table"]: table["phase"] for table in status(ratchet)["tables"]}
    _tell("status --json, s", _since(began))
    assert set(shown) == {*NAMES, FRESH}
    assert {name: phase for name, phase in shown.items() if phase != "streaming"} == {
        DROPPED: "stopped"
    }

    began = time.monotonic()
    compared = [name for name in (*NAMES, FRESH) if name != DROPPED]
    rows = assert_identical(ratchet.lake, [mariadb], database, compared)
    assert rows > 3 * COUNT - 10
    _tell(f"{rows} rows of {len(compared)} tables compared, s", _since(began))


def _create(server: Any, database: str) -> None:
    """Most with a number for a key; some with two columns, some with a text."""
    with server.connect(database=database) as connection, connection.cursor() as cursor:
        for number, name in enumerate(NAMES):
            kind = _KINDS.get(number % 100, _PLAIN)
            cursor.execute(f"CREATE TABLE `{name}` ({kind}, note VARCHAR(40), at TIMESTAMP(3))")
            _insert(cursor, name, number, range(3))


_PLAIN: Final = "id INT NOT NULL PRIMARY KEY"
_PAIR: Final = "id INT NOT NULL, line SMALLINT NOT NULL DEFAULT 7, PRIMARY KEY (line, id)"
_TEXT: Final = "id VARCHAR(20) COLLATE utf8mb4_general_ci NOT NULL PRIMARY KEY"
_KINDS: Final = {16: _PAIR, 17: _PAIR, 32: _TEXT, 33: _TEXT}


def _insert(cursor: Any, table: str, number: int, ids: range) -> None:
    rows = [(str(one), f"{number} / {one}") for one in ids]
    cursor.executemany(f"INSERT INTO `{table}` (id, note, at) VALUES (%s, %s, NOW(3))", rows)


def _change(server: Any, database: str, note: str = "first") -> None:
    """A row that changes, one that goes and one that comes, in each of them, in one transaction;
    the first time also a table that changes, one that comes and one that goes.
    """
    with server.connect(database=database) as connection, connection.cursor() as cursor:
        if note == "first":
            cursor.execute(f"ALTER TABLE `{ALTERED}` ADD COLUMN extra INT")
            cursor.execute(f"CREATE TABLE `{FRESH}` ({_PLAIN}, note VARCHAR(40), at TIMESTAMP(3))")
            cursor.execute(f"DROP TABLE `{DROPPED}`")
            _insert(cursor, FRESH, 0, range(5))
        cursor.execute("BEGIN")
        for name in CHANGED:
            cursor.execute(f"UPDATE `{name}` SET note = %s WHERE id = '1'", (note,))
            cursor.execute(f"DELETE FROM `{name}` WHERE id = '2'")
            cursor.execute(f"INSERT INTO `{name}` (id, note) VALUES (%s, 'new')", (str(len(note)),))
        cursor.execute("COMMIT")
        cursor.execute(f"UPDATE `{ALTERED}` SET extra = id, note = %s", (note,))


def _streaming(lake: Path) -> set[str]:
    folders = sorted(lake.glob("_ratchet/notes/*"))  # of epochs
    files = folders[-1].glob("tables/shop/[!.]*.json") if folders else ()
    found = (json.loads(path.read_bytes()) for path in files)
    return {state["table"] for state in found if state["phase"] == "streaming"}


def _merged(ratchet: Ratchet, server: Any, database: str, left: list[str]) -> bool:
    """Strike out those whose mirror shows what the source does; whether none is left."""
    while left:
        rows = (mirror_rows(ratchet.lake, "shop", left[0]), source_rows(server, database, left[0]))
        mirror, source = (sorted(map(repr, map(_by_name, some))) for some in rows)
        if mirror != source:
            return False
        left.pop(0)
    return True


def _by_name(row: dict[str, Any]) -> list[tuple[str, Any]]:
    return sorted(row.items())


def _wait(running: subprocess.Popen[str], until: Callable[[], bool], seconds: float) -> None:
    """`seconds` is what it takes here when nothing else runs."""
    deadline = time.monotonic() + seconds * FACTOR
    while not until():
        assert running.poll() is None, running.communicate()
        assert time.monotonic() < deadline
        time.sleep(2)  # to look costs a tenth of a second


def _stop(running: subprocess.Popen[str]) -> None:
    running.send_signal(signal.SIGTERM)
    out, err = end_of(running, 60 * FACTOR)
    assert running.returncode == 0, (out, err)
    assert "Traceback" not in err


def _tell(what: str, figure: float) -> None:
    print(f"{what}: {figure}", flush=True)  # noqa: T201 - for docs/testing.md


def _since(began: float) -> float:
    return round(time.monotonic() - began, 1)


# --- what a run's processes take ------------------------------------------------------------------


@dataclass(frozen=True)
class _Usage:
    """Seconds of processor time so far, by kind of process."""

    seconds: dict[str, float]

    @classmethod
    def of(cls, pid: int) -> _Usage:
        found: dict[str, float] = {}
        for one, kind in _family(pid).items():
            fields = _stat(one)
            found[kind] = found.get(kind, 0.0) + (int(fields[11]) + int(fields[12])) / _TICKS
        return cls(found)

    def minus(self, before: _Usage) -> dict[str, float]:
        return {kind: spent - before.seconds.get(kind, 0.0) for kind, spent in self.seconds.items()}


def _family(pid: int) -> dict[int, str]:
    """The driver, its JVM, and the Python workers below that: pid -> what it is."""
    parents = {int(p.name): int(_stat(int(p.name))[1]) for p in Path("/proc").glob("[0-9]*")}
    found = {pid: "driver"}
    while more := {one for one, parent in parents.items() if parent in found} - set(found):
        for one in more:
            found[one] = "JVM" if _read(one, "comm").strip() == "java" else "workers"
    return found


def _stat(pid: int) -> Sequence[str]:
    """Of /proc/PID/stat, what stands behind the name; zeros if the process has just ended."""
    return _read(pid, "stat").rpartition(")")[2].split() or ["X", *["0"] * 20]


def _read(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _peaks(pid: int) -> dict[str, int]:
    """The most that the driver and its JVM have held, in MB."""
    found = {}
    for one, kind in _family(pid).items():
        if kind != "workers":
            lines = _read(one, "status").splitlines()
            (line,) = (line for line in lines if line.startswith("VmHWM"))
            found[kind] = int(line.split()[1]) >> 10
    return found
