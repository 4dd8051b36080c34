"""Targets: packets, events, transactions of a binlog stream."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np

from ratchet.core.errors import (
    BugError,
    DecodeError,
    OperatorError,
    RatchetError,
    RetryableError,
    SourceUnfitError,
)
from ratchet.core.gtid import Flavor, GtidSet
from ratchet.core.position import Position
from ratchet.core.types import InvalidValuePolicy
from ratchet.ingest.binlog import events as bodies
from ratchet.ingest.binlog.changes import Decoders, changes_of
from ratchet.ingest.binlog.notes import TransactionBatch
from ratchet.ingest.binlog.payload import DecompressionBuffer
from ratchet.ingest.binlog.plain import PlainReader, RefusedError
from ratchet.wire import framing, stream
from tests.binlog_file import events as events_of
from tests.event_kit import SHARD, Collected, Log, framed, make_reader, packet
from tests.fuzz.target import Target, packed, unpacked

SEEDS = Path(__file__).parent / "seeds"
FLAVORS: tuple[Flavor, ...] = ("mysql", "mariadb", "file")
# What a stream may be refused with; a BugError is none of them.
REFUSALS = (DecodeError, OperatorError, RetryableError)


@cache
def logged(flavor: str) -> tuple[tuple[int, bytes], ...]:
    """Type and body of each event that a real server wrote."""
    return tuple(events_of(SEEDS / f"{flavor}.binlog"))


def bodies_of(*kinds: int) -> list[bytes]:
    """The bodies of the real events of these types, each once."""
    every = (event for flavor in ("mysql", "mariadb") for event in logged(flavor))
    return list(dict.fromkeys(body for kind, body in every if kind in kinds))


# --- bodies of single events ----------------------------------------------------------------------


def rotate(data: bytes) -> None:
    name, offset = bodies.parse_rotate(data)
    assert name
    assert 0 <= offset < 1 << 40


def query(data: bytes) -> None:
    bodies.parse_query(data[1:], compressed=data[:1] == b"\1")


def query_seeds() -> list[bytes]:
    plain, compressed = bodies_of(2), bodies_of(165)
    assert compressed
    seeds = [b"\0" + body for body in plain] + [b"\1" + body for body in compressed]
    return seeds + [b"\0" + statement_in(collation) for collation in (63, 37, 98, 2999)]


def statement_in(collation: int) -> bytes:
    """A QUERY event of a client with that collation.

    Once a LookupError: "binary" (63), KEYBCS2 and eucJP-MS, for which Python has no codec.
    """
    variables = b"\4" + struct.pack("<H", collation) * 3
    head = struct.pack("<IIBHH", 1, 0, 4, 0, len(variables)) + variables
    return head + b"shop\0CREATE TABLE `\x87`"


def tagged_gtid(data: bytes) -> None:
    found = bodies.parse_tagged_gtid(data)
    assert 1 <= found.number < 1 << 63


def payload(data: bytes) -> None:
    """Unpacks a whole compressed transaction."""
    side = DecompressionBuffer()
    for index, count in side.unpack(data, full=side.release):
        for event in index[:count]:
            assert event["start"] + framing.HEADER <= event["end"] <= side.end


def payload_seeds() -> list[bytes]:
    events = b"".join(Log(checksum=False).query("BEGIN").xid().events)
    plain = b"\2\3\xfc\xff\0\1\1" + bytes([len(events)]) + b"\0" + events
    return [*bodies_of(40), plain]


def compressed_rows(data: bytes) -> None:
    kind = data[0] if data else 0
    bodies.uncompress_rows(data[1:], version=2 if kind & 2 else 1, update=bool(kind & 1))


def compressed_rows_seeds() -> list[bytes]:
    by_kind = {166: 0, 167: 1, 168: 0, 169: 2, 170: 3, 171: 2}
    return [bytes([by_kind[kind]]) + body for kind, body in logged("mariadb") if kind in by_kind]


# --- framing --------------------------------------------------------------------------------------


def frames(data: bytes) -> None:
    """The kernel and its twin find the same events."""
    flags, raw = (data[0] if data else 0), data[1:]
    packets, checksum, verify = bool(flags & 1), bool(flags & 2), bool(flags & 4)
    expected, used, status = framing.frame_plain(
        raw, packets=packets, checksum=checksum, verify=verify
    )
    array = np.frombuffer(bytearray(raw), np.uint8)
    state = np.array([checksum, verify], np.int64)
    index = np.zeros(len(raw) // framing.HEADER + 2, framing.EVENT)
    count, at, ended = framing.frame(
        array, 0, array.size, packets, state, index, 0, framing.CRC_TABLES
    )
    found = [
        (int(one["type"]), array[one["start"] : one["end"]].tobytes()) for one in index[:count]
    ]
    assert (found, int(at), int(ended)) == (expected, used, status)


def frames_seeds() -> list[bytes]:
    found = []
    for flavor in ("mysql", "mariadb"):
        raw = (SEEDS / f"{flavor}.binlog").read_bytes()[4:]
        found += [b"\2" + raw[:3000], b"\6" + raw[:3000]]
        at, packets = 0, b""
        while at < 2000:
            size = int.from_bytes(raw[at + 9 : at + 13], "little")
            packets += packet(b"\0" + raw[at : at + size])
            at += size
        found += [b"\3" + packets, b"\7" + packets, b"\7" + packets + packet(b"\xfe\0\0\0\0")]
    return found


class Bytes:
    """A socket that gives some bytes, in pieces, and then hangs up."""

    def __init__(self, data: bytes) -> None:
        self._left = data

    def recv_into(self, buffer: memoryview, nbytes: int = 0, flags: int = 0, /) -> int:
        del nbytes, flags
        size = min(len(self._left), len(buffer), 700)
        buffer[:size] = self._left[:size]
        self._left = self._left[size:]
        return size

    def settimeout(self, value: float | None, /) -> None:
        del value


def result_set(data: bytes) -> None:
    """A SELECT's answer; and the twins find the same whole rows."""
    array = np.frombuffer(data, np.uint8)
    found = tuple(int(one) for one in stream.scan_rows(array, 0, array.size))
    assert found == stream.scan_rows_plain(array, 0, array.size)
    stream.ReceiveBuffer.__init__.__defaults__ = (1 << 16,)
    with stream.RowStream(Bytes(data), source="a/b", on_broken=lambda: None) as rows:
        for _, start, end in rows:
            assert start < end


def result_set_seeds() -> list[bytes]:
    head = packet(b"\2") + packet(b"\3def\1a") + packet(b"\3def\1b") + packet(b"\xfe\0\0\2\0")
    rows = packet(b"\1x\xfb") + packet(b"\xfb\2yz") + packet(b"\xfc\3\0abc\xfb")
    error = packet(b"\xff\x15\x04#28000Access denied")
    return [
        head + rows + packet(b"\xfe\0\0\2\0"),
        head + rows + error,
        error,
        packet(b"\0\0\0"),
        packet(b""),  # once an IndexError: a column count without a byte
        packet(b"\xfe" + b"\xff" * 8) + head,
    ]


# --- whole streams --------------------------------------------------------------------------------


def as_input(flavor: Flavor, events: Iterable[tuple[int, bytes]]) -> bytes:
    """A stream as an input: its flavour, and each event as type and body."""
    parts = (bytes([kind]) + body for kind, body in events)
    return bytes([FLAVORS.index(flavor)]) + packed(*parts)


def stream_of(data: bytes) -> tuple[Flavor, list[bytes], Position]:
    """The events of an input, with right headers, and where the stream begins."""
    flavor = FLAVORS[data[0] % 3] if data else "mysql"
    log = Log(checksum=False).rotate("bin.000001")
    for part in unpacked(data[1:]):
        if part and part[0] != framing.FORMAT_DESCRIPTION:
            log.add(part[0], part[1:])
        elif part:
            log.format()
    held = {"mysql": "", "mariadb": "", "file": "bin.000001:4"}[flavor]
    start = Position(executed=GtidSet.parse(flavor, held), server="s", file="bin.000001", offset=4)
    return flavor, log.events, start


def walked(data: bytes, keep: Callable[[TransactionBatch], int]) -> None:
    """A reader walks the stream."""
    _, events, start = stream_of(data)
    reader = make_reader(start, Collected())
    reader._keep = keep
    try:
        buffer, index, count = framed(events, checksum=False)
        reader.feed(buffer, index, 0, count)
        reader.flush()
        str(reader.position().executed)
    except RatchetError as error:
        assert error.source or not isinstance(error, DecodeError | SourceUnfitError), error
        raise


def capture(data: bytes) -> None:
    """Everything that capture does with a stream's bytes: walked, unpacked, decoded to Arrow."""
    decoders = Decoders(InvalidValuePolicy())

    def keep(batch: TransactionBatch) -> int:
        try:
            tables, last, _ = changes_of(batch, decoders, shard=SHARD, generation=1)
        except RatchetError as error:
            error.source = error.source or str(SHARD)
            raise
        for one in tables:
            one.rows.validate(full=True)
        return last

    walked(data, keep)


def reader_twin(data: bytes) -> None:
    """What the reader takes, its twin takes as well, and finds the same in it."""
    flavor, events, start = stream_of(data)
    if flavor == "file":
        return  # the twin counts on checksums there
    found = Collected()
    walked(data, found.keep)
    twin = PlainReader(start, database="shop")
    try:
        twin.read(events)
    except RefusedError as error:
        raise AssertionError(f"the reader takes what its twin refuses: {error}") from error
    except (IndexError, UnicodeDecodeError, struct.error):
        return  # the twin knows sound events only
    assert found.gtids == [one.gtid for one in twin.transactions]
    assert found.seqs == [one.seq for one in twin.transactions]
    whole = set(found.gtids)
    # A map without the columns' names is told of by its table, whose rows are left out from there
    # on; the twin needs no names.
    told = {one.table for one in found.told if one.kind == "unreadable"}
    assert [(g, t, i) for g, t, _, i in found.rows if g in whole and t not in told] == [
        (one.gtid, table, image)
        for one in twin.transactions
        for database, table, _, image in one.rows
        if database == "shop" and table not in told
    ]


def stream_seeds() -> list[bytes]:
    """Whole real files, and each transaction with rows alone."""
    found = []
    for flavor in ("mysql", "mariadb"):
        events = list(logged(flavor))
        found.append(as_input(flavor, events))
        begins = [at for at, (kind, _) in enumerate(events) if kind in {33, 42, 162}]
        for begin, end in pairwise([*begins, len(events)]):
            found.append(as_input(flavor, events[begin:end]))
    first = logged("mysql")[:12]
    # Once an IndexError: the other server's GTIDs; and once taken: numbers below 1.
    found.append(as_input("mariadb", [(33, bytes(80)), *first]))
    found.append(as_input("mysql", [(162, bytes(20)), (2, bytes(13) + b"\0BEGIN"), (16, bytes(8))]))
    for number in (0, 1 << 63, (1 << 64) - 1):
        gtid = bytes(17) + struct.pack("<Q", number) + bytes(40)
        found += [as_input(flavor, [(33, gtid), *first[4:]]) for flavor in ("mysql", "file")]
        found.append(as_input("mariadb", [(162, struct.pack("<QIB", number, 0, 1)), first[4]]))
    # A compressed transaction within another, not compressed.
    inner = b"".join(Log(checksum=False).add(40, payload_seeds()[-1]).events)
    nested = b"\2\3\xfc\xff\0\1\3\xfc" + struct.pack("<H", len(inner)) + b"\0" + inner
    found.append(as_input("mysql", [(33, bytes(17) + b"\1" + bytes(60)), (40, nested)]))
    found.append(as_input("file", [(34 if k == 33 else k, b) for k, b in logged("mysql")]))
    return found


def raw_stream(data: bytes) -> None:
    """Bytes of a dump connection, lengths and checksums not repaired."""
    found = np.frombuffer(bytearray(data), np.uint8)
    start = Position(executed=GtidSet.empty("mysql"), server="s", file="bin.000001", offset=4)
    reader = make_reader(start, Collected())
    state, index = np.array([0, 0], np.int64), np.zeros(1 << 12, framing.EVENT)
    count, _, _ = framing.frame(found, 0, found.size, True, state, index, 0, framing.CRC_TABLES)
    reader.feed(found, index, 0, count)
    reader.flush()


def raw_stream_seeds() -> list[bytes]:
    log = Log(checksum=False).rotate("bin.000001").insert(1).insert(2)
    log.gtid(3).query("ALTER TABLE w ADD x INT")
    return [log.packets(), log.packets()[:200]]


TARGETS: dict[str, Target] = {
    "rotate": Target(rotate, lambda: bodies_of(4)),
    "query": Target(query, query_seeds),
    "tagged_gtid": Target(tagged_gtid, lambda: bodies_of(42)),
    "payload": Target(payload, payload_seeds),
    "compressed_rows": Target(compressed_rows, compressed_rows_seeds),
    "frames": Target(frames, frames_seeds),
    # BugError: a server that says of our statement that it is none.
    "result_set": Target(result_set, result_set_seeds, (*REFUSALS, BugError)),
    "capture": Target(capture, stream_seeds, REFUSALS),
    "reader_twin": Target(reader_twin, stream_seeds, REFUSALS),
    "raw_stream": Target(raw_stream, raw_stream_seeds, REFUSALS),
}
