"""A cluster's executors get the sources' passwords; its ports answer nobody without its secret."""

from __future__ import annotations

import secrets
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fix_e2e import PASSWORD, SHORT_LIVED, Ratchet, assert_identical, mirror_rows
from outsider_kit import ask, java_call, listening_ports

from lab.cluster import SparkCluster
from lab.servers import create_ratchet_user

CONF = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": SHORT_LIVED,
    "spark.executor.extraJavaOptions": SHORT_LIVED,
}
OPEN = "Spark's ports answer anybody who reaches them"


def mirrored(ratchet: Ratchet, server: Any, database: str) -> str:
    """Dump, capture and verify, each in tasks of executors; what the run said."""
    create_ratchet_user(server, PASSWORD, [database])
    server.execute(
        "CREATE TABLE wide (id INT PRIMARY KEY, v LONGTEXT) AS "
        "SELECT seq AS id, REPEAT('x', 6000) AS v FROM seq_1_to_2000",
        database=database,
    )
    done = ratchet.run("run", "--until-caught-up", timeout=600)
    server.execute("INSERT INTO wide VALUES (9999, 'new')", database=database)
    ratchet.run("run", "--until-caught-up", timeout=600)
    assert assert_identical(ratchet.lake, [server], database, ["wide"]) == 2001
    ratchet.run("verify", timeout=600)
    return done.stderr


@pytest.mark.long
def test_workers_of_this_machine_find_the_password(
    make_ratchet: Callable[..., Ratchet], mariadb: Any, database: str, spark_master: str
) -> None:
    spark = {"master": spark_master, "conf": CONF}
    ratchet = make_ratchet({"-": mariadb}, database, spark=spark)
    said = mirrored(ratchet, mariadb, database)
    assert (OPEN in said) == spark_master.startswith("spark:")


@pytest.mark.long
def test_a_cluster_with_a_secret_of_its_own(
    make_ratchet: Callable[..., Ratchet], mariadb: Any, database: str, tmp_path: Path
) -> None:
    own = {"spark.authenticate": "true", "spark.authenticate.secret": secrets.token_hex(16)}
    with SparkCluster(tmp_path / "cluster", conf=own) as cluster:
        spark = {"master": cluster.url, "conf": {**CONF, **own}}
        ratchet = make_ratchet({"-": mariadb}, database, spark=spark)
        assert OPEN not in mirrored(ratchet, mariadb, database)
        said = b"".join(ask(port, java_call())[1] for port in listening_ports(cluster.pids[0]))
        assert b"RpcHandler.doAuthChallenge" in said
        assert b"ObjectInputStream" not in said


@pytest.mark.long
def test_a_master_that_remembers_the_run(
    make_ratchet: Callable[..., Ratchet], mariadb: Any, database: str, tmp_path: Path
) -> None:
    """As the docs say: two lines more for the master, and the run does not notice."""
    create_ratchet_user(mariadb, PASSWORD, [database])
    mariadb.execute("CREATE TABLE t (id INT PRIMARY KEY)", database=database)
    conf = {
        "spark.deploy.recoveryMode": "FILESYSTEM",
        "spark.deploy.recoveryDirectory": str(tmp_path / "recovery"),
    }
    with SparkCluster(tmp_path / "cluster", conf=conf) as cluster:
        spark = {"master": cluster.url, "conf": CONF}
        ratchet = make_ratchet({"-": mariadb}, database, spark=spark)
        ratchet.run("run", "--until-caught-up", timeout=600)
        running = ratchet.start("run")
        for number in (1, 2, 3):
            mariadb.execute(f"INSERT INTO t VALUES ({number})", database=database)
            until = time.monotonic() + 180
            while len(mirror_rows(ratchet.lake, "shop", "t")) < number:
                assert running.poll() is None, running.communicate()
                assert time.monotonic() < until
                time.sleep(1)
            if number == 1:
                cluster.renew_master()
                time.sleep(30)
        running.send_signal(signal.SIGTERM)
        _, said = running.communicate(timeout=180)
        assert running.returncode == 0, said


@pytest.mark.long
def test_a_master_that_forgets_the_run(
    make_ratchet: Callable[..., Ratchet], mariadb: Any, database: str, tmp_path: Path
) -> None:
    """Its executors are ended, and nobody starts others: the run says so and ends, not hangs."""
    create_ratchet_user(mariadb, PASSWORD, [database])
    mariadb.execute("CREATE TABLE t (id INT PRIMARY KEY)", database=database)
    with SparkCluster(tmp_path / "cluster") as cluster:
        spark = {"master": cluster.url, "conf": CONF, "stall_seconds": 70}
        ratchet = make_ratchet({"-": mariadb}, database, spark=spark)
        ratchet.run("run", "--until-caught-up", timeout=600)
        running = ratchet.start("run")
        mariadb.execute("INSERT INTO t VALUES (1)", database=database)
        until = time.monotonic() + 180
        while not mirror_rows(ratchet.lake, "shop", "t"):
            assert time.monotonic() < until
            time.sleep(1)
        cluster.renew_master()
        _, said = running.communicate(timeout=400)
        assert running.returncode == 9, said
        assert "Spark has done nothing for" in said
        assert "0 executors" in said
        mariadb.execute("INSERT INTO t VALUES (2)", database=database)
        ratchet.run("run", "--until-caught-up", timeout=600)
        assert assert_identical(ratchet.lake, [mariadb], database, ["t"]) == 2
