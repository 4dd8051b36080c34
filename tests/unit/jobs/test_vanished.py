"""A table that its server does not have any more is in doubt, if it is not so already."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ratchet.core.gtid import GtidSet
from ratchet.core.position import Position
from ratchet.core.schema import TableSchema
from ratchet.jobs.watch.vanished import doubt_vanished
from ratchet.store.dumpstates import DumpState
from ratchet.store.formats import open_lake
from ratchet.store.stops import Doubt
from ratchet.store.tables import Phase, Tables, TableState

POSITION = Position(executed=GtidSet.parse("mariadb", "0-1-5"))
BEFORE = Doubt(message="a statement", statement="ALTER TABLE t", round=3)


def state(
    keyspace: str, table: str, phase: Phase = "streaming", shards: tuple[str, ...] = ("-",)
) -> TableState:
    schema = TableSchema(keyspace=keyspace, table=table, columns=(), key=("id",))
    start = {f"{keyspace}/{shard}": POSITION for shard in shards}
    return TableState(
        keyspace=keyspace, table=table, schema=schema, key=("id",), phase=phase,
        dump=DumpState(id=f"d-{table}", start_round=1, start=start),
    )  # fmt: skip


def test_which_tables_it_concerns(tmp_path: Path) -> None:
    """Those that stream, and are missing on a server that they have rows of.

    Of a vtgate nothing is known.
    """
    tables = Tables(open_lake(tmp_path / "lake", now=1))
    for one in (
        state("shop", "kept"),
        state("shop", "gone"),
        state("shop", "new", "dumping"),
        state("shop", "stopped", "stopped"),
        state("shop", "doubted").in_doubt(BEFORE),
        state("parts", "gone_from_one", shards=("-80", "80-")),
        state("parts", "everywhere", shards=("-80", "80-")),
        state("parts", "never_there", shards=("-80",)),
        replace(
            state("parts", "came_later", shards=("-80",)), logged={"parts/80-": "a fingerprint"}
        ),
        state("vitess", "unseen"),
    ):
        tables.save(one)
    present = {
        "shop/-": {"kept"},
        "parts/-80": {"gone_from_one", "everywhere", "never_there", "came_later"},
        "parts/80-": {"everywhere"},
    }
    doubt_vanished(tables, present, last_round=7)
    found = {one.name: one.doubts for one in tables.list() if one.doubts}
    assert found.keys() == {"shop.gone", "shop.doubted", "parts.gone_from_one", "parts.came_later"}
    assert {doubt.round for doubt in found["shop.gone"].values()} == {7}
    assert list(found["shop.doubted"].values()) == [BEFORE]
