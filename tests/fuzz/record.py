"""Records the real streams that the fuzz targets begin from: `python -m tests.fuzz.record`.

Starts a MySQL and a MariaDB, lets each log a bit of everything, and keeps the binlog file. Run it
again only when a server's format has changed; the files in `seeds` belong to the repository.
"""

from __future__ import annotations

from pathlib import Path

from lab.servers import MariadbServer, MysqlServer, Server
from tests.binlog_file import rotate

SEEDS = Path(__file__).parent / "seeds"

# A column of each type that both servers have.
COMMON = """
    id INT UNSIGNED NOT NULL PRIMARY KEY, i1 TINYINT, i2 SMALLINT UNSIGNED, i3 MEDIUMINT,
    i8 BIGINT UNSIGNED, d DECIMAL(12,4), dd DECIMAL(65,30), f FLOAT, g DOUBLE, b BIT(10), y YEAR,
    da DATE, dt DATETIME(6), ts TIMESTAMP(3) NULL, ti TIME(1), c CHAR(4), v VARCHAR(300),
    l VARCHAR(20) CHARACTER SET latin1, u VARCHAR(9) CHARACTER SET ucs2, t TEXT, bb BLOB,
    bi BINARY(6), vb VARBINARY(9), e ENUM('a','é','x,y'), s SET('r','g','b'), p POINT
"""
VALUES = (
    "-5, 65535, -8388608, 18446744073709551615, 12345.6789, -1.000000000000000000000000000001,"
    " 1.5, -2.25e300, b'1010101010', 2024, '2024-02-29', '2024-02-29 23:59:59.123456',"
    " '2024-02-29 23:59:59.123', '-838:59:58.9', 'abé', REPEAT('v', 290), 'ä', 'ж', 'text',"
    " x'00ff', 'bin', x'0102', 'é', 'r,b', ST_GeomFromText('POINT(1 2)')"
)
PER_FLAVOR = {
    "mysql": ("j JSON, ve VECTOR(3)", '\'{"a": [1, -2.5, true, null, "x"], "b": {}}\', NULL'),
    "mariadb": (
        "uu UUID, i4 INET4, i6 INET6, cv VARCHAR(200) COMPRESSED, cb BLOB COMPRESSED",
        "UUID(), '1.2.3.4', '::1', REPEAT('c', 150), REPEAT('d', 150)",
    ),
}


def statements(flavor: str) -> list[str]:
    """All kinds of events, in autocommit unless they say otherwise."""
    columns, values = PER_FLAVOR[flavor]
    common = [
        f"CREATE TABLE a ({COMMON}, {columns})",
        f"INSERT INTO a VALUES (1, {VALUES}, {values})",
        "INSERT INTO a (id) VALUES (2), (3)",
        "UPDATE a SET i1 = NULL, v = NULL, e = NULL WHERE id < 3",
        "UPDATE a SET id = id + 10 WHERE id > 1",
        "DELETE FROM a WHERE id > 5",
        "CREATE TABLE w (id INT PRIMARY KEY, v VARCHAR(10)) -- a remark\n",
        "BEGIN",
        "INSERT INTO w VALUES (1, 'a'), (2, NULL)",
        "INSERT INTO other.w VALUES (1, 'a')",
        "SAVEPOINT x",
        "UPDATE w SET v = 'b'",
        "COMMIT",
        "ALTER TABLE w ADD COLUMN n INT FIRST",
        "RENAME TABLE w TO `x``y`, other.w TO other.z",
        "TRUNCATE TABLE `x``y`",
        "XA START 'g','b',7",
        "INSERT INTO other.z VALUES (9, 'xa')",
        "XA END 'g','b',7",
        "XA PREPARE 'g','b',7",
        "XA COMMIT 'g','b',7",
        "FLUSH LOCAL TABLES",
        "DROP TABLE `x``y`",
    ]
    if flavor == "mysql":
        return [
            *common,
            "CREATE TABLE w (id INT PRIMARY KEY, v VARCHAR(10)) SELECT 1 AS id, 'q' AS v",
            "SET SESSION binlog_transaction_compression = ON",
            "INSERT INTO w SELECT 10 + n, REPEAT('z', 9) FROM (SELECT 1 n UNION SELECT 2) n",
            "SET SESSION binlog_transaction_compression = OFF",
            "SET SESSION gtid_next = 'AUTOMATIC:atag'",
            "INSERT INTO w VALUES (50, 'tagged')",
            "SET SESSION gtid_next = 'AUTOMATIC'",
        ]
    return [
        *common,
        "CREATE TABLE w (id INT PRIMARY KEY, v VARCHAR(300))",
        "SET GLOBAL log_bin_compress = ON",
        "SET GLOBAL log_bin_compress_min_len = 10",
        "INSERT INTO w VALUES (10, REPEAT('z', 250))",
        "UPDATE w SET v = REPEAT('y', 250)",
        "DELETE FROM w",
        f"CREATE TABLE long_enough (id INT PRIMARY KEY) COMMENT = '{'z' * 80}'",
        "SET GLOBAL log_bin_compress = OFF",
        "SET SESSION gtid_domain_id = 3",
        "INSERT INTO w VALUES (50, 'domain')",
    ]


def record(server: Server) -> bytes:
    """The binlog file of the work."""
    server.execute("CREATE DATABASE shop")
    server.execute("CREATE DATABASE other")
    server.execute("CREATE TABLE other.w (id INT PRIMARY KEY, v VARCHAR(10))")
    path = rotate(server)
    with server.connect(database="shop") as connection, connection.cursor() as cursor:
        cursor.execute("SET NAMES utf8mb4")
        for statement in statements(server.flavor):
            cursor.execute(statement)
    rotate(server)  # ends the file
    return path.read_bytes()


def main() -> None:
    """Write both files."""
    for kind in (MysqlServer, MariadbServer):
        with kind() as server:
            (SEEDS / f"{server.flavor}.binlog").write_bytes(record(server))


if __name__ == "__main__":
    main()
