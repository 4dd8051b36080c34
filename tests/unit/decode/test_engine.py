"""The choice of decoder, the warm-up, and MariaDB's compressed columns."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest

from ratchet.core.errors import ConfigError, DecodeError
from ratchet.core.schema import ColumnType
from ratchet.core.types import FAMILIES, InvalidValuePolicy, rule_for
from ratchet.wire.decode.columns import ColumnSpec, Places
from ratchet.wire.decode.compressed import decompressed
from ratchet.wire.decode.engine import VARIABLE, engine
from ratchet.wire.decode.logcolumns import log_reader
from ratchet.wire.decode.samples import every_reader
from ratchet.wire.decode.textcolumns import select_expression, text_row_reader
from ratchet.wire.decode.warm import warm
from tests.decode_kit import KERNEL, PLAIN, column

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("wish", "name"), [("plain", "plain"), ("kernel", "kernel"), ("", "kernel")]
)
def test_the_environment_chooses(monkeypatch: pytest.MonkeyPatch, wish: str, name: str) -> None:
    monkeypatch.setenv(VARIABLE, wish)
    engine.cache_clear()
    try:
        assert engine().name == name
    finally:
        engine.cache_clear()


def test_an_unknown_wish_is_an_error() -> None:
    """Never a silent fallback."""
    with pytest.raises(ConfigError, match="'fast'") as caught:
        engine("fast")
    assert VARIABLE in caught.value.hint


def test_the_engines_offer_the_same() -> None:
    """Every public function of a kernel's module is in its twin's."""
    for name in ("walk", "numbers", "temporal", "strings", "textnumbers", "texttimes"):
        kernel, plain = getattr(KERNEL, name), getattr(PLAIN, name)
        helpers = {"times_plus", "write_decimal"}  # shared between modules of kernels
        own = {
            key
            for key, value in vars(kernel).items()
            if callable(value)
            and not key.startswith("_")
            and getattr(value, "__module__", "") == kernel.__name__
        }
        assert own - helpers <= set(vars(plain)), name


def test_warming_up_compiles_what_is_used() -> None:
    """The second time nothing is left to compile."""
    warm()
    compiled = [len(KERNEL.walk.walk_rows.signatures), len(KERNEL.numbers.integers.signatures)]
    assert warm() < 0.5
    assert compiled == [
        len(KERNEL.walk.walk_rows.signatures),
        len(KERNEL.numbers.integers.signatures),
    ]


def spec(kind: ColumnType, name: str = "c") -> ColumnSpec:
    rule = rule_for(kind, InvalidValuePolicy())
    return ColumnSpec(table="k.t", name=name, type=kind, rule=rule, engine=KERNEL)


def test_every_family_has_its_readers_and_is_in_the_sample() -> None:
    """A new family needs a reader in both protocols and a place in the warm-up."""
    families = set()
    for module in FAMILIES.values():
        for example in module.EXAMPLES:
            families.add(spec(example).rule.family)
            assert callable(text_row_reader(spec(example)))
    warmed = every_reader().columns
    assert {spec(wire.type).rule.family for wire in warmed} == families
    for wire in warmed:
        assert callable(log_reader(spec(wire.type), wire))


def test_expressions_quote_names() -> None:
    assert select_expression(spec(ColumnType(name="int"), "a`b")) == "`a``b`"
    assert select_expression(spec(ColumnType(name="float"), "f")) == "CAST(`f` AS DOUBLE)"
    assert select_expression(spec(ColumnType(name="bit", length=1))) == "CAST(`c` AS UNSIGNED)"


def squeeze(value: bytes, *, raw: bool = True, length: int | None = None) -> bytes:
    """A value as MariaDB stores it when compression pays."""
    size = len(value) if length is None else length
    packer = zlib.compressobj(9, zlib.DEFLATED, -15 if raw else 15)
    head = 0x80 | (0x08 if raw else 0) | 3
    return bytes([head]) + size.to_bytes(3, "big") + packer.compress(value) + packer.flush()


def texts(*stored: bytes | None) -> list[Any]:
    """The values of a compressed column."""
    kind = spec(ColumnType(name="blob"))
    places = decompressed(kind, Places(*column(stored, gap=2)))
    data = places.buf.tobytes()
    return [
        None if at < 0 else data[at : at + size]
        for at, size in zip(places.offs.tolist(), places.lens.tolist(), strict=True)
    ]


def test_compressed_values() -> None:
    """Not compressed, empty, NULL; with and without zlib's header."""
    long = b"abc" * 500
    stored = (b"\x00plain", None, b"", b"\x00", squeeze(long), squeeze(long, raw=False))
    assert texts(*stored) == [b"plain", None, b"", b"", long, long]
    # As MariaDB 10.11.19 logged repeat('a', 500) and repeat('c', 200).
    logged = bytes.fromhex("8a01f44b4c1c05230d0000"), bytes.fromhex("89c84b4e1e1e0000")
    assert texts(*logged) == [b"a" * 500, b"c" * 200]


@pytest.mark.parametrize(
    "stored",
    [
        b"\x11a",
        b"\x8b\x00",
        squeeze(b"abc", length=2),
        squeeze(b"abc", length=4),
        squeeze(b"abcabcabc")[:-3],
        b"\x8a\x00\x05garbage",
        b"\xffabcdefghijk",
    ],
)
def test_broken_compression_is_an_error(stored: bytes) -> None:
    with pytest.raises(DecodeError, match="row 1 ") as caught:
        texts(b"\x00fine", stored)
    assert caught.value.table == "k.t"


def test_a_promised_length_is_not_believed() -> None:
    """A value cannot claim memory that its bytes do not fill."""
    with pytest.raises(DecodeError, match="decompresses to"):
        texts(b"", squeeze(np.zeros(1000, np.uint8).tobytes(), length=0xFFFFFF))
