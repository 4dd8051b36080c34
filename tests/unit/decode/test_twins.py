"""Every kernel and its plain twin give the same answers, for sound values and for any bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.wire.decode import decimals
from ratchet.wire.decode.kernels import temporal as forms
from ratchet.wire.decode.kernels.calendar import civil_of
from tests.decode_kit import KERNEL, PLAIN, STEADY, column, frozen, optional, run, sized

HALVES = (np.uint64, 2)
LABELS = frozen("aéит'".encode())
LABEL_ENDS = np.array([0, 1, 3, 3, 8], dtype=np.int64)  # one label is empty

# Module, function, bytes of a value, further arguments.
BINARY: list[tuple[str, str, int, tuple[Any, ...]]] = [
    *(
        ("numbers", "integers", size, (size, signed, dtype))
        for size, dtype in ((1, np.int16), (2, np.int32), (3, np.int32), (4, np.int64))
        for signed in (0, 1)
    ),
    ("numbers", "integers", 8, (8, 1, np.int64)),
    ("numbers", "unsigned64", 8, (HALVES,)),
    ("numbers", "bits", 1, (1, np.int64)),
    ("numbers", "bits", 8, (8, np.int64)),
    ("numbers", "bits64", 8, (HALVES,)),
    ("numbers", "years", 1, (0, np.int16)),
    ("numbers", "years", 1, (1, np.int16)),
    *(
        ("temporal", "civils", size, (size, form, fraction, np.int64))
        for form, fraction, size in (
            (forms.DATE, 0, 3),
            (forms.DATETIME_DECIMAL, 0, 8),
            *((forms.DATETIME2, n, 5 + (n + 1) // 2) for n in range(7)),
            *((forms.DATETIME_HIRES, n, (8, 6, 6, 7, 7, 7, 8)[n]) for n in range(1, 7)),
        )
    ),
    *(
        ("temporal", "timestamps", size, (size, form, fraction, np.int64))
        for form, fraction, size in (
            (forms.TIMESTAMP_PLAIN, 0, 4),
            *((forms.TIMESTAMP2, n, 4 + (n + 1) // 2) for n in range(7)),
            *((forms.TIMESTAMP_HIRES, n, (4, 5, 5, 6, 6, 7, 7)[n]) for n in range(1, 7)),
        )
    ),
    *(
        ("temporal", "times", size, (size, form, fraction, np.int64))
        for form, fraction, size in (
            (forms.TIME_DECIMAL, 0, 3),
            *((forms.TIME2, n, 3 + (n + 1) // 2) for n in range(7)),
            *((forms.TIME_HIRES, n, (3, 4, 4, 5, 5, 5, 6)[n]) for n in range(1, 7)),
        )
    ),
    ("strings", "gather", 5, ()),
    ("strings", "padded", 5, (6,)),
    ("strings", "enum_labels", 1, (1, LABELS, LABEL_ENDS)),
    ("strings", "enum_labels", 2, (2, LABELS, LABEL_ENDS)),
    ("strings", "set_labels", 1, (1, LABELS, LABEL_ENDS)),
    ("strings", "uuids", 16, ()),
    ("strings", "inet4s", 4, ()),
    ("strings", "inet6s", 16, ()),
]


@pytest.mark.parametrize(
    ("module", "function", "size", "args"), BINARY, ids=lambda value: str(value)[:40]
)
def test_binary_values(module: str, function: str, size: int, args: tuple[Any, ...]) -> None:
    @STEADY
    @given(optional(sized(size)), st.integers(0, 3))
    def compare(values: list[bytes | None], gap: int) -> None:
        answers = [run(name, module, function, column(values, gap), *args) for name in TWINS]
        assert answers[0] == answers[1]

    compare()


TWINS = (KERNEL.name, PLAIN.name)


def encode_decimal(number: int, precision: int, scale: int) -> bytes:
    """A DECIMAL's bytes by the server's rules, written for this test."""
    sizes, powers = decimals.groups(precision, scale)
    rest, parts = abs(number), []
    for size, power in zip(reversed(sizes.tolist()), reversed(powers.tolist()), strict=True):
        rest, group = divmod(rest, power)
        parts.append(group.to_bytes(size, "big"))
    raw = bytearray(b"".join(reversed(parts)))
    raw[0] ^= 0x80
    return bytes(raw) if number >= 0 else bytes(byte ^ 0xFF for byte in raw)


@STEADY
@given(st.data(), st.integers(1, 65), st.integers(0, 30))
def test_binary_decimals(data: st.DataObject, precision: int, scale: int) -> None:
    """Of any size; both engines and Python's own decimal agree."""
    scale = min(scale, precision)
    numbers = data.draw(st.lists(st.integers(1 - 10**precision, 10**precision - 1), max_size=5))
    given_values = column([encode_decimal(n, precision, scale) for n in numbers])
    sizes, powers = decimals.groups(precision, scale)
    texts = [run(n, "numbers", "decimal_texts", given_values, sizes, powers, scale) for n in TWINS]
    assert texts[0] == texts[1]
    whole = [int(text.replace(b".", b"")) for text in texts[0][1]]
    assert whole == numbers
    if precision <= 38:
        narrow = 1 if precision <= 18 else 0
        args = (sizes, powers, narrow, HALVES)
        found = [run(n, "numbers", "decimals", given_values, *args) for n in TWINS]
        assert found[0] == found[1]
        signed = [low | high << 64 for low, high in found[0][1]]
        assert [n - (1 << 128) if n >> 127 else n for n in signed] == numbers


@STEADY
@given(st.sampled_from([(5, 2), (18, 2), (20, 0), (38, 10), (9, 9)]), st.data())
def test_binary_decimals_of_any_bytes(shape: tuple[int, int], data: st.DataObject) -> None:
    sizes, powers = decimals.groups(*shape)
    values = column(data.draw(optional(sized(int(sizes.sum())))))
    narrow = 1 if shape[0] <= 18 else 0
    args = (sizes, powers, narrow, HALVES)
    assert len({repr(run(n, "numbers", "decimals", values, *args)) for n in TWINS}) == 1
    texts = (sizes, powers, shape[1])
    assert len({repr(run(n, "numbers", "decimal_texts", values, *texts)) for n in TWINS}) == 1


integer_texts = st.one_of(
    st.integers(-(2**64), 2**65).map(lambda n: b"%d" % n),
    st.from_regex(rb"-?0*[0-9]{0,22}", fullmatch=True),
    st.binary(max_size=6),
)
decimal_texts = st.one_of(
    st.from_regex(rb"-?[0-9]{0,12}(\.[0-9]{0,6})?", fullmatch=True),
    st.from_regex(rb"-?0*[0-9]{0,40}\.[0-9]{0,12}", fullmatch=True),
    st.binary(max_size=6),
)
civil_texts = st.one_of(
    st.datetimes().map(lambda moment: str(moment).encode()),
    st.dates().map(lambda day: str(day).encode()),
    st.from_regex(rb"[0-9]{4}-[01][0-9]-[0-3][0-9]", fullmatch=True),
    st.from_regex(
        rb"[0-2][0-9]{3}-[01][0-9]-[0-3][0-9] [0-2][0-9]:[0-6][0-9]:[0-6][0-9](\.[0-9]{0,7})?",
        fullmatch=True,
    ),
    st.binary(max_size=20),
)
time_texts = st.one_of(
    st.from_regex(rb"-?[0-9]{2,3}:[0-6][0-9]:[0-6][0-9](\.[0-9]{0,7})?", fullmatch=True),
    st.binary(max_size=12),
)
TEXTS: list[tuple[str, str, st.SearchStrategy[bytes], tuple[Any, ...]]] = [
    ("textnumbers", "text_integers", integer_texts, (-128, 127, np.int8)),
    ("textnumbers", "text_integers", integer_texts, (-(1 << 63), (1 << 63) - 1, np.int64)),
    ("textnumbers", "text_unsigned64", integer_texts, (HALVES,)),
    ("textnumbers", "text_decimals", decimal_texts, (10, 3, HALVES)),
    ("textnumbers", "text_decimals", decimal_texts, (38, 10, HALVES)),
    ("textnumbers", "text_decimals", decimal_texts, (5, 5, HALVES)),
    ("textnumbers", "text_decimal_texts", decimal_texts, (65, 30)),
    ("textnumbers", "text_decimal_texts", decimal_texts, (40, 0)),
    ("texttimes", "text_civils", civil_texts, (np.int64,)),
    ("texttimes", "text_timestamps", civil_texts, (np.int64,)),
    ("texttimes", "text_times", time_texts, (np.int64,)),
]


@pytest.mark.parametrize(
    ("module", "function", "texts", "args"), TEXTS, ids=lambda value: str(value)[:30]
)
def test_text_values(
    module: str, function: str, texts: st.SearchStrategy[bytes], args: tuple[Any, ...]
) -> None:
    @STEADY
    @given(optional(texts), st.integers(0, 3))
    def compare(values: list[bytes | None], gap: int) -> None:
        answers = [run(name, module, function, column(values, gap), *args) for name in TWINS]
        assert answers[0] == answers[1]

    compare()


civils = st.builds(
    civil_of,
    st.sampled_from([0, 1, 4, 100, 400, 1970, 2000, 2024, 2100, 9999]) | st.integers(0, 9999),
    st.integers(0, 12),
    st.sampled_from([0, 1, 28, 29, 30, 31]) | st.integers(0, 31),
    st.integers(0, 23),
    st.integers(0, 59),
    st.integers(0, 59),
    st.integers(0, 999_999),
)


@STEADY
@given(st.lists(st.tuples(st.booleans(), civils), max_size=10))
def test_civil_numbers_are_written_alike(values: list[tuple[bool, int]]) -> None:
    """As days, microseconds and text; with the same misfits."""
    civil = np.array([number for _, number in values], dtype=np.int64)
    answers = []
    for twin in (KERNEL, PLAIN):
        results: list[object] = []
        for write, dtype in ((twin.temporal.days, np.int32), (twin.temporal.micros, np.int64)):
            offs = np.array([-1 if null else 0 for null, _ in values], dtype=np.int64)
            out = np.empty(len(values), dtype=dtype)
            results += [int(write(civil, offs, out)), out.tolist(), offs.tolist()]
        for with_time, fraction in ((0, 0), (1, 0), (1, 1), (1, 3), (1, 6)):
            offs = np.array([-1 if null else 0 for null, _ in values], dtype=np.int64)
            data, places, bad = twin.strings.civil_texts(civil, offs, with_time, fraction)
            results += [bytes(data), places.tolist(), int(bad)]
        answers.append(results)
    assert answers[0] == answers[1]


instants = st.one_of(
    st.just(0), st.integers(0, 2**32 * 1_000_000), st.integers(-(2**63), 2**63 - 1)
)


@STEADY
@given(st.lists(instants, max_size=6), st.lists(st.booleans(), min_size=6, max_size=6))
def test_instants_are_written_alike(values: list[int], nulls: list[bool]) -> None:
    """As civil numbers; and the zero date is marked."""
    given_values = np.array(values, dtype=np.int64)
    answers = []
    for twin in (KERNEL, PLAIN):
        offs = np.array([-1 if nulls[i] else 0 for i in range(len(values))], dtype=np.int64)
        out = np.zeros(len(values), dtype=np.int64)
        bad = int(twin.temporal.civil_of_instants(given_values, out))
        found = out.tolist() if bad < 0 else []
        marked = int(twin.temporal.mark_zero(given_values, offs))
        answers.append([bad, found, marked, offs.tolist()])
    assert answers[0] == answers[1]


@pytest.mark.parametrize("twin", [KERNEL, PLAIN], ids=TWINS)
def test_places_outside_of_the_buffer_are_not_looked_at(twin: Any) -> None:
    """A kernel that is handed a wrong place says so, and reads nothing."""
    buf = frozen(b"12345678")
    for offset, length in ((5, 8), (8, 1), (0, 9), (1 << 40, 1), (0, -1)):
        place = buf, np.array([offset], dtype=np.int64), np.array([length], dtype=np.int64)
        for module, function, _, args in BINARY:
            assert run(twin.name, module, function, place, *args)[0] == 0, function
        for module, function, _, args in TEXTS:
            assert run(twin.name, module, function, place, *args)[0] == 0, function


@STEADY
@given(st.lists(st.integers(-1, 3), max_size=70))
def test_validity_bitmaps(offs: list[int]) -> None:
    given_offs = np.array(offs, dtype=np.int64)
    answers = [
        (bitmap.tolist(), int(nulls))
        for bitmap, nulls in (twin.walk.validity(given_offs) for twin in (KERNEL, PLAIN))
    ]
    assert answers[0] == answers[1]
