"""A table that somebody holds for longer than a server may be away."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from fix_e2e import PASSWORD, Ratchet, assert_identical, end_of, status

from lab.servers import create_ratchet_user


@pytest.mark.long
@pytest.mark.parametrize("flavor", ["mariadb", "mysql"])
def test_a_locked_table_holds_up_nobody_else(
    make_server: Callable[..., Any], make_ratchet: Callable[..., Ratchet], flavor: str
) -> None:
    """Its dump is tried again until it is free; the run lives, and other tables are followed."""
    server = make_server(flavor)
    server.execute("CREATE DATABASE shop")
    for table in ("held", "other"):
        server.execute(f"CREATE TABLE shop.{table} (id INT NOT NULL PRIMARY KEY)")
        server.execute(f"INSERT INTO shop.{table} VALUES (1)")
    create_ratchet_user(server, PASSWORD, ["shop"])
    ratchet = make_ratchet({"-": server}, "shop", capture={"reconnect_seconds": 5})

    def phases() -> dict[str, str]:
        return {one["table"]: one["phase"] for one in status(ratchet)["tables"]}

    def until(holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 120
        while not holds():
            assert run.poll() is None, run.communicate()
            assert time.monotonic() < deadline, phases()
            time.sleep(1)

    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("LOCK TABLES shop.held WRITE")
        run = ratchet.start("run")
        time.sleep(150)  # two locks are waited for, 60 s each, and more than 5 s lie between
        server.execute("INSERT INTO shop.other VALUES (2)")
        until(lambda: phases().get("other") == "streaming")
        assert phases().get("held") != "streaming"
        cursor.execute("UNLOCK TABLES")
    until(lambda: phases() == {"held": "streaming", "other": "streaming"})
    run.terminate()
    _, told = end_of(run, 60)
    assert run.returncode == 0
    assert "the table is locked" in told
    assert_identical(ratchet.lake, [server], "shop", ["held", "other"])
