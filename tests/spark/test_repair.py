"""What a repair writes, against the model: later changes win, earlier ones never."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from ratchet.core.change import REPAIR_IDX
from ratchet.merge import repair
from ratchet.merge.repair import ExpectedRow, repair_table
from ratchet.store.cuts import Cut, Cuts
from tests.merge_kit import POLICY, Rank, Row, Source, freeze, merger
from tests.model.reference import Register

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

A, B = "-80", "80-"


def put(key: int, value: str) -> tuple[str, dict[str, object]]:
    return ("put", {"id": key, "v": value})


def dumped(tmp_path: Path, **more: Any) -> Source:
    source = Source(tmp_path, shards=(A, B), **more)
    source.tx(A, *(put(n, f"a{n}") for n in range(1, 6)))
    source.tx(B, *(put(n, f"b{n}") for n in range(11, 16)))
    source.dump_all()
    source.round()
    return source


def corrupt(spark: SparkSession, source: Source, statement: str) -> None:
    """Run SQL on the mirrored table `t`, behind everybody's back."""
    path = source.lake.hadoop_uri(source.state.path)
    spark.sql(statement.replace(" t ", f" delta.`{path}` ", 1))


def cut_of(source: Source) -> Cut:
    cut = Cuts(source.lake).last()
    assert cut is not None
    assert cut.round == source.rounds.last_number()
    return cut


def mend(spark: SparkSession, source: Source, *keys: int, shard: str = "") -> None:
    """Repair those keys as the servers have them now, which is where the mirror stands."""
    cut = cut_of(source)
    names = [source._name(shard)] if shard else source.names
    rows = {key: {n: source.logs[n].rows.get(key) for n in names} for key in keys}
    repair_table(
        spark, source.lake, source.state,
        [
            ExpectedRow(key={"id": k}, shard=names[0] if shard else "", rows=r)
            for k, r in rows.items()
        ],
        cut=cut, streams=source.rounds.streams(), policy=POLICY, now=source.clock,
    )  # fmt: skip
    table = [token for row in source.mirror_rows() if (token := row["_token"])]
    number = max((t["idx"] for t in table if t["idx"] > REPAIR_IDX), default=REPAIR_IDX + 1)
    for key, found in rows.items():
        for name, row in found.items():
            place = cut.shards[name]
            rank = (source.logs[name].life.generation, place.position.seq, number)
            frozen = None if row is None else freeze(row)
            source.registers[key, name] = Register(rank, place.latest_ts, frozen)


def test_earlier_changes_are_held_off_and_later_ones_win(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The row of a repair stands behind all of its cut, and before whatever comes."""
    source = dumped(tmp_path)
    with merger(spark, source) as merge:
        source.tx(A, put(1, "first"), put(2, "first"), ("del", 3))
        source.tx(B, ("del", 11), put(12, "second"))
        source.round()
        merge.step()
        source.assert_mirrored()
        corrupt(spark, source, "UPDATE t SET v = 'wrong' WHERE id IN (1, 12)")
        corrupt(spark, source, "DELETE FROM t WHERE id IN (2, 13)")
        corrupt(
            spark, source,
            "INSERT INTO t SELECT 3, 'risen', _token FROM "
            f"delta.`{source.lake.hadoop_uri(source.state.path)}` WHERE id = 4",
        )  # fmt: skip
        mend(spark, source, 1, 2, 3, 12, 13)
        source.assert_mirrored()
        # All that ever was comes once more, with something new.
        source.deliver_again(A)
        source.deliver_again(B)
        source.tx(A, put(2, "third"))
        source.round()
        merge.forget(source.state)
        merge.step()
        source.assert_mirrored()
        source.tx(A, ("del", 1), put(3, "anew"), put(13, "moved to a"))
        source.tx(B, ("del", 13), put(12, "fourth"))
        source.round()
        merge.step()
        source.assert_mirrored()
        source.assert_rows()


@pytest.mark.long
def test_whatever_the_rows_token_says(spark: SparkSession, tmp_path: Path) -> None:
    """A doubled key, a row under another shard's name, under none, and from the future."""
    source = dumped(tmp_path)
    with merger(spark, source) as merge:
        merge.step()
        path = source.lake.hadoop_uri(source.state.path)
        everything = f"SELECT * FROM delta.`{path}`"
        corrupt(spark, source, f"INSERT INTO t {everything} WHERE id IN (1, 2)")
        corrupt(spark, source, f"UPDATE t SET _token.shard = 'shop/{B}' WHERE id = 3")
        corrupt(spark, source, "UPDATE t SET _token = NULL WHERE id = 4")
        corrupt(spark, source, "UPDATE t SET _token.seq = 1000000 WHERE id = 5")
        corrupt(spark, source, "UPDATE t SET id = NULL WHERE id = 11")
        mend(spark, source, 1, 2, 3, 4, 5, 11)
        repair_table(
            spark, source.lake, source.state, [ExpectedRow(key={"id": None}, shard="", rows={})],
            cut=cut_of(source), streams=source.rounds.streams(), policy=POLICY, now=1,
        )  # fmt: skip
        source.assert_mirrored()
        source.tx(A, *(put(n, "later") for n in range(1, 6)))
        source.round()
        merge.step()
        source.assert_mirrored()


@pytest.mark.long
def test_a_hidden_row_that_is_not_there(spark: SparkSession, tmp_path: Path) -> None:
    """What a shadow said of another shard is over, so the shown row's delete shows nothing."""
    source = dumped(tmp_path)
    with merger(spark, source) as merge:
        merge.step()
        source.tx(B, put(1, "hides a's"))
        source.round()
        merge.step()
        source.assert_mirrored()
        del source.logs[f"shop/{A}"].rows[1]  # without a word in the log
        mend(spark, source, 1)
        source.assert_mirrored()
        source.tx(B, ("del", 1))
        source.round()
        merge.forget(source.state)
        merge.step()
        source.assert_mirrored()
        assert 1 not in {key for key, _ in source.mirror()}


@pytest.mark.long
def test_with_the_shard_in_the_key(spark: SparkSession, tmp_path: Path) -> None:
    """One shard's row is mended, the other's of the same key is left alone."""
    source = dumped(tmp_path, shard_in_key=True)
    source.tx(B, put(1, "b's own"))
    source.round()
    with merger(spark, source) as merge:
        merge.step()
        corrupt(
            spark, source, f"UPDATE t SET v = 'wrong' WHERE id = 1 AND _token.shard = 'shop/{A}'"
        )
        mend(spark, source, 1, shard=A)
        source.assert_mirrored()
        corrupt(spark, source, "UPDATE t SET _token.shard = 'shop/none' WHERE id = 12")
        repair_table(
            spark, source.lake, source.state,
            [ExpectedRow(key={"id": 12}, shard="shop/none", rows={})],
            cut=cut_of(source), streams=source.rounds.streams(), policy=POLICY, now=1,
        )  # fmt: skip
        mend(spark, source, 12, shard=B)
        source.assert_mirrored()


@pytest.mark.long
def test_after_a_reshard(spark: SparkSession, tmp_path: Path) -> None:
    """A row that stands under the name of the shard before is mended under its heir's."""
    source = dumped(tmp_path)
    with merger(spark, source) as merge:
        merge.step()
        source.reshard((A,), ("-40", "40-80"), owner=lambda key: "-40" if key < 3 else "40-80")
        source.round()
        while merge.step().worked:
            pass
        source.assert_mirrored()
        corrupt(spark, source, "UPDATE t SET v = 'wrong' WHERE id IN (1, 12)")
        corrupt(spark, source, "DELETE FROM t WHERE id = 4")
        mend(spark, source, 1, 4, 12)
        for key in (1, 4, 12):  # what its heirs imply
            source.registers.pop((key, f"shop/{A}"), None)
        source.assert_mirrored()
        source.assert_rows()
        source.tx("-40", ("del", 1))
        source.tx("40-80", put(4, "later"))
        source.round()
        merge.step()
        source.assert_mirrored()
        source.assert_rows()


def tombstones(source: Source) -> dict[tuple[int, str], Rank]:
    """The newest tombstone of each key and shard."""
    table = DeltaTable(source.lake.delta_uri(source.state.side_path))
    reader = QueryBuilder().register("t", table).execute("SELECT key, shard, token FROM t")
    found: dict[tuple[int, str], Rank] = {}
    for row in pa.table(reader.read_all()).to_pylist():
        token, place = row["token"], (row["key"]["id"], row["shard"])
        rank = (token["generation"], token["seq"], token["idx"])
        found[place] = max(rank, found.get(place, rank))
    return found


class _Killed(Exception):  # noqa: N818 - it stands for a kill
    pass


@pytest.mark.long
@pytest.mark.parametrize(
    "point",
    [
        pytest.param("repair.before_side", marks=pytest.mark.long),
        pytest.param("repair.after_side", marks=pytest.mark.long),
        "repair.after_merge",
    ],
)
def test_killed_and_done_again_otherwise(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """The source changed without a word before the second try: that one holds, not both."""
    source = dumped(tmp_path)
    with merger(spark, source) as merge:
        merge.step()
        a = source.logs[f"shop/{A}"].rows
        kept: Row = a.pop(1)
        a[9] = {"id": 9, "v": "silent"}

        def die(name: str) -> None:
            if name == point:
                raise _Killed

        with monkeypatch.context() as patched:
            patched.setattr(repair, "reach", die)
            with pytest.raises(_Killed):
                mend(spark, source, 1, 9)
        a[1] = kept
        del a[9]
        mend(spark, source, 1, 9)
        source.assert_mirrored()
        assert {key for key, _ in source.mirror()} == {1, 2, 3, 4, 5, 11, 12, 13, 14, 15}
        assert tombstones(source)[9, f"shop/{A}"] == source.mirror()[1, f"shop/{A}"][0]
        source.tx(A, put(9, "now"), put(1, "later"))
        source.deliver_again(A)
        source.round()
        merge.forget(source.state)
        merge.step()
        source.assert_mirrored()
