"""Tables that are named by their files' names, as a MariaDB takes them (`core.filenames`)."""

from __future__ import annotations

from pathlib import Path

from capture_kit import Capturer, close_streams, source_of

from lab.servers import Server

TABLES = ("a", "m-x", "a@b", "b c", "bä", "gone", "other")


def test_rows_and_statements(mariadb: Server, database: str, tmp_path: Path) -> None:
    with mariadb.connect(database=database, autocommit=True) as connection:
        cursor = connection.cursor()
        for table in TABLES:
            cursor.execute(f"CREATE TABLE `{table}` (id INT PRIMARY KEY, v INT)")
        capturer = Capturer(source_of(mariadb, database), tmp_path)
        for name in ("a", "m@002dx", "a@0040b", "b@0020c"):
            cursor.execute(f"INSERT INTO `#mysql50#{name}` VALUES (1, 1)")
        cursor.execute(f"UPDATE `#mysql50#{database}`.a SET v = 2")
        cursor.execute("INSERT INTO `#mysql50#b@0k` VALUES (1, 1)")
        cursor.execute(f"USE `#mysql50#{database}`")
        cursor.execute("INSERT INTO a VALUES (3, 3)")
        cursor.execute("RENAME TABLE `#mysql50#gone` TO went")
        cursor.execute("ALTER TABLE `#mysql50#m@002dx` MODIFY v BIGINT")
    capturer.catch_up(known=TABLES)
    rows = {one: capturer.final(one) for one in TABLES[:4]}
    assert rows["a"] == {1: {"id": 1, "v": 2}, 3: {"id": 3, "v": 3}}
    assert all(rows[one] == {1: {"id": 1, "v": 1}} for one in TABLES[1:4])
    found: dict[str, set[str]] = {}
    for event in capturer.events():
        found.setdefault(event.table, set()).add(event.effect or event.kind)
    assert "unreadable" in found["bä"]
    assert "doubt" in found["gone"]
    assert "doubt" in found["m-x"]
    close_streams()
    mariadb.execute("FLUSH TABLES")  # it has them open by two names, and drops none of these
