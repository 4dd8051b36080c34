"""JSON as vtgate 24 writes it in VStream's log, back to the text that MySQL itself prints.

vtgate makes its text from MySQL's binary form, and not as MySQL does (measured; docs/vitess.md):
the members of an object stand in the order of their keys' letters (MySQL: by the keys' length, then
by their bytes), a decimal below one has no zero before its point (which is no JSON), and before a
binary value everything is lost, so that the text does not begin with what it ends.

Invariant: what comes out is MySQL's text, or the value is bad. What vtgate has changed without a
trace is not seen: a TIME inside a document that is negative or of 32 hours and more.

One pass writes the text; a container's frame tells where it began. An object whose members came in
another order than MySQL's is written anew when it ends, from a copy of its text.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import njit

from wire.decode.arrays import Bytes, Int, Longs, utf8_width
from wire.decode.jsonb import MAX_DEPTH
from wire.decode.kernels.walk import GOOD

_BAD: Final = -1

_QUOTE, _COMMA, _DASH, _POINT, _COLON, _BACKSLASH = 34, 44, 45, 46, 58, 92
_SPACE, _TAB, _LINE, _RETURN = 32, 9, 10, 13
_ZERO, _NINE, _PLUS = 48, 57, 43
_OPEN_LIST, _CLOSE_LIST, _OPEN, _CLOSE = 91, 93, 123, 125
_E, _BIG_E, _U = 101, 69, 117

# Fields of a frame: what closes the container; where its text begins, behind the bracket; its first
# member's number; whether its members have come in MySQL's order so far.
_END, _BEGIN, _FIRST, _SORTED = 0, 1, 2, 3
# Fields of a member: where its name lies, unescaped, among the names; where its text lies.
_NAME, _NAME_END, _TEXT, _TEXT_END = 0, 1, 2, 3

# No text is longer than this many times what it is made from: each comma and colon gets a space,
# each point a zero.
_GROWTH: Final = 2


@njit(cache=True, nogil=True, error_model="numpy")
def mysql_texts(buf: Bytes, offs: Longs, lens: Longs) -> tuple[Bytes, Longs, Int]:
    """MySQL's texts of the documents of a column.

    Args:
        buf: holds vtgate's texts; it is not written.
        offs: where each begins; below 0 stands for NULL.
        lens: the lengths in bytes.

    Returns:
        data, places: value i is UTF-8 text at data[places[i]:places[i + 1]]; NULLs are empty.
        bad: index of the first value that vtgate has broken, or GOOD. Then the others are empty.
    """
    rows = offs.size
    places = np.zeros(rows + 1, np.int64)
    total, longest = np.int64(0), np.int64(0)
    for i in range(rows):
        if offs[i] >= 0:
            if lens[i] < 0 or offs[i] + lens[i] > buf.size:
                return np.empty(0, np.uint8), places, i
            total += lens[i]
            longest = max(longest, lens[i])
    out = np.empty(_GROWTH * total, np.uint8)
    names = np.empty(longest, np.uint8)
    members = np.empty((16, 4), np.int64)
    stack = np.empty((MAX_DEPTH, 4), np.int64)
    pos: Int = np.int64(0)
    for i in range(rows):
        if offs[i] >= 0:
            end = offs[i] + lens[i]
            pos, members = _document(buf, offs[i], end, out, pos, names, members, stack)
            if pos < 0:
                return np.empty(0, np.uint8), np.zeros(rows + 1, np.int64), i
        places[i + 1] = pos
    return out[:pos], places, GOOD


@njit(cache=True, nogil=True, error_model="numpy")
def _document(
    buf: Bytes, at: Int, end: Int, out: Bytes, pos: Int, names: Bytes, members: Longs, stack: Longs
) -> tuple[Int, Longs]:
    """Write one document; its end or _BAD, and the table of members, which may be a larger one."""
    depth = 0
    count: Int = np.int64(0)  # of members whose objects are open
    while True:
        at = _behind_space(buf, at, end)
        if depth > 0 and stack[depth - 1, _END] == _CLOSE:
            if count == len(members):
                members = _larger(members)
            at, pos = _name(buf, at, end, out, pos, names, members, count)
            count += 1
            first = stack[depth - 1, _FIRST]
            if at >= 0 and count - 1 > first and _before(names, members, count - 1, count - 2):
                stack[depth - 1, _SORTED] = 0
        if at < 0 or at == end:
            return _BAD, members
        opening = buf[at]
        if opening in (_OPEN, _OPEN_LIST):
            if depth == MAX_DEPTH:
                return _BAD, members
            out[pos] = opening
            pos += 1
            at = _behind_space(buf, at + 1, end)
            closing = opening + 2  # } and ] stand two behind { and [ in ASCII
            if at == end or buf[at] != closing:
                stack[depth, _END], stack[depth, _BEGIN] = closing, pos
                stack[depth, _FIRST], stack[depth, _SORTED] = count, 1
                depth += 1
                continue
            out[pos] = closing
            pos += 1
            at += 1
        else:
            at, pos = _scalar(buf, at, end, out, pos)
            if at < 0:
                return _BAD, members
        at, pos, depth, count = _behind_value(
            buf, at, end, out, pos, names, members, count, stack, depth
        )
        if at < 0 or (depth == 0 and at < end):
            return _BAD, members
        if depth == 0:
            return pos, members


@njit(cache=True, nogil=True, error_model="numpy")
def _larger(members: Longs) -> Longs:
    grown = np.empty((2 * len(members), members.shape[1]), np.int64)
    grown[: len(members)] = members
    return grown


@njit(cache=True, nogil=True, error_model="numpy")
def _name(
    buf: Bytes, at: Int, end: Int, out: Bytes, pos: Int, names: Bytes, members: Longs, nth: Int
) -> tuple[Int, Int]:
    """Begin the nth open member: its name and colon; the places behind them, or _BAD."""
    behind = _string(buf, at, end)
    if behind < 0:
        return _BAD, pos
    size = members[nth - 1, _NAME_END] if nth > 0 else np.int64(0)
    members[nth, _TEXT], members[nth, _NAME] = pos, size
    members[nth, _NAME_END] = _unescape(buf, at + 1, behind - 1, names, size)
    pos = _copy(buf, at, behind, out, pos)
    at = _behind_space(buf, behind, end)
    if at == end or buf[at] != _COLON:
        return _BAD, pos
    out[pos], out[pos + 1] = _COLON, _SPACE
    return _behind_space(buf, at + 1, end), pos + 2


@njit(cache=True, nogil=True, error_model="numpy")
def _scalar(buf: Bytes, at: Int, end: Int, out: Bytes, pos: Int) -> tuple[Int, Int]:
    """Write the string, word or number at `at`; the places behind it, or _BAD."""
    if buf[at] == _QUOTE:
        behind = _string(buf, at, end)
    else:
        behind = _word(buf, at, end)
        if behind < 0:
            behind = _number(buf, at, end)
            if behind > 0 and buf[at] == _DASH:
                out[pos] = _DASH
                at, pos = at + 1, pos + 1
            if behind > 0 and buf[at] == _POINT:
                out[pos] = _ZERO
                pos += 1
    if behind < 0:
        return _BAD, pos
    return behind, _copy(buf, at, behind, out, pos)


@njit(cache=True, nogil=True, error_model="numpy")
def _behind_value(
    buf: Bytes,
    at: Int,
    end: Int,
    out: Bytes,
    pos: Int,
    names: Bytes,
    members: Longs,
    count: Int,
    stack: Longs,
    depth: int,
) -> tuple[Int, Int, int, Int]:
    """End the containers that end behind a value, and step over the comma that follows.

    Returns:
        The place to go on at, or _BAD; the text's end; depth and count of open members.
    """
    while depth > 0:
        at = _behind_space(buf, at, end)
        if at == end:
            return _BAD, pos, depth, count
        closing, first = stack[depth - 1, _END], stack[depth - 1, _FIRST]
        if closing == _CLOSE:
            members[count - 1, _TEXT_END] = pos
        if buf[at] == _COMMA:
            out[pos], out[pos + 1] = _COMMA, _SPACE
            return at + 1, pos + 2, depth, count
        if buf[at] != closing:
            return _BAD, pos, depth, count
        if closing == _CLOSE:
            if not stack[depth - 1, _SORTED]:
                begin = stack[depth - 1, _BEGIN]
                _rearrange(out, begin, pos, names, members[first:count])
            count = first
        out[pos] = closing
        at, pos, depth = at + 1, pos + 1, depth - 1
    return _behind_space(buf, at, end), pos, depth, count


@njit(cache=True, nogil=True, error_model="numpy")
def _copy(buf: Bytes, at: Int, end: Int, out: Bytes, pos: Int) -> Int:
    """Write buf[at:end]; the place behind it."""
    for k in range(end - at):
        out[pos + k] = buf[at + k]
    return pos + end - at


@njit(cache=True, nogil=True, error_model="numpy")
def _behind_space(buf: Bytes, at: Int, end: Int) -> Int:
    while at < end and (buf[at] in (_SPACE, _TAB, _LINE, _RETURN)):
        at += 1
    return at


@njit(cache=True, nogil=True, error_model="numpy")
def _string(buf: Bytes, at: Int, end: Int) -> Int:
    """The place behind the string that begins at `at`, or _BAD."""
    if at >= end or buf[at] != _QUOTE:
        return _BAD
    at += 1
    while at < end:
        byte = buf[at]
        if byte == _QUOTE:
            return at + 1
        if byte < _SPACE:
            return _BAD
        if byte == _BACKSLASH:
            width = _escape(buf, at, end)
        else:
            width = np.int64(1) if byte < 0x80 else np.int64(utf8_width(buf, at, end))
        if width == 0:
            return _BAD
        at += width
    return _BAD


@njit(cache=True, nogil=True, error_model="numpy")
def _escape(buf: Bytes, at: Int, end: Int) -> Int:
    """The length of the escape at `at`: those that MySQL and vtgate write; 0 for others."""
    if at + 1 >= end:
        return np.int64(0)
    letter = buf[at + 1]
    if letter in (_QUOTE, _BACKSLASH) or _control(letter) > 0:
        return np.int64(2)
    if letter != _U or end - at < 6 or buf[at + 2] != _ZERO or buf[at + 3] != _ZERO:
        return np.int64(0)
    low = _hex(buf[at + 5])
    return np.int64(6) if buf[at + 4] in (_ZERO, _ZERO + 1) and low >= 0 else np.int64(0)


@njit(cache=True, nogil=True, error_model="numpy")
def _control(letter: Int) -> Int:
    """The control character of an escape's letter; 0 if it is none's."""
    if letter == 98:  # b
        return 8
    if letter == 102:  # f
        return 12
    if letter == 110:  # n
        return _LINE
    if letter == 114:  # r
        return _RETURN
    return _TAB if letter == 116 else 0  # t


@njit(cache=True, nogil=True, error_model="numpy")
def _hex(digit: Int) -> Int:
    if _ZERO <= digit <= _NINE:
        return np.int64(digit) - _ZERO
    lower = np.int64(digit) | 32
    return lower - 87 if 97 <= lower <= 102 else np.int64(-1)


@njit(cache=True, nogil=True, error_model="numpy")
def _unescape(buf: Bytes, at: Int, end: Int, names: Bytes, pos: Int) -> Int:
    """Write what a sound string means behind the other names; its end."""
    while at < end:
        if buf[at] != _BACKSLASH:
            names[pos] = buf[at]
            at += 1
        elif buf[at + 1] == _U:
            names[pos] = 16 * _hex(buf[at + 4]) + _hex(buf[at + 5])
            at += 6
        else:
            control = _control(buf[at + 1])
            names[pos] = control if control > 0 else np.int64(buf[at + 1])
            at += 2
        pos += 1
    return pos


@njit(cache=True, nogil=True, error_model="numpy")
def _word(buf: Bytes, at: Int, end: Int) -> Int:
    """The place behind true, false or null at `at`, or _BAD."""
    if buf[at] == 116:  # t
        return _matches(buf, at, end, b"true")
    if buf[at] == 102:  # f
        return _matches(buf, at, end, b"false")
    return _matches(buf, at, end, b"null")


@njit(cache=True, nogil=True, error_model="numpy")
def _matches(buf: Bytes, at: Int, end: Int, word: bytes) -> Int:
    if end - at < len(word):
        return _BAD
    for k in range(len(word)):
        if buf[at + k] != word[k]:
            return _BAD
    return at + len(word)


@njit(cache=True, nogil=True, error_model="numpy")
def _number(buf: Bytes, at: Int, end: Int) -> Int:
    """The place behind the number at `at`, which may lack its digits before the point, or _BAD."""
    if buf[at] == _DASH:
        at += 1
    whole = _digits(buf, at, end)
    behind = whole
    if whole < end and buf[whole] == _POINT:
        part = _digits(buf, whole + 1, end)
        behind = part if part > whole + 1 else whole
    if behind == at:
        return _BAD
    if behind < end and buf[behind] in (_E, _BIG_E):
        power = behind + 1
        if power < end and buf[power] in (_PLUS, _DASH):
            power += 1
        last = _digits(buf, power, end)
        if last > power:
            return last
    return behind


@njit(cache=True, nogil=True, error_model="numpy")
def _digits(buf: Bytes, at: Int, end: Int) -> Int:
    while at < end and _ZERO <= buf[at] <= _NINE:
        at += 1
    return at


@njit(cache=True, nogil=True, error_model="numpy")
def _before(names: Bytes, members: Longs, one: Int, other: Int) -> bool:
    """Whether MySQL has one member before another: by their names' lengths, then their bytes."""
    a, b = members[one, _NAME], members[other, _NAME]
    size, width = members[one, _NAME_END] - a, members[other, _NAME_END] - b
    if size != width:
        return bool(size < width)
    for k in range(size):
        if names[a + k] != names[b + k]:
            return bool(names[a + k] < names[b + k])
    return False


@njit(cache=True, nogil=True, error_model="numpy")
def _rearrange(out: Bytes, begin: Int, end: Int, names: Bytes, members: Longs) -> None:
    """Write an object's members, which lie in out[begin:end], in MySQL's order."""
    old = out[begin:end].copy()
    pos = begin
    for nth, place in enumerate(_order(names, members)):
        if nth > 0:
            out[pos], out[pos + 1] = _COMMA, _SPACE
            pos += 2
        first, last = members[place, _TEXT] - begin, members[place, _TEXT_END] - begin
        pos = _copy(old, first, last, out, pos)


@njit(cache=True, nogil=True, error_model="numpy")
def _order(names: Bytes, members: Longs) -> Longs:
    """The members' numbers in MySQL's order: a merge sort from below, so none is ever slow."""
    count = len(members)
    order = np.arange(count)
    other = np.empty_like(order)
    width = 1
    while width < count:
        for low in range(0, count, 2 * width):
            middle, high = min(low + width, count), min(low + 2 * width, count)
            left, right = low, middle
            for k in range(low, high):
                if right == high or (
                    left < middle and not _before(names, members, order[right], order[left])
                ):
                    other[k] = order[left]
                    left += 1
                else:
                    other[k] = order[right]
                    right += 1
        order, other = other, order
        width *= 2
    return order
