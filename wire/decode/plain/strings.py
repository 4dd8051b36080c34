"""Plain twin of `wire.decode.kernels.strings`, with `uuid` and `ipaddress` for addresses."""

from __future__ import annotations

import ipaddress
import itertools
import uuid

from ratchet.wire.decode.arrays import Bytes, Longs
from ratchet.wire.decode.plain.cells import NotSoundError, joined, sized, strings
from ratchet.wire.decode.plain.temporal import unpack


def gather(buf: Bytes, offs: Longs, lens: Longs) -> tuple[Bytes, Longs, int]:
    """The values as they are."""
    return strings(buf, offs, lens, bytes)


def _padded(cell: bytes, width: int) -> bytes:
    if len(cell) > width:
        raise NotSoundError
    return cell.ljust(width, b"\0")


def padded(buf: Bytes, offs: Longs, lens: Longs, width: int) -> tuple[Bytes, Longs, int]:
    """BINARY(width): the values with the zero bytes that the log leaves out at their end."""
    return strings(buf, offs, lens, lambda cell: _padded(cell, width))


def _table(labels: Bytes, places: Longs) -> list[bytes]:
    text = labels.tobytes()
    return [text[a:b] for a, b in zip(places.tolist(), places.tolist()[1:], strict=False)]


def enum_labels(
    buf: Bytes, offs: Longs, lens: Longs, size: int, labels: Bytes, label_places: Longs
) -> tuple[Bytes, Longs, int]:
    """ENUM: the labels of indexes of `size` bytes; that of index 0 first."""
    table = _table(labels, label_places)

    def convert(cell: bytes) -> bytes:
        index = int.from_bytes(sized(cell, size), "little")
        if index >= len(table):
            raise NotSoundError
        return table[index]

    return strings(buf, offs, lens, convert)


def set_labels(
    buf: Bytes, offs: Longs, lens: Longs, size: int, labels: Bytes, label_places: Longs
) -> tuple[Bytes, Longs, int]:
    """SET: the labels of the bits that are set, lowest first, with commas between them."""
    table = _table(labels, label_places)

    def convert(cell: bytes) -> bytes:
        value = int.from_bytes(sized(cell, size), "little")
        if value >> len(table):
            raise NotSoundError
        return b",".join(label for bit, label in enumerate(table) if value >> bit & 1)

    return strings(buf, offs, lens, convert)


def uuids(buf: Bytes, offs: Longs, lens: Longs) -> tuple[Bytes, Longs, int]:
    """MariaDB's UUID: 16 bytes in the order they are printed, trailing zero bytes left out."""
    return strings(buf, offs, lens, lambda cell: str(uuid.UUID(bytes=_padded(cell, 16))).encode())


def inet4s(buf: Bytes, offs: Longs, lens: Longs) -> tuple[Bytes, Longs, int]:
    """MariaDB's INET4: dotted decimal of 4 bytes, trailing zero bytes left out."""
    return strings(
        buf, offs, lens, lambda cell: str(ipaddress.IPv4Address(_padded(cell, 4))).encode()
    )


def _inet6(cell: bytes) -> bytes:
    raw = _padded(cell, 16)
    ipv4 = str(ipaddress.IPv4Address(raw[12:]))
    # IPv4-mapped and IPv4-compatible addresses end in dotted decimal, but not :: and ::1 to ::ffff.
    if raw[:12] == bytes(10) + b"\xff\xff":
        return f"::ffff:{ipv4}".encode()
    if raw[:12] == bytes(12) and raw[12:14] != bytes(2):
        return f"::{ipv4}".encode()
    words = [raw[at : at + 2].hex().lstrip("0") or "0" for at in range(0, 16, 2)]
    runs = [(len(list(run)), word) for word, run in itertools.groupby(words)]
    longest = max((length for length, word in runs if word == "0"), default=0)
    if not longest:
        return ":".join(words).encode()
    # The server shortens a run of one zero word too, unlike `ipaddress`.
    begin = next(at for at in range(8) if words[at : at + longest] == ["0"] * longest)
    return f"{':'.join(words[:begin])}::{':'.join(words[begin + longest :])}".encode()


def inet6s(buf: Bytes, offs: Longs, lens: Longs) -> tuple[Bytes, Longs, int]:
    """MariaDB's INET6: 16 bytes, trailing zero bytes left out."""
    return strings(buf, offs, lens, _inet6)


def civil_texts(
    civil: Longs, offs: Longs, with_time: int, fraction: int
) -> tuple[Bytes, Longs, int]:
    """The server's text of dates and datetimes, also of those that are no day of the calendar."""
    values = []
    for offset, number in zip(offs.tolist(), civil.tolist(), strict=True):
        year, month, day, hour, minute, second, micros = unpack(number)
        text = f"{year:04d}-{month:02d}-{day:02d}"
        if with_time:
            text += f" {hour:02d}:{minute:02d}:{second:02d}"
        if fraction:
            text += f".{micros:06d}"[: fraction + 1]
        values.append(b"" if offset < 0 else text.encode())
    return joined(values)
