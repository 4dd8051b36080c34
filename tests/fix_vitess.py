"""A real Vitess cluster for tests.

`vitess`: one cluster for the whole session, with the unsharded keyspace `commerce`; do not kill it.

Vitess is built with Go. Where there is no Go, tests that ask for it are left out of the run, and
the header says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pymysql
import pytest

from lab.vitess import Tablet, VitessCluster
from lab.vitessbuild import has_go

# Fixtures with a cluster: the session's, and tests' own.
OURS = {"vitess", "vitess_of_its_own"}


def pytest_report_header() -> str:
    """Say whether the tests with Vitess run."""
    return f"vitess: {'built with Go' if has_go() else 'no Go here: its tests are left out'}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what cannot run here, and mark the rest."""
    wanted = [item for item in items if OURS & set(getattr(item, "fixturenames", ()))]
    for item in wanted:
        item.add_marker(pytest.mark.servers)
    if wanted and not has_go():
        config.hook.pytest_deselected(items=wanted)
        items[:] = [item for item in items if item not in wanted]


@pytest.fixture(scope="session")
def vitess() -> Iterator[VitessCluster]:
    """A cluster that all tests of the session share."""
    with VitessCluster() as cluster:
        cluster.add_keyspace("commerce", ["0"])
        yield cluster


class TabletServer:
    """A tablet's MySQL, with the methods of a lab server that tests use."""

    flavor = "mysql"

    def __init__(self, tablet: Tablet) -> None:
        self._socket = str(tablet.socket)

    def connect(self, *, database: str | None = None, **settings: Any) -> Any:
        """A connection as vt_dba, through the socket."""
        given = {"charset": "utf8mb4", "autocommit": True, **settings}
        return pymysql.connect(unix_socket=self._socket, user="vt_dba", database=database, **given)

    def execute(self, statement: str, arguments: Any = None, *, database: str | None = None) -> Any:
        """The rows of one statement."""
        with self.connect(database=database) as connection, connection.cursor() as cursor:
            cursor.execute(statement, arguments or None)
            return cursor.fetchall()


@pytest.fixture
def vitess_of_its_own() -> Iterator[VitessCluster]:
    """An empty cluster for one test."""
    with VitessCluster() as cluster:
        yield cluster
