"""The plain twin of `jsonb`: binary JSON to text with `struct`, `int` and recursion, slowly.

It is written from the format's description, not from the kernel, so that both agreeing means
something. Same signature, same results on any bytes.
"""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from ratchet.wire.decode.doubles import double_text

_MAX_DEPTH: Final = 128
_EXPANSION: Final = 8
_SLACK: Final = 64
_LITERALS: Final = ("null", "true", "false")
_NUMBERS: Final = {5: "<h", 6: "<H", 7: "<i", 8: "<I", 9: "<q", 10: "<Q"}
_GROUP_BYTES: Final = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
_SHORT: Final = {8: "\\b", 9: "\\t", 10: "\\n", 12: "\\f", 13: "\\r", 34: '\\"', 92: "\\\\"}
_ESCAPES: Final = {code: f"\\u{code:04x}" for code in range(32)} | _SHORT


class _NoJsonError(Exception):
    """These bytes are no binary JSON; never leaves this module."""


def json_column_plain(
    buf: npt.NDArray[np.uint8], offs: npt.NDArray[np.int64], lens: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], int]:
    """As `jsonb.json_column`."""
    texts = []
    for index, (start, size) in enumerate(zip(offs.tolist(), lens.tolist(), strict=True)):
        if start < 0:
            texts.append(b"")
            continue
        try:
            texts.append(document_text(_slice(buf, start, size)).encode())
        except (_NoJsonError, UnicodeDecodeError, struct.error):
            return np.empty(0, np.uint8), np.zeros(offs.size + 1, np.int64), index
    offsets = np.zeros(offs.size + 1, np.int64)
    np.cumsum([len(text) for text in texts], out=offsets[1:])
    return np.frombuffer(b"".join(texts), np.uint8), offsets, -1


def _slice(buf: npt.NDArray[np.uint8], start: int, size: int) -> bytes:
    if size < 0 or start + size > buf.size:
        raise _NoJsonError
    return buf[start : start + size].tobytes()


def document_text(data: bytes) -> str:
    """One document's text."""
    if not data:
        return "null"
    parts = []
    size, most = 0, _EXPANSION * len(data) + _SLACK
    for part in _value(data[0], data[1:], 0):
        size += len(part.encode())
        if size > most:
            raise _NoJsonError
        parts.append(part)
    return "".join(parts)


def _value(kind: int, data: bytes, depth: int) -> Iterator[str]:
    if kind <= 3:
        yield from _container(kind, data, depth)
    elif kind == 4:
        if not data or data[0] > 2:
            raise _NoJsonError
        yield _LITERALS[data[0]]
    elif kind in _NUMBERS:
        yield str(struct.unpack_from(_NUMBERS[kind], data)[0])
    elif kind == 11:
        (value,) = struct.unpack_from("<d", data)
        if not math.isfinite(value):
            raise _NoJsonError
        yield double_text(value)
    elif kind == 12:
        yield _quoted(_sized(data))
    elif kind == 15:
        yield _opaque(data)
    else:
        raise _NoJsonError


def _container(kind: int, data: bytes, depth: int) -> Iterator[str]:
    large, is_object = bool(kind & 1), kind < 2
    number = "<I" if large else "<H"
    width = 4 if large else 2
    if depth == _MAX_DEPTH:
        raise _NoJsonError
    count, size = struct.unpack_from(f"{number}{number[1]}", data)
    if size > len(data):
        raise _NoJsonError
    data = data[:size]
    keys_at = 2 * width
    values_at = keys_at + (count * (width + 2) if is_object else 0)
    header = values_at + count * (width + 1)
    if header > size:
        raise _NoJsonError
    yield "{" if is_object else "["
    for index in range(count):
        if index:
            yield ", "
        if is_object:
            key_at, key_size = struct.unpack_from(f"{number}H", data, keys_at + index * (width + 2))
            if key_at < header or key_at + key_size > size:
                raise _NoJsonError
            yield _quoted(data[key_at : key_at + key_size])
            yield ": "
        entry = values_at + index * (width + 1)
        element = data[entry]
        if element in (4, 5, 6) or (large and element in (7, 8)):
            yield from _value(element, data[entry + 1 : entry + 1 + width], depth + 1)
            continue
        (offset,) = struct.unpack_from(number, data, entry + 1)
        if offset < header or offset > size:
            raise _NoJsonError
        yield from _value(element, data[offset:], depth + 1)
    yield "}" if is_object else "]"


def _sized(data: bytes) -> bytes:
    """The bytes behind a length of one to five bytes, seven bits each."""
    size = 0
    for index in range(5):
        if index == len(data):
            raise _NoJsonError
        size |= (data[index] & 0x7F) << (7 * index)
        if data[index] < 0x80:
            if size > 0xFFFFFFFF or size > len(data) - index - 1:
                raise _NoJsonError
            return data[index + 1 : index + 1 + size]
    raise _NoJsonError


def _quoted(data: bytes) -> str:
    return f'"{data.decode().translate(_ESCAPES)}"'


def _opaque(data: bytes) -> str:
    if not data:
        raise _NoJsonError
    field, value = data[0], _sized(data[1:])
    if field == 246:
        return _decimal(value)
    if field in (7, 10, 11, 12):
        return _temporal(field, value)
    text = base64.b64encode(value).decode()
    lines = "\\n".join(text[at : at + 76] for at in range(0, len(text), 76))
    return f'"base64:type{field}:{lines}"'


def _decimal(value: bytes) -> str:
    if len(value) < 3:
        raise _NoJsonError
    precision, scale, packed = value[0], value[1], value[2:]
    whole = precision - scale
    if whole < 0 or precision > 81:
        raise _NoJsonError
    negative = packed[0] < 0x80
    turned = bytes(byte ^ 0xFF for byte in packed) if negative else packed
    rest = bytes([turned[0] ^ 0x80]) + turned[1:]
    groups = [whole % 9, *[9] * (whole // 9), *[9] * (scale // 9), scale % 9]
    if len(packed) != sum(_GROUP_BYTES[digits] for digits in groups):
        raise _NoJsonError
    text = ""
    for digits in groups:
        number = int.from_bytes(rest[: _GROUP_BYTES[digits]], "big")
        rest = rest[_GROUP_BYTES[digits] :]
        if number >= 10**digits:
            raise _NoJsonError
        text += f"{number:0{digits}d}" if digits else ""
    sign, point = "-" if negative else "", "." if scale else ""
    return f"{sign}{text[:whole].lstrip('0') or '0'}{point}{text[whole:]}"


def _temporal(field: int, value: bytes) -> str:
    if len(value) != 8:
        raise _NoJsonError
    number = int.from_bytes(value, "little", signed=True)
    packed, fraction = divmod(abs(number), 1 << 24)
    hours, minute, second = packed >> 12, packed >> 6 & 63, packed & 63
    if fraction > 999_999 or minute > 59 or second > 59 or (number < 0 and field != 11):
        raise _NoJsonError
    tail = f"{minute:02d}:{second:02d}.{fraction:06d}"
    if field == 11:
        if hours > 838:
            raise _NoJsonError
        return f'"{"-" if number < 0 else ""}{hours:02d}:{tail}"'
    days, hour = divmod(hours, 32)
    months, day = divmod(days, 32)
    year, month = divmod(months, 13)
    if year > 9999 or hour > 23:
        raise _NoJsonError
    date = f"{year:04d}-{month:02d}-{day:02d}"
    return f'"{date}"' if field == 10 else f'"{date} {hour:02d}:{tail}"'
