"""Which looks at partitions are kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ratchet.core.partitions import Partition, RangeLayout
from ratchet.core.position import Position
from ratchet.core.shard import ShardId
from ratchet.jobs.watch.partitions import EVERY, Layouts, PartitionWatch
from ratchet.snapshot.records import ShardSource
from ratchet.store.partitionlooks import PartitionLooks
from ratchet.wire.session import SourceConfig
from tests.merge_kit import Source, merger

SHARD = "shop/-"


class Look:
    """A watch on a table `t`, the rounds of whose shard are there; what the server says is told."""

    def __init__(self, folder: Path) -> None:
        self.source = Source(folder, shards=("-",))
        self.source.round()
        self.source.tx("-", ("put", {"id": 1, "v": "one"}))
        self.source.dump_all()
        self.now, self.told = 0.0, 0
        self.away = self.same = False
        self.since: int | None = None  # `seq` of what was executed when it was asked
        config = SourceConfig(
            shard=ShardId("shop", "-"), host="h", port=1, user="u", password="", database="d"
        )
        self.watch = PartitionWatch(
            self.source.lake,
            {SHARD: ShardSource(config=config)},
            lambda keyspace, table: (keyspace, table) == ("shop", "t"),
            read=self._read,
            clock=lambda: self.now,
        )

    def _read(self, source: ShardSource, captured: Position) -> Layouts | None:
        del source, captured
        self.told += not self.same
        one = RangeLayout("`id`", (Partition(f"p{self.told}", "9"),))
        found = {"t": one, "another": one}
        since, here = self.source.position("-", self.since), self.source.position("-")
        return None if self.away else Layouts(found, since, here)

    def look(self) -> list[str]:
        """Look when it is time; which of the looks are kept."""
        self.now += EVERY
        self.watch.look()
        looks = PartitionLooks(self.source.lake).of("shop", "t").get(SHARD, ())
        return [one.layout.partitions[0].name for one in looks]

    def go_on(self, *statements: str) -> None:
        """Rows, statements, a round, and a merge of it."""
        self.source.tx("-", ("put", {"id": 2, "v": "two"}))
        for statement in statements:
            self.source.event("-", statement)
            events = self.source.logs[SHARD].events
            events[-1] = replace(events[-1], effect="rebuild")
        self.source.round()
        with merger(None, self.source) as merging:
            merging.step()


def test_the_newest_two_are_kept(tmp_path: Path) -> None:
    one = Look(tmp_path)
    one.go_on()
    assert one.look() == ["p1"]
    one.go_on()
    assert one.look() == ["p1", "p2"]
    one.go_on()
    assert one.look() == ["p2", "p3"]
    assert not PartitionLooks(one.source.lake).of("shop", "another")


def test_the_older_one_stays_while_what_is_between_is_not_merged(tmp_path: Path) -> None:
    one = Look(tmp_path)
    one.go_on()
    assert one.look() == ["p1"]
    one.go_on()
    one.source.tx("-", ("put", {"id": 3, "v": "three"}))
    one.source.round()
    assert one.look() == ["p1", "p2"]
    one.source.tx("-", ("put", {"id": 4, "v": "four"}))
    one.source.round()
    assert one.look() == ["p1", "p2"], "nothing of the last two rounds is merged"
    one.go_on()
    assert one.look() == ["p2", "p4"]


def test_a_look_that_met_a_statement_makes_way_first(tmp_path: Path) -> None:
    one = Look(tmp_path)
    one.go_on()
    assert one.look() == ["p1"]
    one.source.event("-", "ALTER TABLE t ADD INDEX (v)")  # not captured yet when it is looked
    events = one.source.logs[SHARD].events
    events[-1] = replace(events[-1], effect="rebuild")
    one.since = events[-1].seq - 1
    assert one.look() == ["p1", "p2"]
    one.since = None
    one.go_on()
    assert one.look() == ["p1", "p3"]


def test_a_statement_that_was_executed_before_it_is_asked(tmp_path: Path) -> None:
    """And captured later, as behind a time without a run."""
    one = Look(tmp_path)
    one.go_on()
    assert one.look() == ["p1"]
    one.source.event("-", "ALTER TABLE t ADD INDEX (v)")
    assert one.look() == ["p1", "p2"]
    one.go_on()
    assert one.look() == ["p2", "p3"]


def test_one_that_fails_is_tried_again_soon(tmp_path: Path) -> None:
    one = Look(tmp_path)
    one.go_on()
    one.away = True
    assert one.look() == []
    one.away = False
    one.now += 20 - EVERY
    assert one.look() == ["p2"]
    one.now += 20 - EVERY
    assert one.look() == ["p2"], "not before it is time"


def test_one_that_finds_nothing_new_is_not_noted(tmp_path: Path) -> None:
    one = Look(tmp_path)
    one.go_on()
    assert one.look() == ["p1"]
    one.same = True
    one.go_on()
    assert one.look() == ["p1"]
    one.now += 1800
    assert one.look() == ["p1", "p1"]
    one.watch.look(now=True)
    assert one.look() == ["p1", "p1"]


def test_behind_a_dump_it_is_noted_again(tmp_path: Path) -> None:
    """The log may lack what came before."""
    one = Look(tmp_path)
    one.go_on()
    assert one.look() == ["p1"]
    one.same = True
    one.go_on()
    state = one.source.state
    assert state.dump is not None
    one.source.tables.save(replace(state, dump=replace(state.dump, start_round=9)))
    assert one.look() == ["p1", "p1"]


def test_the_older_one_stays_until_all_that_a_look_saw_is_merged(tmp_path: Path) -> None:
    """A run that was killed has looked behind statements that the next one is still to merge."""
    one = Look(tmp_path)
    one.go_on()
    assert one.look() == ["p1"]
    one.source.event("-", "ALTER TABLE t ADD INDEX (v)")
    assert one.look() == ["p1", "p2"]
    assert one.look() == ["p1", "p2"], "it is not captured yet"
    one.source.round()
    assert one.look() == ["p1", "p2"], "nor merged"
    one.go_on()
    assert one.look() == ["p2", "p5"]
