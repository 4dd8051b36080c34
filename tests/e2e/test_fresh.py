"""`ratchet sql --fresh`: what is captured can be read before it is merged."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from typing import Any

import pytest
from fix_e2e import PASSWORD, Ratchet, create_tables

from lab.servers import create_ratchet_user


@pytest.mark.long
def test_what_is_captured_can_be_read(
    mysql: Any, database: str, make_ratchet: Callable[..., Ratchet]
) -> None:
    """A run is killed between a round and its merge; the lake is all that the query needs."""
    create_tables(mysql, database)
    create_ratchet_user(mysql, PASSWORD, [database])
    mysql.execute("CREATE TABLE `odd-name` (id INT PRIMARY KEY, v INT)", database=database)
    mysql.execute("INSERT INTO `odd-name` VALUES (1, 1), (2, 2)", database=database)
    ratchet = make_ratchet({"-": mysql}, database)
    ratchet.run("run", "--until-caught-up")
    mysql.execute("REPLACE INTO `odd-name` VALUES (1, 10), (3, 30)", database=database)
    mysql.execute("DELETE FROM `odd-name` WHERE id = 2", database=database)
    killed = ratchet.run("run", "--until-caught-up", crash_at="merge.before_side", expect=None)
    assert killed.returncode == -signal.SIGKILL

    def rows(*args: str) -> list[list[int]]:
        query = "SELECT id, v FROM shop.`odd-name` ORDER BY id"
        out = ratchet.run("sql", query, "--format", "json", *args).stdout
        return [[row["id"], row["v"]] for row in json.loads(out)]

    assert rows("--fresh") == [[1, 10], [3, 30]]
    assert rows() == [[1, 1], [2, 2]]
    assert (
        "give one"
        in ratchet.run("sql", "SELECT 1", "--fresh", "--as-of", "round:1", expect=2).stderr
    )
    ratchet.run("run", "--until-caught-up")
    assert rows() == rows("--fresh") == [[1, 10], [3, 30]]
