"""JSON as vtgate 24 writes it in VStream's log, back to the text that MySQL itself prints.

vtgate makes its text from MySQL's binary form, and not as MySQL does (measured; docs/vitess.md):
the members of an object stand in the order of their keys' letters (MySQL: by the keys' length, then
by their bytes), a decimal below one has no zero before its point (which is no JSON), and before a
binary value everything is lost, so that the text does not begin with what it ends.

Invariant: what comes out is MySQL's text, or the value is bad. What vtgate has changed without a
trace is not seen: a TIME inside a document that is negative or of 32 hours and more.

Nearly all of a text is right as it stands, so the walk writes nothing: it keeps by how much the
output is ahead of the input (`shift`) and up to where the input is copied (`done`). Where the texts
differ what stands before is copied at once. An object whose members came in another order than
MySQL's is written anew when it ends, from a copy of its text.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ratchet.wire.decode.arrays import Bytes, Int, Longs, utf8_width
from ratchet.wire.decode.jsonb import MAX_DEPTH
from ratchet.wire.decode.kernels.walk import GOOD
from ratchet.wire.kernel import kernel

_BAD: Final = -1

_QUOTE, _COMMA, _DASH, _POINT, _COLON, _BACKSLASH = 34, 44, 45, 46, 58, 92
_SPACE, _TAB, _LINE, _RETURN = 32, 9, 10, 13
_ZERO, _NINE, _PLUS = 48, 57, 43
_OPEN_LIST, _CLOSE_LIST, _OPEN, _CLOSE = 91, 93, 123, 125
_E, _BIG_E, _U = 101, 69, 117
_LETTERS: Final = 97  # from here on
_TRUE, _NULL, _FALSE = 0x74727565, 0x6E756C6C, 0x66616C7365

# Fields of a frame: what closes the container; where its text begins, behind the bracket; its first
# member's number; whether its members have come in MySQL's order so far.
_END, _BEGIN, _FIRST, _SORTED = 0, 1, 2, 3
# Fields of a member: where its name lies in the input, behind the quote; how many bytes it means;
# where its text lies in the output.
_NAME, _SIZE, _TEXT, _TEXT_END = 0, 1, 2, 3

# No text is longer than this many times what it is made from: each comma and colon gets a space,
# each point a zero.
_GROWTH: Final = 2
_RUN: Final = 8  # members that are sorted by insertion


@kernel
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
    total = np.int64(0)
    for i in range(rows):
        if offs[i] >= 0:
            if lens[i] < 0 or offs[i] + lens[i] > buf.size:
                return np.empty(0, np.uint8), places, i
            total += lens[i]
    out = np.empty(_GROWTH * total, np.uint8)
    members = np.empty((16, 4), np.int64)
    stack = np.empty((MAX_DEPTH, 4), np.int64)
    pos: Int = np.int64(0)
    for i in range(rows):
        if offs[i] >= 0:
            behind, members = _document(buf, offs[i], offs[i] + lens[i], out, pos, members, stack)
            if behind < 0:
                spaced = _spaced(buf[offs[i] : offs[i] + lens[i]])
                behind, members = _document(spaced, 0, spaced.size, out, pos, members, stack)
            if behind < 0:
                return np.empty(0, np.uint8), np.zeros(rows + 1, np.int64), i
            pos = behind
        places[i + 1] = pos
    return out[:pos], places, GOOD


@kernel
def _document(  # noqa: PLR0915 - a call for each value would cost more than the value
    buf: Bytes, at: Int, end: Int, out: Bytes, pos: Int, members: Longs, stack: Longs
) -> tuple[Int, Longs]:
    """Write one document that is spaced as MySQL spaces; its end or _BAD, and the table of members.

    The table may be a new one. What is called for each value gets few arrays: each that is handed
    over costs as much as ten bytes of text.
    """
    depth = 0
    count: Int = np.int64(0)  # of members whose objects are open
    done: Int = at
    shift: Int = pos - at
    while True:
        if depth > 0 and stack[depth - 1, _END] == _CLOSE:
            behind, size = _string(buf, at, end)
            if behind < 0 or end - behind < 2 or buf[behind] != _COLON or buf[behind + 1] != _SPACE:
                return _BAD, members
            if count == len(members):
                members = _larger(members)
            members[count, _NAME], members[count, _SIZE] = at + 1, size
            members[count, _TEXT] = at + shift
            count += 1
            first = stack[depth - 1, _FIRST]
            if (
                count - 1 > first
                and size <= members[count - 2, _SIZE]
                and _before(buf, members, count - 1, count - 2)
            ):
                stack[depth - 1, _SORTED] = 0
            at = behind + 2
        if at == end:
            return _BAD, members
        opening = buf[at]
        if opening in (_OPEN, _OPEN_LIST):
            closing = opening + 2  # } and ] stand two behind { and [ in ASCII
            at += 1
            if depth == MAX_DEPTH or at == end:
                return _BAD, members
            if buf[at] != closing:
                stack[depth, _END], stack[depth, _BEGIN] = closing, at + shift
                stack[depth, _FIRST], stack[depth, _SORTED] = count, 1
                depth += 1
                continue
            at += 1
        else:
            behind, point = _scalar(buf, at, end)
            if behind < 0:
                return _BAD, members
            if point >= 0:
                done = _copied(buf, done, point, out, shift)
                out[point + shift] = _ZERO
                shift += 1
            at = behind
        # Containers end, or a comma follows.
        while depth > 0:
            if at == end:
                return _BAD, members
            closing = stack[depth - 1, _END]
            if closing == _CLOSE:
                members[count - 1, _TEXT_END] = at + shift
            if buf[at] == _COMMA:
                if end - at < 2 or buf[at + 1] != _SPACE:
                    return _BAD, members
                at += 2
                break
            if buf[at] != closing:
                return _BAD, members
            if closing == _CLOSE:
                first = stack[depth - 1, _FIRST]
                if not stack[depth - 1, _SORTED]:
                    done = _copied(buf, done, at, out, shift)
                    begin = stack[depth - 1, _BEGIN]
                    _rearrange(buf, out, begin, at + shift, members[first:count])
                count = first
            at += 1
            depth -= 1
        if depth == 0:
            _copied(buf, done, at, out, shift)
            return at + shift if at == end else _BAD, members


@kernel
def _spaced(text: Bytes) -> Bytes:
    """A text with MySQL's spaces: one behind each comma and colon. Empty if it is no JSON."""
    out = np.empty(_GROWTH * text.size, np.uint8)
    pos: Int = np.int64(0)
    at: Int = np.int64(0)
    apart = False  # whether a space was left out behind what is no bracket, comma or colon
    while at < text.size:
        byte = text[at]
        if byte in (_SPACE, _TAB, _LINE, _RETURN):
            apart = bool(pos > 0) and not _separates(out[pos - 1])
            at += 1
            continue
        if apart and not _separates(byte):
            return out[:0]
        apart = False
        behind = at + 1 if byte != _QUOTE else _string(text, at, text.size)[0]
        if behind < 0:
            return out[:0]
        out[pos : pos + behind - at] = text[at:behind]
        pos += behind - at
        if byte in (_COMMA, _COLON):
            out[pos] = _SPACE
            pos += 1
        at = behind
    return out[:pos]


@kernel
def _separates(byte: Int) -> bool:
    return byte in (_OPEN, _OPEN_LIST, _CLOSE, _CLOSE_LIST, _COMMA, _COLON, _SPACE)


@kernel
def _larger(members: Longs) -> Longs:
    grown = np.empty((2 * len(members), members.shape[1]), np.int64)
    grown[: len(members)] = members
    return grown


@kernel
def _copied(buf: Bytes, done: Int, at: Int, out: Bytes, shift: Int) -> Int:
    """Copy the input up to `at`; that."""
    out[done + shift : at + shift] = buf[done:at]
    return at


@kernel
def _scalar(buf: Bytes, at: Int, end: Int) -> tuple[Int, Int]:
    """The place behind the string, word or number at `at`, or _BAD.

    And where a number begins with its point, or _BAD where none does.
    """
    if buf[at] == _QUOTE:
        return _string(buf, at, end)[0], _BAD
    if buf[at] >= _LETTERS:
        return _word(buf, at, end), _BAD
    digits = at + 1 if buf[at] == _DASH else at
    behind = _number(buf, digits, end)
    return behind, (digits if behind > 0 and buf[digits] == _POINT else _BAD)


@kernel
def _string(buf: Bytes, at: Int, end: Int) -> tuple[Int, Int]:
    """The place behind the string that begins at `at`, or _BAD; how many bytes it means."""
    if at >= end or buf[at] != _QUOTE:
        return _BAD, 0
    at += 1
    size: Int = np.int64(0)
    while at < end:
        byte = buf[at]
        if byte == _QUOTE:
            return at + 1, size
        if byte < _SPACE:
            return _BAD, 0
        if byte == _BACKSLASH:
            width = _escape(buf, at, end)
            size += 1
        elif byte < 0x80:
            width = np.int64(1)
            size += 1
        else:
            width = np.int64(utf8_width(buf, at, end))
            size += width
        if width == 0:
            return _BAD, 0
        at += width
    return _BAD, 0


@kernel
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


@kernel
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


@kernel
def _hex(digit: Int) -> Int:
    if _ZERO <= digit <= _NINE:
        return np.int64(digit) - _ZERO
    lower = np.int64(digit) | 32
    return lower - 87 if 97 <= lower <= 102 else np.int64(-1)


@kernel
def _word(buf: Bytes, at: Int, end: Int) -> Int:
    """The place behind true, false or null at `at`, or _BAD."""
    letters = np.int64(0)
    for k in range(min(end - at, 5)):
        if buf[at + k] < _LETTERS or buf[at + k] >= _OPEN:
            break
        letters = letters << 8 | np.int64(buf[at + k])
    if letters in (_TRUE, _NULL):
        return at + 4
    return at + 5 if letters == _FALSE else _BAD


@kernel
def _number(buf: Bytes, at: Int, end: Int) -> Int:
    """The place behind the number at `at`, which may lack its digits before the point, or _BAD."""
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


@kernel
def _digits(buf: Bytes, at: Int, end: Int) -> Int:
    while at < end and _ZERO <= buf[at] <= _NINE:
        at += 1
    return at


@kernel
def _meant(buf: Bytes, at: Int) -> tuple[Int, Int]:
    """What a sound string means at `at`, and the place behind that."""
    if buf[at] != _BACKSLASH:
        return np.int64(buf[at]), at + 1
    if buf[at + 1] == _U:
        return 16 * _hex(buf[at + 4]) + _hex(buf[at + 5]), at + 6
    control = _control(buf[at + 1])
    return (np.int64(control) if control > 0 else np.int64(buf[at + 1])), at + 2


@kernel
def _before(buf: Bytes, members: Longs, one: Int, other: Int) -> bool:
    """Whether MySQL has one member before another: by their names' lengths, then their bytes."""
    size, width = members[one, _SIZE], members[other, _SIZE]
    if size != width:
        return bool(size < width)
    a, b = members[one, _NAME], members[other, _NAME]
    for _ in range(size):
        mine, a = _meant(buf, a)
        theirs, b = _meant(buf, b)
        if mine != theirs:
            return bool(mine < theirs)
    return False


@kernel
def _rearrange(buf: Bytes, out: Bytes, begin: Int, end: Int, members: Longs) -> None:
    """Write an object's members, which lie in out[begin:end], in MySQL's order."""
    old = out[begin:end].copy()
    pos = begin
    for nth, place in enumerate(_order(buf, members)):
        if nth > 0:
            out[pos], out[pos + 1] = _COMMA, _SPACE
            pos += 2
        first, last = members[place, _TEXT] - begin, members[place, _TEXT_END] - begin
        out[pos : pos + last - first] = old[first:last]
        pos += last - first


@kernel
def _order(buf: Bytes, members: Longs) -> Longs:
    """The members' numbers in MySQL's order: short runs by insertion, which are merged."""
    count = len(members)
    order = np.arange(count)
    for nth in range(count):
        at, low, chosen = nth, nth - nth % _RUN, order[nth]
        while at > low and _before(buf, members, chosen, order[at - 1]):
            order[at] = order[at - 1]
            at -= 1
        order[at] = chosen
    width = _RUN
    while width < count:
        other = np.empty_like(order)
        for low in range(0, count, 2 * width):
            middle, high = min(low + width, count), min(low + 2 * width, count)
            left, right = low, middle
            for k in range(low, high):
                if right == high or (
                    left < middle and not _before(buf, members, order[right], order[left])
                ):
                    other[k] = order[left]
                    left += 1
                else:
                    other[k] = order[right]
                    right += 1
        order = other
        width *= 2
    return order
