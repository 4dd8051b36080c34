"""Schemas that change while they are read."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ratchet.core.shard import ShardId
from ratchet.snapshot.source import _read_catalog, table_shapes

Tables = dict[str, str]  # name -> the type of its one column

PLAIN: Tables = {"t": "int"}
TEXT: Tables = {"t": "varchar(9)"}
ANOTHER: Tables = {"t": "int", "u": "int"}


class Server:
    """Has other tables at each question; the last ones stay."""

    source = "shop/-"
    config = SimpleNamespace(shard=ShardId("shop", "-"), database="d")

    def __init__(self, *tables: Tables) -> None:
        self.tables = list(tables)

    def query(self, sql: str, _: Sequence[object] = ()) -> Sequence[Sequence[Any]]:
        if "statistics" in sql or "'VIEW'" in sql:
            return ()
        now = self.tables.pop(0) if len(self.tables) > 1 else self.tables[0]
        if "c.data_type" not in sql:
            return [(name, "id", kind, None, None, "NO", "") for name, kind in now.items()]
        return [
            (name, "id", "NO", kind.partition("(")[0], kind, 36, 10, 0, None, "utf8mb4")
            for name, kind in now.items()
        ]

    def read(self) -> Tables:
        """The tables that are found, each with the shape that belongs to its schema."""
        found = _read_catalog(cast("Any", self), None)
        tables = {name: one for name, one in found.items() if one is not None}
        assert len(tables) == len(found)
        for name, (schema, shape) in tables.items():
            kind = "int" if schema.column("id").type.name == "int" else "varchar(9)"
            assert table_shapes(Server({name: kind}).query, "d")[name] == shape
        return {name: schema.column("id").type.name for name, (schema, _) in tables.items()}


@pytest.mark.parametrize(
    "asked",
    [
        [PLAIN],
        [PLAIN, ANOTHER, PLAIN],  # one that came and went between the questions: ended a run
        [PLAIN, TEXT, PLAIN],  # altered, and altered back
        [TEXT, PLAIN],
    ],
)
def test_a_schema_comes_with_its_own_shape(asked: list[Tables]) -> None:
    assert Server(*asked).read() == PLAIN


def test_a_table_that_never_stands_still_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One account that altered its own table without end ended the run."""
    monkeypatch.setattr("ratchet.snapshot.source._PAUSES", (0.0,) * 5)
    calm = {"calm": "int"}
    found = _read_catalog(cast("Any", Server(*[{**PLAIN, **calm}, {**TEXT, **calm}] * 9)), None)
    (restless,) = PLAIN
    assert found[restless] is None
    assert found["calm"] is not None
