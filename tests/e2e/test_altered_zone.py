"""A column that gets the server's own time, where the log does not say what zone that was in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from altered_kit import change, create, execute
from fix_e2e import PASSWORD, Ratchet, assert_identical

from lab.servers import create_ratchet_user

ALTER = "ALTER TABLE t ADD x DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP"


def altered(server: Any, make_ratchet: Callable[..., Ratchet], *, restarted: bool = False) -> str:
    """What a run said that came to the statement."""
    server.execute("CREATE DATABASE d")
    create(server, "d", ["t"])
    create_ratchet_user(server, PASSWORD, ["d"])
    ratchet = make_ratchet({"-": server}, "d")
    ratchet.run("run", "--until-caught-up")
    execute(server, "d", ALTER)
    change(server, "d", "t", 3)
    if restarted:
        server.stop()
        server.start()
    said = ratchet.run("run", "--until-caught-up").stderr
    assert_identical(ratchet.lake, [server], "d", ["t"])
    ratchet.run("verify")
    return str(said)


@pytest.mark.parametrize("flavor", ["mariadb", "mysql"])
def test_a_server_in_utc(
    make_server: Callable[..., Any], make_ratchet: Callable[..., Ratchet], flavor: str
) -> None:
    assert "without reading the source" in altered(make_server(flavor), make_ratchet)


@pytest.mark.parametrize("flavor", ["mariadb", "mysql"])
def test_a_server_in_another_zone(
    make_server: Callable[..., Any], make_ratchet: Callable[..., Ratchet], flavor: str
) -> None:
    said = altered(make_server(flavor, zone="IST-5:30"), make_ratchet)
    assert "rows read from the source" in said
    assert "is dumped again" not in said


def test_a_server_that_was_started_since(
    make_server: Callable[..., Any], make_ratchet: Callable[..., Ratchet]
) -> None:
    """It may have been in another zone before."""
    said = altered(make_server("mariadb"), make_ratchet, restarted=True)
    assert "rows read from the source" in said
    assert "is dumped again" not in said
