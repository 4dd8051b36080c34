"""Sessions in every character set that a client may have: their statements name the right tables.

A server keeps names in UTF-8 and logs statements as they came. So a table's name is in the log in
the session's character set, of which the server, and not Python, says what its bytes are.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pymysql
import pytest
from capture_kit import Capturer, close_streams, source_of
from pymysql.connections import Connection
from pymysql.cursors import Cursor

from lab.servers import Server

# First bytes of characters of two, and second ones: the edges, and what looks like a sign.
PAIRS = {
    "big5": (b"\xa1\xa4\xc9\xf9", b"\x40\x5c\x60\x7c\xa1\xc3\xfe"),
    "cp932": (b"\x81\x83\x8f\xed\xfa", b"\x40\x5c\x5f\x60\x7c\x80\xfc"),
    "sjis": (b"\x81\x83\x8f\xe0", b"\x40\x5c\x5f\x60\x7c\x80\xfc"),
    "gbk": (b"\x81\xa1\xb0\xfe", b"\x40\x5c\x60\x7c\x80\xfe"),
    "gb18030": (b"\x81\xa1\xa8\xb0\xfe", b"\x40\x5c\x60\x7c\x80\xbc\xfe"),
    "gb2312": (b"\xa1\xb0\xf7", b"\xa1\xc0\xfe"),
    "euckr": (b"\xa1\xb0\xc8", b"\xa1\xc0\xfe"),
    "ujis": (b"\x8e\xa1\xb0\xf4", b"\xa1\xc0\xdf\xfe"),
    "eucjpms": (b"\x8e\xa1\xb0\xf4", b"\xa1\xc0\xdf\xfe"),
    "utf8mb3": (b"\xc3\xd0", b"\x80\xa4\xbf"),
}
# Characters of one byte that Python has otherwise than the servers, and signs that are letters.
ODD = {
    "cp1256": b"\x8a\x8f",
    "cp866": b"\xfc\xfd",
    "greek": b"\xa1\xa2\xa4",
    "hebrew": b"\xaf",
    "koi8u": b"\x95",
    "latin1": b"\x80\x81",
    "swe7": b"@[\\]^`{|}~",
}
# Where a character cannot be told from a sign, or from none, tables are in doubt.
DOUBTFUL = {"swe7", "sjis", "ujis", "big5", "tis620"}


def words(charset: str) -> Iterator[bytes]:
    """Bytes of names, with a character each between letters."""
    if charset in PAIRS:
        heads, tails = PAIRS[charset]
        chars = [bytes([a, b]) for a in heads for b in tails]
    else:
        chars = [bytes([one]) for one in (*ODD.get(charset, b""), *range(0x80, 0x100, 13))]
    yield from (charset.encode() + b"_a" + one + b"z" for one in chars)


class Sessions:
    """One open session for each character set that a client may have."""

    def __init__(self, server: Server, database: str) -> None:
        self._server, self._database = server, database
        names = {str(row[0]) for row in server.execute("SHOW CHARACTER SET")}
        found = {one: self._connect(one) for one in sorted(names - {"binary", "utf8mb4"})}
        self.open = {name: one for name, one in found.items() if one is not None}

    def _connect(self, charset: str) -> Connection[Cursor] | None:
        connection = self._server.connect(database=self._database, autocommit=True)
        try:
            connection.query(f"SET character_set_client = {charset}")
        except pymysql.MySQLError:
            connection.close()
            return None
        return connection

    def make(self, charset: str, quoted: bytes, mark: str) -> None:
        """Make a table, if the server takes that for a name."""
        with contextlib.suppress(pymysql.MySQLError, UnicodeError):
            text = b"CREATE TABLE %s (id INT PRIMARY KEY) COMMENT='%s'" % (quoted, mark.encode())
            self.open[charset].query(text)

    def made(self) -> dict[str, str]:
        """The names that the server has given: name -> mark."""
        rows = self._server.execute(
            "SELECT TABLE_NAME, TABLE_COMMENT FROM information_schema.TABLES"
            " WHERE TABLE_SCHEMA = %s",
            (self._database,),
        )
        return {str(name): str(mark) for name, mark in rows}

    def close(self) -> None:
        for one in self.open.values():
            one.close()


@pytest.fixture
def sessions(server: Server, database: str) -> Iterator[Sessions]:
    made = Sessions(server, database)
    yield made
    made.close()
    close_streams()


def test_statements_of_any_client_charset(
    sessions: Sessions, server: Server, database: str, tmp_path: Path
) -> None:
    assert {"latin1", "swe7", "sjis", "gbk", "greek", "cp866"} <= set(sessions.open)
    said: dict[str, tuple[str, bytes]] = {}
    for charset in sessions.open:
        for number, word in enumerate(words(charset)):
            bare = number % 3 == 0
            quoted = word if bare else b"`" + word.replace(b"`", b"``") + b"`"
            said[mark := f"{charset} {number}"] = charset, quoted
            sessions.make(charset, quoted, mark)
    tables = {name: said[mark] for name, mark in sessions.made().items()}
    assert {charset for charset, _ in tables.values()} >= set(sessions.open) - {"ascii"}
    capturer = Capturer(source_of(server, database), tmp_path)
    for charset, quoted in tables.values():
        sessions.open[charset].query(b"TRUNCATE TABLE " + quoted)
    capturer.catch_up(known=tuple(tables), seconds=300.0)
    found: dict[str, set[str]] = {}
    for event in capturer.events():
        told = event.effect if event.kind == "ddl" else event.kind
        found.setdefault(event.table, set()).add(told)
    assert not {name: how for name, how in tables.items() if name not in found}
    doubtful = {name for name in tables if "truncate" not in found[name]}
    # A name with "?" has a byte that is no character.
    assert {tables[name][0] for name in doubtful if "?" not in name} <= DOUBTFUL
