"""Which tables of a source are mirrored: name patterns, `!` excludes.

A table is mirrored when a pattern matches it and no pattern with `!` does; the order plays no part.
A list of exclusions only stands for everything else. `*`, `?` and `[abc]` are the wildcards;
letter case matters, as it does in MySQL's table names.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True, slots=True)
class TablePatterns:
    """The patterns of one source.

    Attributes:
        patterns: as in the config, such as ("*", "!tmp_*").
    """

    patterns: tuple[str, ...] = ("*",)

    def matches(self, table: str) -> bool:
        """Whether the table of this name is mirrored.

        >>> TablePatterns(("*", "!tmp_*")).matches("tmp_orders")
        False
        """
        wanted = [p for p in self.patterns if not p.startswith("!")] or ["*"]
        unwanted = [p[1:] for p in self.patterns if p.startswith("!")]
        return any(fnmatchcase(table, p) for p in wanted) and not any(
            fnmatchcase(table, p) for p in unwanted
        )

    def missing(self, tables: Collection[str]) -> list[str]:
        """The names among the patterns that no table has: what may be misspelt.

        >>> TablePatterns(("ordrs", "log_*", "!tmp")).missing(["orders"])
        ['ordrs']
        """
        names = [p for p in self.patterns if not p.startswith("!") and not {*"*?["} & {*p}]
        return [name for name in names if name not in tables]
