"""Commit times that cannot be: told of, and time travel and lags go on as if they were right."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from fix_e2e import PASSWORD, Ratchet, assert_identical, status

from lab.servers import create_ratchet_user


def now() -> str:
    return datetime.now(UTC).isoformat()


@pytest.mark.long
def test_sessions_with_a_clock_of_their_own(
    server: Any, database: str, make_ratchet: Callable[..., Ratchet]
) -> None:
    """MariaDB logs what SET TIMESTAMP says; MySQL its own clock."""

    def execute(*statements: str) -> None:
        with server.connect(database=database) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def shown(moment: str) -> list[int]:
        query = ("sql", "SELECT v FROM shop.t", "--format", "json", "--as-of", moment)
        return [row["v"] for row in json.loads(ratchet.run(*query).stdout)]

    execute("CREATE TABLE t (id INT NOT NULL PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1)")
    create_ratchet_user(server, PASSWORD, [database])
    ratchet = make_ratchet({"-": server}, database)
    ratchet.run("run", "--until-caught-up")
    first = now()
    time.sleep(2.1)  # MariaDB's log has whole seconds

    execute("SET TIMESTAMP = 1893456000", "UPDATE t SET v = 2")  # 2030
    done = ratchet.run("run", "--until-caught-up")
    odd = server.flavor == "mariadb"
    assert ("impossible commit time" in done.stderr) == odd
    assert ("2030-01-01" in done.stderr) == odd
    assert bool(status(ratchet)["shards"][0]["odd_ts"]) == odd
    assert ("impossible commit time" in ratchet.run("status").stdout) == odd
    second = now()
    time.sleep(2.1)
    execute("UPDATE t SET v = 3")
    execute("SET TIMESTAMP = 5", "UPDATE t SET v = v + 1")  # 1970
    ratchet.run("run", "--until-caught-up")
    assert_identical(ratchet.lake, [server], database, ["t"])

    found = [ratchet.run("as-of", "--time", moment).stdout for moment in (first, second, now())]
    assert len(set(found)) == 3
    assert "2030" not in "".join(found)
    assert shown(second) == [2]
    assert shown(now()) == [4]

    # Captured, and not merged yet: how far behind the tables are goes by no such time either.
    execute("SET TIMESTAMP = 5", "UPDATE t SET v = 9")
    ratchet.run("dump")
    lag = status(ratchet)["tables_lag_max"]
    assert lag is None or lag < 600
    ratchet.run("run", "--until-caught-up")
    assert_identical(ratchet.lake, [server], database, ["t"])
