"""What statements about a table mean for those that hang on it by foreign keys."""

from __future__ import annotations

from typing import cast, get_args

import pytest

from ratchet.core.rounds import Effect, TableEvent, TableEventKind
from ratchet.merge.cascades.reach import Reach, reach


def event(kind: str, effect: str = "", statement: str = "") -> TableEvent:
    return TableEvent(
        keyspace="k", table="p", shard="k/-", kind=cast("TableEventKind", kind), gtid="", seq=1,
        ts=1, statement=statement, effect=cast("Effect", effect),
    )  # fmt: skip


@pytest.mark.parametrize("effect", [one for one in get_args(Effect) if one])
def test_what_is_not_known_to_leave_rows_and_name_alone_reaches_rows(effect: str) -> None:
    harmless = {"columns", "types", "key", "rebuild"}
    assert reach(event("ddl", effect)) == (Reach.KEYS if effect in harmless else Reach.ROWS)


def test_events_of_other_kinds_and_of_earlier_versions() -> None:
    assert reach(event("truncate")) == Reach.NOT
    assert reach(event("unreadable")) == Reach.ROWS
    assert reach(event("doubt", "types")) == Reach.ROWS
    assert reach(event("ddl", statement="RENAME TABLE p TO q")) == Reach.ROWS
    assert reach(event("ddl", statement="ALTER TABLE p ADD v INT NULL")) == Reach.KEYS
    key = "ALTER TABLE p ADD v INT NULL, DROP FOREIGN KEY f"
    assert reach(event("ddl", statement=key)) == Reach.ROWS
