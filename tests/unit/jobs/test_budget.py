"""The budget of background work: a share of the time, whether runs are long or short."""

from __future__ import annotations

import pytest

from ratchet.jobs.watch.budget import MOST_SAVED, Budget


def test_a_bite_is_paid_by_rest() -> None:
    budget = Budget(0.05, now=0.0)
    assert budget.rest(0.0) == 0.0
    budget.spend(0.5, 0.5)
    # What the bite itself took counts as time that has passed.
    assert budget.rest(0.5) == pytest.approx(0.5 * (1 / 0.05 - 1))
    assert budget.rest(5.0) == pytest.approx(5.0)
    assert budget.rest(10.01) == 0.0


def test_no_more_than_the_share_is_taken() -> None:
    budget, now, worked = Budget(0.2, now=0.0), 0.0, 0.0
    while now < 1000:
        now += budget.rest(now)
        now += 0.7
        worked += 0.7
        budget.spend(0.7, now)
    assert 0.19 < worked / now < 0.21


def test_what_is_saved_up_is_bounded() -> None:
    budget = Budget(0.5, now=0.0)
    budget.spend(MOST_SAVED, 1e6)
    assert budget.rest(1e6) == 0.0
    budget.spend(1.0, 1e6)
    assert budget.rest(1e6) == 2.0


def test_a_whole_share_rests_never() -> None:
    budget = Budget(1.0, now=0.0)
    for second in range(1, 5):
        budget.spend(1.0, second)
        assert budget.rest(second) == 0.0


def test_a_clock_that_goes_back_gives_nothing() -> None:
    budget = Budget(0.1, now=100.0)
    budget.spend(1.0, 100.0)
    assert budget.rest(50.0) == 10.0
    assert budget.rest(100.0) == 10.0
