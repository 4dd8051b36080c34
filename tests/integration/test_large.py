"""What is large: transactions of millions of rows, and rows of many megabytes."""

from __future__ import annotations

import hashlib
import resource
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from capture_kit import Capturer, close_streams, run, source_of
from change_kit import read_file

from lab.servers import Server
from ratchet.ingest.slices import SliceLimits

MakeServer = Callable[..., Server]
with_gtids = pytest.mark.parametrize("flavor", ["mariadb", "mysql"])
LONG = SliceLimits(max_seconds=900, min_seconds=0.0)
ROWS = 10_000_000
BOUND = 1 << 30  # bytes that reading it may take at most
DIGITS = (
    "(SELECT 0 AS d UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 \
UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9)"
)


@pytest.fixture(autouse=True)
def _close() -> Iterator[None]:
    yield
    close_streams()


def peak() -> int:
    """Bytes that this process has held at most, so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@pytest.mark.long
@with_gtids
def test_ten_million_rows_in_one_transaction(
    make_server: MakeServer, flavor: str, tmp_path: Path
) -> None:
    """Read as it comes: what is held does not grow with the transaction."""
    options = {"max-binlog-cache-size": str(8 << 30), "innodb-flush-log-at-trx-commit": "0"}
    server = make_server(flavor, options=options, buffer_pool="512M")
    server.execute("CREATE DATABASE d")
    run(server, "CREATE TABLE t (id INT PRIMARY KEY, v BIGINT, s VARCHAR(20))")
    capture = Capturer(source_of(server, "d"), tmp_path)
    digits = " CROSS JOIN ".join(f"{DIGITS} AS d{at}" for at in range(7))
    number = " + ".join(f"d{at}.d * {10**at}" for at in range(7))
    numbers = f"SELECT {number}, ({number}) * 3, CONCAT('row ', {number}) FROM {digits}"
    run(server, f"INSERT INTO t {numbers}")
    before = peak()
    (committed,) = capture.catch_up(seconds=900, limits=LONG)
    assert peak() - before < BOUND
    assert sum(file.rows for file in committed.files) == ROWS
    assert {piece.transactions for piece in committed.slices} == {1}
    seen = np.zeros(ROWS, np.int8)
    for file in committed.files:
        table = read_file(capture.lake, file, ["after"])
        seen[table["after"].combine_chunks().field("id").to_numpy()] += 1
    assert seen.min() == seen.max() == 1


@with_gtids
def test_a_row_of_64_megabytes(make_server: MakeServer, flavor: str, tmp_path: Path) -> None:
    """It takes several packets, in the binlog and on the way."""
    server = make_server(flavor, options={"max-allowed-packet": str(256 << 20)})
    server.execute("CREATE DATABASE d")
    run(server, "CREATE TABLE t (id INT PRIMARY KEY, v LONGBLOB)")
    capture = Capturer(source_of(server, "d"), tmp_path)
    size = (64 << 20) - 5
    run(
        server,
        "INSERT INTO t VALUES (1, 'small')",
        f"INSERT INTO t VALUES (2, REPEAT('0123456789abcde\\n', {size} DIV 16))",
        "UPDATE t SET v = CONCAT(v, 'end') WHERE id = 2",
        "DELETE FROM t WHERE id = 1",
    )
    capture.catch_up(seconds=120, limits=LONG)
    (row,) = capture.final("t").values()
    assert (
        hashlib.sha256(row["v"]).hexdigest()
        == server.execute("SELECT SHA2(v, 256) FROM d.t WHERE id = 2")[0][0]
    )
    assert len(row["v"]) == size // 16 * 16 + 3
