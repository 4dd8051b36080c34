"""JSON as vtgate 24 writes it in VStream's log, back to the text that MySQL itself prints.

vtgate makes its text from MySQL's binary form, and not as MySQL does (measured; docs/vitess.md):
the members of an object stand in the order of their keys' letters (MySQL: by the keys' length, then
by their bytes), a decimal below one has no zero before its point (which is no JSON), and before a
binary value everything is lost, so that the text does not begin with what it ends.

Invariant: what comes out is MySQL's text, or nothing. What vtgate has changed without a trace is
not seen: a TIME inside a document that is negative or longer than a day.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

_PARTS: Final = re.compile(r'\s*([{}\[\],:]|"(?:[^"\\]|\\.)*"|[^\s{}\[\],:"]+)', re.DOTALL)
_SCALAR: Final = re.compile(r"(-?)(\d*)((?:\.\d+)?(?:[eE][+-]?\d+)?)")
_WORDS: Final = {"true", "false", "null"}
# Scalars without a point are right as they are.
_MAY_DIFFER: Final = r"[{}\[\].]"


class _BrokenError(Exception):
    """The text is no JSON, even with vtgate's numbers."""


def mysql_texts(texts: pa.Array) -> tuple[pa.Array, int | None]:
    """MySQL's texts of some documents.

    Args:
        texts: strings, as they came.

    Returns:
        The texts, and the place of the first one that vtgate has broken; None if there is none.
    """
    suspects = pc.match_substring_regex(texts, _MAY_DIFFER)
    if not pc.any(suspects).as_py():
        return texts, None
    found = texts.to_pylist()
    for place in pc.indices_nonzero(suspects).to_pylist():
        text = mysql_text(found[place])
        if text is None:
            return texts, place
        found[place] = text
    return pa.array(found, texts.type), None


def mysql_text(text: str) -> str | None:
    """MySQL's text of a document; None if vtgate has broken it.

    >>> mysql_text('{"city": 2, "f": -.50, "zip": [1,.5]}')
    '{"f": -0.50, "zip": [1, 0.5], "city": 2}'
    >>> mysql_text('"base64:type15:AP8="}')
    """
    parts = _parts(text)
    try:
        value = _value(next(parts, ""), parts)
        return value if next(parts, None) is None else None
    except _BrokenError:
        return None


def _parts(text: str) -> Iterator[str]:
    at = 0
    while at < len(text):
        match = _PARTS.match(text, at)
        if match is None:
            if text[at:].strip():
                raise _BrokenError
            return
        yield match[1]
        at = match.end()


def _value(part: str, parts: Iterator[str]) -> str:
    if not part:
        raise _BrokenError
    if part == "{":
        members = sorted(_members(parts))
        return "{" + ", ".join(f"{name}: {value}" for _, _, name, value in members) + "}"
    if part == "[":
        return "[" + ", ".join(_value(one, parts) for one in _elements(parts, "]")) + "]"
    if part[0] == '"' or part in _WORDS:
        return part
    number = _SCALAR.fullmatch(part)
    if number is None or not (number[2] or number[3].startswith(".")):
        raise _BrokenError
    return f"{number[1]}{number[2] or '0'}{number[3]}"


def _members(parts: Iterator[str]) -> Iterator[tuple[int, bytes, str, str]]:
    """Length and bytes of each member's name, which MySQL sorts by; the name; the value."""
    for part in _elements(parts, "}"):
        if not part.startswith('"') or next(parts, "") != ":":
            raise _BrokenError
        name = part[1:-1] if "\\" not in part else str(json.loads(part))
        raw = name.encode("utf-8", "surrogatepass")
        yield len(raw), raw, part, _value(next(parts, ""), parts)


def _elements(parts: Iterator[str], end: str) -> Iterator[str]:
    """What each element of a container begins with; the rest of it is taken by the caller."""
    part = next(parts, "")
    if part == end:
        return
    while part:
        yield part
        part = next(parts, "")
        if part == end:
            return
        if part != ",":
            break
        part = next(parts, "")
    raise _BrokenError
