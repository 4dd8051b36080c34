"""Character sets in which two values are one text only if they are the same bytes.

Lives here: their names. Does not live here: how a character set is read, and which of a text's
forms counts in all others (`wire.decode.charsets`).

Measured on MySQL 9.7 and MariaDB 10.11, over all that a column stores
(tests/integration/test_charsets_oracle.py): each text that a SELECT over a connection in utf8mb4
shows comes from one sequence of bytes. ucs2 is not among them: MySQL ends the text at a lone
surrogate.
"""

from __future__ import annotations

from typing import Final

ONE_TO_ONE: Final = frozenset(
    {
        *("utf8mb4", "utf8mb3", "utf8", "utf16", "utf16le", "utf32", "binary"),
        *("latin1", "latin2", "latin5", "latin7", "cp850", "cp852", "cp866"),
        *("keybcs2", "koi8r", "koi8u", "macce", "macroman"),
    }
)
