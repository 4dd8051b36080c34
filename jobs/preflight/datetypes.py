"""`types.zero_dates` decides about columns' types in the lake: a change of it, before a run begins.

Lives here: which tables the new choice does not fit. Does not live here: the rule itself
(`core.types`), the note of the choice (`store.datenote`).

Invariant: a table is merged only with the types that its Delta table has: change files of other
types would make it one that no reader can read.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Final

import pyarrow as pa

from ratchet.core.shell import redump
from ratchet.core.types import InvalidValuePolicy, arrow_schema
from ratchet.store.datenote import dates_are_text, note_dates
from ratchet.store.delta.tables import open_delta
from ratchet.store.files import Lake
from ratchet.store.tables import Tables, TableState

log: Final = logging.getLogger("ratchet.jobs.run")

_DATES: Final = frozenset({"date", "datetime", "timestamp"})
_FOLLOWED: Final = frozenset({"dumping", "catching_up", "streaming"})


def stop_other_types(lake: Lake, tables: Tables, policy: InvalidValuePolicy) -> None:
    """Stop tables whose dates have other types in the lake than the config now gives them.

    A dump that is under way begins anew.

    Args:
        lake: the lake.
        tables: the states.
        policy: the config's.
    """
    text = policy.zero_dates == "text"
    if dates_are_text(lake) is text:
        return
    for state in tables.list():
        if state.phase in _FOLLOWED and (odd := _other_types(lake, state, policy)):
            _stop(tables, state, odd)
    note_dates(lake, text=text)


def _other_types(lake: Lake, state: TableState, policy: InvalidValuePolicy) -> list[str]:
    dates = [c.name for c in state.whole.columns if c.type.name in _DATES]
    delta = open_delta(lake, state.path) if dates else None
    if delta is None:
        return []
    have = {field.name: _is_text(field.type) for field in pa.schema(delta.schema().to_arrow())}
    wanted = arrow_schema(state.whole, policy)
    return [name for name in dates if have.get(name) != _is_text(wanted.field(name).type)]


def _is_text(kind: pa.DataType) -> bool:
    return "string" in str(kind) or "utf8" in str(kind).lower()


def _stop(tables: Tables, state: TableState, odd: list[str]) -> None:
    if state.phase == "dumping":
        log.info("%s needs a new dump: zero_dates has changed", state.name)
        tables.save(replace(state, phase="new", dump=None))
        return
    tables.stop(
        state,
        message=f"zero_dates in the config gives {', '.join(odd)} another type than the lake has",
        hint=f"{redump(state.name)} dumps it again with the new types, "
        "while the run continues; or set zero_dates back, and do the same",
        at_round=state.merged_round + 1,
    )
