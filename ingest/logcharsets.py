"""Text of the servers' character sets by Python's own codecs: a second way from bytes to text.

Lives here: `second_text`. Does not live here: our own tables (`wire.decode.charsets`), with which a
test compares these codecs byte for byte.

Invariant: text comes out as the servers print it, or not at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_SAME: Final = b""
# Character set (as the servers or mysql-replication call it) -> Python's codec, and the bytes that
# it reads otherwise than the servers do.
_CODECS: Final[Mapping[str, tuple[str, bytes]]] = {
    **dict.fromkeys(("utf8", "utf8mb3", "utf8mb4"), ("utf-8", _SAME)),
    **dict.fromkeys(("ucs2", "utf16"), ("utf-16-be", _SAME)),
    "utf16le": ("utf-16-le", _SAME),
    "utf32": ("utf-32-be", _SAME),
    "ascii": ("ascii", _SAME),
    **dict.fromkeys(("latin1", "cp1252"), ("cp1252", _SAME)),
    **{name: (name, _SAME) for name in ("cp1250", "cp1251", "cp1257", "cp850", "cp852")},
    "cp1256": ("cp1256", b"\x8a\x8f\x98\x9a\x9f\xaa\xc0\xff"),
    "cp866": ("cp866", b"\xfc\xfd"),
    **dict.fromkeys(("koi8r", "koi8_r"), ("koi8_r", _SAME)),
    **dict.fromkeys(("koi8u", "koi8_u"), ("koi8_u", b"\x95")),
    "latin2": ("iso8859_2", _SAME),
    "latin5": ("iso8859_9", _SAME),
    "latin7": ("iso8859_13", _SAME),
    "greek": ("iso8859_7", b"\xa1\xa2\xa4\xa5\xaa"),
    "hebrew": ("iso8859_8", b"\xaf"),
    "macroman": ("mac_roman", _SAME),
    "macce": ("mac_latin2", _SAME),
    "hp8": ("hp_roman8", _SAME),
    "tis620": ("tis_620", _SAME),
    "gbk": ("gbk", _SAME),
    "gb2312": ("gb2312", _SAME),
    "euckr": ("cp949", _SAME),
}
# Of these Python has no codec, or one that differs in characters of several bytes; plain ASCII
# means the same in them.
_ASCII: Final = frozenset(
    {"armscii8", "big5", "cp932", "dec8", "eucjpms", "gb18030", "geostd8", "keybcs2", "sjis"}
    | {"ujis", "binary"}
)
# Bytes that Microsoft's table leaves empty, and the servers take for what latin1 has there.
_HOLES: Final = frozenset(b"\x81\x8d\x8f\x90\x9d")


def second_text(value: bytes, charset: str) -> str | None:
    """The text of some bytes; None where that cannot be said."""
    known = _CODECS.get(charset)
    if known is None:
        return str(value, "ascii") if charset in _ASCII and value.isascii() else None
    codec, odd = known
    if odd and set(odd).intersection(value):
        return None
    try:
        return str(value, codec)
    except UnicodeDecodeError:
        if codec != "cp1252":
            return None
        return "".join(chr(b) if b in _HOLES else bytes([b]).decode(codec) for b in value)
