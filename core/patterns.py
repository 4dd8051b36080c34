"""Which tables of a source are mirrored: name patterns, `!` excludes.

A table is mirrored when a pattern matches it and no pattern with `!` does; the order plays no part.
A list of exclusions only stands for everything else. `*`, `?` and `[abc]` are the wildcards;
letter case matters, as it does in MySQL's table names, but for servers that fold it
(lower_case_table_names 1 or 2).
"""

from __future__ import annotations

import glob
from collections.abc import Collection
from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True, slots=True)
class TablePatterns:
    """The patterns of one source.

    Attributes:
        patterns: as in the config, such as ("*", "!tmp_*").
        folded: whether letter case does not count, as the server has it.
    """

    patterns: tuple[str, ...] = ("*",)
    folded: bool = False

    def matches(self, table: str) -> bool:
        """Whether the table of this name is mirrored.

        >>> TablePatterns(("*", "!tmp_*")).matches("tmp_orders")
        False
        """
        table, patterns = self._fold(table), [self._fold(p) for p in self.patterns]
        wanted = [p for p in patterns if not p.startswith("!")] or ["*"]
        unwanted = [p[1:] for p in patterns if p.startswith("!")]
        return any(fnmatchcase(table, p) for p in wanted) and not any(
            fnmatchcase(table, p) for p in unwanted
        )

    def missing(self, tables: Collection[str]) -> list[str]:
        """The names among the patterns that no table has: what may be misspelt.

        >>> TablePatterns(("ordrs", "log_*", "!tmp")).missing(["orders"])
        ['ordrs']
        """
        names = [p for p in self.patterns if not p.startswith("!") and not {*"*?["} & {*p}]
        known = {self._fold(table) for table in tables}
        return [name for name in names if self._fold(name) not in known]

    def _fold(self, name: str) -> str:
        return name.lower() if self.folded else name


def exclusion(table: str) -> str:
    r"""The pattern that leaves one table out, quoted as YAML takes it.

    >>> print(exclusion("orders"), exclusion("a*\n"), exclusion('"fx\\'))
    "!orders" "!a[*]\x0a" "!\"fx\\"
    """
    escaped = glob.escape(table).replace("${", "[$]{")  # the config puts variables in there
    return f'"!{"".join(map(_in_quotes, escaped))}"'


def _in_quotes(letter: str) -> str:
    """A letter within YAML's double quotes: there it takes none that is not to be seen."""
    if letter in {'"', "\\"}:
        return f"\\{letter}"
    if letter.isprintable():
        return letter
    code = ord(letter)
    if code > 0xFFFF:
        return f"\\U{code:08x}"
    return f"\\u{code:04x}" if code > 0xFF else f"\\x{code:02x}"
