"""Cuts are found by round, time and GTID."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ratchet.core.errors import DamagedFileError, DecodeError, LakeError
from ratchet.core.gtid import GtidSet
from ratchet.core.position import Position
from ratchet.store.cuts import Cut, Cuts, CutShard
from ratchet.store.delta.appendlog import NumberRange
from ratchet.store.files import Lake

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


def cut(number: int, *, round_number: int, last: int, latest: int, domain: int = 1) -> Cut:
    mysql = Position(executed=GtidSet.parse("mysql", f"{UUID}:1-{last}"))
    mariadb = Position(executed=GtidSet.parse("mariadb", f"0-1-{domain}"))
    return Cut(
        number=number,
        round=round_number,
        merged_at=latest + 5_000_000,
        shards={
            name: CutShard(
                position=position, min_ts=1, max_ts=latest, latest_ts=latest, observed_at=latest + 1
            )
            for name, position in (("k/-80", mysql), ("k/80-", mariadb))
        },
        tables={"k.t": number * 10},
        stopped=("k.u",),
    )


CUTS = [
    cut(1, round_number=3, last=10, latest=1_000_000),
    cut(2, round_number=3, last=10, latest=1_000_000),
    cut(3, round_number=7, last=15, latest=2_000_001, domain=4),
    cut(4, round_number=8, last=15, latest=2_000_001, domain=9),
]


@pytest.fixture
def cuts(tmp_path: Path) -> Cuts:
    writer = Cuts(Lake.at(tmp_path))
    for value in CUTS:
        writer.append(value)
    return Cuts(Lake.at(tmp_path))


def test_no_cuts(tmp_path: Path) -> None:
    empty = Cuts(Lake.at(tmp_path))
    assert empty.last() is None
    assert empty.at_round(5) is None
    assert empty.at_time(5) is None
    assert empty.holding_gtid(f"{UUID}:1") is None
    assert empty.first_since(0) is None


def test_a_cut_comes_back_as_it_went_in(cuts: Cuts) -> None:
    assert cuts.last() == CUTS[3]


def test_by_round(cuts: Cuts) -> None:
    found = [cuts.at_round(n) for n in (2, 3, 6, 7, 99)]
    assert found == [None, CUTS[1], CUTS[1], CUTS[2], CUTS[3]]


def test_by_time_nothing_later_is_inside(cuts: Cuts) -> None:
    found = [cuts.at_time(t) for t in (999_999, 1_000_000, 2_000_000, 2_000_001)]
    assert found == [None, CUTS[1], CUTS[1], CUTS[3]]


def test_by_gtid_the_first_that_holds_it(cuts: Cuts) -> None:
    found = [cuts.holding_gtid(f"{UUID}:{n}") for n in (1, 10, 11, 15, 16)]
    assert found == [CUTS[0], CUTS[0], CUTS[2], CUTS[2], None]
    assert cuts.holding_gtid("0-7-5") == CUTS[3]


def test_what_is_no_gtid_is_said_to_be_none(cuts: Cuts) -> None:
    with pytest.raises(DecodeError, match="no GTID"):
        cuts.holding_gtid("yesterday")


def test_by_merge_time_and_pruning(cuts: Cuts) -> None:
    assert cuts.first_since(6_000_001) == CUTS[2]
    cuts.prune(3)
    assert cuts.at_round(3) is None
    assert cuts.holding_gtid(f"{UUID}:1") == CUTS[2]
    cuts.prune(99)
    assert cuts.last() == CUTS[3]


def test_a_wrong_number_is_refused(cuts: Cuts) -> None:
    with pytest.raises(LakeError, match="cannot follow"):
        cuts.append(CUTS[3])


def life(number: int, executed: str, generation: int) -> Cut:
    """A cut of one shard, whose stream may have begun anew."""
    shard = CutShard(
        position=Position(executed=GtidSet.parse("mysql", executed)),
        min_ts=1, max_ts=1, latest_ts=1, observed_at=1, generation=generation,
    )  # fmt: skip
    return Cut(number=number, round=number, merged_at=1, shards={"k/-": shard}, tables={})


def test_by_gtid_in_the_newest_life_of_a_name(tmp_path: Path) -> None:
    """After a reset, and after a gap: nothing tells whether the names before mean the same."""
    cuts = Cuts(Lake.at(tmp_path))
    lives = [
        ("1-10", 0), ("1-20", 0), ("1-30", 0),
        ("1-3", 1), ("1-8", 1), ("1-12", 1),
        ("1-15", 2), ("1-18", 2),
    ]  # fmt: skip
    for number, (executed, generation) in enumerate(lives, 1):
        cuts.append(life(number, f"{UUID}:{executed}", generation))
    found = {n: cuts.holding_gtid(f"{UUID}:{n}") for n in (2, 7, 12, 14, 18, 19, 25, 31)}
    numbers = {n: None if cut is None else cut.number for n, cut in found.items()}
    assert numbers == {2: 7, 7: 7, 12: 7, 14: 7, 18: 8, 19: 2, 25: 3, 31: None}


def test_by_gtid_of_a_shard_that_is_no_more(tmp_path: Path) -> None:
    cuts = Cuts(Lake.at(tmp_path))
    cuts.append(life(1, f"{UUID}:1-10", 0))
    cuts.append(life(2, f"{UUID}:1-20", 0))
    other = UUID.replace("3e", "4e")
    for number, last in ((3, 5), (4, 9)):
        heir = life(number, f"{other}:1-{last}", 1)
        cuts.append(replace(heir, shards={"k/-80": heir.shards["k/-"]}))
    found = [cuts.holding_gtid(name) for name in (f"{UUID}:15", f"{other}:1", f"{other}:7")]
    assert [cut and cut.number for cut in found] == [2, 3, 4]


READS: dict[str, Callable[[Cuts], object]] = {
    "last": Cuts.last,
    "at_round": lambda cuts: cuts.at_round(99),
    "at_time": lambda cuts: cuts.at_time(10**12),
    "holding_gtid": lambda cuts: cuts.holding_gtid(f"{UUID}:12"),
    "first_since": lambda cuts: cuts.first_since(0),
    "append": lambda cuts: cuts.append(cut(5, round_number=9, last=16, latest=3_000_000)),
}


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize(("source", "target"), [(2, 3), (3, 2), (0, 3), (3, 0)])
def test_a_file_in_the_place_of_another_one(
    cuts: Cuts, tmp_path: Path, read: str, source: int, target: int
) -> None:
    def number(file: Path) -> int:
        return int(pq.read_table(file)["cut"][0].as_py())

    files = sorted((tmp_path / "_ratchet/cuts").glob("*.parquet"), key=number)
    files[target].write_bytes(files[source].read_bytes())
    if read in {"last", "append"} and target != 3:
        READS[read](cuts)
        return
    with pytest.raises(DamagedFileError) as caught:
        READS[read](cuts)
    assert "remove the folder _ratchet/cuts" in caught.value.hint


@pytest.mark.parametrize("other", [CUTS[2], None])
def test_a_cut_that_is_missing_or_another_one(
    cuts: Cuts, tmp_path: Path, other: Cut | None
) -> None:
    def change(rows: pa.Table) -> pa.Table:
        if other is None:
            return rows.slice(0, 0)
        at = rows.schema.get_field_index("record")
        record = pa.array([json.dumps(other.to_json())])
        return rows.set_column(at, rows.schema.field(at), record)

    cuts._table.rewrite(NumberRange("cut", 4, 4), change)
    for read in ("last", "append"):
        with pytest.raises(DamagedFileError) as caught:
            READS[read](Cuts(Lake.at(tmp_path)))
        assert "remove the folder _ratchet/cuts" in caught.value.hint
