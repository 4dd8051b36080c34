"""From chance and the tables of now to the next step: statements of one session, in their disguise.

Lives here: `Step`, `Grammar`, the modes of sessions. Does not live here: the statements themselves
(`dml`, `ddl_tables`, `ddl_alter`, `others`), running them (`driver`).

Invariant: pure. The same random numbers and the same model give the same step.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

from . import ddl_alter, ddl_tables, dml, others
from .draw import KINDS, Draw, Kind
from .model import Model
from .text import Dialect, Flavor, Piece, Sql, disguised

__all__ = ["Grammar", "Step", "ddl_alter", "dml", "others"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What one session does.

    Attributes:
        kind: of which kind.
        setup: statements that put the session into its mode.
        body: what it does then.
        ddl: whether tables may be others behind it.
    """

    kind: str
    setup: tuple[str, ...] = ()
    body: tuple[Sql, ...]
    ddl: bool = True

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {
            "kind": self.kind,
            "setup": list(self.setup),
            "body": [
                [[p.text] if p.text == p.plain else [p.text, p.plain] for p in sql.pieces]
                for sql in self.body
            ],
            "ddl": self.ddl,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Step:
        """Read what `to_json` wrote."""
        body = tuple(
            Sql(tuple(Piece(piece[0], piece[-1]) for piece in pieces)) for pieces in data["body"]
        )
        return cls(kind=data["kind"], setup=tuple(data["setup"]), body=body, ddl=data["ddl"])

    def __str__(self) -> str:
        lines = [*self.setup, *(sql.text for sql in self.body)]
        return "".join(f"{line};\n" for line in lines)


_STRICT: Final = "STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION"
_MODES: Final = (
    "PAD_CHAR_TO_FULL_LENGTH",
    "ALLOW_INVALID_DATES",
    "NO_AUTO_VALUE_ON_ZERO",
    "PIPES_AS_CONCAT",
    "IGNORE_SPACE",
    "REAL_AS_FLOAT",
    "NO_UNSIGNED_SUBTRACTION",
    "HIGH_NOT_PRECEDENCE",
)


class Grammar:
    """Makes steps.

    Args:
        flavor: the server.
        database: that is mirrored.
        without: kinds (or beginnings of their names) and modes that are left out.
    """

    def __init__(self, flavor: Flavor, database: str, without: Collection[str] = ()) -> None:
        self._flavor, self._database = flavor, database
        self._without = tuple(without)
        self._kinds: list[Kind] = [
            kind
            for kind in KINDS.values()
            if flavor in kind.flavors and not kind.name.startswith(self._without or ("\0",))
        ]
        self._weights = [kind.weight for kind in self._kinds]

    def beginning(self, rng: random.Random) -> list[Step]:
        """The tables that a run begins with, and some rows."""
        draw = Draw(rng, Dialect(self._flavor), Model(), self._database)
        rows = [
            f"INSERT IGNORE INTO {table} VALUES {', '.join(row.format(n, n % 5) for n in range(9))}"
            for table, row in (
                ("orders", "({0}, 'v{0}', {1}, 'b')"),
                ("items", "({0}, {1}, 'i{0}')"),
                ("child", "({0}, {1}, 'a,c')"),
                ("logs", "({0}, '2024-01-01 00:00:00.123456', 'b{0}', {1})"),
            )
        ]
        texts = [*ddl_tables.first_tables(draw), *rows]
        return [Step(kind="first", body=(Sql.of(text),)) for text in texts]

    def step(self, rng: random.Random, model: Model) -> Step:
        """The next step.

        Args:
            rng: chance; moved on.
            model: the tables as they are.
        """
        setup, dialect = self._session(rng)
        draw = Draw(rng, dialect, model, self._database)
        while True:
            kind = rng.choices(self._kinds, self._weights)[0]
            made = kind.make(draw)
            if made:
                break
        texts: Sequence[str] = [made] if isinstance(made, str) else list(made)
        much = 0.0 if "disguise" in self._without else rng.choice((0.0, 0.0, 0.0, 0.1, 0.3))
        wrap = self._flavor == "mariadb" and "set_statement" not in self._without
        body = [self._wrapped(text, rng) if wrap else text for text in texts]
        return Step(
            kind=kind.name,
            setup=setup,
            body=tuple(disguised(text, dialect, rng, much=much) for text in body),
            ddl=kind.ddl or len(texts) > 1,
        )

    def _session(self, rng: random.Random) -> tuple[tuple[str, ...], Dialect]:
        """Statements that set a session's modes, and what they mean for texts."""
        setup, ansi, backslash = [], False, True
        if rng.random() < 0.35:
            modes = [_STRICT] if rng.random() < 0.45 else []
            ansi, backslash = rng.random() < 0.3, rng.random() > 0.25
            modes += ["ANSI_QUOTES"] if ansi else []
            modes += [] if backslash else ["NO_BACKSLASH_ESCAPES"]
            modes += [rng.choice(_MODES)] if rng.random() < 0.3 else []
            setup.append(f"SET SESSION sql_mode = '{','.join(modes)}'")
        extras = [
            ("SET SESSION foreign_key_checks = 0", 0.06),
            ("SET SESSION unique_checks = 0", 0.02),
            ("SET SESSION time_zone = '+05:30'", 0.05),
            ("SET SESSION lc_time_names = 'de_DE'", 0.02),
            ("SET SESSION explicit_defaults_for_timestamp = 0", 0.05),
        ]
        if self._flavor == "mariadb":
            extras += [
                ("SET SESSION binlog_alter_two_phase = 1", 0.08),
                ("SET SESSION alter_algorithm = 'COPY'", 0.02),
                ("SET SESSION check_constraint_checks = 0", 0.02),
                ("SET SESSION system_versioning_alter_history = KEEP", 0.02),
            ]
        else:
            extras += [
                ("SET SESSION binlog_transaction_compression = ON", 0.05),
                ("SET SESSION sql_generate_invisible_primary_key = ON", 0.02),
                ("SET SESSION binlog_rows_query_log_events = ON", 0.03),
                ("SET SESSION print_identified_with_as_hex = ON", 0.01),
            ]
        for text, chance in extras:
            drawn = rng.random() < chance
            if drawn and not any(word in text for word in self._without):
                setup.append(text)
        return tuple(setup), Dialect(self._flavor, ansi=ansi, backslash=backslash)

    def _wrapped(self, text: str, rng: random.Random) -> str:
        """MariaDB: settings for one statement."""
        if rng.random() > 0.06 or text.startswith(("SET", "USE", "BEGIN", "START", "PREPARE")):
            return text
        setting = rng.choice(
            ("max_statement_time = 60", "lock_wait_timeout=5, sort_buffer_size = 100000",
             "foreign_key_checks = 0", "sql_mode = ''", "binlog_alter_two_phase = 1")
        )  # fmt: skip
        if any(word in setting for word in self._without):
            return text
        return f"SET STATEMENT {setting} FOR {text}"
