"""The text of a statement in pieces, and its disguises.

Lives here: what a session's mode means for quoting (`Dialect`), a statement as tokens and blanks,
remarks put between tokens, keywords in other letter cases. Does not live here: what statements say
(`ddl`, `dml`), which session they run in (`steps`).

Invariant: without its disguises a statement says the same, so the shrinker may take them off.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, replace
from typing import Final, Literal

Flavor = Literal["mariadb", "mysql"]

_PLAIN: Final = re.compile(r"[a-z_][a-z0-9_]*\Z")
_RESERVED: Final = frozenset(
    {
        "select",
        "order",
        "key",
        "table",
        "group",
        "rows",
        "from",
        "set",
        "to",
        "rename",
        "default",
        "drop",
    }
)


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a session wants its text.

    Attributes:
        flavor: the server.
        ansi: "names" are names (ANSI_QUOTES).
        backslash: a backslash escapes in strings; not under NO_BACKSLASH_ESCAPES.
    """

    flavor: Flavor
    ansi: bool = False
    backslash: bool = True

    @property
    def mariadb(self) -> bool:
        """Whether it is a MariaDB."""
        return self.flavor == "mariadb"

    def name(self, name: str, rng: random.Random) -> str:
        """A name, quoted as one may."""
        if _PLAIN.match(name) and name not in _RESERVED and rng.random() < 0.6:
            return name
        if self.ansi and rng.random() < 0.7:
            return '"' + name.replace('"', '""') + '"'
        return "`" + name.replace("`", "``") + "`"

    def string(self, text: str, rng: random.Random) -> str:
        """A string, quoted as one may."""
        if self.backslash:
            text = text.replace("\\", "\\\\")
            if rng.random() < 0.3:
                text = text.replace("\n", "\\n")
        if not self.ansi and rng.random() < 0.2:
            return '"' + text.replace('"', '""') + '"'
        if self.backslash and rng.random() < 0.3:
            return "'" + text.replace("'", "\\'") + "'"
        return "'" + text.replace("'", "''") + "'"


@dataclass(frozen=True, slots=True)
class Piece:
    """A bit of a statement.

    Attributes:
        text: as sent.
        plain: what it is without its disguise; a remark is a blank.
    """

    text: str
    plain: str

    @property
    def disguised(self) -> bool:
        """Whether it can be made plainer."""
        return self.text != self.plain


@dataclass(frozen=True, slots=True)
class Sql:
    """One statement."""

    pieces: tuple[Piece, ...]

    @classmethod
    def of(cls, text: str) -> Sql:
        """Undisguised, as one piece."""
        return cls((Piece(text, text),))

    @property
    def text(self) -> str:
        """As sent."""
        return "".join(piece.text for piece in self.pieces)

    @property
    def plain(self) -> str:
        """Without its disguises."""
        return "".join(piece.plain for piece in self.pieces)

    def disguises(self) -> tuple[int, ...]:
        """Which pieces are disguised."""
        return tuple(n for n, piece in enumerate(self.pieces) if piece.disguised)

    def without(self, numbers: frozenset[int]) -> Sql:
        """With some pieces made plain."""
        return Sql(
            tuple(
                replace(piece, text=piece.plain) if number in numbers else piece
                for number, piece in enumerate(self.pieces)
            )
        )


def tokens(text: str, dialect: Dialect) -> list[str]:
    """Tokens and blanks in their order; what belongs together without a blank stays together."""
    single = r"'(?:[^'\\]|''|\\.)*'" if dialect.backslash else r"'(?:[^']|'')*'"
    double = r'"(?:[^"\\]|""|\\.)*"' if dialect.backslash else r'"(?:[^"]|"")*"'
    if dialect.ansi:
        double = r'"(?:[^"]|"")*"'
    pattern = re.compile(
        rf"(?:\b[A-Za-z_]\w*)?{single}|{double}|`(?:[^`]|``)*`"
        r"|@?@?[\w$]+(?:\.[\w$]+)*\(?|\s+|[<>=!:|&]+|.",
        re.DOTALL,
    )
    return pattern.findall(text)


_REMARKS: Final = (
    "/* x */",
    "/**/",
    "/* it's */",
    '/* say "no" */',
    "/* `q */",
    "/* , RENAME TO y */",
    "/* ; DROP TABLE a; */",
    "/*\n * over\n * lines\n */",
    "-- it's\n",
    "-- \n",
    "--\t/* \n",
    "# `x\n",
    "#\n",
    '# ", DROP COLUMN v\n',
    "/*+ hint */",
    "/*!*/",
    "/*!99999 nobody, runs this */",
    "/*M!999999 nor that */",
)
_VERSIONS: Final = {
    "mariadb": ("/*!", "/*!50000", "/*!100100 ", "/*M!", "/*M!100100"),
    "mysql": ("/*!", "/*!50000", "/*!80000", "/*!080000 "),
}
_BLANKS: Final = ("\t", "\n", "  ", "\r\n", "\n\n  ")


def disguised(text: str, dialect: Dialect, rng: random.Random, *, much: float) -> Sql:
    """A statement with remarks, blanks and letter cases put in.

    Args:
        text: as the grammar made it.
        dialect: of its session.
        rng: chooses.
        much: for each token, how likely something is done to it.
    """
    pieces: list[Piece] = []
    if much and rng.random() < 0.3:
        pieces.append(_remark(rng))
    for token in tokens(text, dialect):
        if rng.random() >= much:
            pieces.append(Piece(token, token))
        elif token.isspace():
            what = rng.random()
            pieces.append(_remark(rng) if what < 0.7 else Piece(rng.choice(_BLANKS), token))
        elif token.isupper() and token.isalpha():
            pieces.append(Piece(_word(token, dialect, rng), token))
        elif token in {",", ")", "=", "("} and token != ")":
            pieces += [_remark(rng, glue=True), Piece(token, token)]
        else:
            pieces.append(Piece(token, token))
    if much and rng.random() < 0.3:
        pieces.append(_remark(rng))
    return Sql(tuple(pieces))


def _remark(rng: random.Random, *, glue: bool = False) -> Piece:
    text = rng.choice(_REMARKS)
    if text.startswith("--") or rng.random() < 0.5:
        text = f" {text}"
    if rng.random() < 0.5:
        text = f"{text} "
    if not glue and text == "/*!*/":
        text = f"{text} "
    return Piece(text, "" if glue else " ")


def _word(word: str, dialect: Dialect, rng: random.Random) -> str:
    if rng.random() < 0.5:
        return rng.choice((word.lower(), word.capitalize(), word.swapcase()))
    opening = rng.choice(_VERSIONS[dialect.flavor])
    return f"{opening} {word} */"
