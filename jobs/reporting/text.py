"""Numbers and times for people; times are UTC, as everywhere in Ratchet."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection

from ratchet.core import committimes
from ratchet.core.patterns import exclusion
from ratchet.jobs.reporting.terminal import visible

_LINE_END = re.compile(r"\s*[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]\s*")


def duration(seconds: float) -> str:
    """A duration in its largest unit that makes at least two.

    >>> duration(94), duration(5400)
    ('94 s', '90 min')
    """
    for unit_seconds, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * unit_seconds:
            return f"{seconds / unit_seconds:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 1 else "less than 1 s"


def counted(number: int, noun: str) -> str:
    """A number of things.

    >>> counted(1, "table"), counted(1500, "row")
    ('1 table', '1,500 rows')
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def within(seconds: float) -> str:
    """An upper bound on a duration.

    >>> within(0.3), within(12)
    ('less than 1 s', 'at most 12 s')
    """
    return duration(seconds) if seconds < 1 else f"at most {duration(seconds)}"


CORRECT_NAME = "correct the name in `tables`"


def nearest(name: str, names: Collection[str], otherwise: str) -> str:
    """What may be meant by a name that is not among some others: a hint.

    >>> nearest("ordrs", ["orders"], "see `tables`"), nearest("x", ["orders"], "see `tables`")
    ("did you mean 'orders'?", 'see `tables`')
    """
    found = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {found[0]!r}?" if found else otherwise


def spellings(keyspace: str, table: str) -> set[str]:
    r"""What a table may be called in a command: also as it is printed, with escapes.

    >>> sorted(spellings("shop", "a\u200b"))
    ['a\\u200b', 'a\u200b', 'shop.a\\u200b', 'shop.a\u200b']
    """
    names = (table, f"{keyspace}.{table}")
    return {*names, *(visible(name) for name in names)}


def how_to_exclude(table: str) -> str:
    """The hint for a table that nothing can mirror."""
    return f"exclude it in `tables`, so that nobody expects it in the lake: {exclusion(table)}"


def size(count: float) -> str:
    """Bytes in their largest unit.

    >>> size(1536)
    '1.5 KB'
    """
    for unit in ("bytes", "KB", "MB", "GB"):
        if count < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} TB"


def moment(micros: int | None) -> str:
    """A time of microseconds since the epoch, to the second; "" for None."""
    return "" if micros is None else committimes.moment(micros)


def age(micros: int | None, now: float) -> str:
    """How long ago that was; "never" for None."""
    return "never" if micros is None else f"{duration(max(0.0, now - micros / 1e6))} ago"


def clock_time(seconds: float) -> str:
    """A time to go as minutes and seconds.

    >>> clock_time(83)
    '1:23'
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def sql_like(name: str, pattern: str) -> bool:
    r"""Whether a pattern of GRANT's or of a replica's filters (`%`, `_`, backslash) covers a name.

    >>> sql_like("shop.log_1", "shop.log%"), sql_like("shop", r"sh\_p")
    (True, False)
    """
    parts = re.findall(r"\\.|.", pattern, flags=re.DOTALL)
    regex = "".join(
        ".*" if part == "%" else "." if part == "_" else re.escape(part[-1]) for part in parts
    )
    return re.fullmatch(regex, name, flags=re.DOTALL) is not None


def one_line(text: str) -> str:
    r"""A text, as a statement that a server logged, without its line ends.

    All else stays: a name in it may have several blanks.

    >>> one_line("CREATE TABLE t\n  (`two  blanks` INT)")
    'CREATE TABLE t (`two  blanks` INT)'
    """
    return _LINE_END.sub(" ", text).strip()
