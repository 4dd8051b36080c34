"""Fields of a small JSON file, each read as what it must be: of one type, and within limits.

JSON has more than we write: true stands where Python takes a number, 2.5, NaN and numbers of any
length are numbers. What of it gets into a Delta log, no reader of that reads again.

Lives here: functions that give a field or raise. Does not live here: what is said of a damaged file
(`failures`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ratchet.core.errors import DecodeError

HIGHEST: Final = 2**63 - 1  # of a Java long, and of Arrow's int64
_LONGEST: Final = 10_000  # characters; a path has 4,096 at most


def text_of(data: Mapping[str, Any], name: str) -> str:
    """A text of at most 10,000 characters.

    Raises:
        DecodeError: it is none.
        LookupError: it is missing.
        TypeError: `data` is no mapping.
    """
    value = data[name]
    if not isinstance(value, str) or len(value) > _LONGEST:
        raise DecodeError(f"{name} is no short text")
    return value


def number_of(data: Mapping[str, Any], name: str, *, highest: int = HIGHEST) -> int:
    """A whole number from 0 on.

    Args:
        data: the fields.
        name: which.
        highest: what it may be at most.

    Raises:
        DecodeError: it is none, or is outside of that.
        LookupError: it is missing.
        TypeError: `data` is no mapping.
    """
    value = data[name]
    if type(value) is not int or not 0 <= value <= highest:  # a bool is an int to isinstance
        raise DecodeError(f"{name} is no whole number from 0 to {highest}")
    return value


def flag_of(data: Mapping[str, Any], name: str) -> bool:
    """True or false.

    Raises:
        DecodeError: it is neither.
        LookupError: it is missing.
        TypeError: `data` is no mapping.
    """
    value = data[name]
    if not isinstance(value, bool):
        raise DecodeError(f"{name} is neither true nor false")
    return value
