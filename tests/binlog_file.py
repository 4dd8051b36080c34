"""Row images read from a server's own binlog file, with no code of Ratchet's in between.

What oracle tests feed to decoders. Only what a table of test rows needs: events, their bodies, the
table maps; transactions, compression and checksums are not looked at.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lab.servers import Server

TABLE_MAP = 19
INSERTS, UPDATES, DELETES = (23, 30), (24, 31), (25, 32)  # with version 1 and 2 post-headers
_HEADER = 19
_CHECKSUM = 4


@dataclass(frozen=True)
class RowsEvent:
    """One rows event and the table map it refers to.

    Attributes:
        kind: the type byte.
        table_map: body of the TABLE_MAP event, without header and checksum.
        body: the event from the number of columns on, without checksum.
    """

    kind: int
    table_map: bytes
    body: bytes


def events(path: Path) -> Iterator[tuple[int, bytes]]:
    """Type and body of every event in a binlog file; checksums must be on."""
    data = path.read_bytes()
    start = 4
    while start < len(data):
        kind, (size,) = data[start + 4], struct.unpack_from("<I", data, start + 9)
        yield kind, data[start + _HEADER : start + size - _CHECKSUM]
        start += size


def rows_events(path: Path, database: str, table: str) -> Iterator[RowsEvent]:
    """The rows events of a table in the file's order."""
    maps: dict[bytes, bytes] = {}
    wanted = (database.encode(), table.encode())
    for kind, body in events(path):
        if kind == TABLE_MAP:
            at = 10 + body[8]
            names = body[9 : at - 1], body[at + 1 : at + 1 + body[at]]
            maps[body[:6]] = body if names == wanted else b""
        elif kind in INSERTS + UPDATES + DELETES and maps.get(body[:6]):
            at = 8
            if kind >= INSERTS[1]:
                at += struct.unpack_from("<H", body, 8)[0]
            yield RowsEvent(kind, maps[body[:6]], body[at:])


def rotate(server: Server) -> Path:
    """Let the server begin a new binlog file, so that a test reads none of the others; its path."""
    server.execute("FLUSH BINARY LOGS")
    return max(server.datadir.glob("bin.[0-9]*"))
