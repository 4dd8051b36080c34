"""What a session of ours reads does not depend on what the server's sessions inherit.

A server's global settings become those of each new session, ours among them. Each reading has to be
the same as before, or end with an error: never other rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pymysql
import pytest
from capture_kit import source_of

from lab.server import Server
from ratchet.core.errors import RatchetError
from ratchet.wire.session import Session, SourceConfig

NAMES = [f"much_the_same_name_of_a_table_{number}" for number in range(3)]
LONG = "the beginning is the same " * 3  # more than the 64 bytes that MariaDB sorts by at least
COLUMNS = """SELECT TABLE_NAME, COLUMN_NAME, COLUMN_TYPE FROM information_schema.COLUMNS
 WHERE TABLE_SCHEMA = 'd' ORDER BY TABLE_NAME, ORDINAL_POSITION"""
HOSTILE = {
    "mariadb": {
        "system_versioning_asof": "'2020-01-01 00:00:00'",
        "max_sort_length": "64",
        "sql_mode": "'PAD_CHAR_TO_FULL_LENGTH,ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT'",
    },
    "mysql": {
        "max_sort_length": "4",
        "sql_mode": "'PAD_CHAR_TO_FULL_LENGTH,ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT'",
        "default_collation_for_utf8mb4": "'utf8mb4_general_ci'",
    },
}
EVERYWHERE = {
    "max_join_size": "1",
    "sql_big_selects": "0",
    "sql_select_limit": "1",
    "sql_quote_show_create": "0",
    "sql_auto_is_null": "1",
    "autocommit": "0",
    "completion_type": "'RELEASE'",
    "time_zone": "'+09:00'",
    "character_set_results": "'latin1'",
    "character_set_client": "'latin1'",
    "collation_connection": "'latin1_swedish_ci'",
    "init_connect": "'SET NAMES latin1'",
}
# For variables of text: what some of them take.
WORDS = (
    "", "latin1", "latin1_bin", "utf8mb4_turkish_ci", "NONE", "FORCED", "2020-01-01 00:00:00",
    "READ-UNCOMMITTED", "RELEASE", "+09:00", "FULL", "TRADITIONAL", "ja_JP",
    "PAD_CHAR_TO_FULL_LENGTH,ANSI_QUOTES,PIPES_AS_CONCAT",
)  # fmt: skip


class Reader:
    """Tables of one server, and what sessions read of them that begin now."""

    def __init__(self, server: Server) -> None:
        self.server = server
        server.execute("CREATE DATABASE d")
        self.admin = server.connect(database="d", autocommit=True)
        versioned = " WITH SYSTEM VERSIONING" if server.flavor == "mariadb" else ""
        with self.admin.cursor() as cursor:
            for name in NAMES:
                cursor.execute(
                    f"CREATE TABLE {name} (id INT AUTO_INCREMENT PRIMARY KEY, c CHAR(5),"
                    " v VARCHAR(90) COLLATE utf8mb4_bin, t TEXT, ts TIMESTAMP(3) NULL,"
                    f" f FLOAT, d DECIMAL(9,2), e ENUM('x','y'), UNIQUE KEY (v)){versioned}"
                )
                for number in range(9, 0, -1):
                    cursor.execute(
                        f"INSERT INTO {name} (c, v, t, ts, f, d, e)"
                        " VALUES (%s, %s, 'ü€ß', '2024-01-02 03:04:05.678', 0.1, 2.5, 'y')",
                        (f"c{number}", f"{LONG}{number}"),
                    )
                cursor.execute(f"UPDATE {name} SET c = 'new' WHERE id = 5")
                cursor.execute(f"DELETE FROM {name} WHERE id = 6")
            cursor.execute("CREATE TABLE `of order` (`no it` INT, FOREIGN KEY (`no it`) REFERENCES"
                           f" {NAMES[0]} (id) ON DELETE CASCADE)")  # fmt: skip
        self.source: SourceConfig = source_of(server, "d")
        self.queries = [
            *(f"SELECT * FROM {name} ORDER BY id" for name in NAMES),
            f"SELECT * FROM {NAMES[0]} WHERE id IS NULL",
            f"SELECT v FROM {NAMES[1]} FORCE INDEX (v) WHERE v > '{LONG}2' ORDER BY v LIMIT 3",
            f"SELECT v FROM {NAMES[2]} IGNORE INDEX (v) ORDER BY v LIMIT 3",
            f"SELECT BIT_XOR(CRC32(CONCAT_WS('#', id, c, v, t, ts, f, d, e))) FROM {NAMES[0]}",
            COLUMNS,
        ]

    def read(self) -> list[Any]:
        with Session.connect(self.source) as session:
            with session.snapshot():
                first = [session.query(one) for one in self.queries]
            # What stands behind the columns and keys of a table is not read.
            ((_, told),) = session.query("SHOW CREATE TABLE `of order`")
            return [*first, told.partition(") ENGINE")[0], session.query(self.queries[0])]

    def set(self, name: str, value: str) -> bool:
        """Whether the server takes it."""
        with self.admin.cursor() as cursor:
            try:
                cursor.execute(f"SET GLOBAL {name} = {value}")
            except pymysql.MySQLError:
                return False
            return True


@pytest.fixture(params=["mariadb", "mysql"])
def reader(request: pytest.FixtureRequest, make_server: Callable[..., Server]) -> Iterator[Reader]:
    made = Reader(make_server(request.param))
    yield made
    made.admin.close()


def test_hostile_settings_all_at_once(reader: Reader) -> None:
    before = reader.read()
    assert len(before[0]) == 8
    for name, value in {**EVERYWHERE, **HOSTILE[reader.server.flavor]}.items():
        assert reader.set(name, value), name
    assert reader.read() == before


def candidates(reader: Reader, name: str, value: str) -> list[str]:
    """Other values that a variable may take, for SET."""
    if value in {"ON", "OFF"}:
        return ["OFF" if value == "ON" else "ON"]
    if value.lstrip("-").isdigit():
        return [one for one in ("0", "1", "4", "64", str(2**63)) if one != value]
    listed = ""
    if reader.server.flavor == "mariadb":
        ((listed,),) = reader.server.execute(
            "SELECT ENUM_VALUE_LIST FROM information_schema.SYSTEM_VARIABLES"
            " WHERE VARIABLE_NAME = %s",
            (name,),
        )
    return [f"'{one}'" for one in (*(listed or "").split(","), *WORDS) if one != value]


@pytest.mark.long
def test_each_setting_that_sessions_inherit(reader: Reader) -> None:
    server = reader.server
    before = reader.read()
    settings = {str(n): str(v) for n, v in server.execute("SHOW GLOBAL VARIABLES")}
    own = {str(name) for name, _ in server.execute("SHOW SESSION VARIABLES")}
    tried, refused = 0, set[str]()
    for name in sorted(own & set(settings) - {"timestamp"}):
        value = settings[name]
        for other in candidates(reader, name, value):
            if not reader.set(name, other):
                continue
            tried += 1
            try:
                assert reader.read() == before, (name, other)
            except RatchetError:
                refused.add(name)
        if not reader.set(name, value if value.lstrip("-").isdigit() else f"'{value}'"):
            reader.set(name, "DEFAULT")
    assert tried > 300
    assert len(refused) < 20, refused
