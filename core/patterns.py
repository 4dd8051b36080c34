"""Which tables of a source are mirrored: name patterns, `!` excludes.

A table is mirrored when a pattern matches it and no pattern with `!` does; the order plays no part.
A list of exclusions only stands for everything else. `*`, `?` and `[abc]` are the wildcards;
letter case matters, as it does in MySQL's table names, but for servers that fold it
(lower_case_table_names 1 or 2).

As a shell's `*` takes no hidden files, a pattern takes the helper tables of schema change tools
only if it begins with `_` itself: such a table is a copy of another one, while the tool works. The
changes of a copy may be captured all the same: when it is swapped in, they are the new table.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Collection
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

# gh-ost names its tables _T_gho, _T_ghc, _T_ghr, _T_del; pt-online-schema-change and spirit _T_new,
# _T_old, _T_chkpnt; Vitess's Online DDL _vt_...
_OF_TOOL: Final = re.compile(r"_vt_.+|_.+_(?:gho|ghc|ghr|del|new|old|chkpnt)", re.DOTALL)
# Those of them that get the rows. pt-online-schema-change puts up to ten _ in front of a name that
# is taken.
_COPY: Final = re.compile(r"(_{1,10})(.+)_(?:gho|new)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class TablePatterns:
    """The patterns of one source.

    Attributes:
        patterns: as in the config, such as ("*", "!tmp_*").
        folded: whether letter case does not count, as the server has it.
        copies: whether the changes of copies that tools make of mirrored tables are captured.
    """

    patterns: tuple[str, ...] = ("*",)
    folded: bool = False
    copies: bool = False

    def matches(self, table: str) -> bool:
        """Whether the table of this name is mirrored.

        >>> TablePatterns(("*", "!tmp_*")).matches("tmp_orders")
        False
        >>> TablePatterns(("*",)).matches("_orders_gho")
        False
        """
        wanted = self._wanted(table)
        return any(p.startswith("_") for p in wanted) if is_of_tool(table) else bool(wanted)

    def names(self, table: str) -> bool:
        """Whether the patterns match a name, a tool's helper table's as any other.

        >>> TablePatterns(("*",)).names("_orders_gho")
        True
        """
        return bool(self._wanted(table))

    def captures(self, table: str) -> bool:
        """Whether the changes of a table get into the change log: it is mirrored, or a copy.

        >>> TablePatterns(("orders",), copies=True).captures("_orders_gho")
        True
        >>> TablePatterns(("orders",), copies=True).captures("_orders_ghc")
        False
        """
        return self.matches(table) or (self.copies and any(map(self.matches, copied(table))))

    def leaves_to_tool(self, table: str) -> bool:
        """Whether a table is not mirrored only because a schema change tool's are named like it.

        >>> TablePatterns(("*", "!_x_old")).leaves_to_tool("_orders_gho")
        True
        """
        return bool(self._wanted(table)) and not self.matches(table)

    def _wanted(self, table: str) -> list[str]:
        """The patterns that match a table; none if one with `!` does."""
        table, patterns = self._fold(table), [self._fold(p) for p in self.patterns]
        wanted = [p for p in patterns if not p.startswith("!")] or ["*"]
        unwanted = [p[1:] for p in patterns if p.startswith("!")]
        if any(fnmatchcase(table, p) for p in unwanted):
            return []
        return [p for p in wanted if fnmatchcase(table, p)]

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


def is_of_tool(table: str) -> bool:
    """Whether schema change tools give such a name to tables of their own.

    >>> [is_of_tool(name) for name in ("_orders_gho", "_vt_hld_x", "orders_old", "_internal")]
    [True, True, False, False]
    """
    return _OF_TOOL.fullmatch(table) is not None


def copied(table: str) -> list[str]:
    """The names of tables that a table may be a tool's copy of; none if it is no copy by its name.

    >>> copied("_orders_gho"), copied("__orders_new"), copied("orders_new")
    (['orders'], ['orders', '_orders'], [])
    """
    found = _COPY.fullmatch(table)
    if found is None:
        return []
    return ["_" * more + found[2] for more in range(len(found[1]))]


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
