"""The round log: numbers without holes, positions over all history, one writer."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ratchet.store.rounds
from ratchet.core.errors import DamagedFileError, LakeError
from ratchet.core.gtid import GtidSet
from ratchet.core.position import Position
from ratchet.core.rounds import ChangeFile, GtidRange, Journal, Round, ShardSlice
from ratchet.store.delta.appendlog import NumberRange
from ratchet.store.files import Lake
from ratchet.store.rounds import RoundLog, StreamState

ROOT = Path(__file__).resolve().parents[3]
UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


def position(last: int) -> Position:
    return Position(executed=GtidSet.parse("mysql", f"{UUID}:1-{last}"), server="s", file="f.1")


def make_round(number: int, shard: str, first: int, last: int) -> Round:
    one = ShardSlice(
        shard=shard,
        generation=0,
        start=position(first),
        end=position(last),
        runs=(GtidRange(UUID, first + 1, last, first + 1),),
        transactions=last - first,
        rows=1,
        bytes=10,
        min_ts=1_000_000,
        max_ts=2_000_000,
        observed_at=3_000_000,
        caught_up=True,
    )
    file = ChangeFile(
        keyspace="k",
        table="t",
        shard=shard,
        schema="0",
        path="p",
        rows=1,
        bytes=10,
        min_seq=first + 1,
        max_seq=last,
        inserts=1,
        updates=0,
        deletes=0,
        misfits={},
    )
    return Round(number=number, committed_at=5, slices=(one,), files=(file,), events=())


def test_an_empty_log(tmp_path: Path) -> None:
    log = RoundLog(Lake.at(tmp_path))
    assert (log.last(), log.last_number(), log.positions(), log.since(0)) == (None, 0, {}, [])
    log.prune(5)


def test_rounds_come_back_as_they_went_in(tmp_path: Path) -> None:
    log = RoundLog(Lake.at(tmp_path))
    rounds = [
        make_round(1, "k/-80", 5, 9),
        make_round(2, "k/80-", 1, 2),
        make_round(3, "k/-80", 9, 11),
    ]
    for value in rounds:
        log.append(value)
    for reader in (log, RoundLog(Lake.at(tmp_path))):
        assert reader.last() == rounds[2]
        assert reader.since(0) == rounds
        assert reader.since(2) == rounds[2:]
        assert reader.since(3) == []
        assert (reader.earliest_above(1), reader.earliest_above(3)) == (1_000_000, None)
        assert reader.positions() == {"k/-80": position(11), "k/80-": position(2)}


def test_streams_end_by_a_journal_and_begin_as_heirs(tmp_path: Path) -> None:
    """What a stream descends from, and the round in which it began, stay with it."""
    log = RoundLog(Lake.at(tmp_path))
    log.append(make_round(1, "k/0", 1, 2))
    journal = Journal(sources=("k/0",), targets={"k/-80": position(1), "k/80-": position(1)})
    last = make_round(2, "k/0", 2, 3)
    log.append(replace(last, slices=(replace(last.slices[0], journal=journal),)))
    assert log.streams()["k/0"].journal == journal
    begun = [
        replace(
            make_round(3, shard, 1, 1).slices[0], generation=1, ancestors={"k/0": 0}, max_ts=None
        )
        for shard in journal.targets
    ]
    log.append(replace(make_round(3, "k/-80", 1, 1), slices=tuple(begun)))
    after = make_round(4, "k/-80", 1, 5)
    log.append(replace(after, slices=(replace(after.slices[0], generation=1),)))
    for reader in (log, RoundLog(Lake.at(tmp_path))):
        heir = StreamState(position=position(5), generation=1, ancestors={"k/0": 0}, begun=3)
        # An heir's stream begins in the past: up to which time it is read, its changes tell.
        assert reader.streams() == {
            "k/-80": replace(heir, ts=after.slices[0].max_ts),
            "k/80-": replace(heir, position=position(1)),
        }
        assert reader.streams_at(2)["k/0"].journal == journal
        assert set(reader.positions_at(2)) == {"k/0"}


def test_the_first_of_a_time_and_some_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fortnight's rounds fit into no memory: whoever goes through them holds some."""
    monkeypatch.setattr(ratchet.store.rounds, "_AT_ONCE", 10)
    log = RoundLog(Lake.at(tmp_path))
    rounds = [
        replace(make_round(number, "k/-", number, number + 1), committed_at=number * 100)
        for number in range(1, 36)
    ]
    for value in rounds:
        log.append(value)
    reader = RoundLog(Lake.at(tmp_path))
    assert [reader.first_since(moment) for moment in (0, 100, 101, 3500, 3501)] == [
        1, 1, 2, 35, None,
    ]  # fmt: skip
    read: list[tuple[int, int]] = []
    rows = reader._rows

    def noted(first: int, last: int) -> list[dict[str, Any]]:
        read.append((first, last))
        return rows(first, last)

    monkeypatch.setattr(reader, "_rows", noted)
    assert list(reader.walk(3, 24)) == rounds[2:24]
    assert read == [(3, 12), (13, 22), (23, 24)]
    assert next(reader.walk(1, 35)) == rounds[0]
    assert read[3:] == [(1, 10)]
    assert list(reader.walk(5, 4)) == []
    with pytest.raises(LakeError, match="rounds 31 to 40 are needed, but the log has 5 of them"):
        list(reader.walk(21, 50))


def test_a_gap_or_a_repetition_is_refused(tmp_path: Path) -> None:
    log = RoundLog(Lake.at(tmp_path))
    with pytest.raises(LakeError, match="cannot follow"):
        log.append(make_round(2, "k/-", 1, 2))
    log.append(make_round(1, "k/-", 1, 2))
    with pytest.raises(LakeError, match="cannot follow"):
        log.append(make_round(1, "k/-", 1, 2))


def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    """Both know round 1 as the last; the slower one's round 2 must not get in."""
    log, other = RoundLog(Lake.at(tmp_path)), RoundLog(Lake.at(tmp_path))
    log.append(make_round(1, "k/-", 1, 2))
    assert other.last_number() == 1
    log.append(make_round(2, "k/-", 2, 3))
    with pytest.raises(LakeError):
        other.append(make_round(2, "k/-", 2, 4))
    # The race proper: the other one's look at the table is older than our commit.
    for late in (False, True):
        number = 4 if late else 3
        stale = RoundLog(Lake.at(tmp_path))
        stale.last()
        table = stale._table
        opened = table._open()
        log.append(make_round(number, "k/-", number, number + 1))
        table.version_of = lambda _, last=number - 1: last  # type: ignore[method-assign]
        if late:  # later still: between the last look and the commit
            table._open = lambda it=opened: it  # type: ignore[method-assign]
        with pytest.raises(LakeError, match="another process"):
            stale.append(make_round(number, "k/-", number, 9))
    wanted = [make_round(number, "k/-", number, number + 1) for number in (3, 4)]
    assert RoundLog(Lake.at(tmp_path)).since(2) == wanted


def test_pruning_keeps_the_newest_and_positions(tmp_path: Path) -> None:
    log = RoundLog(Lake.at(tmp_path))
    log.append(make_round(1, "k/-80", 1, 2))
    log.append(make_round(2, "k/80-", 1, 2))
    log.append(make_round(3, "k/80-", 2, 3))
    log.prune(100)
    fresh = RoundLog(Lake.at(tmp_path))
    assert fresh.first_number() == 3
    assert fresh.positions() == {"k/-80": position(2), "k/80-": position(3)}
    with pytest.raises(LakeError, match="1 of them"):
        fresh.since(1)
    fresh.append(make_round(4, "k/80-", 3, 4))
    assert [r.number for r in RoundLog(Lake.at(tmp_path)).since(2)] == [3, 4]


def test_the_log_stays_small(tmp_path: Path) -> None:
    """Compaction runs by itself: 120 commits leave far fewer live files."""
    log = RoundLog(Lake.at(tmp_path))
    for number in range(1, 121):
        log.append(make_round(number, "k/-", number, number + 1))
    table = log._table._open()
    assert table is not None
    assert len(table.file_uris()) <= 21
    assert len(RoundLog(Lake.at(tmp_path)).since(0)) == 120


def test_a_process_that_ends_right_after_reading_ends_well(tmp_path: Path) -> None:
    """It used to abort every other time: Arrow's threads held Python's buffers until the end."""
    log = RoundLog(Lake.at(tmp_path))
    for number in range(1, 8):
        log.append(make_round(number, "k/-", number, number + 1))
    program = (
        "from ratchet.store.files import Lake\n"
        "from ratchet.store.rounds import RoundLog\n"
        f"RoundLog(Lake.at({str(tmp_path)!r})).earliest_above(0)\n"
    )
    for _ in range(5):
        done = subprocess.run([sys.executable, "-c", program], check=False, cwd=ROOT)
        assert done.returncode == 0


READS: dict[str, Callable[[RoundLog], object]] = {
    "last": RoundLog.last,
    "streams": RoundLog.streams,
    "streams_at": lambda log: [log.streams_at(number) for number in (1, 2, 3)],
    "since": lambda log: log.since(0),
    "walk": lambda log: list(log.walk(1, 3)),
    "earliest_above": lambda log: log.earliest_above(0),
    "first_since": lambda log: log.first_since(0),
    "names": lambda log: [log.names(number, "p") for number in (1, 2, 3)],
    "extent": RoundLog.extent,
    "append": lambda log: log.append(make_round(4, "k/-", 4, 5)),
    "compact": lambda log: log._table.compact(),
    "prune": lambda log: log.prune(3),
}
OUT = "remove the folders _ratchet/rounds and _ratchet/cuts"


def three(tmp_path: Path) -> RoundLog:
    log = RoundLog(Lake.at(tmp_path))
    for number in (1, 2, 3):
        log.append(make_round(number, "k/-", number, number + 1))
    return RoundLog(Lake.at(tmp_path))


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize(("source", "target"), [(1, 2), (2, 1), (0, 2), (0, 1), (2, 0)])
def test_a_file_in_the_place_of_another_one(
    tmp_path: Path, read: str, source: int, target: int
) -> None:
    """Whole as it is, it has other rounds than the log says."""
    sound = READS[read](three(tmp_path / "sound"))
    log = three(tmp_path)
    files = sorted((tmp_path / "_ratchet/rounds").glob("*.parquet"), key=_number)
    files[target].write_bytes(files[source].read_bytes())
    newest_only, others_only = {"last", "streams", "append"}, {"prune"}
    looks_elsewhere = read in (others_only if target == 2 else newest_only)
    if looks_elsewhere or read == "extent":
        assert READS[read](log) == sound
        return
    with pytest.raises(DamagedFileError) as caught:
        READS[read](log)
    assert files[target].name in str(caught.value)
    assert OUT in caught.value.hint


def _number(file: Path) -> int:
    return int(pq.read_table(file)["round"][0].as_py())


@pytest.mark.parametrize("lost", [2, 3])
def test_a_round_that_is_missing_and_was_not_pruned(tmp_path: Path, lost: int) -> None:
    log = three(tmp_path)
    log._table.rewrite(NumberRange("round", lost, lost), lambda rows: rows.slice(0, 0))
    for read in ("streams_at", "since", "names") if lost < 3 else ("last", "streams", "append"):
        with pytest.raises(DamagedFileError) as caught:
            READS[read](RoundLog(Lake.at(tmp_path)))
        assert OUT in caught.value.hint


@pytest.mark.parametrize("number", [1, 3])
def test_a_record_of_another_round(tmp_path: Path, number: int) -> None:
    log = three(tmp_path)
    other = json.dumps(make_round(2, "k/-", 2, 3).to_json())

    def change(rows: pa.Table) -> pa.Table:
        at = rows.schema.get_field_index("record")
        return rows.set_column(at, rows.schema.field(at), pa.array([other]))

    log._table.rewrite(NumberRange("round", number, number), change)
    for read in ("since", "names") if number < 3 else ("last", "since", "append"):
        with pytest.raises(DamagedFileError) as caught:
            READS[read](RoundLog(Lake.at(tmp_path)))
        assert OUT in caught.value.hint
