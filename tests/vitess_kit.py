"""Vitess from end to end: the config of keyspaces behind one vtgate, the comparison, the stop."""

from __future__ import annotations

import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pymysql
import yaml
from deltalake.exceptions import TableNotFoundError
from fix_e2e import PASSWORD, SHORT_LIVED, Ratchet, end_of, mirror_rows

from lab.vitess import VitessCluster


def ratchet_on(
    cluster: VitessCluster, folder: Path, keyspaces: Sequence[str] = ("shop",), **more: Any
) -> Ratchet:
    """The command with a config that knows the vtgate and the keyspaces' names only."""
    gate = {
        "host": "127.0.0.1",
        "grpc_port": cluster.grpc_port,
        "mysql_port": cluster.mysql_port,
        "user": "ratchet",
        "password": "${RATCHET_TEST_PASSWORD}",
    }
    config = {
        "lake": "./lake",
        "sources": {name: {"kind": "vitess", "vtgate": dict(gate)} for name in keyspaces},
        "spark": {"conf": {"spark.driver.extraJavaOptions": SHORT_LIVED}},
        "capture": {"round_seconds": 1},
        **more,
    }
    folder.mkdir(exist_ok=True)
    path = folder / "ratchet.yaml"
    path.write_text(yaml.safe_dump(config))
    return Ratchet(path, folder / "lake", {"RATCHET_TEST_PASSWORD": PASSWORD})


def source_rows(cluster: VitessCluster, keyspace: str, table: str) -> Counter[tuple[Any, ...]]:
    """A table's rows as SELECT through vtgate gives them."""
    with cluster.connect(keyspace) as connection, connection.cursor() as cursor:
        cursor.execute("SET workload = 'olap'")
        cursor.execute(f"SELECT * FROM {table}")
        return Counter(cursor.fetchall())


def assert_same(
    cluster: VitessCluster, ratchet: Ratchet, tables: Mapping[str, Sequence[str]]
) -> int:
    """Every table (keyspace -> names) of the mirror is what vtgate shows. Returns rows compared."""
    total = 0
    for keyspace, names in tables.items():
        for table in names:
            wanted = source_rows(cluster, keyspace, table)
            mirrored = mirror_rows(ratchet.lake, keyspace, table)
            found = Counter(tuple(row.values()) for row in mirrored)
            missing, extra = wanted - found, found - wanted
            assert (missing, extra) == (Counter(), Counter()), (
                f"{keyspace}.{table}: {sum(missing.values())} missing {list(missing)[:3]}, "
                f"{sum(extra.values())} extra {list(extra)[:3]}"
            )
            total += sum(wanted.values())
    return total


def is_same(cluster: VitessCluster, ratchet: Ratchet, tables: Mapping[str, Sequence[str]]) -> bool:
    """The same as an answer; False also while tables are still to come."""
    try:
        return assert_same(cluster, ratchet, tables) > 0
    # A vtgate takes a moment to learn of a column that has gone, and fails to answer until then.
    except (AssertionError, TableNotFoundError, pymysql.err.OperationalError):
        time.sleep(2)
        return False


def until(done: Callable[[], bool], what: str, seconds: float = 450) -> None:
    """Wait for it."""
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.3)


def stop(process: subprocess.Popen[str]) -> str:
    """End a run politely; what it logged."""
    process.send_signal(signal.SIGTERM)
    out, err = end_of(process, 120)
    assert process.returncode == 0, (out[-2000:], err[-8000:])
    return err
