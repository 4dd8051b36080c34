"""What a server's answer has to look like: how many columns it has, and what is in each.

Lives here: the check, made where an answer is read, so that what nobody asked for (of a proxy, of
another product, of somebody in between) is an error of the source's, and never a bug of ours or a
value that somebody works with. Does not live here: the questions.

Invariant: what is handed out has the columns that were named, each converted by its own rule.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

from ratchet.core.errors import DecodeError, RatchetError

T = TypeVar("T")
Column = Callable[[Any], Any]

_SHOWN: Final = 60  # characters of a value in a message
UNSOUND_HINT: Final = (
    "make sure that a MySQL or MariaDB listens there, and that nothing in between changes what it "
    "sends (tls: verify_identity); try again to see whether it was an accident"
)


def as_text(value: Any) -> str:
    """Any value but NULL, as text; bytes are UTF-8."""
    if value is None:
        raise ValueError("NULL instead of a text")
    return value.decode() if isinstance(value, bytes) else str(value)


def as_name(value: Any) -> str:
    """A text that is not empty, and that UTF-8 can hold."""
    found = as_text(value)
    if not found:
        raise ValueError("an empty text instead of a name")
    found.encode()
    return found


def as_whole(value: Any) -> int:
    """A whole number, also one that is written as text."""
    if isinstance(value, float) or (isinstance(value, str | bytes) and not value.isascii()):
        raise ValueError("not a whole number")
    return int(value)


def as_count(value: Any) -> int:
    """A whole number that is not negative and fits into 64 bits."""
    found = as_whole(value)
    if not 0 <= found < 2**64:
        raise ValueError("not a count")
    return found


def as_number(value: Any) -> float:
    """A finite number."""
    found = float(value)
    if not math.isfinite(found):
        raise ValueError("not a finite number")
    return found


def as_flag(value: Any) -> bool:
    """A whole number that is 0 or not."""
    return as_whole(value) != 0


def as_is(value: T) -> T:
    """A value that is only handed on, or compared."""
    return value


def or_null(column: Callable[[Any], T]) -> Callable[[Any], T | None]:
    """As `column`, or NULL."""
    return lambda value: None if value is None else column(value)


def shaped(
    rows: Iterable[Sequence[Any]], *columns: Column, wider: bool = False
) -> list[tuple[Any, ...]]:
    """The rows of an answer.

    Args:
        rows: as the driver has them.
        columns: what each value is read by.
        wider: whether there may be more columns; they are left out.

    Raises:
        DecodeError: it has other columns, or other values in them.

    >>> shaped([("orders", "7")], as_name, as_whole)
    [('orders', 7)]
    """
    return [_row(row, columns, wider) for row in rows]


def single(rows: Sequence[Sequence[Any]], *columns: Column, wider: bool = False) -> tuple[Any, ...]:
    """The row of an answer that has just one.

    Raises:
        DecodeError: see `shaped`; or it has none, or several.

    >>> single([(0,)], as_flag)
    (False,)
    """
    if len(rows) != 1:
        raise refusal(f"{len(rows)} rows instead of one")
    return _row(rows[0], columns, wider)


def single_value(rows: Sequence[Sequence[Any]], column: Callable[[Any], T]) -> T:
    """The only value of an answer.

    Raises:
        DecodeError: see `single`.

    >>> single_value([("ROW",)], as_text)
    'ROW'
    """
    (found,) = single(rows, column)
    answer: T = found
    return answer


def settled(
    ask: Callable[[], T], *, pauses: Iterable[float], unless: tuple[type[RatchetError], ...]
) -> T:
    """What questions say, asked again if somebody was changing a table between or beside them.

    Args:
        ask: asks them.
        pauses: seconds between tries; one try more than there are pauses.
        unless: what they raise then.

    Raises:
        RatchetError: of the last try.
    """
    for pause in pauses:
        try:
            return ask()
        except unless:
            time.sleep(pause)
    return ask()


def refusal(what: str) -> DecodeError:
    """The error for an answer that is none to the question."""
    return DecodeError(
        f"the server's answer does not have the expected shape: {what}",
        operation="read a server's answer",
        hint=UNSOUND_HINT,
    )


def _row(row: Sequence[Any], columns: Sequence[Column], wider: bool) -> tuple[Any, ...]:
    if len(row) < len(columns) or (len(row) > len(columns) and not wider):
        raise refusal(f"{len(row)} columns instead of {len(columns)}")
    return tuple(_read(value, column) for value, column in zip(row, columns, strict=False))


def _read(found: Any, column: Column) -> Any:
    try:
        return column(found)
    except (ArithmeticError, TypeError, ValueError) as error:
        shown = repr(found[:_SHOWN] if isinstance(found, str | bytes) else found)[: 2 * _SHOWN]
        raise refusal(f"{shown}: {error}") from error
