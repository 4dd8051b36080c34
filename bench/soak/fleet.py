"""The servers of a soak, their tables, and who writes to them.

Lives here: one MySQL and one MariaDB with tables of some rows each, and a writer for each that
changes rows at a steady rate. Does not live here: the run that follows them (`life`).
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pymysql

from bench.lib.following import DATABASE, fill
from lab.servers import MariadbServer, MysqlServer, Server

BEAT: Final = "beat"
BLOBS: Final = "b"  # not a soak's
KEYS: Final = 4  # a table's keys run up to so many times its first rows
_ROWS: Final = 10  # a transaction
_LARGE: Final = 2_000  # rows in one transaction of a few hundred
_PAUSE: Final = 0.5


@contextmanager
def fleet(tables: int, rows: int, home: Path | None = None) -> Iterator[dict[str, Server]]:
    """Both servers with half of the tables each; by keyspace.

    Args:
        tables: on both together.
        rows: of each at first.
        home: where their data stays for the next piece of a soak; None: it is deleted.
    """
    with (
        MysqlServer(buffer_pool="256M", **_kept(home, "mysql", 101)) as mysql,
        MariadbServer(**_kept(home, "mariadb", 102)) as mariadb,
    ):
        servers: dict[str, Server] = {"mysql": mysql, "mariadb": mariadb}
        for server in servers.values():
            if not server.execute("SHOW DATABASES LIKE %s", [DATABASE]):
                furnish(server, tables // 2, rows)
        yield servers
        if home is not None:
            for server in servers.values():
                server.stop()


def _kept(home: Path | None, name: str, number: int) -> dict[str, Any]:
    """What a server needs to be the same one after its machine was off."""
    if home is None:
        return {}
    durable = {"sync-binlog": "1", "innodb-flush-log-at-trx-commit": "1"}
    return {"datadir": home / name, "options": {"server-id": str(number), **durable}}


def furnish(server: Server, tables: int, rows: int) -> None:
    """Make the tables, the one that tells the time too, and the account that reads them."""
    fill(server, tables, rows)
    server.execute(
        f"CREATE TABLE {BEAT} (id INT PRIMARY KEY, at DOUBLE NOT NULL)", database=DATABASE
    )
    server.execute(f"INSERT INTO {BEAT} VALUES (1, 0)", database=DATABASE)


def tables_of(server: Server) -> list[str]:
    """The names of its tables."""
    return sorted(str(name) for (name,) in server.execute("SHOW TABLES", database=DATABASE))


class Writer(threading.Thread):
    """Changes rows of one server at a steady rate, and tells the time in one row, until ended.

    Inserts, updates, deletes, changes of key, rolled back work and now and then a large
    transaction, of random keys. A server that is away is waited for.

    Args:
        server: where.
        tables: how many there are: t0, t1 ...
        rows: each had at first.
        rate: changes of rows in a second.
        seed: of what it does.
    """

    def __init__(self, server: Server, tables: int, rows: int, rate: float, seed: int) -> None:
        super().__init__(daemon=True)
        self._server, self._tables, self._keys = server, tables, rows * KEYS
        self._pause = _ROWS / rate
        self._random = random.Random(seed)
        self._end = threading.Event()
        self.changes = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        """Transactions, each at its time; behind an interruption it does not hurry."""
        connection: Any = None
        due = time.monotonic()
        while not self._end.wait(max(0.0, due - time.monotonic())):
            due = max(due + self._pause, time.monotonic() - _PAUSE)
            try:
                connection = connection or self._server.connect(database=DATABASE, autocommit=False)
                self._transaction(connection)
            except pymysql.err.OperationalError:
                connection = None
                self._end.wait(_PAUSE)
            except BaseException as error:  # noqa: BLE001 - raised again by finish()
                self.error = error
                return

    def finish(self) -> None:
        """End it, and pass on what went wrong."""
        self._end.set()
        self.join()
        if self.error is not None:
            raise self.error

    def _transaction(self, connection: Any) -> None:
        draw, rng = self._random.random(), self._random
        table = f"t{rng.randrange(self._tables)}"
        with connection.cursor() as cursor:
            if draw < 0.003:
                first = rng.randrange(self._keys)
                cursor.execute(
                    f"UPDATE {table} SET amount = amount + 1 WHERE id >= {first} LIMIT {_LARGE}"
                )
                self.changes += cursor.rowcount
            else:
                for _ in range(_ROWS):
                    self._change(cursor, table)
            cursor.execute(f"UPDATE {BEAT} SET at = {time.time()!r} WHERE id = 1")
        if draw > 0.98:
            connection.rollback()
        else:
            connection.commit()

    def _change(self, cursor: Any, table: str) -> None:
        rng = self._random
        key, draw = rng.randrange(self._keys), rng.random()
        if draw < 0.35:
            cursor.execute(
                f"REPLACE INTO {table} (id, name, code, amount, price) VALUES "
                f"({key}, 'name {key}', 'c{key % 1000}', {rng.randrange(10**6)}, {key}.25)"
            )
        elif draw < 0.7:
            cursor.execute(f"UPDATE {table} SET amount = {rng.randrange(10**6)} WHERE id = {key}")
        elif draw < 0.9:
            cursor.execute(f"DELETE FROM {table} WHERE id = {key}")
        else:
            with contextlib.suppress(pymysql.err.IntegrityError):  # there is such a row
                other = rng.randrange(self._keys)
                cursor.execute(f"UPDATE {table} SET id = {other} WHERE id = {key}")
        self.changes += cursor.rowcount
