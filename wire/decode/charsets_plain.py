"""The plain twin of `charsets.transcode_column`: the same texts by Python's codecs, slowly."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import product
from typing import Final

import numpy as np

from ratchet.wire.decode.arrays import Bytes, Longs
from ratchet.wire.decode.charsets import (
    MADE,
    NEVER_MADE,
    Transcoder,
    byte_ranges,
    character,
    other_characters,
)
from ratchet.wire.decode.charsets_data import MULTI_BYTE, SINGLE_BYTE

_CODECS: Final = {
    "ucs2": "utf-16-be",
    "utf16": "utf-16-be",
    "utf16le": "utf-16-le",
    "utf32": "utf-32-be",
}


def transcode_column_plain(
    buf: Bytes, offs: Longs, lens: Longs, how: Transcoder
) -> tuple[Bytes, Longs, int]:
    """As `charsets.transcode_column`."""
    texts = []
    for index, (start, size) in enumerate(zip(offs.tolist(), lens.tolist(), strict=True)):
        if start < 0:
            texts.append(b"")
            continue
        inside = size >= 0 and start + size <= buf.size
        text = _text(buf[start : start + size].tobytes(), how) if inside else None
        if text is None:
            return np.empty(0, np.uint8), np.zeros(offs.size + 1, np.int64), index
        texts.append(text.encode())
    offsets = np.zeros(offs.size + 1, np.int64)
    np.cumsum([len(text) for text in texts], out=offsets[1:])
    return np.frombuffer(b"".join(texts), np.uint8), offsets, -1


def _text(value: bytes, how: Transcoder) -> str | None:
    """One value's text; None if it cannot be read."""
    if how.charset in SINGLE_BYTE:
        sequences = [value[at : at + 1] for at in range(len(value))]
        return _joined([(one, SINGLE_BYTE[how.charset][one[0]]) for one in sequences], how)
    if how.charset in MULTI_BYTE:
        found = _multi_byte(value, how.charset)
        return None if found is None else _joined(found, how)
    try:
        text = value.decode(_CODECS.get(how.charset, "utf-8"))
    except UnicodeDecodeError:
        return None
    beyond = how.charset == "ucs2" and any(ord(each) > 0xFFFF for each in text)
    return None if beyond else text


def _joined(found: list[tuple[bytes, str]], how: Transcoder) -> str | None:
    """The text of some sequences; None if another form of it is the one that is read."""
    made = _made(how.charset) if how.exact else {}
    if any(made.get(text, one) != one for one, text in found):
        return None
    return "".join(text for _, text in found)


def _multi_byte(value: bytes, charset: str) -> list[tuple[bytes, str]] | None:
    """Its sequences, each with its character; None if it cannot be read."""
    forms, other = _description(charset)
    codec = MULTI_BYTE[charset].codec
    text: list[tuple[bytes, str]] = []
    while value:
        for form in forms:
            head = value[: len(form)]
            if len(head) == len(form) and all(b in c for b, c in zip(head, form, strict=True)):
                text.append((head, chr(character(head, codec, other))))
                value = value[len(form) :]
                break
        else:
            return None
    return text


@lru_cache(maxsize=16)
def _description(charset: str) -> tuple[list[list[set[int]]], dict[bytes, int]]:
    data = MULTI_BYTE[charset]
    forms = [[set(byte_ranges(text)) for text in form] for form in data.forms]
    return forms, other_characters(data)


@lru_cache(maxsize=32)
def _made(charset: str) -> dict[str, bytes]:
    """Character -> the sequence that the servers convert it to.

    Of those of four bytes, which are too many to be listed, only what has no character is one of
    several: "?".
    """
    if charset in SINGLE_BYTE:
        known = [(bytes([byte]), text) for byte, text in enumerate(SINGLE_BYTE[charset])]
    else:
        forms, other = _description(charset)
        codec = MULTI_BYTE[charset].codec
        known = [
            (sequence, chr(character(sequence, codec, other)))
            for form in forms
            if len(form) < 4
            for sequence in map(bytes, product(*map(sorted, form)))
        ]
    found = {text: sequence for sequence, text in sorted(known, key=_rank(charset), reverse=True)}
    made = MADE.get(charset, {})
    return found | {chr(code): sequence for code, sequence in made.items()}


def _rank(charset: str) -> Callable[[tuple[bytes, str]], tuple[bool, int, bytes]]:
    never = NEVER_MADE.get(charset, ())
    return lambda one: (len(one[0]) > 1 and one[0][0] in never, len(one[0]), one[0])
