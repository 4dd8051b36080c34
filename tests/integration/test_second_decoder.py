"""The change log beside the server's log as mysql-replication reads it, on both servers."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from core.types import MisfitPolicy
from ingest.logcheck import LogResult
from ingest.logstretch import check_stretch, stretches
from lab.servers import Server
from tests.capture_kit import Capturer, run, source_of, started
from tests.fix_faker import SQL_MODE, every_type_tables

flavors = pytest.mark.parametrize("flavor", ["mariadb", "mysql"])
MakeServer = Callable[..., Server]


def checked(capture: Capturer, policy: MisfitPolicy | None = None) -> LogResult:
    """All rounds that were captured, compared."""
    found = stretches(capture.log.since(0), str(capture.source.shard))
    assert len(found) == 1
    result, _ = check_stretch(
        capture.lake, capture.source, found[0], policy=policy or MisfitPolicy()
    )
    return result


def told(result: LogResult) -> str:
    lines = [str(one) for one in result.examples]
    return "\n".join([f"{result.differences} differences", *lines])


def write_all(server: Server, database: str) -> int:
    """Every type's edge values, inserted, updated and deleted; how many rows were written."""
    count = 0
    with server.connect(database=database) as connection, connection.cursor() as cursor:
        cursor.execute(f"SET time_zone = '+00:00', sql_mode = '{SQL_MODE}'")
        for table in every_type_tables(server.flavor):
            rng = random.Random(20_240_229)
            rows = table.rows(rng, 10)
            cursor.execute(table.create_sql)
            for first in range(0, len(rows), 7):
                cursor.execute(table.insert_sql(first, rows[first : first + 7]))
            rng.shuffle(rows)
            for number, row in enumerate(rows):
                count += cursor.execute(table.update_sql(number, row))
            cursor.execute(f"DELETE FROM `{table.name}`")
            count += 2 * len(rows)
    return count


@flavors
@pytest.mark.parametrize("zero_dates", ["null", "text"])
def test_every_type(make_server: MakeServer, flavor: str, zero_dates: str, tmp_path: Path) -> None:
    server = started(make_server, flavor)
    policy = MisfitPolicy(zero_dates=zero_dates)
    capture = Capturer(source_of(server, "d"), tmp_path, policy=policy)
    rows = write_all(server, "d")
    capture.catch_up()
    result = checked(capture, policy)
    print(result.rows, rows, result.transactions, result.values)
    for k, v in result.not_compared.items():
        print(k, v)
    assert not result.differences, told(result)
