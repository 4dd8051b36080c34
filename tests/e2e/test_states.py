"""What `ratchet status` says of a run whose link to the server fails in different ways, and when.

One run, all along: it goes on by itself after each, and ends with the source's rows.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from fix_e2e import PASSWORD, TABLES, Ratchet, Writer, assert_identical, create_tables, status
from fix_proxy import Proxy

from lab.servers import create_ratchet_user

MakeProxy = Callable[[str, int], Proxy]
pytestmark = pytest.mark.long

SOON = 15.0  # seconds; what docs/operations.md states


def test_told_apart(
    mariadb: Any, database: str, make_ratchet: Callable[..., Ratchet], make_proxy: MakeProxy
) -> None:
    create_tables(mariadb, database)
    create_ratchet_user(mariadb, PASSWORD, [database])
    proxy = make_proxy(mariadb.host, mariadb.port)
    ratchet = make_ratchet({"-": mariadb}, database, capture={"heartbeat_seconds": 1})
    config = yaml.safe_load(ratchet.config.read_text())
    config["sources"]["shop"]["shards"]["-"]["port"] = proxy.port
    ratchet.config.write_text(yaml.safe_dump(config))
    ratchet.run("run", "--until-caught-up")
    assert state(ratchet) == "stopped"
    running = ratchet.start("run")
    soon(ratchet, "idle", within=60)
    proxy.pause()  # half-open: nobody says anything, and nothing is closed
    soon(ratchet, "disconnected")
    proxy.resume()
    soon(ratchet, "idle", within=60)
    proxy.refuse()
    proxy.cut()
    soon(ratchet, "disconnected")
    proxy.accept()
    soon(ratchet, "idle", within=60)
    writer = Writer(mariadb, database, seed=1)
    writer.start()
    seen = set()
    for _ in range(6):  # resets in the middle of what is sent
        proxy.cut()
        seen.add(state(ratchet))
    assert "streaming" in seen
    assert seen <= {"streaming", "idle"}
    proxy.half_open()  # the run's stream hears nothing more; others may connect
    writer.finish()
    soon(ratchet, "idle", within=60)
    running.send_signal(signal.SIGKILL)
    running.wait(30)
    soon(ratchet, "dead", within=5)
    ratchet.run("run", "--until-caught-up")
    assert state(ratchet) == "stopped"
    assert_identical(ratchet.lake, [mariadb], database, TABLES)


def state(ratchet: Ratchet) -> str:
    (shard,) = status(ratchet)["shards"]
    return str(shard["state"])


def soon(ratchet: Ratchet, wanted: str, *, within: float = SOON) -> None:
    """The state is told within that time, which the command itself takes part of."""
    begun, seen = time.monotonic(), []
    while not seen or seen[-1] != wanted:
        took = time.monotonic() - begun
        assert took < within, f"{wanted} was not told within {within} s: {seen}"
        seen.append(state(ratchet))
