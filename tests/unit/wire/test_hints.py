"""What is asked of a server about its tables, where the server's answers do not come to rest."""

from __future__ import annotations

import itertools
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ratchet.core.errors import LockedError, RetryableError, TableStoppedError
from ratchet.wire.hints import ServerCatalog
from ratchet.wire.session import Session


def test_privileges_that_are_others_each_time_end_the_question(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was asked for ever, in a new session each time."""
    numbers = itertools.count()
    source = SimpleNamespace(shard="shop/-", database="shop", trusts_virtual=False)
    session = SimpleNamespace(
        is_mariadb=True,
        config=source,
        query=lambda *_: [(f"GRANT {next(numbers)}",)],
    )
    opened = []

    def connect(config: Any) -> Any:
        opened.append(config)
        return nullcontext(SimpleNamespace(query=lambda *_: [(0,)]))

    monkeypatch.setattr(Session, "connect", connect)
    monkeypatch.setattr("ratchet.wire.hints._PAUSES", (0.0,) * 4)
    catalog = ServerCatalog(cast("Session", session), keyspace="shop")
    monkeypatch.setattr(catalog, "_read_all", lambda _: ([], {}, {}))
    with pytest.raises(RetryableError, match="privileges change faster"):
        catalog.hints("t")
    assert len(opened) == 4


def test_a_table_that_is_locked_stays_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was taken for one of which nothing is to be said."""
    source = SimpleNamespace(shard="shop/-", database="shop", trusts_virtual=False)
    session = SimpleNamespace(is_mariadb=True, config=source, query=lambda *_: [])
    catalog = ServerCatalog(cast("Session", session), keyspace="shop")
    monkeypatch.setattr(catalog, "_granted", lambda: None)
    monkeypatch.setattr(catalog, "_asked", lambda _: (["t"], {"t": "it is a MERGE table"}, {}))
    with pytest.raises(TableStoppedError, match="MERGE"):
        catalog.hints("t")

    def locked(_: str) -> bool:
        raise LockedError("the table is locked")

    monkeypatch.setattr(catalog, "_is_ordinary", locked)
    monkeypatch.setattr("ratchet.wire.hints._REFUSED", 0.0)
    for _ in range(2):
        with pytest.raises(LockedError):
            catalog.hints("t")
