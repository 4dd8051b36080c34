"""MySQL's binary JSON, as row images hold it, to the text that the server's own SELECT prints.

Lives here: the walk over a document with a stack of its own. What single values look like is in
`jsonb_scalars`, doubles are in `doubles`; the plain twin of the whole is `jsonb_plain`. Changes
of parts of a document (PARTIAL_JSON) do not come here: the event reader refuses them.

Invariant: no bytes whatever make this crash, read outside a value or write without bounds. What
the server's own reader would not accept, and text that is not UTF-8, comes back as `bad`.

The format is that of MySQL's sql-common/json_binary.h: a type byte, then for containers the
number of elements and the size in bytes (2 bytes each, or 4 where large), the entries of the keys
(offset, length), the entries of the values (type, offset or the value itself), keys and values.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ratchet.wire.decode.arrays import Bytes, Int, Longs, room
from ratchet.wire.decode.jsonb_scalars import (
    BAD,
    OPAQUE,
    SCALAR_ROOM,
    STRING,
    is_inlined,
    opaque_room,
    payload,
    read_unsigned,
    string_room,
    write_null,
    write_opaque,
    write_scalar,
    write_string,
)
from ratchet.wire.kernel import kernel

# The server nests 100 deep at most (JSON_DOCUMENT_MAX_DEPTH).
MAX_DEPTH: Final = 128

# No sound document's text is longer than this many times its binary form: the worst is a string
# of control characters, six bytes for one. A crafted document whose containers share their
# contents grows without end, and is stopped here.
EXPANSION: Final = 8
SLACK: Final = 64

_LARGE_OBJECT: Final = 1
_LARGE_ARRAY: Final = 3

# Fields of a stack frame.
_BASE, _LIMIT, _COUNT, _NEXT, _TYPE = 0, 1, 2, 3, 4
_FIELDS: Final = 5

_COMMA, _SPACE, _COLON = 44, 32, 58

# One turn of the loop writes a scalar and what closes or separates the containers around it.
_STEP_ROOM: Final = SCALAR_ROOM + MAX_DEPTH


@kernel
def json_column(buf: Bytes, offs: Longs, lens: Longs) -> tuple[Bytes, Longs, Int]:
    """The JSON texts of a column's values.

    Args:
        buf: holds the values; it is not written.
        offs: where each value begins in `buf`; below 0 stands for NULL.
        lens: the lengths in bytes; an empty value is the JSON null, as the server reads it.

    Returns:
        data, offsets: value i is UTF-8 text at data[offsets[i]:offsets[i + 1]]; NULLs are empty.
        bad: index of the first value that is no binary JSON, or -1. Then the others are empty.
    """
    count = offs.size
    offsets = np.zeros(count + 1, np.int64)
    total = np.int64(0)
    for i in range(count):
        if offs[i] >= 0:
            total += max(lens[i], np.int64(0))
    out = np.empty(min(total, np.int64(buf.size)) * 2 + 64, np.uint8)
    stack = np.empty((MAX_DEPTH, _FIELDS), np.int64)
    pos: Int = np.int64(0)
    for i in range(count):
        if offs[i] >= 0:
            start, size = offs[i], lens[i]
            if size < 0 or start > buf.size or size > buf.size - start:
                return np.empty(0, np.uint8), np.zeros(count + 1, np.int64), i
            out, pos = _document(buf, start, start + size, out, pos, stack)
            if pos < 0:
                return np.empty(0, np.uint8), np.zeros(count + 1, np.int64), i
        offsets[i + 1] = pos
    return out[:pos], offsets, -1


@kernel
def _document(
    buf: Bytes, at: Int, end: Int, out: Bytes, pos: Int, stack: Longs
) -> tuple[Bytes, Int]:
    """Write the document in buf[at:end]; the output (it may be a new array) and its end or BAD."""
    out = room(out, pos, _STEP_ROOM)
    if at == end:
        return out, write_null(out, pos)
    most = pos + EXPANSION * (end - at) + SLACK
    kind: Int = np.int64(buf[at])
    at += 1
    depth = 0
    while True:
        if out.size - pos < _STEP_ROOM:
            out = room(out, pos, _STEP_ROOM)
        if kind <= _LARGE_ARRAY:
            if depth == MAX_DEPTH or not _open(buf, at, end, kind, stack, depth):
                return out, BAD
            depth += 1
            out[pos] = 123 if kind <= _LARGE_OBJECT else 91  # { or [
            pos += 1
        elif kind in (STRING, OPAQUE):
            field, at, end = payload(buf, at, end, kind)
            if at < 0:
                return out, BAD
            if kind == STRING:
                out = room(out, pos, string_room(buf, at, end) + _STEP_ROOM)
                pos = write_string(buf, at, end, out, pos)
            else:
                out = room(out, pos, opaque_room(end - at) + _STEP_ROOM)
                pos = write_opaque(buf, at, end, field, out, pos)
        else:
            pos = write_scalar(buf, at, end, kind, out, pos)
        if pos < 0 or pos > most:
            return out, BAD
        while depth > 0 and stack[depth - 1, _NEXT] == stack[depth - 1, _COUNT]:
            out[pos] = 125 if stack[depth - 1, _TYPE] <= _LARGE_OBJECT else 93  # } or ]
            pos += 1
            depth -= 1
        if depth == 0:
            return out, pos
        index = stack[depth - 1, _NEXT]
        stack[depth - 1, _NEXT] = index + 1
        if index > 0:
            out[pos], out[pos + 1] = _COMMA, _SPACE
            pos += 2
        if stack[depth - 1, _TYPE] <= _LARGE_OBJECT:
            at, end = _key(buf, stack, depth - 1, index)
            if at < 0:
                return out, BAD
            out = room(out, pos, string_room(buf, at, end))
            pos = write_string(buf, at, end, out, pos)
            if pos < 0:
                return out, BAD
            out[pos], out[pos + 1] = _COLON, _SPACE
            pos += 2
        kind, at, end = _element(buf, stack, depth - 1, index)
        if at < 0:
            return out, BAD


@kernel
def _open(buf: Bytes, at: Int, end: Int, kind: Int, stack: Longs, depth: Int) -> bool:
    """Fill the stack frame of the container at `at`; False if its header is not sound."""
    width = 4 if kind & 1 else 2
    if end - at < 2 * width:
        return False
    count = read_unsigned(buf, at, width)
    size = read_unsigned(buf, at + width, width)
    if size > end - at or _header(kind, count) > size:
        return False
    stack[depth, _BASE], stack[depth, _LIMIT], stack[depth, _COUNT] = at, at + size, count
    stack[depth, _NEXT], stack[depth, _TYPE] = 0, kind
    return True


@kernel
def _header(kind: Int, count: Int) -> Int:
    """Bytes before a container's first key or value."""
    width = 4 if kind & 1 else 2
    keys = count * (width + 2) if kind <= _LARGE_OBJECT else 0
    return 2 * width + keys + count * (1 + width)


@kernel
def _key(buf: Bytes, stack: Longs, depth: Int, index: Int) -> tuple[Int, Int]:
    """Where the key of an object's element begins and ends; BAD if that is not in the object."""
    base, kind = stack[depth, _BASE], stack[depth, _TYPE]
    width = 4 if kind & 1 else 2
    entry = base + 2 * width + index * (width + 2)
    offset = read_unsigned(buf, entry, width)
    size = read_unsigned(buf, entry + width, 2)
    space = stack[depth, _LIMIT] - base
    if offset < _header(kind, stack[depth, _COUNT]) or offset > space or size > space - offset:
        return BAD, BAD
    return base + offset, base + offset + size


@kernel
def _element(buf: Bytes, stack: Longs, depth: Int, index: Int) -> tuple[Int, Int, Int]:
    """The type of a container's element, where it begins (or BAD) and where it must end."""
    base, limit, count, container = (
        stack[depth, _BASE],
        stack[depth, _LIMIT],
        stack[depth, _COUNT],
        stack[depth, _TYPE],
    )
    width = 4 if container & 1 else 2
    header = _header(container, count)
    entry = base + header - (count - index) * (1 + width)  # these entries end the header
    kind = np.int64(buf[entry])
    if is_inlined(kind, width):
        return kind, entry + 1, entry + 1 + width
    offset = read_unsigned(buf, entry + 1, width)
    if offset < header or offset > limit - base:
        return kind, BAD, BAD
    return kind, base + offset, limit
