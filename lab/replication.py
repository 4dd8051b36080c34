"""Making one lab server follow another, by GTID.

Lives here: setting up, waiting for and ending replication. Does not live here: what Ratchet does
with a source that has replicas.

Invariant: after `replicate_from` the replica executes the primary's transactions under their own
GTIDs, from the first one that it does not have.
"""

from __future__ import annotations

import time
from typing import Final

from pymysql.cursors import DictCursor

from lab.server import Server
from ratchet.core.errors import OperatorError

_USER: Final = "replica"
_PASSWORD: Final = "replica-lab"  # noqa: S105 - a server on the loopback address
_POLL: Final = 0.05


def replicate_from(replica: Server, primary: Server) -> None:
    """Make `replica` follow `primary`; both run the same flavour.

    A replica that never executed anything of its own starts at the primary's first transaction.
    """
    primary.execute("CREATE USER IF NOT EXISTS %s@'%%' IDENTIFIED BY %s", (_USER, _PASSWORD))
    primary.execute(f"GRANT REPLICATION SLAVE ON *.* TO '{_USER}'@'%'")
    if replica.flavor == "mysql":
        replica.execute(
            "CHANGE REPLICATION SOURCE TO SOURCE_HOST=%s, SOURCE_PORT=%s, SOURCE_USER=%s, "
            "SOURCE_PASSWORD=%s, SOURCE_AUTO_POSITION=1, GET_SOURCE_PUBLIC_KEY=1, "
            "SOURCE_CONNECT_RETRY=1, SOURCE_SSL=%s",  # required by default from 9.7 on
            (primary.host, primary.port, _USER, _PASSWORD, int(primary.tls is not None)),
        )
        replica.execute("START REPLICA")
    else:
        replica.execute(
            "CHANGE MASTER TO MASTER_HOST=%s, MASTER_PORT=%s, MASTER_USER=%s, "
            "MASTER_PASSWORD=%s, MASTER_USE_GTID=slave_pos, MASTER_CONNECT_RETRY=1",
            (primary.host, primary.port, _USER, _PASSWORD),
        )
        replica.execute("START SLAVE")


def wait_for_replica(replica: Server, primary: Server, *, timeout: float = 60.0) -> None:
    """Return once `replica` has executed all that `primary` has executed by now."""
    if replica.flavor == "mysql":
        (position,) = primary.execute("SELECT @@GLOBAL.gtid_executed")[0]
        wait = "SELECT WAIT_FOR_EXECUTED_GTID_SET(%s, %s) = 0"
    else:
        (position,) = primary.execute("SELECT @@GLOBAL.gtid_binlog_pos")[0]
        wait = "SELECT MASTER_GTID_WAIT(%s, %s) = 0"
    ((reached,),) = replica.execute(wait, (position, timeout))
    if reached != 1:
        raise OperatorError(
            f"it did not reach {position} within {timeout:.0f} s; its status: {_status(replica)}",
            operation="wait for a replica",
            hint=f"see its log {replica.log}",
        )


def stop_replication(replica: Server) -> None:
    """Make `replica` a server of its own again."""
    if replica.flavor == "mysql":
        replica.execute("STOP REPLICA")
        replica.execute("RESET REPLICA ALL")
    else:
        replica.execute("STOP SLAVE")
        replica.execute("RESET SLAVE ALL")


def wait_for_link(replica: Server, *, timeout: float = 30.0) -> None:
    """Return once `replica` is connected to its primary."""
    deadline = time.monotonic() + timeout
    while (status := _status(replica)).get("io") != "Yes":
        if time.monotonic() > deadline:
            raise OperatorError(
                f"not connected within {timeout:.0f} s; its status: {status}",
                operation="wait for a replica's connection",
                hint=f"see its log {replica.log}",
            )
        time.sleep(_POLL)


def _status(replica: Server) -> dict[str, object]:
    mysql = replica.flavor == "mysql"
    with replica.connect() as connection, connection.cursor(DictCursor) as cursor:
        cursor.execute("SHOW REPLICA STATUS" if mysql else "SHOW SLAVE STATUS")
        row = cursor.fetchone() or {}
    word = "Replica" if mysql else "Slave"
    return {
        "io": row.get(f"{word}_IO_Running"),
        "sql": row.get(f"{word}_SQL_Running"),
        "io_error": row.get("Last_IO_Error"),
        "sql_error": row.get("Last_SQL_Error"),
    }
