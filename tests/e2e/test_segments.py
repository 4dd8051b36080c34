"""Forty small tables cost an object a round; a lake of before has files, too, as one history."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from fix_e2e import PASSWORD, ROOT, Ratchet, assert_identical

from lab.objectstore import S3Server
from lab.servers import create_ratchet_user
from ratchet.core.rounds import Round
from ratchet.store import layout
from ratchet.store.files import Lake
from ratchet.store.formats import HELD_FORMAT, PARTS_FORMAT
from ratchet.store.rounds import RoundLog
from ratchet.store.segments import object_of, part_of

TABLES: Final = tuple(f"t{number:02d}" for number in range(40))
ROUNDS: Final = 3
FEW: Final = TABLES[:6]


def create(server: Any, database: str, tables: tuple[str, ...]) -> None:
    for table in tables:
        server.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, v TEXT)", database=database)
        server.execute(f"INSERT INTO {table} VALUES (1, 'a'), (2, 'b')", database=database)
    create_ratchet_user(server, PASSWORD, [database])


def change(server: Any, database: str, tables: tuple[str, ...], note: str) -> None:
    """One transaction for each table; each but one of them inserts, updates and deletes."""
    with server.connect(database=database) as connection, connection.cursor() as cursor:
        cursor.execute("BEGIN")
        for table in tables:
            cursor.execute(f"UPDATE {table} SET v = %s WHERE id = 2", (note,))
            cursor.execute(f"REPLACE INTO {table} VALUES (3, %s)", (note,))
            cursor.execute(f"DELETE FROM {table} WHERE id = 1 AND '{table}' <> '{TABLES[0]}'")
        cursor.execute("COMMIT")


def rounds_behind(lake: Lake, number: int) -> list[Round]:
    log = RoundLog(lake)
    log.last_number()
    return [one for one in log.since(number) if one.files]


def objects(lake: Lake) -> set[str]:
    return {file.path for file in lake.list(layout.CHANGES)}


@pytest.mark.long
def test_forty_tables_cost_an_object_a_round(
    mysql: Any,
    database: str,
    make_ratchet: Callable[..., Ratchet],
    s3_root: str,
    s3_server: S3Server,
) -> None:
    """By what lies in the store, and by what it was asked for."""
    create(mysql, database, TABLES)
    ratchet = make_ratchet({"-": mysql}, database, lake=s3_root)
    ratchet.run("run", "--until-caught-up", timeout=600)
    lake = Lake.at(s3_root)
    begun = RoundLog(lake).last_number()
    assert not objects(lake)
    for number in range(ROUNDS):
        change(mysql, database, TABLES, f"round {number}")
        s3_server.requests()
        ratchet.run("run", "--until-caught-up")
        asked = Counter(
            method
            for method, path, _ in s3_server.requests()
            if f"/{layout.CHANGES}/" in path.partition("?")[0]
        )
        # Captured by one put, and each table's part merged by one get. A sample of the log that is
        # compared meanwhile asks once whether the segment is there, and reads each part once.
        samples = asked.pop("HEAD", 0)
        assert samples <= number + 1
        assert asked == {"PUT": 1, "GET": (1 + samples) * len(TABLES)}, number
    rounds = rounds_behind(lake, begun)
    assert [len(one.files) for one in rounds] == [len(TABLES)] * ROUNDS
    assert len(objects(lake)) == ROUNDS
    assert len(objects(lake)) * 10 <= len(TABLES) * len(rounds)
    assert assert_identical(s3_root, [mysql], database, TABLES) == 2 * len(TABLES) + 1
    assert f"identical: {len(TABLES)} tables" in ratchet.run("verify").stdout


@pytest.mark.long
def test_a_lake_that_had_files_before(
    mysql: Any, database: str, make_ratchet: Callable[..., Ratchet], tmp_path: Path
) -> None:
    """Rounds with files of their own, as earlier versions wrote them, then rounds with segments.

    Killed between a segment and its round, and with rounds of both kinds that are not merged.
    """
    create(mysql, database, FEW)
    ratchet = make_ratchet({"-": mysql}, database)
    lake = Lake.at(ratchet.lake)
    earlier = {"PYTHONPATH": f"{_without_segments(tmp_path)}{os.pathsep}{ROOT}"}
    ratchet.run("run", "--until-caught-up", **earlier)
    change(mysql, database, FEW, "merged before")
    ratchet.run("run", "--until-caught-up", **earlier)
    change(mysql, database, FEW, "captured before")
    _killed(ratchet, "merge.before_side", **earlier)
    plain = rounds_behind(lake, 0)
    assert [len(one.files) for one in plain] == [len(FEW)] * 2
    assert objects(lake) == {file.path for one in plain for file in one.files}
    assert lake.read_json(layout.FORMAT_FILE)["format"] == HELD_FORMAT

    change(mysql, database, FEW, "not committed")
    _killed(ratchet, "capture.before_commit")
    (orphan,) = objects(lake) - {file.path for one in plain for file in one.files}
    assert orphan.endswith(layout.SEGMENT_END)
    _killed(ratchet, "capture.after_commit")
    assert orphan not in objects(lake)
    assert lake.read_json(layout.FORMAT_FILE)["format"] == PARTS_FORMAT
    both = rounds_behind(lake, 0)
    assert {(one.number, part_of(f.path) is None) for one in both for f in one.files} == {
        *((one.number, True) for one in plain), (both[-1].number, False)
    }  # fmt: skip
    assert objects(lake) == {object_of(file.path) for one in both for file in one.files}
    assert len(objects(lake)) == 2 * len(FEW) + 1

    query = " UNION ALL ".join(f"SELECT id, v FROM shop.{table}" for table in FEW)
    fresh = ratchet.run("sql", query, "--fresh", "--format", "json").stdout
    expected = Counter(
        {(2, "not committed"): len(FEW), (3, "not committed"): len(FEW), (1, "a"): 1}
    )
    assert Counter((row["id"], row["v"]) for row in json.loads(fresh)) == expected
    query = f"SELECT before.v AS was FROM shop.{FEW[1]} WHERE before.id = 2 ORDER BY token.seq"
    changed = ratchet.run("sql", query, "--changes", "--format", "csv").stdout
    assert changed.split("\n") == ["was", "b", "merged before", "captured before", ""]
    ratchet.run("run", "--until-caught-up")
    assert assert_identical(ratchet.lake, [mysql], database, FEW) == 2 * len(FEW) + 1
    assert f"identical: {len(FEW)} tables" in ratchet.run("verify").stdout
    told = ratchet.run("verify", "--log", "--json").stdout
    data = json.loads(told)
    assert data["same"]
    assert data["shards"][0]["rows"] == sum(file.rows for one in both for file in one.files)


def _killed(ratchet: Ratchet, point: str, **env: str) -> None:
    done = ratchet.run("run", "--until-caught-up", crash_at=point, expect=None, **env)
    assert done.returncode == -signal.SIGKILL, done.stderr[-3000:]


def _without_segments(folder: Path) -> Path:
    """A folder for PYTHONPATH, by which all of a run's processes write files of their own."""
    place = folder / "earlier"
    place.mkdir()
    (place / "sitecustomize.py").write_text(
        "import ratchet.ingest.segment\nratchet.ingest.segment.LARGEST = -1\n"
    )
    return place
