"""VIRTUAL columns that the log and a SELECT show differently: seen on real servers, refused."""

from __future__ import annotations

import re

from capture_kit import source_of

from lab.server import Server
from lab.servers import MariadbServer
from ratchet.wire.decode.unfit import unfit_tables
from ratchet.wire.session import Session

BOTH = {
    "by_row": ("CONCAT(a, '-', n)", ""),
    "by_json": ("JSON_UNQUOTE(JSON_EXTRACT(j, '$.a'))", ""),
    "by_zone": ("CAST(ts AS CHAR)", "time_zone, by the TIMESTAMP ts"),
    "by_division": ("n / 3", "div_precision_increment, by /"),
    "by_padding": ("CONCAT(c, '|')", "sql_mode PAD_CHAR_TO_FULL_LENGTH, by the CHAR c"),
    "by_trimmed": ("CONCAT(TRIM(c), '|')", ""),
    "by_packet": ("REPEAT(a, n)", "max_allowed_packet, by REPEAT()"),
    "by_language": ("DATE_FORMAT(d, '%M')", "lc_time_names, by DATE_FORMAT()"),
}
MARIADB = {
    "by_moment": ("NOW()", "CURRENT_TIMESTAMP()"),
    "by_chance": ("RAND()", "RAND()"),
    "by_user": ("CURRENT_USER()", "CURRENT_USER()"),
}


def test_refused_by_name(server: Server, database: str) -> None:
    cases = BOTH | (MARIADB if isinstance(server, MariadbServer) else {})
    for name, (expression, _) in cases.items():
        for kind in ("VIRTUAL", "STORED"):
            if kind == "STORED" and (name in MARIADB or name in {"by_language", "by_padding"}):
                continue  # MariaDB refuses it
            server.execute(
                f"CREATE TABLE {name}_{kind} (id INT PRIMARY KEY, n INT, a VARCHAR(20), j JSON, "
                f"c CHAR(10), d DATETIME, ts TIMESTAMP NULL, "
                f"g VARCHAR(100) AS ({expression}) {kind})",
                database=database,
            )
    wanted = {f"{name}_VIRTUAL": reason for name, (_, reason) in cases.items() if reason}
    if isinstance(server, MariadbServer):  # MySQL refuses it
        server.execute(
            "CREATE TABLE counted (id INT AUTO_INCREMENT PRIMARY KEY, g INT AS (id + 1) VIRTUAL)",
            database=database,
        )
        wanted["counted"] = "the AUTO_INCREMENT column id, whose number comes later"
    found = unfit_tables(server.execute, database=database)
    assert found.keys() == wanted.keys()
    assert all(f"({reason})" in found[name] for name, reason in wanted.items())


def test_why(server: Server, database: str) -> None:
    """What a session reads is not what another one has written: the rule's reason, seen."""
    server.execute(
        "CREATE TABLE zoned (id INT PRIMARY KEY, ts TIMESTAMP NULL, "
        "g VARCHAR(30) AS (CAST(ts AS CHAR)) VIRTUAL, s VARCHAR(30) AS (CAST(ts AS CHAR)) STORED)",
        database=database,
    )
    with server.connect(database=database) as connection, connection.cursor() as cursor:
        cursor.execute("SET time_zone = '+05:00'")
        cursor.execute("INSERT INTO zoned (id, ts) VALUES (1, '2026-01-01 12:00:00')")
        connection.commit()
        cursor.execute("SET time_zone = '+00:00'")
        cursor.execute("SELECT g, s FROM zoned")
        assert cursor.fetchall() == (("2026-01-01 07:00:00", "2026-01-01 12:00:00"),)


def test_a_before_trigger(mariadb: Server, database: str) -> None:
    """LOAD DATA and UPDATE of several tables log a VIRTUAL column as it was before the trigger."""
    for name, kind in (("v", "VIRTUAL"), ("s", "STORED"), ("free", "VIRTUAL")):
        mariadb.execute(
            f"CREATE TABLE {name} (id INT PRIMARY KEY, a INT, g INT AS (a * 2) {kind})",
            database=database,
        )
    for name in "vs":
        mariadb.execute(
            f"CREATE TRIGGER t_{name} BEFORE UPDATE ON {name} FOR EACH ROW SET NEW.a = NEW.a + 1",
            database=database,
        )
    found = unfit_tables(mariadb.execute, database=database)
    assert list(found) == ["v"]
    assert "the BEFORE trigger t_v" in found["v"]
    assert unfit_tables(mariadb.execute, database=database, trusts_virtual=True) == {}

    # Who may not see triggers does not know that there are none; the printed GRANT shows them.
    source = source_of(mariadb, database)
    with Session.connect(source) as session:
        hidden = unfit_tables(session.query, database=database)
    assert set(hidden) == {"v", "free"}
    (grant,) = re.findall(r"\((GRANT .*) shows them", hidden["free"])
    mariadb.execute(grant)
    with Session.connect(source) as session:
        assert unfit_tables(session.query, database=database) == found


def test_columns_with_other_letters(server: Server, database: str) -> None:
    """MySQL 9.7 shows their names encoded twice: such tables were refused for nothing."""
    names = ("\u00c9t\u00e9", "\u65e5\u672c", "\u20acuro", "\u00c1\u00cd\u00dd", "plain")
    columns = ", ".join(f"`{name}` VARCHAR(20)" for name in names)
    joined = ", ".join(f"`{name}`, '\u00e9|'" for name in names)
    for table, what in (("fit", f"CONCAT({joined})"), ("odd", f"CONCAT({joined}, ts)")):
        server.execute(
            f"CREATE TABLE {table} (id INT PRIMARY KEY, ts TIMESTAMP NULL, {columns}, "
            f"g VARCHAR(300) AS ({what}) VIRTUAL)",
            database=database,
        )
    found = unfit_tables(server.execute, database=database)
    assert found.keys() == {"odd"}
    assert "time_zone, by the TIMESTAMP ts" in found["odd"]
