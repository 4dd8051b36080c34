"""Names of databases and tables that are written as those of their files: MariaDB's `#mysql50#`.

Behind that prefix a MariaDB takes the name of a file for the name that it belongs to, in statements
and in its log: `#mysql50#m@002dx` is the table m-x (measured on 10.11; not MySQL 9.7, to which it
is a name like any other). Lives here: what such a name stands for. Does not live here: what is done
about it (`core.sql.names`, `ingest.binlog.slots`).

In a file's name `@` and four hex digits are a character; `@` and two others are a letter of a table
that is not known here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

PREFIX: Final = "#mysql50#"  # in these letters, of no other case
_PARTS: Final = re.compile(r"([0-9A-Za-z_$#-]+)|@([0-9a-fA-F]{4})|(@[^@]{2})|(.)", re.DOTALL)


def stands_for(name: str) -> str | None:
    """The name that one stands for: itself, unless it is that of a file; None: it is not known.

    >>> stands_for("orders"), stands_for("#mysql50#m@002dx"), stands_for("#mysql50#@0k")
    ('orders', 'm-x', None)
    """
    if not name.startswith(PREFIX):
        return name
    found = ""
    for plain, code, letter, other in _PARTS.findall(name[len(PREFIX) :]):
        if letter or other:
            return None
        found += plain or chr(int(code, 16))
    return found


def may_stand_for(name: str, known: Iterable[str]) -> list[str]:
    """Which of some names, without regard to case, the name of a file may stand for.

    >>> may_stand_for("#mysql50#b@0k", ["bä", "ba", "c"])
    ['bä']
    """
    pattern = "".join(
        re.escape(plain or chr(int(code, 16))) if plain or code else r"[^\x00-\x7f]+"
        for plain, code, _, _ in _PARTS.findall(name.removeprefix(PREFIX))
    )
    fits = re.compile(pattern, re.IGNORECASE | re.DOTALL).fullmatch
    return [one for one in known if fits(one)]
