"""GTID sets behave as sets of numbered transactions, in each server's own notation."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.core.errors import DecodeError
from ratchet.core.gtid import FILE_BITS, Flavor, Gtid, GtidSet, format_gtid, pack_file, parse_gtid

A = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
B = "00000000-0000-0000-0000-000000000001"

numbers = st.sets(st.integers(1, 60))
sets = st.dictionaries(st.sampled_from([A, B, f"{A}:tag"]), numbers, max_size=3)


def build(model: dict[str, set[int]]) -> GtidSet:
    """The set that holds exactly the model's numbers, built one by one."""
    result = GtidSet.empty("mysql")
    for origin, found in model.items():
        for number in found:
            result = result.with_interval(origin, number, number)
    return result


def members(value: GtidSet) -> set[tuple[str, int]]:
    """All transactions, one by one."""
    return {
        (origin, number)
        for origin, spans in value.intervals.items()
        for first, last in spans
        for number in range(first, last + 1)
    }


def flat(model: dict[str, set[int]]) -> set[tuple[str, int]]:
    """The model as pairs."""
    return {(origin, number) for origin, found in model.items() for number in found}


@given(sets, sets)
def test_algebra_equals_that_of_plain_sets(
    left: dict[str, set[int]], right: dict[str, set[int]]
) -> None:
    """Union, difference, containment and size are those of the sets of pairs."""
    a, b = build(left), build(right)
    assert members(a.union(b)) == flat(left) | flat(right)
    assert members(a.minus(b)) == flat(left) - flat(right)
    assert a.contains_all(b) == (flat(left) >= flat(right))
    assert a.cardinality == len(flat(left))


spans = st.lists(st.tuples(st.integers(1, 40), st.integers(0, 12)), max_size=6)


@given(spans, spans)
def test_algebra_of_whole_intervals(
    left: list[tuple[int, int]], right: list[tuple[int, int]]
) -> None:
    """Intervals that overlap, touch and lie in one another; kept sorted, disjoint, not adjacent."""

    def from_spans(found: list[tuple[int, int]]) -> tuple[GtidSet, set[tuple[str, int]]]:
        value = GtidSet.empty("mysql")
        for first, more in found:
            value = value.with_interval(A, first, first + more)
        return value, {(A, n) for first, more in found for n in range(first, first + more + 1)}

    (a, plain_a), (b, plain_b) = from_spans(left), from_spans(right)
    for value, plain in (
        (a, plain_a),
        (a.union(b), plain_a | plain_b),
        (a.minus(b), plain_a - plain_b),
    ):
        assert members(value) == plain
        assert value.cardinality == len(plain)
        kept = value.intervals.get(A, ())
        assert all(low[1] + 1 < high[0] for low, high in itertools.pairwise(kept))
        assert (A in value.intervals) == bool(plain)
    assert a.contains_all(b) == (plain_a >= plain_b)


def test_an_interval_inside_of_a_later_one_takes_nothing_away() -> None:
    value = GtidSet.parse("mysql", f"{A}:1-2:5-9")
    for inside in (f"{A}:6-7", f"{A}:5-9", f"{A}:9"):
        assert value.union(GtidSet.parse("mysql", inside)) == value
    assert str(value.union(GtidSet.parse("mysql", f"{A}:10"))) == f"{A}:1-2:5-10"


@given(sets)
def test_text_round_trip(model: dict[str, set[int]]) -> None:
    """What is printed reads back as the same set."""
    value = build(model)
    assert GtidSet.parse("mysql", str(value)) == value


@given(sets, st.sampled_from([A, B]), st.integers(1, 70))
def test_contains_one(model: dict[str, set[int]], origin: str, number: int) -> None:
    """Membership looks at every interval, not only at the last number."""
    assert build(model).contains(Gtid(origin, number)) == (number in model.get(origin, set()))


def test_holes_stay_holes() -> None:
    """The set that cost a peer its users' rows: what lies in its holes is not inside."""
    value = GtidSet.parse("mysql", f"{A}:1-10:14-16:19-19:21-22")
    assert [n for n in range(1, 24) if not value.contains(Gtid(A, n))] == [
        11,
        12,
        13,
        17,
        18,
        20,
        23,
    ]


def test_tags_are_origins_of_their_own() -> None:
    """MySQL's tagged GTIDs number each tag apart."""
    value = GtidSet.parse("mysql", f"{A}:1-3:blue:7:9, {B}:5")
    assert str(value) == f"{B}:5,{A}:1-3,{A}:blue:7:9"
    assert value.contains(Gtid(f"{A}:blue", 7))
    assert not value.contains(Gtid(A, 7))


def test_mariadb_position_stands_for_all_lower_numbers() -> None:
    """A domain's number contains the ones below; the server id is only remembered."""
    value = GtidSet.parse("mariadb", "0-1-100,10-2-7")
    assert value.contains(Gtid("0", 42, server=9))
    assert value.cardinality == 107
    assert str(value.with_interval("0", 101, 105, server=3)) == "0-3-105,10-2-7"


def test_file_position_contains_what_is_before_it() -> None:
    """Without GTIDs, order is file number, then offset."""
    value = GtidSet.parse("file", "bin.000012:345")
    assert value.contains(pack_file("bin.000011", (1 << FILE_BITS) - 1))
    assert value.contains(pack_file("bin.000012", 345))
    assert not value.contains(pack_file("bin.000012", 346))
    assert str(value) == "bin.000012:345"


def test_a_server_is_remembered_for_the_last_number_only() -> None:
    """It is what MariaDB is asked with to go on."""
    value = GtidSet.parse("mariadb", "0-1-100")
    assert str(value.with_interval("0", 5, 50, server=9)) == "0-1-100"
    assert str(value.with_interval("0", 103, 105, server=3)) == "0-3-105"
    assert str(GtidSet.empty("mariadb").with_interval("0", 1, 5)) == "0-0-5"
    unnamed = GtidSet("mariadb", {"0": ((1, 5),)})
    assert str(GtidSet.empty("mariadb").union(unnamed)) == str(unnamed) == "0-0-5"
    assert GtidSet.parse("mariadb", "0-1-100,1-2-5").minus(value).servers == {"1": 2}
    assert format_gtid("mariadb", Gtid("0", 5)) == "0-0-5"


def test_a_file_position_is_packed_as_the_lake_keeps_it() -> None:
    assert pack_file("bin.000012", 345) == Gtid("bin", 12 * 2**40 + 345)
    assert GtidSet.parse("file", "bin.000000:4").intervals == {"bin": ((1, 4),)}
    assert GtidSet.parse("file", "bin.000000:1").cardinality == 1
    assert GtidSet.parse("file", "") == GtidSet.empty("file")


LAST, LAST_ID = 2**63 - 1, 2**32 - 1


def test_numbers_end_where_the_lakes_and_the_servers_do() -> None:
    assert parse_gtid("mysql", f"{A}:{LAST}").number == LAST
    assert GtidSet.parse("mysql", f"{A}:1-{LAST}").cardinality == LAST
    assert parse_gtid("mariadb", f"{LAST_ID}-{LAST_ID}-1") == Gtid(str(LAST_ID), 1, LAST_ID)
    assert GtidSet.parse("mariadb", f"{LAST_ID}-{LAST_ID}-1").cardinality == 1
    for flavor, text in (
        ("mysql", f"{A}:{LAST + 1}"),
        ("mysql", f"{A}:1-{LAST},{B}:1"),
        ("mariadb", f"{LAST_ID + 1}-1-1"),
        ("mariadb", f"1-{LAST_ID + 1}-1"),
        ("file", f"bin.1:{2**40}"),
        ("file", f"bin.{2**23}:4"),
    ):
        with pytest.raises(DecodeError):
            GtidSet.parse(flavor, text)  # type: ignore[arg-type]
    assert GtidSet.parse("file", f"bin.{2**23 - 1}:{2**40 - 1}").cardinality == LAST


@pytest.mark.parametrize(
    ("flavor", "text"),
    [
        ("mysql", f"{A}:77"),
        ("mysql", f"{A}:blue:77"),
        ("mariadb", "0-3-9"),
        ("file", "bin.000003:4"),
    ],
)
def test_one_gtid_round_trip(flavor: str, text: str) -> None:
    """A single transaction's name prints as it was read."""
    assert format_gtid(flavor, parse_gtid(flavor, text)) == text  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("flavor", "text"),
    [
        ("mysql", "nonsense"),
        ("mysql", A),
        ("mysql", f"{A}:5-3"),
        ("mysql", f"{A}:0"),
        ("mariadb", "0-1"),
        ("mysql", f"{A}:1_0"),
        ("mysql", f"{A}:\N{ARABIC-INDIC DIGIT THREE}"),
        ("mysql", f"{A}:{'0' * 20}1"),
        ("mariadb", "0-1-5,0-2-6"),
        ("mariadb", "0-1-+5"),
        ("mariadb", "0-1-"),
        ("file", "bin:4"),
        ("file", "bin.000000:0"),
        ("file", ".000001:4"),
    ],
)
def test_bad_text_is_named(flavor: str, text: str) -> None:
    """Text that is no set raises the decoding error and nothing else."""
    with pytest.raises(DecodeError):
        GtidSet.parse(flavor, text)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("flavor", "text"),
    [
        ("mysql", A),
        ("mysql", f"{A}:0"),
        ("mariadb", "0-1"),
        ("file", "bin:4"),
        ("file", f"bin.{2**23}:4"),
    ],
)
def test_bad_name_of_one_transaction(flavor: str, text: str) -> None:
    with pytest.raises(DecodeError):
        parse_gtid(flavor, text)  # type: ignore[arg-type]


def test_leading_zeros() -> None:
    assert parse_gtid("mysql", f"{A}:{'0' * 19}1") == Gtid(A, 1)


def test_sets_of_very_many_holes() -> None:
    """Each is gone through once: pairs of intervals would be ten thousand million."""
    even = GtidSet("mysql", {A: tuple((n, n) for n in range(2, 200_002, 2))})
    odd = GtidSet("mysql", {A: tuple((n, n) for n in range(1, 200_001, 2))})
    assert even.minus(odd) == even
    assert not even.minus(even).intervals
    assert even.union(odd).intervals == {A: ((1, 200_000),)}
    assert not even.contains_all(odd)
    assert even.union(odd).contains_all(odd)


def test_a_set_that_nobody_has_is_refused_unread() -> None:
    with pytest.raises(DecodeError, match="characters, more than"):
        GtidSet.parse("mysql", f"{A}:1" + ":3" * (3 << 20))


@given(
    st.sampled_from(["mysql", "mariadb"]),
    st.lists(st.tuples(st.sampled_from("123"), st.integers(1, 30), st.integers(0, 5)), max_size=12),
)
def test_many_at_once_are_the_same_as_one_by_one(
    flavor: Flavor, runs: list[tuple[str, int, int]]
) -> None:
    """A slice may have transactions of very many origins: one by one, each copies the set."""
    start = GtidSet(flavor, {"1": ((3, 9),)}, {"1": 7} if flavor == "mariadb" else {})
    servers = {"1": 11, "2": 12}
    one_by_one, added = start, {}  # type: ignore[var-annotated]
    for origin, first, more in runs:
        one_by_one = one_by_one.with_interval(origin, first, first + more, servers.get(origin, 0))
        added.setdefault(origin, []).append((first, first + more))
    assert start.with_intervals(added, servers) == one_by_one
