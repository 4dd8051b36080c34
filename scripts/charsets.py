"""Measure the servers' character sets and write wire/decode/charsets_data.py.

    .venv/bin/python -m scripts.charsets

For every character set, every byte sequence that a column can store is put into a column on both
servers and read back with CONVERT(... USING utf8mb4). Single-byte sets become tables of 256
characters. Multi-byte sets become the forms of their sequences, the name of the Python codec that
agrees best, and the sequences where the servers disagree with it.

A sequence that is stored but has no character is "?" in what the servers print, and here.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from lab.servers import MariadbServer, MysqlServer, Server
from ratchet.core.errors import BugError

TARGET: Final = Path(__file__).parents[1] / "wire" / "decode" / "charsets_data.py"

# All others are Unicode's own forms, which are written in code: utf8, ucs2, utf16, utf32.
CODECS: Final = {
    "big5": "big5",
    "cp932": "cp932",
    "eucjpms": "euc_jp",
    "euckr": "cp949",
    "gb18030": "gb18030",
    "gb2312": "gb2312",
    "gbk": "gbk",
    "sjis": "shift_jis",
    "ujis": "euc_jp",
}
UNICODE: Final = {"utf8mb3", "utf8mb4", "ucs2", "utf16", "utf16le", "utf32", "binary"}
TRIPLE_LEAD: Final = 0x8F  # of ujis and eucjpms

Form = tuple[tuple[int, ...], ...]


class Measured:
    """What one character set of one server does: sequence -> the text it prints."""

    def __init__(self, server: Server, charset: str) -> None:
        self.charset = charset
        with server.connect() as connection, connection.cursor() as self.cursor:
            self.cursor.execute("SET sql_mode = ''")
            self.cursor.execute("DROP DATABASE IF EXISTS charsets")
            self.cursor.execute("CREATE DATABASE charsets")
            self.cursor.execute("USE charsets")
            self.cursor.execute(
                f"CREATE TABLE t (b VARBINARY(4), v VARCHAR(4) CHARACTER SET {charset})"
            )
            self.singles = self._try(bytes([n]) for n in range(256))
            first = [n for n in range(256) if bytes([n]) not in self.singles]
            multi = charset in CODECS
            self.pairs = self._try(_products(first, range(256))) if multi else {}
            self.triples: dict[bytes, str] = {}
            if charset in {"ujis", "eucjpms"}:
                self.triples = self._try(_products([TRIPLE_LEAD], range(256), range(256)))
                # MySQL lets this into columns and prints two question marks; MariaDB refuses it.
                self.pairs.pop(b"\x8e\xa0", None)
            self.quads: dict[bytes, str] = {}
            if charset == "gb18030":
                digits = range(0x2F, 0x3B)
                for lead in first:
                    self.quads |= self._try(_products([lead], digits, range(0x80, 256), digits))

    def _try(self, sequences: Iterable[bytes]) -> dict[bytes, str]:
        self.cursor.execute("TRUNCATE t")
        batch: list[str] = []
        for sequence in sequences:
            batch.append(f"(x'{sequence.hex()}',x'{sequence.hex()}')")
            if len(batch) == 20_000:
                self.cursor.execute(f"INSERT IGNORE INTO t VALUES {','.join(batch)}")
                batch.clear()
        if batch:
            self.cursor.execute(f"INSERT IGNORE INTO t VALUES {','.join(batch)}")
        self.cursor.execute("SELECT b, CONVERT(v USING utf8mb4) FROM t WHERE HEX(v) = HEX(b)")
        return dict(self.cursor.fetchall())


def _products(*ranges: Iterable[int]) -> Iterator[bytes]:
    if not ranges:
        yield b""
        return
    rest = [list(values) for values in ranges[1:]]
    for first in ranges[0]:
        for tail in _products(*rest):
            yield bytes([first]) + tail


def form_of(sequences: Iterable[bytes]) -> list[Form]:
    """The sequences as products of byte ranges; fails if they are not."""
    by_lead: dict[int, set[bytes]] = {}
    for sequence in sequences:
        by_lead.setdefault(sequence[0], set()).add(sequence[1:])
    leads_by_tails: dict[frozenset[bytes], list[int]] = {}
    for lead, tails in by_lead.items():
        leads_by_tails.setdefault(frozenset(tails), []).append(lead)
    forms: list[Form] = []
    for group, leads in leads_by_tails.items():
        columns = [sorted(set(column)) for column in zip(*group, strict=True)]
        _check(len(group) == _size(columns), "the tails are a product of ranges")
        forms.append((tuple(sorted(leads)), *map(tuple, columns)))
    return sorted(forms)


def _size(columns: Iterable[Iterable[int]]) -> int:
    size = 1
    for column in columns:
        size *= len(list(column))
    return size


def ranges(values: tuple[int, ...]) -> str:
    """Bytes as "40-7e 80-fe"."""
    parts = []
    start = values[0]
    for this, after in zip(values, (*values[1:], 999), strict=True):
        if after != this + 1:
            parts.append(f"{start:02x}-{this:02x}")
            start = after
    return " ".join(parts)


def differences(charset: str, measured: dict[bytes, str]) -> list[tuple[str, str]]:
    """What the codec reads otherwise: first sequence, texts of it and of those that follow it."""
    found: list[tuple[bytes, str]] = []
    for sequence, text in sorted(measured.items()):
        try:
            known = sequence.decode(CODECS[charset])
        except UnicodeDecodeError:
            known = "?"
        if known == text:
            continue
        _check(len(text) == 1, f"{charset} {sequence.hex()} is one character")
        if found:
            first, texts = found[-1]
            if int.from_bytes(first) + len(texts) == int.from_bytes(sequence):
                found[-1] = (first, texts + text)
                continue
        found.append((sequence, text))
    return [(first.hex(), texts) for first, texts in found]


def is_run(texts: str) -> bool:
    """Whether the code points rise one by one, as in the areas for private use."""
    return len(texts) >= 8 and all(ord(text) == ord(texts[0]) + n for n, text in enumerate(texts))


def literal(text: str, indent: int) -> str:
    """A string literal in ASCII, broken into lines."""
    cells = [_cell(character) for character in text]
    lines = textwrap.wrap(" ".join(cells), 92 - indent) or [""]
    return ("\n" + " " * indent).join(f'"{line.replace(" ", "")}"' for line in lines)


def _cell(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    if " " < character <= "~":
        return character
    code = ord(character)
    return (
        f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}"
    )


def measure(charset: str, servers: Iterable[Server]) -> Measured:
    """The character set, the same on all servers that have it."""
    results = []
    for server in servers:
        known = server.execute(
            "SELECT 1 FROM information_schema.character_sets WHERE character_set_name = %s",
            [charset],
        )
        if known:
            results.append(Measured(server, charset))
    first = results[0]
    for other in results[1:]:
        for name in ("singles", "pairs", "triples", "quads"):
            ours, theirs = getattr(first, name), getattr(other, name)
            if charset == "ascii":  # only MariaDB stores what is above 7f, and prints "?"
                ours |= theirs
            _check(ours == theirs, f"both servers have the same {name} in {charset}")
    return first


def single_byte(measured: Measured) -> str:
    """The dictionary entry of a single-byte set."""
    _check(len(measured.singles) == 256, f"{measured.charset} has 256 characters")
    text = "".join(measured.singles[bytes([n])] for n in range(256))
    _check(len(text) == 256, f"each byte of {measured.charset} is one character")
    if text[:128] == bytes(range(128)).decode():
        body = literal(text[128:], 8)
        return f'    "{measured.charset}": ASCII\n    + (\n        {body}\n    ),\n'
    return f'    "{measured.charset}": (\n        {literal(text, 8)}\n    ),\n'


def multi_byte(measured: Measured) -> str:
    """The dictionary entry of a multi-byte set."""
    forms: list[Form] = []
    everything: dict[bytes, str] = {}
    for part in (measured.singles, measured.pairs, measured.triples, measured.quads):
        forms += form_of(part)
        everything |= part
    lines = [
        f'    "{measured.charset}": MultiByte(',
        f'        codec="{CODECS[measured.charset]}",',
    ]
    lines.append("        forms=(")
    for form in forms:
        inside = ", ".join(f'"{ranges(column)}"' for column in form)
        lines.append(f"            ({inside}{',' if len(form) == 1 else ''}),")
    found = differences(measured.charset, everything)
    lines += ["        ),", "        runs={"]
    for first, texts in found:
        if is_run(texts):
            lines.append(f'            "{first}": ({len(texts)}, 0x{ord(texts[0]):04x}),')
    lines += ["        },", "        differences={"]
    for first, texts in found:
        if not is_run(texts):
            body = literal(texts, 16)
            if "\n" in body:
                body = f"(\n                {body}\n            )"
            lines.append(f'            "{first}": {body},')
    return "\n".join([*lines, "        },", "    ),", ""])


def _check(holds: object, what: str) -> None:
    if not holds:
        raise BugError(f"not so: {what}", operation="measure the character sets")


HEAD: Final = '''"""The servers' character sets, measured; written by scripts/charsets.py.

Measured on MySQL {mysql} and MariaDB {mariadb}, which agree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiByte:
    """A multi-byte set as a Python codec and what the servers read otherwise.

    Attributes:
        codec: the codec's name; what it does not know is "?".
        forms: the sequences that a column stores: byte ranges for each byte.
        runs: the hex of a sequence -> how many from there on have code points that rise one by
            one, and the first of those.
        differences: the hex of a sequence -> its character and those of the ones that follow it.
    """

    codec: str
    forms: tuple[tuple[str, ...], ...]
    runs: dict[str, tuple[int, int]]
    differences: dict[str, str]


ASCII: Final = bytes(range(128)).decode()

# The 256 characters of each set.
SINGLE_BYTE: Final = {{
'''


def main() -> None:
    """Measure everything and write the module."""
    with (
        MysqlServer(options={"sync-binlog": "0", "skip-log-bin": None}) as mysql,
        MariadbServer() as mariadb,
    ):
        servers: tuple[Server, ...] = (mysql, mariadb)
        rows = mysql.execute("SELECT character_set_name FROM information_schema.character_sets")
        names = sorted({str(row[0]) for row in rows} - UNICODE)
        text = HEAD.format(mysql=mysql.version, mariadb=mariadb.version)
        sets = {name: measure(name, servers) for name in names}
    text += "".join(single_byte(sets[name]) for name in names if name not in CODECS)
    text += "}\n\nMULTI_BYTE: Final = {\n"
    text += "".join(multi_byte(sets[name]) for name in names if name in CODECS)
    TARGET.write_text(text + "}\n")
    print(f"{len(names)} character sets in {TARGET}")


if __name__ == "__main__":
    main()
