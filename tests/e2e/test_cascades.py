"""Rows that servers change by foreign keys without a word in their logs, on real servers."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cascade_kit import NAMES, SCHEMA, SERVERS, Shop
from deltalake.exceptions import TableNotFoundError
from fix_e2e import PASSWORD, Ratchet, assert_identical

from lab.servers import create_ratchet_user
from store.files import Lake
from store.tables import Tables


def started(
    kind: str, make_server: Callable[..., Any], make_ratchet: Callable[..., Ratchet], **more: Any
) -> tuple[Any, Ratchet]:
    flavor, options = SERVERS[kind]
    server = make_server(flavor, options=options)
    server.execute("CREATE DATABASE app")
    for statement in SCHEMA:
        server.execute(statement, database="app")
    create_ratchet_user(server, PASSWORD, ["app"])
    return server, make_ratchet({"-": server}, "app", **more)


def wait_until_identical(lake: Path, server: Any, seconds: float = 60) -> None:
    """The mirror shows what the server does, some time after the last statement."""
    until = time.monotonic() + seconds
    while True:
        try:
            assert_identical(lake, [server], "app", NAMES)
        except (AssertionError, TableNotFoundError):  # the first: it is not dumped yet
            if time.monotonic() > until:
                raise
            time.sleep(0.3)
        else:
            return


@pytest.mark.quick_on("mariadb", "mysql-native")
@pytest.mark.parametrize("kind", SERVERS)
def test_a_shop_with_foreign_keys(
    make_server: Callable[..., Any], make_ratchet: Callable[..., Ratchet], kind: str
) -> None:
    server, ratchet = started(kind, make_server, make_ratchet)
    shop = Shop(server, "app", seed=7)
    shop.work(80)
    run = ratchet.start("run")
    try:
        for _ in range(12):
            shop.work(60)
            wait_until_identical(ratchet.lake, server)
        for statement in range(200):  # one by one, so that steps are cut anywhere
            shop.work(1)
            time.sleep(0.01 * (statement % 7))
        wait_until_identical(ratchet.lake, server)
    finally:
        run.terminate()
        _, err = run.communicate(timeout=60)
    assert run.returncode == 0, err[-3000:]
    states = Tables(Lake.at(ratchet.lake)).list()
    assert {state.phase for state in states} == {"streaming"}
    assert not [state.doubts for state in states if state.doubts]
    assert shop.done > 300
