"""A lake in an object store (S3), by Spark in one process and on a cluster of several.

Each run is killed once at a named point while a writer goes on; the mirror ends as its sources.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fix_e2e import (
    PASSWORD,
    SHORT_LIVED,
    TABLES,
    Ratchet,
    Writer,
    assert_identical,
    create_tables,
    end_of,
    status,
)

from lab.servers import create_ratchet_user


@pytest.mark.quick_on("mysql")
def test_a_lake_in_s3(
    server: Any, database: str, make_ratchet: Callable[..., Ratchet], s3_root: str, tmp_path: Path
) -> None:
    """Dump, stream, a kill, a second run that is kept out, fresh reads, verify."""
    create_tables(server, database)
    create_ratchet_user(server, PASSWORD, [database])
    writer = Writer(server, database, seed=1)
    writer.start()
    ratchet = make_ratchet({"-": server}, database, lake=s3_root)
    done = ratchet.run("run", "--until-caught-up", crash_at="merge.before_merge:2", expect=None)
    assert done.returncode == -signal.SIGKILL, done.stderr[-3000:]
    run = ratchet.start("run")
    until = time.monotonic() + 300
    while not status(ratchet)["run"]:
        assert time.monotonic() < until, "the run does not get its lease"
        time.sleep(1)
    refused = ratchet.run("run", "--until-caught-up", expect=7)
    assert "another run holds this lake" in refused.stderr
    run.send_signal(signal.SIGTERM)
    out, err = end_of(run, 300)
    assert run.returncode == 0, (out, err[-3000:])
    writer.finish()
    ratchet.run("run", "--until-caught-up")
    assert assert_identical(s3_root, [server], database, TABLES) > 0
    ratchet.run("verify")
    # A new dump takes the place of the table that is shown, by copies within the store.
    ratchet.run("table", "redump", "items")
    ratchet.run("run", "--until-caught-up")
    assert assert_identical(s3_root, [server], database, TABLES) > 0
    assert not (tmp_path / "lake").exists()


@pytest.mark.long
def test_shards_on_a_cluster(
    make_server: Callable[..., Any],
    make_ratchet: Callable[..., Ratchet],
    s3_root: str,
    spark_master: str,
) -> None:
    """Two workers with an executor each, two shards."""
    servers = {"a": make_server("mysql"), "b": make_server("mariadb")}
    writers = []
    for number, server in enumerate(servers.values()):
        server.execute("CREATE DATABASE d")
        create_tables(server, "d")
        create_ratchet_user(server, PASSWORD, ["d"])
        writers.append(Writer(server, "d", seed=number, first=number, step=2))
        writers[-1].start()
    conf = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": SHORT_LIVED,
        "spark.executor.extraJavaOptions": SHORT_LIVED,
    }
    ratchet = make_ratchet(servers, "d", lake=s3_root, spark={"master": spark_master, "conf": conf})
    done = ratchet.run("run", "--until-caught-up", crash_at="merge.after_merge:3", expect=None)
    assert done.returncode == -signal.SIGKILL, done.stderr[-3000:]
    for writer in writers:
        writer.finish()
    ratchet.run("run", "--until-caught-up")
    assert assert_identical(s3_root, list(servers.values()), "d", TABLES) > 0
    ratchet.run("verify")
