"""Which implementation decodes: the compiled kernels or their plain twins.

`RATCHET_DECODE=kernel` (the default) or `plain` chooses; anything else is an error, never a silent
fallback. The plain twins are some hundred times slower; they are there to be read, to be compared
with, and to show whether a wrong value comes from a kernel.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Final, Literal

from ratchet.core.errors import ConfigError
from ratchet.wire.decode.arrays import Bytes, Int, Longs
from ratchet.wire.decode.charsets import Transcoder

EngineName = Literal["kernel", "plain"]
VARIABLE: Final = "RATCHET_DECODE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """One implementation of everything that looks at the bytes of values.

    Each module has the functions of its namesake in `wire.decode.kernels`, with the same
    arguments and results.

    Attributes:
        transcode: `wire.decode.charsets.transcode_column` or its twin.
        json: `wire.decode.jsonb.json_column` or its twin.
    """

    name: EngineName
    walk: ModuleType
    numbers: ModuleType
    temporal: ModuleType
    strings: ModuleType
    textnumbers: ModuleType
    texttimes: ModuleType
    jsontexts: ModuleType
    vstream: ModuleType
    transcode: Callable[[Bytes, Longs, Longs, Transcoder], tuple[Bytes, Longs, int]]
    json: Callable[[Bytes, Longs, Longs], tuple[Bytes, Longs, Int]]


@cache
def engine(name: str | None = None) -> Engine:
    """The implementation of that name; without one, what the environment asks for."""
    chosen = name or os.environ.get(VARIABLE) or "kernel"
    if chosen == "kernel":
        return _kernel()
    if chosen == "plain":
        return _plain()
    raise ConfigError(
        f"{VARIABLE} is {chosen!r}, which is not a decoder",
        operation="choose a decoder",
        hint=f"set {VARIABLE} to kernel or plain, or unset it",
    )


def _kernel() -> Engine:
    from ratchet.wire.decode.charsets import transcode_column
    from ratchet.wire.decode.jsonb import json_column
    from ratchet.wire.decode.kernels import (
        jsontexts,
        numbers,
        strings,
        temporal,
        textnumbers,
        texttimes,
        vstream,
        walk,
    )

    return Engine(
        name="kernel",
        walk=walk,
        numbers=numbers,
        temporal=temporal,
        strings=strings,
        textnumbers=textnumbers,
        texttimes=texttimes,
        jsontexts=jsontexts,
        vstream=vstream,
        transcode=transcode_column,
        json=json_column,
    )


def _plain() -> Engine:
    from ratchet.wire.decode.charsets_plain import transcode_column_plain
    from ratchet.wire.decode.jsonb_plain import json_column_plain
    from ratchet.wire.decode.plain import (
        jsontexts,
        numbers,
        strings,
        temporal,
        textnumbers,
        texttimes,
        vstream,
        walk,
    )

    return Engine(
        name="plain",
        walk=walk,
        numbers=numbers,
        temporal=temporal,
        strings=strings,
        textnumbers=textnumbers,
        texttimes=texttimes,
        jsontexts=jsontexts,
        vstream=vstream,
        transcode=transcode_column_plain,
        json=json_column_plain,
    )
