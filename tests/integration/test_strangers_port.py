"""Another user takes a real server's port while it is stopped; the server itself is accepted."""

from __future__ import annotations

from dataclasses import replace

import pytest
from capture_kit import source_of
from history_kit import MakeServer
from stranger_kit import needs_root, stranger

from ratchet.core.errors import RetryableError
from ratchet.wire.session import Session


@needs_root
@pytest.mark.parametrize("flavor", ["mariadb", "mysql"])
def test_he_is_refused_until_the_server_is_back(make_server: MakeServer, flavor: str) -> None:
    server = make_server(flavor)
    server.execute("CREATE DATABASE d")
    source = source_of(server, "d")
    assert source.tls == "auto"
    Session.connect(source).close()
    server.stop()
    with stranger("mysql", server.host, server.port) as (_, told):
        for _ in range(2):
            with pytest.raises(RetryableError, match="served by a process of uid 65534"):
                Session.connect(source)
        assert told() == ""
    server.start()
    Session.connect(source).close()


@needs_root
@pytest.mark.parametrize("flavor", ["mariadb", "mysql"])
def test_he_cannot_keep_us_from_a_server_by_another_address(
    make_server: MakeServer, flavor: str
) -> None:
    """`localhost` may be ::1 as well, where this server does not listen."""
    server = make_server(flavor)
    server.execute("CREATE DATABASE d")
    source = replace(source_of(server, "d"), host="localhost")
    with stranger("mysql", "::1", server.port) as (_, told):
        with Session.connect(source) as session:
            assert session.query("SELECT 1") == [(1,)]
        assert told() == ""
