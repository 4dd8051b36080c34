"""Another user takes a real server's port while it is stopped; the server itself is accepted."""

from __future__ import annotations

import pytest
from capture_kit import source_of
from history_kit import MakeServer
from stranger_kit import needs_root, stranger

from ratchet.core.errors import SourceUnfitError
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
            with pytest.raises(SourceUnfitError, match="served by a process of uid 65534"):
                Session.connect(source)
        assert told() == ""
    server.start()
    Session.connect(source).close()
