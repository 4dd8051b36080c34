"""A table that its server does not have any more is in doubt, if it is not so already."""

from __future__ import annotations

from pathlib import Path

from ratchet.core.gtid import GtidSet
from ratchet.core.position import Position
from ratchet.core.schema import TableSchema
from ratchet.jobs.watch.vanished import doubt_vanished
from ratchet.store.files import open_lake
from ratchet.store.tables import Doubt, DumpState, Phase, Tables, TableState

POSITION = Position(executed=GtidSet.parse("mariadb", "0-1-5"))
BEFORE = Doubt(message="a statement", statement="ALTER TABLE t", round=3)


def state(keyspace: str, table: str, phase: Phase = "streaming") -> TableState:
    schema = TableSchema(keyspace=keyspace, table=table, columns=(), key=("id",))
    return TableState(
        keyspace=keyspace, table=table, schema=schema, key=("id",), phase=phase,
        dump=DumpState(id=f"d-{table}", start_round=1, start={f"{keyspace}/-": POSITION}),
    )  # fmt: skip


def test_which_tables_it_concerns(tmp_path: Path) -> None:
    """Those that stream, and are missing on one of their servers; of a vtgate nothing is known."""
    tables = Tables(open_lake(tmp_path / "lake", now=1))
    for one in (
        state("shop", "kept"),
        state("shop", "gone"),
        state("shop", "new", "dumping"),
        state("shop", "stopped", "stopped"),
        state("shop", "doubted").in_doubt(BEFORE),
        state("parts", "here_and_there"),
        state("parts", "everywhere"),
        state("vitess", "unseen"),
    ):
        tables.save(one)
    present = {
        "shop/-": {"kept"},
        "parts/-80": {"here_and_there", "everywhere"},
        "parts/80-": {"everywhere"},
    }
    doubt_vanished(tables, present, last_round=7)
    found = {one.name: one.doubts for one in tables.list() if one.doubts}
    assert found.keys() == {"shop.gone", "shop.doubted", "parts.here_and_there"}
    assert {doubt.round for doubt in found["shop.gone"].values()} == {7}
    assert list(found["shop.doubted"].values()) == [BEFORE]
