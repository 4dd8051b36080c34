"""The demo's databases: what its two shards hold at first, and what its writer does to them.

Does not live here: the story that is told with them (`demo`).

Invariant: a row's key says on which shard it lives (`shard_of`), so keys are unique over both.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from lab.servers import ServerError

DATABASE: Final = "shop"
SHARDS: Final = ("-80", "80-")
TABLES: Final = ("customers", "orders", "items", "visits")

_TABLES: Final = (
    (
        "CREATE TABLE customers (id BIGINT UNSIGNED NOT NULL PRIMARY KEY,"
        " name VARCHAR(60) NOT NULL, tier ENUM('gold','silver','bronze') NOT NULL,"
        " interests SET('books','music','tools','food'),"
        " born DATE, balance DECIMAL(18,2) NOT NULL, photo VARBINARY(24), score DOUBLE)"
    ),
    (
        "CREATE TABLE orders (id BIGINT NOT NULL PRIMARY KEY, customer_id BIGINT UNSIGNED NOT NULL,"
        " status ENUM('new','paid','sent','returned') NOT NULL, total DECIMAL(12,2) NOT NULL,"
        " note VARCHAR(80) CHARACTER SET latin1, placed DATETIME(3) NOT NULL,"
        " changed TIMESTAMP(6) NOT NULL)"
    ),
    (
        "CREATE TABLE items (order_id BIGINT NOT NULL, line SMALLINT UNSIGNED NOT NULL,"
        " sku CHAR(8) NOT NULL, quantity INT UNSIGNED NOT NULL, price DECIMAL(10,2) NOT NULL,"
        " packed BIT(3), PRIMARY KEY (order_id, line))"
    ),
    (
        "CREATE TABLE visits (id BIGINT NOT NULL PRIMARY KEY, customer_id BIGINT UNSIGNED NOT NULL,"
        " page VARCHAR(120) NOT NULL, at TIMESTAMP(6) NOT NULL, spent TIME(3), details JSON)"
    ),
)

# How many rows of the whole each table gets, in per cent, over both shards.
_SHARE: Final = {"customers": 10, "orders": 30, "items": 40, "visits": 20}

_FILL: Final = {
    "customers": "INSERT INTO customers SELECT {id}, CONCAT('Customer № ', {id}), 1 + seq % 3,"
    " seq % 16, DATE'1950-01-01' + INTERVAL seq % 20000 DAY, (seq * 7919 % 1000000) / 100,"
    " UNHEX(LPAD(HEX(seq), 8, '0')), seq / 7 FROM seq_1_to_{n}",
    "orders": "INSERT INTO orders SELECT {id}, 2 * (seq % {customers}) + {shard} + 2, 1 + seq % 4,"
    " (seq * 104729 % 1000000) / 100, IF(seq % 5, CONCAT('für Nr. ', seq), NULL),"
    " NOW(3) - INTERVAL seq SECOND, NOW(6) - INTERVAL seq SECOND FROM seq_1_to_{n}",
    "items": "INSERT INTO items SELECT 2 * (1 + seq DIV 2) + {shard}, seq % 2,"
    " CONCAT('sku', seq % 9973), 1 + seq % 9, (seq * 31 % 100000) / 100, seq % 8"
    " FROM seq_1_to_{n}",
    "visits": "INSERT INTO visits SELECT {id}, 2 * (seq % {customers}) + {shard} + 2,"
    " CONCAT('/product/', seq % 5000), NOW(6) - INTERVAL seq SECOND,"
    " SEC_TO_TIME(seq % 3600) + INTERVAL 250000 MICROSECOND,"
    " JSON_OBJECT('browser', IF(seq % 2, 'lynx', 'mosaic'), 'clicks', seq % 17)"
    " FROM seq_1_to_{n}",
}


def shard_of(key: int) -> str:
    """Even keys live on the first shard, odd ones on the second."""
    return SHARDS[key % 2]


def create(servers: Mapping[str, Any], rows: int) -> int:
    """Make and fill the tables on both servers; the number of rows written."""
    written = 0
    for index, name in enumerate(SHARDS):
        server = servers[name]
        server.execute(f"CREATE DATABASE {DATABASE} CHARACTER SET utf8mb4")
        with server.connect(database=DATABASE, autocommit=True) as connection:
            cursor = connection.cursor()
            for statement in _TABLES:
                cursor.execute(statement)
            for table, share in _SHARE.items():
                fill = _FILL[table].format(
                    id=f"2 * seq + {index}",
                    shard=index,
                    n=max(1, rows * share // 200),
                    customers=max(1, rows * _SHARE["customers"] // 200 - 1),
                )
                written += cursor.execute(fill)
    return written


class Shoppers(threading.Thread):
    """A busy shop: inserts, updates, deletes and key changes, in transactions, on both shards.

    Attributes:
        transactions: how many it has committed so far.
        rows: how many rows these changed.
        error: what ended it, if it did not end by `finish`.
    """

    def __init__(self, servers: Mapping[str, Any], rows: int, *, seed: int = 7) -> None:
        """Prepare it; `start()` lets it shop.

        Args:
            servers: shard name -> server, filled by `create`.
            rows: as given to `create`.
            seed: of its dice.
        """
        super().__init__(name="shoppers", daemon=True)
        self._servers = servers
        self._orders = max(2, rows * _SHARE["orders"] // 100)
        self._dice = random.Random(seed)
        self._halt = threading.Event()
        self._next = 10_000_000
        self.transactions = 0
        self.rows = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        """Shop until told to stop."""
        try:
            connections = {
                name: server.connect(database=DATABASE, autocommit=False)
                for name, server in self._servers.items()
            }
            while not self._halt.is_set():
                name = self._dice.choice(SHARDS)
                with connections[name].cursor() as cursor:
                    for _ in range(self._dice.choice((1, 2, 5, 30))):
                        action = self._dice.choice(_ACTIONS)
                        self.rows += action(self, cursor, SHARDS.index(name))
                connections[name].commit()
                self.transactions += 1
                self._halt.wait(0.01)  # the machine may have two cores for everything
        except ServerError as error:
            self.error = error

    def finish(self) -> None:
        """Stop shopping.

        Raises:
            ServerError: what had stopped it before.
        """
        self._halt.set()
        self.join()
        if self.error is not None:
            raise self.error

    def _some(self, index: int) -> int:
        return self._dice.randrange(2, self._orders) // 2 * 2 + index

    def _order(self, cursor: Any, index: int) -> int:
        self._next += 2
        key = self._next + index
        total = Decimal(self._dice.randrange(100_000)) / 100
        rows = cursor.execute(
            "INSERT INTO orders VALUES (%s,%s,'new',%s,'écrit en direct',NOW(3),NOW(6))",
            (key, self._some(index), total),
        )
        return int(
            rows
            + cursor.execute("INSERT INTO items VALUES (%s,1,'sku1',2,%s,b'101')", (key, total))
        )

    def _progress(self, cursor: Any, index: int) -> int:
        return int(
            cursor.execute(
                "UPDATE orders SET status=1+status%%4, total=total+1, changed=NOW(6) WHERE id=%s",
                (self._some(index),),
            )
        )

    def _visit(self, cursor: Any, index: int) -> int:
        self._next += 2
        return int(
            cursor.execute(
                "INSERT INTO visits VALUES (%s,%s,'/live',NOW(6),'-00:00:01.5','{\"live\": true}')",
                (self._next + index, self._some(index)),
            )
        )

    def _forget(self, cursor: Any, index: int) -> int:
        key = self._some(index)
        rows = cursor.execute("DELETE FROM orders WHERE id=%s", (key,))
        return int(rows + cursor.execute("DELETE FROM items WHERE order_id=%s", (key,)))

    def _renumber(self, cursor: Any, index: int) -> int:
        self._next += 2
        return int(
            cursor.execute(
                "UPDATE orders SET id=%s, changed=NOW(6) WHERE id=%s",
                (self._next + index, self._some(index)),
            )
        )


_Action = Callable[[Shoppers, Any, int], int]
_ACTIONS: Final[tuple[_Action, ...]] = (
    Shoppers._order,  # noqa: SLF001 - the list stands behind the class it belongs to
    Shoppers._progress,  # noqa: SLF001
    Shoppers._progress,  # noqa: SLF001
    Shoppers._visit,  # noqa: SLF001
    Shoppers._forget,  # noqa: SLF001
    Shoppers._renumber,  # noqa: SLF001
)


def tell_tale(server: Any, order: int) -> datetime:
    """Change one order in a transaction of its own; the moment just before, for the audit."""
    # MariaDB's commit times are whole seconds: a moment apart keeps the story readable.
    time.sleep(1.5)
    before = datetime.now(UTC) - timedelta(milliseconds=200)
    with server.connect(database=DATABASE, autocommit=True) as connection:
        connection.cursor().execute(
            "UPDATE orders SET status='returned', note='it was too small', changed=NOW(6)"
            " WHERE id=%s",
            (order,),
        )
    return before
