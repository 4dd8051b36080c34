"""The transaction machine: every pair of state and kind is decided, and the table is sound."""

from __future__ import annotations

from ratchet.ingest.binlog.machine import KIND_OF_TYPE, MACHINE, TRANSITIONS, Action, Kind, State


def test_no_pair_is_decided_twice() -> None:
    pairs = [(state, kind) for states, kind, _, _ in TRANSITIONS for state in states]
    assert len(pairs) == len(set(pairs))


def test_what_is_not_in_the_table_is_an_error() -> None:
    listed = {(state, kind) for states, kind, _, _ in TRANSITIONS for state in states}
    for state in State:
        for kind in Kind:
            action = Action(int(MACHINE[state, kind]) >> 8)
            assert (action is Action.OUT_OF_ORDER) == ((state, kind) not in listed)


def test_errors_do_not_change_the_state() -> None:
    for state in State:
        for kind in Kind:
            action, following = divmod(int(MACHINE[state, kind]), 256)
            assert action < Action.STOP or following == state


def test_a_position_is_taken_between_transactions_only() -> None:
    for states, _, action, following in TRANSITIONS:
        if action in {Action.END, Action.ABANDON}:
            assert following is State.BETWEEN
        if following is State.BETWEEN:
            assert action in {Action.END, Action.ABANDON}
        if action is Action.BEGIN:
            assert states == (State.BETWEEN,)


def test_rows_never_come_outside_a_transaction() -> None:
    for state in (State.BETWEEN, State.GTID, State.SINGLE):
        assert MACHINE[state, Kind.ROWS] >> 8 == Action.OUT_OF_ORDER


def test_unknown_types_are_unknown_kinds() -> None:
    assert KIND_OF_TYPE[200] == Kind.UNKNOWN
    assert KIND_OF_TYPE[0] == Kind.UNKNOWN
    for state in State:
        assert MACHINE[state, Kind.UNKNOWN] >> 8 == Action.UNKNOWN_EVENT
