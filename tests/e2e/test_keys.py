"""Rows whose keys differ at the source stay apart in the mirror, or their table stops by name.

Each family of key types has a table that is filled before the dump and one that is filled behind
it. What two values a server takes for one key is its own to say: INSERT IGNORE leaves them out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fix_e2e import PASSWORD, Ratchet, assert_identical, mirror_rows, status

from lab.servers import create_ratchet_user

# The dumps of some sixty tables take minutes.
pytestmark = pytest.mark.long
both = pytest.mark.parametrize("flavor", ["mariadb", "mysql"])

TEXTS = ("''", "' '", "'a'", "'a '", "'a  '", "' a'", "'A'", "'ä'", "x'6109'", "x'6100'", "'?'")
BYTES = ("x''", "x'00'", "x'0000'", "x'20'", "x'61'", "x'6100'", "x'6120'", "x'ff'", "x'c3a4'")
MOMENTS = ("1970-01-01 00:00:01", "2024-10-27 00:30:00", "2024-10-27 01:30:00.000001")
CP932 = ("x'fa5c'", "x'81ca'", "x'8754'", "x'5c'", "x'815f'", "x'fa40'", "'a'", "'a '", "'?'")


def quoted(*values: object) -> tuple[str, ...]:
    return tuple(f"'{value}'" for value in values)


# Family -> the key's columns, and values of it.
GOOD: dict[str, tuple[str, tuple[str, ...]]] = {
    "bigint": ("k BIGINT", quoted(-(2**63), -1, 0, 1, 2**53, 2**53 + 1, 2**63 - 1)),
    "unsigned": ("k BIGINT UNSIGNED", quoted(0, 1, 2**63, 2**64 - 2, 2**64 - 1)),
    "dec": ("k DECIMAL(10,2)", quoted("-0.00", "0.00", "-0.01", "0.01", "1", "1.001", "10")),
    "wide": ("k DECIMAL(65,30)", quoted("-0", "0", "-1e-30", "1e-30", "1", "10", "1.0000001")),
    "bit": ("k BIT(10)", ("0", "1", "b'10'", "b'1000000000'", "b'1111111111'")),
    "bits": ("k BIT(64)", ("0", "1", str(2**63), str(2**64 - 1))),
    "year": ("k YEAR", ("0", "'00'", "1901", "1955", "2000", "2055", "2155")),
    "date": ("k DATE", quoted("0001-01-01", "1582-10-10", "2024-02-29", "9999-12-31")),
    "moment": ("k DATETIME(6)", quoted("1000-01-01", *MOMENTS, "9999-12-31 23:59:59.999999")),
    "second": ("k DATETIME", quoted(*MOMENTS)),
    "instant": ("k TIMESTAMP(6)", quoted(*MOMENTS)),
    "span": (
        "k TIME(6)",
        quoted(
            "-00:00:00",
            "00:00:00",
            "-00:00:00.000001",
            "00:00:00.000001",
            "-838:59:59",
            "838:59:59",
            "-01:00:00",
            "01:00:00",
        ),
    ),
    "chars": ("k CHAR(5) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", TEXTS),
    "padded": ("k VARCHAR(5) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", TEXTS),
    "unpadded": ("k VARCHAR(5) CHARACTER SET utf8mb4 COLLATE utf8mb4_{nopad}", TEXTS),
    "charnopad": ("k CHAR(5) CHARACTER SET utf8mb4 COLLATE utf8mb4_{nopad}", TEXTS),
    "folded": ("k VARCHAR(5) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci", TEXTS),
    "texts": ("k TEXT CHARACTER SET latin1 COLLATE latin1_bin", TEXTS),
    "latin1": (
        "k VARCHAR(5) CHARACTER SET latin1 COLLATE latin1_bin",
        tuple(f"x'{byte:02x}'" for byte in range(1, 256)),
    ),
    "utf16": ("k VARCHAR(5) CHARACTER SET utf16 COLLATE utf16_bin", TEXTS[:8]),
    "utf32": ("k CHAR(5) CHARACTER SET utf32 COLLATE utf32_bin", TEXTS[:8]),
    "ucs2": ("k CHAR(5) CHARACTER SET ucs2 COLLATE ucs2_bin", TEXTS[:8]),
    "cp932": ("k VARCHAR(5) CHARACTER SET cp932 COLLATE cp932_bin", CP932),
    "cp932c": ("k CHAR(5) CHARACTER SET cp932 COLLATE cp932_bin", CP932),
    "greek": ("k VARCHAR(5) CHARACTER SET greek COLLATE greek_bin", ("'?'", "x'e1'", "'a '")),
    "binary": ("k BINARY(3)", BYTES),
    "varbinary": ("k VARBINARY(3)", BYTES),
    "blob": ("k BLOB", BYTES),
    "enum": ("k ENUM('a','b ','?')", ("'a'", "'b'", "'?'", "'bad'")),
    "set": ("k SET('a','b','c')", ("0", "1", "2", "3", "4", "5", "6", "7")),
    "labels": ("k ENUM('纊','?') CHARACTER SET cp932", ("1", "2")),
}
ADDRESSES: dict[str, tuple[str, tuple[str, ...]]] = {
    "uuid": ("k UUID", quoted("0" * 32, "f" * 32, "00112233-4455-6677-8899-aabbccddeeff")),
    "inet4": ("k INET4", quoted("0.0.0.0", "1.2.3.4", "255.255.255.255")),
    "inet6": (
        "k INET6",
        quoted("::", "::1", "::1.2.3.4", "::102:304", "::ffff:1.2.3.4", "1::", "1:0:0:1::"),
    ),
}
# Table -> its definition, a row that is right, and one that looks like another row.
ODD = {
    "odd_cp932": (
        "k VARCHAR(9) CHARACTER SET cp932 COLLATE cp932_bin, v INT, PRIMARY KEY (k)",
        "(x'fa5c', 1)",
        "(x'ed40', 2)",
    ),
    "odd_sjis": (
        "k CHAR(9) CHARACTER SET sjis COLLATE sjis_bin, v INT, PRIMARY KEY (k)",
        "(x'815f', 1)",
        "(x'5c', 2)",
    ),
    "odd_compound": (
        "v INT, k VARCHAR(9) CHARACTER SET armscii8 COLLATE armscii8_bin, PRIMARY KEY (v, k)",
        "(1, x'29')",
        "(1, x'a4')",
    ),
    "odd_unique": (
        "k VARCHAR(9) CHARACTER SET cp1251 COLLATE cp1251_bin NOT NULL, v INT, UNIQUE u (k)",
        "('?', 1)",
        "(x'98', 2)",
    ),
    "odd_text": (
        "k TEXT CHARACTER SET big5 COLLATE big5_bin, v INT, PRIMARY KEY (k(20))",
        "(x'a2ce', 1)",
        "(x'a1c3', 2)",
    ),
    "odd_date": ("k DATE NOT NULL, v INT, UNIQUE u (k)", "('2024-01-01', 1)", "('0000-00-00', 2)"),
    "odd_moment": ("k TIMESTAMP(6) PRIMARY KEY, v INT", "('2024-01-01', 1)", "(0, 2)"),
}  # fmt: skip


def families(flavor: str) -> dict[str, tuple[str, tuple[str, ...]]]:
    return GOOD | (ADDRESSES if flavor == "mariadb" else {})


def create(server: Any, flavor: str, prefix: str) -> None:
    nopad = "nopad_bin" if flavor == "mariadb" else "0900_bin"
    for name, (given, _) in families(flavor).items():
        length = "(20)" if name in {"blob", "texts"} else ""
        column = given.format(nopad=nopad)
        server.execute(
            f"CREATE TABLE shop.{prefix}_{name} ({column} NOT NULL, v INT, PRIMARY KEY (k{length}))"
        )


def fill(server: Any, flavor: str, prefix: str) -> None:
    with server.connect(database="shop") as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_mode = '', time_zone = '+00:00'")
        for name, (_, values) in families(flavor).items():
            rows = ", ".join(f"({value}, {n})" for n, value in enumerate(values))
            cursor.execute(f"INSERT IGNORE INTO {prefix}_{name} VALUES {rows}")
        connection.commit()


def insert(server: Any, table: str, row: str) -> None:
    with server.connect(database="shop") as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_mode = ''")
        cursor.execute(f"INSERT INTO {table} VALUES {row}")
        connection.commit()


def stopped(ratchet: Ratchet) -> dict[str, tuple[str, str]]:
    found = [one for one in status(ratchet)["tables"] if one["phase"] == "stopped"]
    return {one["table"]: (one["stopped"], one["hint"]) for one in found}


@both
def test_keys_that_differ_stay_apart(
    make_server: Callable[..., Any], make_ratchet: Callable[..., Ratchet], flavor: str
) -> None:
    """All types that can be a key, by the dump and by the log."""
    server = make_server(flavor)
    server.execute("CREATE DATABASE shop")
    create(server, flavor, "dumped")
    create(server, flavor, "logged")
    fill(server, flavor, "dumped")
    create_ratchet_user(server, PASSWORD, ["shop"])
    ratchet = make_ratchet({"-": server}, "shop")
    ratchet.run("run", "--until-caught-up")
    fill(server, flavor, "logged")
    ratchet.run("run", "--until-caught-up")
    tables = [f"{prefix}_{name}" for prefix in ("dumped", "logged") for name in families(flavor)]
    assert_identical(ratchet.lake, [server], "shop", tables)
    for table in tables:
        ((rows,),) = server.execute(f"SELECT COUNT(*) FROM shop.{table}")
        assert len({repr(row["k"]) for row in mirror_rows(ratchet.lake, "shop", table)}) == rows > 1
    # A row is found again by its key, whatever the session compares it with.
    for table in tables:
        server.execute(f"UPDATE shop.{table} SET v = v + 1000")
    server.execute("DELETE FROM shop.dumped_cp932 WHERE k = x'fa5c'")
    ratchet.run("run", "--until-caught-up")
    assert_identical(ratchet.lake, [server], "shop", tables)
    assert ratchet.run("verify").returncode == 0


@both
def test_keys_that_would_meet_stop_their_table(
    make_server: Callable[..., Any], make_ratchet: Callable[..., Ratchet], flavor: str
) -> None:
    """By name, at the first dump and behind it."""
    server = make_server(flavor)
    server.execute("CREATE DATABASE shop")
    for table, (definition, good, odd) in ODD.items():
        for name in (table, f"{table}_late"):
            server.execute(f"CREATE TABLE shop.{name} ({definition})")
            insert(server, name, good)
        insert(server, table, odd)
    if flavor == "mariadb":
        server.execute("CREATE TABLE shop.odd_year (k YEAR(2) PRIMARY KEY, v INT)")
        server.execute("INSERT INTO shop.odd_year VALUES (1955, 1), (2055, 2)")
    create_ratchet_user(server, PASSWORD, ["shop"])
    ratchet = make_ratchet({"-": server}, "shop")
    done = ratchet.run("run", "--until-caught-up", expect=6)
    early = {*ODD, *(["odd_year"] if flavor == "mariadb" else [])}
    assert {table for table in early if f"shop.{table}: " in done.stderr} == early
    for table in ODD:
        insert(server, f"{table}_late", ODD[table][2])
    done = ratchet.run("run", "--until-caught-up", expect=6)
    found = stopped(ratchet)
    assert set(found) >= {f"{table}_late" for table in ODD}
    for table in ODD:
        message, hint = found[f"{table}_late"]
        assert "part of the key" in message
        assert f"redump 'shop.{table}_late'" in hint
        assert len(mirror_rows(ratchet.lake, "shop", f"{table}_late")) == 1
