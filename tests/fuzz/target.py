"""What a fuzz target is, and mutations that are the same in every run.

A target's function gets any bytes. It returns, or raises one of the errors that its parser
documents; another exception, a crash, a hang or a great allocation is a finding. Where there are
twins, it raises AssertionError if they differ.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ratchet.core.errors import DecodeError, RatchetError

_NUMBERS = (0, 1, 0x7F, 0x80, 0xFA, 0xFB, 0xFC, 0xFD, 0xFE, 0xFF)
_WIDE = (0, 0xFFFF, 1 << 31, (1 << 32) - 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)


@dataclass(frozen=True, slots=True)
class Target:
    """One parser under test.

    Attributes:
        run: gives it some bytes.
        seeds: sound inputs, and what once was a finding.
        refusals: the errors that it may raise.
        inputs: mutations in `make test`.
    """

    run: Callable[[bytes], None]
    seeds: Callable[[], Sequence[bytes]]
    refusals: tuple[type[RatchetError], ...] = (DecodeError,)
    inputs: int = 2000

    def accepts(self, data: bytes) -> bool:
        """Whether the input is decoded; False: it is refused as it should be."""
        try:
            self.run(data)
        except self.refusals:
            return False
        return True


def mutations(seeds: Sequence[bytes], count: int, seed: int) -> Iterator[bytes]:
    """Damaged seeds: bytes and numbers changed, parts cut, doubled, moved and spliced."""
    chance = random.Random(seed)
    for _ in range(count):
        data = bytearray(chance.choice(seeds))
        for _ in range(chance.choice((1, 1, 1, 2, 3, 6))):
            _mutate(data, seeds, chance)
        yield bytes(data)


def _mutate(data: bytearray, seeds: Sequence[bytes], chance: random.Random) -> None:
    at = chance.randrange(len(data) + 1)
    size = chance.choice((1, 1, 2, 4, 8, 32))
    match chance.randrange(8):
        case 0 if at < len(data):
            data[at] ^= 1 << chance.randrange(8)
        case 1 if at < len(data):
            data[at] = chance.choice(_NUMBERS)
        case 2 if at < len(data):
            data[at] = chance.randrange(256)
        case 3:
            width = chance.choice((2, 4, 8))
            value = chance.choice(_WIDE) & (1 << 8 * width) - 1
            data[at : at + width] = value.to_bytes(width, "little")
        case 4:
            del data[at : at + size]
        case 5:
            data[at:at] = data[at : at + size]
        case 6:
            del data[at:]
        case _:
            other = chance.choice(seeds)
            begin = chance.randrange(len(other) + 1)
            data[at:] = other[begin:]


def packed(*parts: bytes) -> bytes:
    """Parts behind their lengths, so that one input can hold several."""
    return b"".join(struct.pack("<H", len(part)) + part for part in parts)


def unpacked(data: bytes) -> list[bytes]:
    """The parts of any bytes; the last one may be cut short."""
    found, at = [], 0
    while at + 2 <= len(data):
        (size,) = struct.unpack_from("<H", data, at)
        found.append(data[at + 2 : at + 2 + size])
        at += 2 + size
    return found
