"""Fixtures of the tests that follow a mirror step by step (`follower_kit`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cascade_kit import SERVERS
from fix_servers import FLAVORS
from follower_kit import Follower, Make

from lab.servers import Server
from ratchet.merge.cascades import openparents


@pytest.fixture(scope="module", params=sorted(SERVERS))
def shop_server(request: pytest.FixtureRequest) -> Any:
    """A server of each kind, for this module."""
    flavor, options = SERVERS[request.param]
    with FLAVORS[flavor](options=options) as server:
        yield server


@pytest.fixture
def follow(shop_server: Server, tmp_path: Path) -> Make:
    """A follower of a fresh database with these tables."""

    def make(*statements: str) -> Follower:
        shop_server.execute("DROP DATABASE IF EXISTS app")
        shop_server.execute("CREATE DATABASE app")
        for statement in statements:
            shop_server.execute(statement, database="app")
        return Follower(shop_server, "app", tmp_path)

    return make


@pytest.fixture
def nothing_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Statements come one after the other, some unchecked, but all within a second.

    The log has no smaller times, so rows might have come while a parent's change was open.
    """
    monkeypatch.setattr(openparents, "_LATER", -(10**10))
