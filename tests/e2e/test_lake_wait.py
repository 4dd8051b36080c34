"""A lake that is away for a while does not end a run: full, or its store does not answer."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from fix_disk import SmallDisk
from fix_e2e import (
    PASSWORD,
    TABLES,
    Ratchet,
    Writer,
    assert_identical,
    create_tables,
    wait_while_running,
)
from fix_proxy import Proxy

from lab.objectstore import S3Server
from lab.servers import create_ratchet_user
from ratchet.store.files import Lake
from ratchet.store.tables import Tables

AWAY: float = 40.0  # seconds: longer than a lease lives without being renewed
WITHIN: float = 300.0


def _is_up_to_date(ratchet: Ratchet) -> bool:
    """Whether the run has merged all that the server has executed."""
    done = ratchet.run("status", "--json", expect=None)
    if done.returncode:
        return False
    found = json.loads(done.stdout)
    (shard,) = found["shards"]
    return shard["state"] == "idle" and 0 < found["round"] == found["merged"]


def _begin(server: Any, database: str) -> Writer:
    create_tables(server, database)
    create_ratchet_user(server, PASSWORD, [database])
    writer = Writer(server, database, seed=3)
    writer.start()
    return writer


def _ended(running: subprocess.Popen[str]) -> str:
    """End the run, which must have lived until now; what it has told."""
    assert running.poll() is None, running.communicate()
    running.send_signal(signal.SIGTERM)
    _, err = running.communicate(timeout=WITHIN)
    assert running.returncode == 0, err
    return err


@pytest.mark.long
def test_a_full_disk_that_is_given_room(
    server: Any,
    database: str,
    make_ratchet: Callable[..., Ratchet],
    make_disk: Callable[[Path, str], SmallDisk],
) -> None:
    writer = _begin(server, database)
    ratchet = make_ratchet({"-": server}, database, lake="./disk/lake")
    disk = make_disk(ratchet.config.parent / "disk", "200m")
    ratchet.inside = disk.inside
    running = ratchet.start("run")
    lake = disk.seen / "lake"
    cuts = lake / "_ratchet" / "cuts"
    wait_while_running(running, lambda: len(list(cuts.glob("*.parquet"))) > 2, within=WITHIN)
    disk.fill(but=0)
    time.sleep(AWAY)
    disk.free()
    writer.finish()
    server.execute(f"UPDATE `{database}`.orders SET note = 'after it'")
    wait_while_running(running, lambda: _is_up_to_date(ratchet), within=WITHIN)
    assert "waiting for the lake" in _ended(running)
    ratchet.run("run", "--until-caught-up")
    assert_identical(disk.copy("lake", ratchet.config.parent / "found"), [server], database, TABLES)


@pytest.mark.long
def test_what_was_to_be_dumped_again_is(
    mariadb: Any,
    database: str,
    make_ratchet: Callable[..., Ratchet],
    make_disk: Callable[[Path, str], SmallDisk],
) -> None:
    """The disk fills up while the first of two tables is dumped; the other's turn comes all the
    same, and none is dumped twice.
    """
    for table in ("big", "late"):
        mariadb.execute(
            f"CREATE TABLE {table} (id INT PRIMARY KEY, v VARCHAR(40)) AS SELECT seq AS id, "
            "MD5(seq) AS v FROM seq_1_to_20000",
            database=database,
        )
    mariadb.execute("CREATE TABLE other (id INT PRIMARY KEY)", database=database)
    create_ratchet_user(mariadb, PASSWORD, [database])
    ratchet = make_ratchet(
        {"-": mariadb}, database, lake="./disk/lake", snapshot={"parallel": 1, "chunk_rows": 200}
    )
    disk = make_disk(ratchet.config.parent / "disk", "300m")
    ratchet.inside = disk.inside
    ratchet.run("run", "--until-caught-up")
    before = _dumps(disk)
    running = ratchet.start("dump", "--again", "big", "--again", "late")
    folder = disk.seen / "lake" / "shop" / "big"

    def chunks() -> int:
        return len(list(folder.glob("dump-*.parquet")))

    there = chunks()
    wait_while_running(running, lambda: chunks() > there + 5, within=WITHIN)
    disk.fill(but=0)
    time.sleep(10)
    disk.free()
    _, err = running.communicate(timeout=WITHIN)
    assert running.returncode == 0, err
    assert "waiting for the lake" in err
    after = _dumps(disk)
    assert {name for name in before if before[name] == after[name]} == {"shop.other"}
    ratchet.run("run", "--until-caught-up")
    assert _dumps(disk) == after
    found = disk.copy("lake", ratchet.config.parent / "found")
    assert assert_identical(found, [mariadb], database, ["big", "late"]) == 40_000


def _dumps(disk: SmallDisk) -> dict[str, str]:
    """Table -> id of its newest dump."""
    states = Tables(Lake.at(str(disk.seen / "lake"))).list()
    return {state.name: state.dump.id for state in states if state.dump is not None}


@pytest.fixture
def link(s3_server: S3Server, make_proxy: Callable[[str, int], Proxy]) -> Proxy:
    """A way to the store that can be cut."""
    address = urlsplit(s3_server.environment["AWS_ENDPOINT_URL"])
    assert address.hostname is not None
    assert address.port is not None
    return make_proxy(address.hostname, address.port)


@pytest.mark.long
def test_a_store_that_does_not_answer(
    server: Any, database: str, make_ratchet: Callable[..., Ratchet], s3_root: str, link: Proxy
) -> None:
    writer = _begin(server, database)
    ratchet = make_ratchet({"-": server}, database, lake=s3_root)
    running = ratchet.start("run", AWS_ENDPOINT_URL=f"http://127.0.0.1:{link.port}")

    def streams() -> bool:
        done = ratchet.run("status", expect=None)
        return done.stdout.count("streaming") >= len(TABLES)

    wait_while_running(running, streams, within=WITHIN)
    link.refuse()
    link.cut()
    time.sleep(AWAY)
    link.accept()
    writer.finish()
    server.execute(f"UPDATE `{database}`.orders SET note = 'after it'")
    wait_while_running(running, lambda: _is_up_to_date(ratchet), within=WITHIN)
    assert "waiting for the lake" in _ended(running)
    ratchet.run("run", "--until-caught-up")
    assert_identical(s3_root, [server], database, TABLES)
