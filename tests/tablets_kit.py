"""A Vitess keyspace by its tablets' own MySQL servers: accounts, and the command on a config."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pymysql
import yaml
from fix_e2e import PASSWORD, SHORT_LIVED, Ratchet

from lab.vitess import Tablet, VitessCluster


def account_on(tablet: Tablet) -> dict[str, Any]:
    """The least that Ratchet needs, and how to get there."""
    with pymysql.connect(unix_socket=str(tablet.socket), user="vt_dba") as connection:
        cursor = connection.cursor()
        # Not replicated to other tablets, and so no transaction that the shard alone has.
        cursor.execute("SET sql_log_bin = 0")
        cursor.execute("SET GLOBAL super_read_only = 0")
        cursor.execute(f"CREATE USER IF NOT EXISTS ratchet@'%' IDENTIFIED BY '{PASSWORD}'")
        cursor.execute("GRANT SELECT ON `vt_shop`.* TO ratchet@'%'")
        cursor.execute("GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO ratchet@'%'")
    return {
        "host": "127.0.0.1",
        "port": tablet.mysql_port,
        "user": "ratchet",
        "password": "${RATCHET_TEST_PASSWORD}",
        "database": "vt_shop",
        "tls": "required",
    }


def ratchet_on(cluster: VitessCluster, folder: Path, shards: list[str]) -> Ratchet:
    """The command with a config of these shards' tablets; the lake stays the same."""
    config = {
        "lake": "./lake",
        "sources": {
            "shop": {
                "kind": "binlog",
                "vitess": True,
                "shards": {
                    tablet.shard: account_on(tablet)
                    for tablet in cluster.tablets.values()
                    if tablet.shard in shards
                },
            }
        },
        "spark": {"conf": {"spark.driver.extraJavaOptions": SHORT_LIVED}},
        "capture": {"round_seconds": 1},
    }
    path = folder / "ratchet.yaml"
    path.write_text(yaml.safe_dump(config))
    return Ratchet(path, folder / "lake", {"RATCHET_TEST_PASSWORD": PASSWORD})
