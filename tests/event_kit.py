"""Binlog events made by hand, for tests that need no server.

Only headers and the bodies that the walker looks into are real; row images are plain bytes.
"""

from __future__ import annotations

import struct
import uuid
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ratchet.core.patterns import TablePatterns
from ratchet.core.position import Position
from ratchet.core.rounds import TableEvent
from ratchet.core.shard import ShardId
from ratchet.ingest.binlog.notes import TransactionBatch
from ratchet.ingest.binlog.reader import Reader
from ratchet.wire import framing

SERVER = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
OTHER = "4e11fa47-71ca-11e1-9e33-c80aa9429562"
SHARD = ShardId("shop", "-")
# Bodies of two servers' TABLE_MAP events for `shop`.`w` (id INT PRIMARY KEY, v VARCHAR(10)),
# behind table id and flags.
MYSQL_MAP = (
    b"\x04shop\0\x01w\0\x02\x03\x0f\x02(\0\x02\x01\x01\0\x02\x03\xfc\xff\0"
    b"\x04\x05\x02id\x01v\x08\x01\0\x0c\x01\xc0"
)
MARIADB_MAP = (
    b"\x04shop\0\x01w\0\x02\x03\x0f\x02(\0\x02\x01\x01\0\x02\x01-\x04\x05\x02id\x01v\x08\x01\0"
)


@dataclass
class Log:
    """A binlog file under way: events get the places that they would have."""

    checksum: bool = True
    position: int = 4
    seconds: int = 1_700_000_000
    server: int = 1
    events: list[bytes] = field(default_factory=list)

    def add(self, kind: int, body: bytes = b"", *, flags: int = 0, artificial: bool = False) -> Log:
        """Append an event."""
        trailer = self.checksum or kind == framing.FORMAT_DESCRIPTION
        size = 19 + len(body) + 4 * trailer
        end = 0 if artificial else (self.position + size) % (1 << 32)
        head = struct.pack("<IBIIIH", self.seconds, kind, self.server, size, end, flags)
        event = head + body
        if trailer:
            event += struct.pack("<I", zlib.crc32(event))
        self.events.append(event)
        if not artificial:
            self.position += size
        return self

    def rotate(self, name: str, offset: int = 4) -> Log:
        """The artificial ROTATE that names the file."""
        self.add(4, struct.pack("<Q", offset) + name.encode(), flags=0x20, artificial=True)
        self.position = offset
        return self

    def format(self) -> Log:
        """A FORMAT_DESCRIPTION event."""
        return self.add(15, bytes(2 + 50 + 4 + 1 + 40) + bytes([self.checksum]))

    def gtid(
        self, number: int, *, server: str = SERVER, ts: int = 5, length: int = 9, kind: int = 33
    ) -> Log:
        """A MySQL GTID event."""
        body = b"\0" + uuid.UUID(server).bytes + struct.pack("<qBqq", number, 2, 0, 0)
        return self.add(
            kind, body + ts.to_bytes(7, "little") + struct.pack("<BH", 0xFC, length) + bytes(4)
        )

    def mariadb_gtid(self, number: int, *, domain: int = 0, flags: int = 0) -> Log:
        """A MariaDB GTID event; flag 1: a single statement."""
        return self.add(162, struct.pack("<QIB", number, domain, flags) + bytes(6))

    def query(self, statement: str, database: str = "shop", *, variables: bytes = b"") -> Log:
        """A QUERY event."""
        head = struct.pack("<IIBHH", 1, 0, len(database), 0, len(variables)) + variables
        return self.add(2, head + database.encode() + b"\0" + statement.encode())

    def table_map(self, number: int = 7, body: bytes = MYSQL_MAP) -> Log:
        """A TABLE_MAP event."""
        return self.add(19, number.to_bytes(6, "little") + b"\1\0" + body)

    def rows(self, image: bytes, number: int = 7, kind: int = 30, *, flags: int = 1) -> Log:
        """A rows event: version 2 from type 30 on, else version 1."""
        extra = b"\2\0" if 30 <= kind <= 32 or kind >= 169 else b""
        head = number.to_bytes(6, "little") + flags.to_bytes(2, "little")
        return self.add(kind, head + extra + image)

    def xid(self) -> Log:
        """The end of a transaction."""
        return self.add(16, struct.pack("<Q", 1))

    def insert(self, number: int, image: bytes = b"\2\xff\0\1\0\0\0\1a") -> Log:
        """A whole MySQL transaction with one rows event."""
        return self.gtid(number).query("BEGIN").table_map().rows(image).xid()

    def bare(self) -> list[bytes]:
        """The events without checksums."""
        return [event[:-4] if self.checksum else event for event in self.events]

    def packets(self) -> bytes:
        """As a dump connection sends them."""
        return b"".join(packet(b"\0" + event) for event in self.events)


def packet(payload: bytes, sequence: int = 0) -> bytes:
    """A payload as packets of the protocol, continued at 16 MB."""
    parts = []
    while True:
        part, payload = payload[:0xFFFFFF], payload[0xFFFFFF:]
        parts.append(len(part).to_bytes(3, "little") + bytes([sequence % 256]) + part)
        sequence += 1
        if len(part) < 0xFFFFFF:
            return b"".join(parts)


class NoCatalog:
    """A catalog that knows nothing beyond the log."""

    def hints(self, table: str) -> Mapping[str, str]:
        """No hints."""
        del table
        return {}

    def spelling(self, table: str) -> str:
        """The only spelling."""
        return table

    def forget(self, table: str) -> None:
        """Nothing is remembered."""

    def folds(self) -> bool | None:
        """It does not know."""
        return None

    def is_plain(self, database: str, table: str) -> bool:
        """It does not know."""
        del database, table
        return False

    def is_base(self, table: str) -> bool:
        """It does not know."""
        del table
        return False

    def base_tables(self) -> frozenset[str]:
        """It does not know."""
        return frozenset()


@dataclass
class Collected:
    """What a reader handed out, in plain values."""

    gtids: list[str] = field(default_factory=list)
    seqs: list[int] = field(default_factory=list)
    ts: list[int] = field(default_factory=list)
    rows: list[tuple[str, str, int, bytes]] = field(default_factory=list)  # gtid, table, op, image
    events: list[tuple[str, str, str]] = field(default_factory=list)  # table, kind, gtid
    told: list[TableEvent] = field(default_factory=list)  # the same, as they are
    silent: list[bool] = field(default_factory=list)  # of each of `rows`
    began: list[int] = field(default_factory=list)  # as in PlainTransaction
    counted: int = 0

    def keep(self, batch: TransactionBatch) -> int:
        """A reader's `keep`; counts a rows event as one row."""
        gtids = batch.gtids()
        self.gtids += gtids[: batch.ended]
        self.seqs += batch.txns["seq"][: batch.ended].tolist()
        self.ts += batch.txns["ts"][: batch.ended].tolist()
        for one in batch.rows:
            table_map = batch.maps[one["slot"]]
            assert table_map is not None
            image = batch.buffers[one["where"]][one["start"] : one["end"]].tobytes()
            self.rows.append((gtids[one["txn"]], table_map.table, int(one["op"]), image))
            self.silent.append(bool(one["silent"]))
            self.began.append(int(one["began"]) * (-1 if one["unchecked"] else 1))
        self.events += [(event.table, event.kind, event.gtid) for event in batch.events]
        self.told += batch.events
        last = int(np.count_nonzero(batch.rows["txn"] == len(batch.txns) - 1))
        return last + (batch.rows_before if len(batch.txns) == 1 else 0)


def make_reader(start: Position, found: Collected, **more: object) -> Reader:
    """A reader of everything in `shop`."""
    settings: dict[str, object] = {
        "database": "shop",
        "patterns": TablePatterns(),
        "catalog": NoCatalog(),
        **more,
    }
    known: frozenset[str] = settings.pop("known", frozenset())  # type: ignore[assignment]
    reader = Reader(shard=SHARD, start=start, keep=found.keep, **settings)  # type: ignore[arg-type]
    reader.start_slice(known=known, limit=1 << 60)
    return reader


def framed(
    events: Iterable[bytes], *, checksum: bool = True
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.void], int]:
    """Events as a stream has received them: the buffer, their index, and how many there are."""
    stream = b"".join(packet(b"\0" + event) for event in events)
    data = np.frombuffer(bytearray(stream), np.uint8)
    state = np.array([int(checksum), 1], np.int64)
    index = np.zeros(1 << 12, framing.EVENT)
    count, at, status = framing.frame(data, 0, data.size, True, state, index, 0, framing.CRC_TABLES)
    assert (at, status) == (data.size, framing.NEED_MORE)
    return data, index, count


def feed(reader: Reader, events: Iterable[bytes], *, checksum: bool = True) -> None:
    """Frame events and walk them, all at once; nothing is flushed."""
    data, index, count = framed(events, checksum=checksum)
    first, limited = reader.feed(data, index, 0, count)
    assert first == count
    assert not limited
