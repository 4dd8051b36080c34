"""Objects of old rounds go together while a run goes on: the history says what it said before."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from bundle_kit import aged
from fix_e2e import PASSWORD, Ratchet, assert_identical, end_of

from lab.servers import create_ratchet_user
from ratchet.store import layout
from ratchet.store.files import Lake
from ratchet.store.formats import BUNDLES_FORMAT
from ratchet.store.rounds import RoundLog
from ratchet.store.segments import object_of, part_of

TABLES: Final = ("a", "b", "c")
ROUNDS: Final = 9


def objects(lake: Lake) -> set[str]:
    return {file.path for file in lake.list(layout.CHANGES)}


def paths(lake: Lake) -> list[str]:
    log = RoundLog(lake)
    last = log.last_number()
    return [file.path for one in log.walk(log.first_number(), last) for file in one.files]


def captured(ratchet: Ratchet, server: Any, database: str, lake: Lake) -> None:
    """A run, and changes whose rounds it takes one by one: of all tables, and of one alone."""
    run = ratchet.start("run")
    for number in range(ROUNDS):
        before = len(paths(lake))
        with server.connect(database=database) as connection, connection.cursor() as cursor:
            cursor.execute("BEGIN")
            for table in TABLES if number % 3 else TABLES[:1]:
                cursor.execute(f"UPDATE {table} SET v = 'v{number}' WHERE id = 1")
                cursor.execute(f"INSERT INTO {table} VALUES ({number + 10}, 'new')")
            cursor.execute("COMMIT")
        _await(lambda known=before: len(paths(lake)) > known)
    run.send_signal(signal.SIGTERM)
    out, err = end_of(run, 300)
    assert run.returncode == 0, (out, err[-3000:])
    ratchet.run("run", "--until-caught-up")


def _await(done: Callable[[], bool]) -> None:
    end = time.monotonic() + 300
    while not done():
        assert time.monotonic() < end
        time.sleep(0.2)


def history(ratchet: Ratchet) -> list[Any]:
    query = " UNION ALL ".join(
        f"SELECT '{table}' AS t, op, token.seq AS seq, before.v AS was, after.id, after.v AS is "
        f"FROM shop.{table}"
        for table in TABLES
    )
    told = ratchet.run("sql", f"{query} ORDER BY t, seq, id", "--changes", "--format", "json")
    found: list[Any] = json.loads(told.stdout)
    return found


@pytest.fixture(params=["folder", "s3"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where the lake lies."""
    if request.param == "folder":
        return str(tmp_path / "lake")
    found: str = request.getfixturevalue("s3_root")
    return found


@pytest.mark.long
def test_the_history_stays_what_it_was(
    mariadb: Any,
    database: str,
    make_ratchet: Callable[..., Ratchet],
    root: str,
    tmp_path: Path,
) -> None:
    """Bundled by runs of which two are killed, before the rounds are changed and behind it."""
    for table in TABLES:
        mariadb.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, v TEXT)", database=database)
        mariadb.execute(f"INSERT INTO {table} VALUES (1, 'a')", database=database)
    create_ratchet_user(mariadb, PASSWORD, [database])
    ratchet = make_ratchet({"-": mariadb}, database, merge={"maintenance": "100%"}, lake=root)
    ratchet.run("run", "--until-caught-up")
    lake = Lake.at(root)
    captured(ratchet, mariadb, database, lake)
    told, old = history(ratchet), objects(lake)
    assert len(told) == 2 * sum(3 if number % 3 else 1 for number in range(ROUNDS))
    assert {part_of(path) is None for path in paths(lake)} == {True, False}
    assert lake.read_json(layout.FORMAT_FILE)["format"] < BUNDLES_FORMAT

    env = aged(tmp_path)
    for point in ("bundle.before_commit", "bundle.after_commit"):
        killed = ratchet.start("run", crash_at=point, **env)
        killed.communicate(timeout=300)
        assert killed.returncode == -signal.SIGKILL, point
        assert history(ratchet) == told, point
    run = ratchet.start("run", **env)
    _await(lambda: len(objects(lake) & old) <= 2)  # what is left is of the newest round
    run.send_signal(signal.SIGTERM)
    out, err = end_of(run, 300)
    assert run.returncode == 0, (out, err[-3000:])

    assert objects(lake) == set(map(object_of, paths(lake)))
    assert sum(path.startswith(layout.BUNDLED) for path in objects(lake)) >= 2
    assert history(ratchet) == told
    assert lake.read_json(layout.FORMAT_FILE)["format"] == BUNDLES_FORMAT
    assert assert_identical(root, [mariadb], database, TABLES) == 3 + len(told) // 2
    assert "identical: 3 tables" in ratchet.run("verify").stdout
    assert json.loads(ratchet.run("verify", "--log", "--json").stdout)["same"]
