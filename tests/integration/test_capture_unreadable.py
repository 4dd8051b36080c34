"""Tables whose rows the mirror cannot take stop; the others of the stream go on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from capture_kit import Capturer, close_streams, run, server_rows, source_of, started

from lab.servers import Server
from ratchet.core.types import InvalidValuePolicy


@pytest.fixture(autouse=True)
def _close() -> Iterator[None]:
    yield
    close_streams()


@pytest.mark.parametrize("flavor", ["mariadb", "mysql"])
def test_the_others_go_on(make_server: Callable[..., Server], flavor: str, tmp_path: Path) -> None:
    server = started(make_server, flavor)
    run(
        server,
        "CREATE TABLE ours (id INT PRIMARY KEY, `_TOKEN` INT)",
        "CREATE TABLE dated (day DATE PRIMARY KEY, n INT)",
        "CREATE TABLE strict (id INT PRIMARY KEY, day DATE)",
    )
    capture = Capturer(
        source_of(server, "d"), tmp_path, policy=InvalidValuePolicy(zero_dates="fail")
    )
    run(
        server,
        "SET sql_mode = ''",
        "INSERT INTO t (v, n) VALUES ('a', 1)",
        "INSERT INTO ours VALUES (1, 1)",
        "INSERT INTO dated VALUES ('2024-01-01', 1)",
        "BEGIN",
        "INSERT INTO t (v, n) VALUES ('b', 2)",
        "INSERT INTO dated VALUES ('0000-00-00', 2)",
        "INSERT INTO strict VALUES (1, '2024-00-00')",
        "INSERT INTO t (v, n) VALUES ('c', 3)",
        "COMMIT",
        "UPDATE t SET n = n + 1",
    )
    capture.catch_up()
    assert capture.final("t") == server_rows(server, "d", "t")
    told = {one.table: one.statement for one in capture.events() if one.kind == "unreadable"}
    assert set(told) == {"ours", "dated", "strict"}
    assert "Ratchet's own column" in told["ours"]
    assert "part of the key" in told["dated"]
    assert "zero or invalid dates" in told["strict"]
    assert not capture.changes("ours")
