"""Real servers for tests.

`mariadb`, `mysql`: one server each for the whole session; do not kill these.
`server`: the same, once per flavour.
`database`: a fresh database on every server that the test asks for.
`make_server`: a server of the test's own, with options, to kill and restart.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator

import pytest

from lab import provision
from lab.servers import MariadbServer, MysqlServer, Server

FLAVORS: dict[str, type[Server]] = {"mariadb": MariadbServer, "mysql": MysqlServer}
_numbers = itertools.count(1)


def pytest_report_header() -> list[str]:
    """Say which servers the run uses."""
    lines = []
    for flavor in ("mariadb", "mysql"):
        found = provision.found(flavor)
        what = f"{found.version} ({found.program})" if found else "fetched when needed"
        lines.append(f"{flavor}: {what}")
    return lines


@pytest.fixture(scope="session")
def mariadb() -> Iterator[Server]:
    """A MariaDB that all tests of the session share."""
    with MariadbServer() as running:
        yield running


@pytest.fixture(scope="session")
def mysql() -> Iterator[Server]:
    """A MySQL with GTIDs that all tests of the session share."""
    with MysqlServer() as running:
        yield running


@pytest.fixture(scope="session", params=sorted(FLAVORS))
def server(request: pytest.FixtureRequest) -> Server:
    """Both shared servers, one after the other."""
    running: Server = request.getfixturevalue(request.param)
    return running


@pytest.fixture
def database(request: pytest.FixtureRequest) -> Iterator[str]:
    """A fresh, empty database, on each shared server that the test uses; dropped afterwards."""
    # The number of the process keeps runs apart that share nothing but a log.
    name = f"test_{os.getpid()}_{next(_numbers)}"
    wanted = [f for f in ("server", "mariadb", "mysql") if f in request.fixturenames]
    # `server` and `mariadb` in one test are the same object for one of the parameters.
    servers: list[Server] = list({id(s): s for s in map(request.getfixturevalue, wanted)}.values())
    for running in servers:
        running.execute(f"CREATE DATABASE `{name}`")
    yield name
    for running in servers:
        running.execute(f"DROP DATABASE IF EXISTS `{name}`")


@pytest.fixture
def make_server() -> Iterator[Callable[..., Server]]:
    """A factory of started servers: `make_server("mysql", gtid=False, options={...})`."""
    made: list[Server] = []

    def make(flavor: str, **settings: object) -> Server:
        new = FLAVORS[flavor](**settings)  # type: ignore[arg-type]
        made.append(new)
        return new.start()

    yield make
    for one in made:
        one.close()


def purge_binlogs(server: Server) -> None:
    """Leave only the newest binlog.

    A file stays for as long as the server has not seen that its reader is gone, or (MariaDB) has
    not noted that a crash would not need it.
    """
    server.execute("FLUSH BINARY LOGS")
    deadline = time.monotonic() + 60
    while len(server.execute("SHOW BINARY LOGS")) > 1:
        assert time.monotonic() < deadline, "a binlog is still in use"
        server.execute("FLUSH BINARY LOGS")
        last = server.execute("SHOW BINARY LOGS")[-1][0]
        server.execute(f"PURGE BINARY LOGS TO '{last}'")
