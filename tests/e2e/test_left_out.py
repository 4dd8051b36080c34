"""`ratchet status` lists a table that comes while a run goes on and cannot be mirrored, and why."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from fix_e2e import PASSWORD, Ratchet, assert_identical, mirror_rows, status

from lab.servers import create_ratchet_user


def until(ratchet: Ratchet, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The status, as soon as it is so: a run looks for tables now and then."""
    deadline = time.monotonic() + 240
    while not holds(found := status(ratchet)):
        assert time.monotonic() < deadline, (found["tables"], found["left_out"])
        time.sleep(1)
    return found


def phases(found: dict[str, Any]) -> dict[str, str]:
    return {one["table"]: one["phase"] for one in found["tables"]}


@pytest.mark.long
@pytest.mark.parametrize("flavor", ["mariadb", "mysql"])
def test_new_and_refused_while_a_run_goes_on(
    make_server: Callable[..., Any], make_ratchet: Callable[..., Ratchet], flavor: str
) -> None:
    server = make_server(flavor)
    server.execute("CREATE DATABASE shop")
    server.execute("CREATE TABLE shop.t (id INT PRIMARY KEY)")
    create_ratchet_user(server, PASSWORD, ["shop"])
    ratchet = make_ratchet({"-": server}, "shop")
    ratchet.run("run", "--until-caught-up")
    assert status(ratchet)["left_out"] == []
    run = ratchet.start("run")
    until(ratchet, lambda found: found["run"] is not None)

    server.execute("CREATE TABLE shop.odd (id INT NOT NULL) ENGINE=CSV")
    server.execute("CREATE TABLE shop.nokey (id INT)")
    found = until(ratchet, lambda now: bool(now["left_out"]) and "nokey" in phases(now))
    (odd,) = found["left_out"]
    assert (odd["keyspace"], odd["table"]) == ("shop", "odd")
    assert odd["reason"] == "its engine is CSV: not every change of its rows is in the log"
    assert "!odd" in odd["hint"]
    (nokey,) = (one for one in found["tables"] if one["table"] == "nokey")
    assert nokey["phase"] == "stopped"
    assert "key" in nokey["stopped"]
    told = ratchet.run("status").stdout
    assert "shop.odd is left out: its engine is CSV" in told
    assert "shop.nokey is stopped: " in told

    server.execute("ALTER TABLE shop.odd ENGINE=InnoDB, ADD PRIMARY KEY (id)")
    server.execute("INSERT INTO shop.odd VALUES (1), (2)")
    until(ratchet, lambda now: now["left_out"] == [] and phases(now).get("odd") == "streaming")
    # The dump may have begun before the rows were there; then they come by the log.
    until(ratchet, lambda _: len(mirror_rows(ratchet.lake, "shop", "odd")) == 2)
    assert_identical(ratchet.lake, [server], "shop", ["t", "odd"])

    with server.connect(database="shop") as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_log_bin = 0")
        cursor.execute("DROP TABLE t")
    until(ratchet, lambda now: phases(now)["t"] == "stopped")
    assert run.poll() is None
    run.terminate()
    run.communicate()
    told = ratchet.run("status").stdout
    assert "shop.t is stopped: the source no longer has it" in told
    ratchet.run("run", "--until-caught-up", expect=6)
    assert_identical(ratchet.lake, [server], "shop", ["odd"])
