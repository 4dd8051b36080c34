"""The plain twin of `wire.decode.kernels.jsontexts`: a reader by recursive descent, to be read."""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from ratchet.wire.decode.arrays import Bytes, Int, Longs
from ratchet.wire.decode.jsonb import MAX_DEPTH
from ratchet.wire.decode.kernels.walk import GOOD

_SPACE: Final = re.compile(rb"[ \t\n\r]*")
_STRING: Final = re.compile(rb'"((?:[^"\\\x00-\x1f]|\\["\\bfnrt]|\\u00[01][0-9a-fA-F])*+)"')
_ESCAPE: Final = re.compile(rb"\\(?:u(....)|(.))")
_NUMBER: Final = re.compile(rb"(-?)(?:([0-9]+)(\.[0-9]+)?|(\.[0-9]+))((?:[eE][+-]?[0-9]+)?)")
_WORD: Final = re.compile(rb"true|false|null")
_LETTERS: Final = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t"}


class _BrokenError(Exception):
    """The text is no JSON, even with vtgate's numbers."""


def mysql_texts(buf: Bytes, offs: Longs, lens: Longs) -> tuple[Bytes, Longs, Int]:
    """MySQL's texts of the documents of a column."""
    rows = len(offs)
    out, places = bytearray(), np.zeros(rows + 1, np.int64)
    for i in range(rows):
        if offs[i] >= 0:
            begin, size = int(offs[i]), int(lens[i])
            inside = size >= 0 and begin + size <= len(buf)
            text = mysql_text(buf[begin : begin + size].tobytes()) if inside else None
            if text is None:
                return np.empty(0, np.uint8), np.zeros(rows + 1, np.int64), i
            out += text
        places[i + 1] = len(out)
    return np.frombuffer(bytes(out), np.uint8), places, GOOD


def mysql_text(data: bytes) -> bytes | None:
    """MySQL's text of one document; None if vtgate has broken it.

    >>> mysql_text(b'{"city": 2, "f": -.50, "zip": [1,.5]}')
    b'{"f": -0.50, "zip": [1, 0.5], "city": 2}'
    >>> mysql_text(b'"base64:type15:AP8="}')
    """
    try:
        data.decode()
        text, at = _value(data, _behind_space(data, 0), 0)
    except (UnicodeDecodeError, _BrokenError):
        return None
    return text if _behind_space(data, at) == len(data) else None


def _value(data: bytes, at: int, depth: int) -> tuple[bytes, int]:
    """The text of the value at `at`, and the place behind it."""
    first = data[at : at + 1]
    if first in (b"{", b"["):
        if depth == MAX_DEPTH:
            raise _BrokenError
        return (_object if first == b"{" else _array)(data, at + 1, depth + 1)
    if first == b'"':
        text, _, at = _string(data, at)
        return text, at
    word = _WORD.match(data, at)
    if word:
        return word[0], word.end()
    number = _NUMBER.match(data, at)
    if not number:
        raise _BrokenError
    sign, whole, part, bare, power = (text or b"" for text in number.groups())
    return sign + (whole + part if whole else b"0" + bare) + power, number.end()


def _array(data: bytes, at: int, depth: int) -> tuple[bytes, int]:
    found = []
    at = _behind_space(data, at)
    more = data[at : at + 1] != b"]"
    while more:
        text, at = _value(data, at, depth)
        found.append(text)
        more, at = _more(data, at, b"]")
    return b"[" + b", ".join(found) + b"]", at if found else at + 1


def _object(data: bytes, at: int, depth: int) -> tuple[bytes, int]:
    found = []
    at = _behind_space(data, at)
    more = data[at : at + 1] != b"}"
    while more:
        name, key, at = _string(data, at)
        at = _behind_space(data, at)
        if data[at : at + 1] != b":":
            raise _BrokenError
        text, at = _value(data, _behind_space(data, at + 1), depth)
        found.append((len(key), key, name + b": " + text))
        more, at = _more(data, at, b"}")
    found.sort(key=lambda member: member[:2])
    return b"{" + b", ".join(text for _, _, text in found) + b"}", at if found else at + 1


def _more(data: bytes, at: int, end: bytes) -> tuple[bool, int]:
    """Behind an element: whether there is another one, and where it (or what follows) begins."""
    at = _behind_space(data, at)
    found = data[at : at + 1]
    if found == b",":
        return True, _behind_space(data, at + 1)
    if found != end:
        raise _BrokenError
    return False, at + 1


def _string(data: bytes, at: int) -> tuple[bytes, bytes, int]:
    """A string as it stands, what it means, and the place behind it."""
    found = _STRING.match(data, at)
    if not found:
        raise _BrokenError
    meant = _ESCAPE.sub(
        lambda escape: bytes([int(escape[1], 16)]) if escape[1]
        else _LETTERS.get(escape[2], escape[2]),
        found[1],
    )  # fmt: skip
    return found[0], meant, found.end()


def _behind_space(data: bytes, at: int) -> int:
    found = _SPACE.match(data, at)
    assert found  # noqa: S101 - it may be empty
    return found.end()
