"""Binary JSON made for tests: what the server would store, and shapes that it never would.

An encoder of our own, so that the decoders can be tried without a server on any document. That it
makes what the server makes is not needed: the oracle test takes the server's own bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

Json: TypeAlias = "bool | int | float | str | Opaque | Sequence[Json] | dict[str, Json] | None"


@dataclass(frozen=True)
class Opaque:
    """A value of a column type that JSON does not have."""

    field: int
    data: bytes


def encode(value: Json, *, large: bool = False) -> bytes:
    """A document: the type byte and the value; all containers in it small or all large."""
    kind, data = _encode(value, large=large)
    return bytes([kind]) + data


def packed_decimal(text: str) -> Opaque:
    """A decimal as opaque value; `text` has all its digits, as in "-01.50"."""
    negative = text.startswith("-")
    whole, _, fraction = text.lstrip("-").partition(".")
    data = bytearray()
    first = len(whole) % 9
    groups = [whole[:first], *(whole[at : at + 9] for at in range(first, len(whole), 9))]
    groups += [fraction[at : at + 9] for at in range(0, len(fraction), 9)]
    for group in groups:
        data += int(group or "0").to_bytes((0, 1, 1, 2, 2, 3, 3, 4, 4, 4)[len(group)], "big")
    data[0] ^= 0x80
    if negative:
        data = bytearray(byte ^ 0xFF for byte in data)
    return Opaque(246, bytes([len(whole) + len(fraction), len(fraction)]) + bytes(data))


def _length(size: int) -> bytes:
    data = bytearray()
    while size > 0x7F:
        data.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes(data) + bytes([size])


def _encode(value: Json, *, large: bool) -> tuple[int, bytes]:
    if value is None or isinstance(value, bool):
        return 4, bytes([0 if value is None else 1 if value else 2])
    if isinstance(value, int):
        return _encode_int(value)
    if isinstance(value, float):
        return 11, struct.pack("<d", value)
    if isinstance(value, str):
        data = value.encode()
        return 12, _length(len(data)) + data
    if isinstance(value, Opaque):
        return 15, bytes([value.field]) + _length(len(value.data)) + value.data
    return _encode_container(value, large=large)


def _encode_int(value: int) -> tuple[int, bytes]:
    for kind, form, low, high in (
        (5, "<h", -(2**15), 2**15),
        (6, "<H", 0, 2**16),
        (7, "<i", -(2**31), 2**31),
        (8, "<I", 0, 2**32),
        (9, "<q", -(2**63), 2**63),
    ):
        if low <= value < high:
            return kind, struct.pack(form, value)
    return 10, struct.pack("<Q", value)


def _encode_container(value: Sequence[Json] | dict[str, Json], *, large: bool) -> tuple[int, bytes]:
    form, width = ("<I", 4) if large else ("<H", 2)
    keys: list[bytes] = []
    elements: Sequence[Json]
    if isinstance(value, dict):
        keys = [key.encode() for key in value]
        elements = list(value.values())
    else:
        elements = value
    header = 2 * width + len(keys) * (width + 2) + len(elements) * (width + 1)
    entries, body = bytearray(), bytearray()
    for key in keys:
        entries += struct.pack(form, header + len(body)) + struct.pack("<H", len(key))
        body += key
    for element in elements:
        kind, data = _encode(element, large=large)
        if kind in (4, 5, 6) or (large and kind in (7, 8)):
            entries += bytes([kind]) + data.ljust(width, b"\0")
        else:
            entries += bytes([kind]) + struct.pack(form, header + len(body))
            body += data
    size = struct.pack(form, len(elements)) + struct.pack(form, header + len(body))
    return (0 if keys or isinstance(value, dict) else 2) + large, size + bytes(entries + body)
