"""Which rows went with a partition, by the last look and all that the log has since."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable

from ratchet.core.partitions import Partition, RangeLayout
from ratchet.core.position import Position
from ratchet.core.reshaping import NotComputableError
from ratchet.merge.remake import remake, reshaping_of
from ratchet.store.cuts import Cut, Cuts
from ratchet.store.delta.tables import table_version
from ratchet.store.partitionlooks import PartitionLook, PartitionLooks
from ratchet.store.rounds import RoundLog
from ratchet.store.stops import ShapeChange
from ratchet.store.tables import TableState
from tests.merge_kit import POLICY, Source, merger
from tests.unit.merge.test_remake import rows_of

LAYOUT = RangeLayout(
    "`id`", (Partition("a", "10"), Partition("b", "20"), Partition("c", "MAXVALUE"))
)
DROP = "ALTER TABLE t DROP PARTITION b"


def mirrored(folder: Path) -> Source:
    """A table that is shown, with rows in each partition."""
    source = Source(folder, shards=("-",))
    source.round()
    source.tx("-", *(("put", {"id": n, "v": f"row {n}"}) for n in (1, 9, 10, 19, 20, 99)))
    source.dump_all()
    source.round()
    with merger(None, source) as merging:
        merging.step()
    return source


def look(
    source: Source,
    *,
    position: Position | None = None,
    since: Position | None = None,
    round_: int | None = None,
) -> None:
    """A run looks how it is partitioned."""
    rounds = RoundLog(source.lake)
    end = position or source.position("-")
    found = PartitionLook(
        layout=LAYOUT,
        round=rounds.last_number() if round_ is None else round_,
        since=since or end,
        position=end,
    )
    PartitionLooks(source.lake).save("shop", "t", {"shop/-": [found]})


def altered(source: Source, statements: Iterable[str]) -> TableState:
    """The table, stopped by the last of some statements."""
    for statement in statements:
        source.event("-", statement)
        seq = source.logs["shop/-"].seq
    source.tx("-", ("put", {"id": 12, "v": "behind"}), ("del", 99))
    source.round()
    change = ShapeChange(
        shard="shop/-",
        position=source.position("-", seq),
        round=RoundLog(source.lake).last_number(),
        statement=statement,
    )
    state = replace(source.state, phase="stopped", change=change, generated=False)
    version = table_version(source.lake, state.shown_path)
    assert version is not None
    before = Cuts(source.lake).last()
    assert before is not None
    cut = Cut(
        number=before.number + 1, round=change.round, merged_at=1, shards={},
        tables={state.name: version}, stopped=(state.name,),
    )  # fmt: skip
    Cuts(source.lake).append(cut)
    return source.tables.save(state)


def gone(source: Source, *statements: str) -> object:
    """What goes by the last of them."""
    state = altered(source, statements)
    found = reshaping_of(source.lake, state, POLICY, lambda _: None)
    assert found.gone is not None
    return list(found.gone.spans)


def test_its_rows_go_and_the_others_stay_as_they_are(tmp_path: Path) -> None:
    source = mirrored(tmp_path)
    look(source)
    state = altered(source, [DROP])
    found = reshaping_of(source.lake, state, POLICY, lambda _: None)
    made = remake(source.lake, state, found, deletion_vectors=True, now=1)
    assert made is not None
    assert made.phase == "catching_up"
    assert made.is_of_one_place
    assert not made.doubts
    assert sorted(row["id"] for row in rows_of(source, made.path)) == [1, 9, 20, 99]
    with merger(None, source) as merging:
        merging.step()
    assert source.state.phase == "streaming"
    assert {row["id"] for row in source.mirror_rows()} == {1, 9, 12, 20}


def test_files_of_which_no_row_goes_are_carried_over(tmp_path: Path) -> None:
    source = mirrored(tmp_path)
    # A file of its own with rows far away, of which one is gone by a vector.
    source.tx("-", *(("put", {"id": n, "v": "far"}) for n in (500, 501, 502)))
    source.round()
    with merger(None, source) as merging:
        merging.step()
        source.tx("-", ("del", 501))
        source.round()
        merging.step()
    look(source)
    before = set(DeltaTable(source.lake.delta_uri(source.state.shown_path)).file_uris())
    state = altered(source, [DROP])
    found = reshaping_of(source.lake, state, POLICY, lambda _: None)
    made = remake(source.lake, state, found, deletion_vectors=True, now=1)
    assert made is not None
    names = {uri.rpartition("/")[2] for uri in before}
    staged = DeltaTable(source.lake.delta_uri(made.path)).file_uris()
    carried = names & {uri.rpartition("/")[2] for uri in staged}
    assert carried
    assert carried != names
    assert sorted(row["id"] for row in rows_of(source, made.path)) == [1, 9, 20, 99, 500, 502]
    with merger(None, source) as merging:
        merging.step()
    shown = {row["id"] for row in source.mirror_rows()}
    assert shown == {1, 9, 12, 20, 500, 502}
    after = {
        uri.rpartition("/")[2]
        for uri in DeltaTable(source.lake.delta_uri(source.state.shown_path)).file_uris()
    }
    assert carried & after
    # An older version still has what it had.
    uri = source.lake.delta_uri(state.shown_path)
    assert set(DeltaTable(uri, version=made.standing).file_uris()) == before


@pytest.mark.parametrize(
    ("between", "spans"),
    [
        ([], [(10, 20)]),
        (["ALTER TABLE t ADD PARTITION (PARTITION d VALUES LESS THAN (99))"], [(10, 20)]),
        (["ALTER TABLE t DROP PARTITION a"], [(None, 20)]),
        (["ALTER TABLE t TRUNCATE PARTITION a, b"], [(10, 20)]),
        (
            ["ALTER TABLE t REORGANIZE PARTITION a INTO (PARTITION z VALUES LESS THAN (10))"],
            [(10, 20)],
        ),
        (
            ["ALTER TABLE t ADD INDEX i (v)", "CREATE INDEX j ON t (v)", "OPTIMIZE TABLE t"],
            [(10, 20)],
        ),
    ],
)
def test_what_came_since_is_followed(
    tmp_path: Path, between: list[str], spans: list[tuple[int | None, int]]
) -> None:
    source = mirrored(tmp_path)
    look(source)
    effects_of(source)
    assert gone(source, *between, DROP) == spans


def effects_of(source: Source) -> None:
    """Events get the effects that capture gives them."""
    plain = source.event

    def event(shard: str, statement: str, *, truncate: bool = False) -> int:
        seq = plain(shard, statement, truncate=truncate)
        events = source.logs["shop/-"].events
        effect = "rebuild" if {"INDEX", "OPTIMIZE"} & {*statement.split()} else "rows"
        events[-1] = replace(events[-1], effect=effect)  # type: ignore[arg-type]
        return seq

    source.event = event  # type: ignore[method-assign]


@pytest.mark.parametrize(
    "between",
    [
        "ALTER TABLE t PARTITION BY RANGE (id) (PARTITION b VALUES LESS THAN (5))",
        "ALTER TABLE t REMOVE PARTITIONING",
        "ALTER TABLE t EXCHANGE PARTITION b WITH TABLE u",
        "ALTER TABLE t REORGANIZE PARTITION a, b INTO (PARTITION b VALUES LESS THAN (20))",
        "ALTER TABLE t DROP PARTITION b",  # another b must have come
        "ALTER TABLE t DROP PARTITION nobody_knows",
        "ALTER TABLE t MODIFY id BIGINT UNSIGNED",
        "ALTER TABLE t RENAME TO u",
        "RENAME TABLE t TO u, u TO t",
        "DROP TABLE t",
        "CREATE TABLE t (id INT PRIMARY KEY)",
        "ALTER TABLE t DO SOMETHING NEW",
        "ALTER TABLE t /*!50100 DROP PARTITION a */",
        "ALTER TABLE t " + "ADD INDEX (v), " * 200 + "ADD INDEX (v)",
    ],
)
def test_what_is_not_followed(tmp_path: Path, between: str) -> None:
    source = mirrored(tmp_path)
    look(source)
    effects_of(source)
    state = altered(source, [between, DROP])
    with pytest.raises(NotComputableError):
        reshaping_of(source.lake, state, POLICY, lambda _: None)


def test_looks_that_tell_nothing(tmp_path: Path) -> None:
    source = mirrored(tmp_path)
    state = altered(source, [DROP])

    def refused(why: str) -> None:
        with pytest.raises(NotComputableError, match=why):
            reshaping_of(source.lake, state, POLICY, lambda _: None)

    refused("how it was partitioned is not known")
    last = RoundLog(source.lake).last_number()
    look(source, round_=last)  # behind the statement
    refused("how it was partitioned is not known")
    look(source, round_=last - 1)  # while it came
    refused("how it was partitioned is not known")
    look(source, round_=0, position=source.position("-", 1))
    refused("as far as the change log reaches back")
    look(source, round_=last - 1, position=source.position("-", 1))
    assert reshaping_of(source.lake, state, POLICY, lambda _: None).gone is not None
    assert state.dump is not None
    # Of one that was dumped since, the log may lack what came before.
    late = replace(state, dump=replace(state.dump, start_round=last + 1))
    with pytest.raises(NotComputableError, match="as far as the change log"):
        reshaping_of(source.lake, late, POLICY, lambda _: None)
    unknown = replace(state, dump=replace(state.dump, computed=True))
    with pytest.raises(NotComputableError, match="as far as the change log"):
        reshaping_of(source.lake, unknown, POLICY, lambda _: None)


def test_a_statement_while_a_run_looked(tmp_path: Path) -> None:
    """The look may have seen it or not."""
    source = mirrored(tmp_path)
    effects_of(source)
    number, before = RoundLog(source.lake).last_number(), source.position("-")
    source.event("-", "ALTER TABLE t DROP PARTITION a")
    after = source.position("-")
    state = altered(source, [DROP])
    look(source, round_=number, since=before, position=after)
    with pytest.raises(NotComputableError, match="while a run looked"):
        reshaping_of(source.lake, state, POLICY, lambda _: None)
    # What it had executed before it was asked is in its answer, though captured later.
    look(source, round_=number, since=after, position=after)
    found = reshaping_of(source.lake, state, POLICY, lambda _: None)
    assert found.gone is not None
    assert found.gone.spans == ((10, 20),)


def test_a_log_that_is_not_whole(tmp_path: Path) -> None:
    source = mirrored(tmp_path)
    look(source)
    log = source.logs["shop/-"]
    log.start += 1
    log.seq += 1
    state = altered(source, [DROP])
    with pytest.raises(NotComputableError, match="not whole"):
        reshaping_of(source.lake, state, POLICY, lambda _: None)
