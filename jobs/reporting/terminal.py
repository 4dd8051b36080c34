"""What is printed of what others wrote: shown as it is, and never obeyed by a terminal.

Lives here: `visible`, `lines`, and the two ways to print: `say`, and `Terminal` for tables. Does
not live here: log records and errors, which go through the same functions (`logs`, `cli`).

Names of tables, messages of servers and what lies in the lake may hold anything: escape sequences,
line ends that forge a line of ours, marks that turn the direction of what follows. Output for
programs is data and has them: JSON with escapes of its own, CSV as they are but on a terminal.
"""

from __future__ import annotations

import functools
import json
import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rich.console import Console

# C0, DEL, C1, the bidirectional marks, line and paragraph ends, halves of surrogates, and what has
# no width and so makes two names look alike. Not the joiners, which some scripts are written with.
_CONTROL: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
_SHORT: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def visible(text: str) -> str:
    r"""A text on one line, with escapes in the place of what a terminal would obey.

    >>> print(visible("a\x1b[2Jb\nc\u202ed"))
    a\x1b[2Jb\nc\u202ed
    """
    return _CONTROL.sub(_escaped, text)


def lines(text: str) -> str:
    r"""The same for a text of several lines: all but the first are indented.

    So none of them can be taken for a line of ours.

    >>> print(lines("a\n06:00:00 all is \x07well"))
    a
      06:00:00 all is \x07well
    """
    return "\n  ".join(visible(line) for line in text.split("\n"))


def is_text(text: str) -> bool:
    r"""Whether it can be written as UTF-8: a name or a variable may hold any bytes.

    >>> is_text("Größe"), is_text("\udcff")
    (True, False)
    """
    return not any("\ud800" <= one <= "\udfff" for one in text)


def in_json(text: str) -> str:
    """A JSON text with escapes for what JSON lets stand in strings: the same values."""
    return _CONTROL.sub(lambda found: found[0] if found[0] == "\n" else _unicode(found), text)


def dumped(value: Any) -> str:
    """A value as JSON on one line, readable in any script, and harmless to a terminal."""
    return in_json(json.dumps(value, ensure_ascii=False, default=str))


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code > 0xFFFF:
        return f"\\U{code:08x}"
    return _SHORT.get(found[0]) or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}")


def _unicode(found: re.Match[str]) -> str:
    return json.dumps(found[0])[1:-1]  # beyond the Basic Multilingual Plane: a pair of surrogates


def say(text: str, *, flush: bool = False) -> None:
    """Print a line for people, without secrets."""
    from ratchet.jobs.reporting.logs import clean

    print(visible(clean(text)), flush=flush)


@functools.cache
def _class() -> type[Console]:
    from rich.console import Console
    from rich.text import Text

    from ratchet.jobs.reporting.logs import clean

    class Terminal(Console):
        """A console on which texts, also those in tables, are only ever shown."""

        def render_str(self, text: str, **how: Any) -> Text:
            return super().render_str(visible(clean(text)), **how)

    return Terminal


def terminal(**how: Any) -> Console:
    """A console for results; rich is slow to import, so only where it is needed."""
    return _class()(highlight=False, markup=False, **how)
