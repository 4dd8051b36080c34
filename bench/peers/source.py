"""The source of all peers: a private MariaDB, its rows, the changes, and what it holds at the end.

The server's time zone is UTC, so that no peer is wrong by hours for want of a setting.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.csv

from bench.lib.rows import order
from lab.servers import MariadbServer

DATABASE: Final = "bench"
TABLE: Final = "orders"
USER: Final = "bench"
PASSWORD: Final = "bench-lab"  # noqa: S105 - a server on the loopback address
MIX: Final = (7, 2, 1)  # updates, inserts and deletes of ten changes
# Enough for the most demanding of the peers, Debezium's connector with its snapshot.
_GRANTS: Final = (
    "SELECT, RELOAD, SHOW DATABASES, LOCK TABLES, REPLICATION SLAVE, REPLICATION CLIENT"
)
_TABLE: Final = f"""
CREATE TABLE {TABLE} (id BIGINT PRIMARY KEY, name VARCHAR(40), code CHAR(8), amount INT,
    placed TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6),
    price DECIMAL(18,2), KEY (placed)) CHARSET utf8mb4
"""


def new_server() -> MariadbServer:
    """A server, not started yet, whose buffer pool holds the whole table."""
    return MariadbServer(options={"default-time-zone": "+00:00"}, buffer_pool="1G")


def fill(server: MariadbServer, rows: int) -> None:
    """Make the account, the table and that many rows, and read them once, so that all are warm."""
    file = server.home / "rows.tsv"
    with file.open("w") as out:
        out.writelines(map(order, range(rows)))
    server.execute(f"CREATE DATABASE {DATABASE}")
    server.execute(f"CREATE USER {USER}@'%%' IDENTIFIED BY %s", (PASSWORD,))
    server.execute(f"GRANT {_GRANTS} ON *.* TO {USER}@'%'")
    server.execute(_TABLE, database=DATABASE)
    server.execute(f"LOAD DATA INFILE '{file}' INTO TABLE {TABLE}", database=DATABASE)
    server.execute(f"ANALYZE TABLE {TABLE}", database=DATABASE)
    server.execute(f"SELECT SUM(LENGTH(name)) FROM {TABLE}", database=DATABASE)
    file.unlink()


def position(server: MariadbServer) -> dict[str, Any]:
    """Where the log ends now."""
    ((file, at, *_),) = server.execute("SHOW MASTER STATUS")
    ((gtid,),) = server.execute("SELECT @@gtid_binlog_pos")
    return {"file": file, "position": at, "gtid": gtid}


def change(
    server: MariadbServer, rows: int, changes: int, *, each: int, mix: tuple[int, ...] = MIX
) -> int:
    """Make the changes, the same ones in each run; how many rows there are afterwards.

    Keys are drawn at random; of those that are deleted none is drawn again, so that each statement
    changes as many rows as it names.

    Args:
        server: the source.
        rows: in it.
        changes: how many.
        each: of them in a transaction.
        mix: updates, inserts and deletes among ten.

    Raises:
        ValueError: a transaction cannot be shared out so.
    """
    if sum(mix) != 10 or any(part * each % 10 for part in mix):
        raise ValueError(f"{each} changes cannot be shared out as {mix} of ten")
    rng = random.Random(1)
    updated, inserted, deleted = (part * each // 10 for part in mix)
    gone: set[int] = set()
    end = rows
    with server.connect(database=DATABASE, autocommit=False) as connection:
        cursor = connection.cursor()
        for number in range(changes // each):
            keys: dict[int, None] = {}
            while len(keys) < updated + deleted:
                key = rng.randrange(end)
                if key not in gone:
                    keys[key] = None
            chosen = list(keys)
            new = ", ".join(
                f"({end + n}, 'customer number {end + n:09d}', 'NEW{number % 100000:05d}', "
                f"{number}, {n}.25)"
                for n in range(inserted)
            )
            statements = [
                (
                    f"UPDATE {TABLE} SET amount = amount + 1, price = price + 0.01 "
                    f"WHERE id IN ({_list(chosen[:updated])})"
                ),
                f"INSERT INTO {TABLE} (id, name, code, amount, price) VALUES {new}",
                f"DELETE FROM {TABLE} WHERE id IN ({_list(chosen[updated:])})",
            ]
            changed = sum(
                cursor.execute(statement)
                for statement, count in zip(statements, mix, strict=True)
                if count
            )
            connection.commit()
            assert changed == each, changed
            gone.update(chosen[updated:])
            end += inserted
    return end - len(gone)


def _list(keys: list[int]) -> str:
    return ", ".join(map(str, keys))


def contents(server: MariadbServer, file: Path) -> pa.Table:
    """All rows of the source, as `check.normal` has them.

    Through a file of the server's own, because a client in Python would take minutes.
    """
    server.execute(
        "SELECT id, name, code, amount, CAST(UNIX_TIMESTAMP(placed) * 1000000 AS SIGNED), price "
        f"INTO OUTFILE '{file}' FROM {TABLE}",
        database=DATABASE,
    )
    types = {
        "id": pa.int64(),
        "name": pa.string(),
        "code": pa.string(),
        "amount": pa.int64(),
        "placed": pa.int64(),
        "price": pa.decimal128(18, 2),
    }
    table = pyarrow.csv.read_csv(
        file,
        read_options=pyarrow.csv.ReadOptions(column_names=list(types)),
        parse_options=pyarrow.csv.ParseOptions(delimiter="\t", quote_char=False),
        convert_options=pyarrow.csv.ConvertOptions(column_types=types),
    )
    file.unlink()
    return table


def sums(server: MariadbServer) -> Mapping[str, int]:
    """Count, sum of the keys and sum of the amounts."""
    ((count, ids, amounts),) = server.execute(
        f"SELECT COUNT(*), SUM(id), SUM(amount) FROM {TABLE}", database=DATABASE
    )
    return {"count": int(str(count)), "ids": int(str(ids)), "amounts": int(str(amounts))}
