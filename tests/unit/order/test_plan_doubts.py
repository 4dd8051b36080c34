"""What events of effects do to a table in a step: it is in doubt, stops, or gets its columns."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ratchet.core.rounds import TableEvent
from ratchet.core.types import InvalidValuePolicy
from ratchet.merge.gather import (
    gather,
)
from ratchet.store.stops import Doubt
from ratchet.store.tables import TableState
from tests.plan_kit import (
    KNOWN,
    MORE,
    SCHEMA,
    STATE,
    UUID,
    WIDER,
    A,
    B,
    event,
    file,
    gathered,
    make_round,
)


def judged(effect: str, seq: int = 12, **more: object) -> TableEvent:
    told = event(A, seq, "a statement")
    return replace(told, effect=effect, reason=f"{effect} happened", **more)  # type: ignore[arg-type]


def test_what_moved_rows_stops_a_quiet_table_at_the_statement() -> None:
    found = gathered(make_round(5, judged("rows")))
    assert found.stopped is not None
    assert found.stopped.message == f"rows happened on {A}: a statement"
    assert found.until == {A: (0, 12)}


@pytest.mark.parametrize("phase", ["streaming", "catching_up"])
@pytest.mark.parametrize("effect", ["types", "foreign_key", "doubt", "prepared", "untold"])
def test_a_doubt_is_in_the_state_at_once_and_stays(effect: str, phase: str) -> None:
    start = replace(STATE, phase=phase, foreign_keys=())  # type: ignore[arg-type]
    found = gathered(make_round(5, judged(effect)), state=start)
    assert found.stopped is None
    doubt = Doubt(
        message=f"{effect} happened",
        statement="a statement",
        round=5,
        by_shape=effect == "types",
    )
    assert found.doubts == {A: doubt}
    state = found.learned(start)
    assert state.doubts == {A: doubt}
    assert state.foreign_keys == (None if effect == "foreign_key" else ())
    assert TableState.from_json(state.to_json()) == state
    later = gathered(make_round(6, file(B, 13, 13)), make_round(7), state=state)
    assert later.learned(state).doubts == {A: doubt}


def test_the_next_shape_takes_a_doubt_of_types_away_and_no_other() -> None:
    for schema in (SCHEMA, WIDER):
        shown = gathered(make_round(5, judged("types"), file(A, 13, 13, schema)))
        assert (shown.doubts, shown.stopped) == ({}, None)
        other = gathered(make_round(5, judged("types"), file(B, 13, 13, schema)))
        assert set(other.doubts) == {A}
        kept = gathered(make_round(5, judged("doubt"), file(A, 13, 13, schema)))
        assert set(kept.doubts) == {A}


@pytest.mark.parametrize("effects", [("types", "doubt"), ("doubt", "types"), ("types", "types")])
def test_two_doubts_are_one_that_only_the_rows_can_take_away(effects: tuple[str, str]) -> None:
    first, second = effects
    found = gathered(
        make_round(5, judged(first)), make_round(6, judged(second, 13), file(A, 14, 14, WIDER))
    )
    assert [(doubt.round, doubt.by_shape) for doubt in found.doubts.values()] == [(6, False)]
    if "doubt" in effects:
        assert found.doubts[A].message == "doubt happened"


@pytest.mark.parametrize("generated", [True, None])
def test_no_shape_proves_what_generated_columns_are_made_of(
    generated: bool | None,  # noqa: FBT001 - a table's row
) -> None:
    """Nor collations: `a = 'A'` may be another value behind a MODIFY that no shape shows."""
    state = replace(STATE, generated=generated)
    found = gathered(make_round(5, judged("types"), file(A, 13, 13, WIDER)), state=state)
    assert [doubt.by_shape for doubt in found.doubts.values()] == [False]
    assert found.learned(state).generated is generated


@pytest.mark.parametrize("generated", [True, None])
def test_rows_written_anew_are_in_doubt_where_columns_are_generated(
    generated: bool | None,  # noqa: FBT001 - a table's row
) -> None:
    """No row event says what became of the rows before it; the server's columns may."""
    assert gathered(make_round(5, judged("rebuild"))).doubts == {}
    state = replace(STATE, generated=generated)
    found = gathered(make_round(5, judged("rebuild"), file(A, 13, 13)), state=state)
    assert [(one.by_shape, one.rebuilt, one.round) for one in found.doubts.values()] == [
        (True, True, 5)
    ]
    for other in ("types", "doubt"):
        rounds = (make_round(5, judged(other)), make_round(6, judged("rebuild", 13)))
        found = gathered(*rounds, state=state)
        assert [(one.by_shape, one.rebuilt, one.round) for one in found.doubts.values()] == [
            (False, False, 6)
        ]


def test_what_was_not_understood_may_have_brought_a_generated_column() -> None:
    state = gathered(make_round(5, judged("doubt"))).learned(STATE)
    assert (state.generated, TableState.from_json(state.to_json())) == (None, state)
    kept = gathered(make_round(5, judged("foreign_key"), judged("types", 13))).learned(STATE)
    assert kept.generated is False


def test_a_change_of_the_lakes_type_stops_as_ever() -> None:
    bigger = replace(SCHEMA, columns=(SCHEMA.columns[0], replace(MORE.columns[-1], name="v")))
    known = {**KNOWN, bigger.fingerprint: bigger}
    rounds = [make_round(5, judged("types"), file(A, 13, 13, bigger))]
    found = gather(STATE, rounds, known.__getitem__, InvalidValuePolicy())
    assert found.stopped is not None
    assert "changed v from" in found.stopped.message


@pytest.mark.parametrize(("primary", "stops"), [(True, False), (False, True), (None, True)])
def test_an_index_that_goes_stops_a_table_only_if_it_may_be_its_key(
    primary: bool | None,  # noqa: FBT001 - a table's row
    stops: bool,  # noqa: FBT001
) -> None:
    """Also one that has had no row event since its dump: the dump told."""
    state = replace(STATE, primary=primary)
    found = gathered(make_round(5, judged("key")), state=state)
    assert (found.stopped is not None) is stops
    assert found.doubts == {}


def test_columns_come_with_their_event() -> None:
    told = judged("columns", nulls=("n",))
    found = gathered(make_round(5, told, file(A, 13, 13, MORE)))
    assert (found.stopped, found.nulls) == (None, {A: ("n",)})
    doubtful = gathered(make_round(5, told, replace(told, kind="doubt")))
    assert doubtful.stopped is not None
    assert "read under its new columns" in doubtful.stopped.message
    for effect in ("key", "foreign_key"):
        told = judged(effect)
        state = replace(STATE, primary=True)
        assert (
            gathered(make_round(5, told, replace(told, kind="doubt")), state=state).stopped is None
        )


def test_statements_before_the_dump_put_nothing_in_doubt() -> None:
    assert gathered(make_round(2, judged("doubt", 9, gtid=f"{UUID}:9"))).doubts == {}


def test_a_column_that_comes_and_is_there_is_looked_at() -> None:
    """It had gone, and nobody noticed; or the statement says IF NOT EXISTS."""
    name = STATE.schema.columns[-1].name
    found = gathered(make_round(3, event(A, 20, f"ALTER TABLE t ADD COLUMN {name} INT")))
    assert found.stopped is None
    assert "the mirror has" in found.doubts[A].message
