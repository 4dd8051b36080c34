"""The plain twin of `charsets.transcode_column`: the same texts by Python's codecs, slowly."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np

from wire.decode.arrays import Bytes, Longs
from wire.decode.charsets import Transcoder, byte_ranges, character, other_characters
from wire.decode.charsets_data import MULTI_BYTE, SINGLE_BYTE

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
        return "".join(SINGLE_BYTE[how.charset][byte] for byte in value)
    if how.charset in MULTI_BYTE:
        return _multi_byte(value, how.charset)
    try:
        text = value.decode(_CODECS.get(how.charset, "utf-8"))
    except UnicodeDecodeError:
        return None
    beyond = how.charset == "ucs2" and any(ord(each) > 0xFFFF for each in text)
    return None if beyond else text


def _multi_byte(value: bytes, charset: str) -> str | None:
    forms, other = _description(charset)
    codec = MULTI_BYTE[charset].codec
    text = []
    while value:
        for form in forms:
            head = value[: len(form)]
            if len(head) == len(form) and all(b in c for b, c in zip(head, form, strict=True)):
                text.append(chr(character(head, codec, other)))
                value = value[len(form) :]
                break
        else:
            return None
    return "".join(text)


@lru_cache(maxsize=16)
def _description(charset: str) -> tuple[list[list[set[int]]], dict[bytes, int]]:
    data = MULTI_BYTE[charset]
    forms = [[set(byte_ranges(text)) for text in form] for form in data.forms]
    return forms, other_characters(data)
