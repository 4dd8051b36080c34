"""A schema with every rule of foreign keys, and random statements on it, for real servers."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import pymysql

# Each rule, over several levels; to itself; over two columns, which are part of the child's key;
# two ways to one child; columns that the server computes, and one that it touches.
SCHEMA = (
    "CREATE TABLE a (id INT PRIMARY KEY, code VARBINARY(9) UNIQUE, v INT)",
    (
        "CREATE TABLE b (id INT PRIMARY KEY, a INT, u TIMESTAMP(6) NULL ON UPDATE "
        "CURRENT_TIMESTAMP(6), w VARCHAR(20), "
        "FOREIGN KEY (a) REFERENCES a (id) ON DELETE CASCADE ON UPDATE CASCADE)"
    ),
    (
        "CREATE TABLE c (id INT PRIMARY KEY, a INT, b INT, code VARBINARY(9), "
        "FOREIGN KEY (b) REFERENCES b (id) ON DELETE SET NULL ON UPDATE CASCADE, "
        "FOREIGN KEY (a) REFERENCES a (id) ON DELETE SET NULL ON UPDATE SET NULL, "
        "FOREIGN KEY (code) REFERENCES a (code) ON DELETE CASCADE ON UPDATE CASCADE)"
    ),
    (
        "CREATE TABLE t (id INT PRIMARY KEY, t INT, v INT, "
        "FOREIGN KEY (t) REFERENCES t (id) ON DELETE CASCADE)"
    ),
    (
        "CREATE TABLE t2 (id INT PRIMARY KEY, t2 INT, t INT, "
        "FOREIGN KEY (t2) REFERENCES t2 (id) ON DELETE SET NULL, "
        "FOREIGN KEY (t) REFERENCES t (id) ON DELETE CASCADE)"
    ),
    (
        "CREATE TABLE k (a INT, n INT, v INT, PRIMARY KEY (a, n), "
        "FOREIGN KEY (a) REFERENCES a (id) ON DELETE CASCADE ON UPDATE CASCADE)"
    ),
    (
        "CREATE TABLE l (id INT PRIMARY KEY, a INT, n INT, d DECIMAL(10,3), "
        "FOREIGN KEY (a, n) REFERENCES k (a, n) ON DELETE CASCADE ON UPDATE CASCADE)"
    ),
    (
        "CREATE TABLE m (a INT, n INT, x INT, PRIMARY KEY (a, n, x), "
        "FOREIGN KEY (a, n) REFERENCES k (a, n) ON DELETE CASCADE)"
    ),
)
NAMES = ("a", "b", "c", "t", "t2", "k", "l", "m")


class Shop:
    """Random statements on the schema; those that the server refuses change nothing."""

    def __init__(self, server: Any, database: str, seed: int) -> None:
        self.draw = random.Random(seed)
        self.done = 0
        self.connection = server.connect(database=database, autocommit=True)

    def work(self, statements: int) -> None:
        with self.connection.cursor() as cursor:
            while statements:
                many = self.draw.choice((1, 1, 3))
                off = self.draw.random() < 0.06
                with suppress(pymysql.err.IntegrityError, pymysql.err.OperationalError):
                    cursor.execute(f"SET foreign_key_checks = {int(not off)}")
                    cursor.execute("BEGIN")
                    for _ in range(many):
                        with suppress(pymysql.err.IntegrityError):
                            cursor.execute(self.statement())
                            self.done += cursor.rowcount > 0
                cursor.execute("COMMIT" if self.draw.random() < 0.95 else "ROLLBACK")
                statements -= 1

    def some(self, high: int = 12) -> str:
        return str(self.draw.randint(1, high))

    def maybe(self, high: int = 12) -> str:
        return "NULL" if self.draw.random() < 0.2 else self.some(high)

    def statement(self) -> str:
        n, m, some, maybe = self.some(), self.some(), self.some, self.maybe
        verb = self.draw.choice(("INSERT", "INSERT", "INSERT", "REPLACE", "INSERT IGNORE"))
        inserts = (
            f"a VALUES ({n}, CONCAT('c', {some(20)}), {m})",
            f"b (id, a, w) VALUES ({n}, {maybe()}, 'w{m}'), ({some(40)}, {maybe()}, 'x')",
            f"c VALUES ({some(40)}, {maybe()}, {maybe()}, CONCAT('c', {some(20)}))",
            f"c VALUES ({some(40)}, {maybe()}, {maybe(40)}, NULL)",
            f"t VALUES ({n}, {maybe()}, {m})",
            f"t2 VALUES ({some(30)}, {maybe(30)}, {maybe()})",
            f"k VALUES ({n}, {some(3)}, {m})",
            f"l VALUES ({some(40)}, {maybe()}, {maybe(3)}, {m}.125)",
            f"m VALUES ({n}, {some(3)}, {some(3)})",
        )
        others = (
            f"DELETE FROM a WHERE id = {n}",
            f"DELETE FROM a WHERE id IN ({n}, {m}, {some()})",
            f"UPDATE a SET id = {m} WHERE id = {n}",
            "UPDATE a SET id = id + 12 WHERE id < 3 ORDER BY id DESC",
            "UPDATE a SET id = id - 12 WHERE id > 12 ORDER BY id",
            f"UPDATE a SET code = CONCAT('c', {some(20)}), v = v + 1 WHERE id = {n}",
            "UPDATE a SET v = v + 1",
            f"INSERT INTO a VALUES ({n}, NULL, 1) ON DUPLICATE KEY UPDATE id = {m}",
            f"UPDATE b SET id = {some(40)} WHERE id = {some(40)}",
            f"DELETE FROM b WHERE id = {some(40)}",
            f"UPDATE b SET a = {maybe()}, w = 'z{n}' WHERE id = {some(40)}",
            f"UPDATE c SET a = {maybe()}, b = {maybe()} WHERE id = {some(40)}",
            f"DELETE FROM t WHERE id = {n}",
            f"UPDATE t SET t = {maybe()} WHERE id = {n}",
            f"DELETE FROM t2 WHERE id = {some(30)}",
            f"UPDATE k SET n = {some(3)}, v = {m} WHERE a = {n} AND n = {some(3)}",
            f"DELETE FROM k WHERE a = {n}",
            f"UPDATE l SET d = d + 1 WHERE id < {some(40)}",
            f"DELETE FROM l WHERE id = {some(40)}",
            f"DELETE a, b FROM a JOIN b ON b.a = a.id WHERE a.id = {n}",
        )
        if self.draw.random() < 0.62:
            return f"{verb} INTO {self.draw.choice(inserts)}"
        return self.draw.choice(others)


SERVERS = {
    "mariadb": ("mariadb", {}),
    "mysql-native": ("mysql", {"innodb-native-foreign-keys": "ON"}),
    "mysql-default": ("mysql", {}),
}
