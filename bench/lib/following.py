"""A run that follows a private server, for benchmarks of the whole."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import yaml

from lab.servers import RATCHET_PASSWORD, RATCHET_USER, Server, create_ratchet_user

DATABASE: Final = "bench"
ROOT: Final = Path(__file__).parents[2]
COLUMNS: Final = ("id", "name", "code", "amount", "price")
_COLUMNS: Final = (
    "(id BIGINT PRIMARY KEY, name VARCHAR(40), code CHAR(8), amount INT, "
    "placed TIMESTAMP(6) DEFAULT CURRENT_TIMESTAMP(6), price DECIMAL(18,2))"
)
_DIGITS: Final = " UNION ALL ".join(f"SELECT {n} AS d" for n in range(10))


def fill(server: Server, tables: int, rows: int) -> None:
    """Make tables t0, t1 ... of so many rows each, and the account that reads them."""
    server.execute(f"CREATE DATABASE {DATABASE}")
    create_ratchet_user(server, databases=[DATABASE])
    for table in range(tables):
        server.execute(f"CREATE TABLE t{table} {_COLUMNS}", database=DATABASE)
        add_rows(server, f"t{table}", 0, rows)


def add_table(server: Server, table: str, rows: int) -> None:
    """Make one more table, of so many rows."""
    server.execute(f"CREATE TABLE {table} {_COLUMNS}", database=DATABASE)
    for first in range(0, rows, 1_000_000):
        add_rows(server, table, first, min(1_000_000, rows - first))


def add_rows(server: Server, table: str, first: int, count: int) -> None:
    """Insert rows with keys from `first` on, in one transaction."""
    digits = range(len(str(count - 1)))  # no more: the server makes all their combinations
    number = " + ".join(f"t{n}.d * {10**n}" for n in digits)
    source = ", ".join(f"({_DIGITS}) t{n}" for n in digits)
    server.execute(
        f"INSERT INTO {table} ({', '.join(COLUMNS)}) SELECT n + {first}, CONCAT('name ', n), "
        f"CONCAT('c', n % 1000), n, n / 100 FROM (SELECT {number} AS n FROM {source}) numbers "
        f"WHERE n < {count}",
        database=DATABASE,
    )


@contextmanager
def following(
    server: Server, home: Path, verify: Mapping[str, Any] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A run that has dumped the tables and follows; `verify` of its config, if given."""
    shard = {"host": server.host, "port": server.port, "user": RATCHET_USER}
    shard |= {"password": RATCHET_PASSWORD, "database": DATABASE}
    source = {"kind": "binlog", "shards": {"-": shard}}
    config: dict[str, Any] = {"lake": "./lake", "sources": {"shop": source}}
    config |= {} if verify is None else {"verify": dict(verify)}
    path = home / "ratchet.yaml"
    path.write_text(yaml.safe_dump(config))
    ratchet = [sys.executable, "-m", "ratchet.jobs.cli"]
    with (home / "run.log").open("wb") as out:
        command = [*ratchet, "run", str(path)]
        run = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=out, start_new_session=True)
        try:
            while not _streaming([*ratchet, "status", str(path), "--json"]):
                if run.poll() is not None:
                    raise SystemExit((home / "run.log").read_text())
                time.sleep(1)
            yield run
        finally:
            run.send_signal(signal.SIGTERM)
            run.wait()


def _streaming(command: list[str]) -> bool:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    found: list[Any] = json.loads(done.stdout)["tables"] if done.returncode == 0 else []
    return bool(found) and all(table["phase"] == "streaming" for table in found)
