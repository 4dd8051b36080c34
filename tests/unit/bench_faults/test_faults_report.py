"""The table of faults says what hung, what differs and what was not tried."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from signal import SIGKILL

from bench.faults.__main__ import FAULTS, SCENES
from bench.faults.alone import flipped, shortened
from bench.faults.report import as_markdown
from bench.faults.trial import NOT_TRIED, Outcome, did

GOOD = Outcome(
    name="server killed",
    scene="mysql",
    did="went on",
    seconds=4.2,
    rows=1234,
    wrong="",
    recalls="9 s",
)


def test_several_tries_are_one_row() -> None:
    text = as_markdown([GOOD, replace(GOOD, seconds=6.0)], "today")
    assert "2 tries, 2,468 rows compared, 0 not as they should be." in text
    row = "| server killed | mysql | 2 | went on | 4 / 6 | 1,234 equal / 1,234 equal | 9 s |"
    assert text.splitlines()[-1] == row


def test_what_is_not_as_it_should_be_is_named() -> None:
    hung = replace(GOOD, seconds=None, rows=0)
    differs = replace(GOOD, wrong="mysql.t0: 1 rows missing")
    skipped = replace(hung, did=NOT_TRIED, wrong="no dump began")
    assert not any(one.is_good for one in (hung, differs, skipped))
    text = as_markdown([hung, differs, skipped], "today")
    assert "3 not as they should be" in text
    assert "- server killed (mysql): hung: the change was never seen" in text
    assert "- server killed (mysql): differs: mysql.t0: 1 rows missing" in text
    assert "- server killed (mysql): not tried: no dump began" in text


def test_what_a_run_did() -> None:
    assert did(Counter(), 0) == "went on"
    assert did(Counter({-SIGKILL: 1}), 0) == "killed; started again"
    assert (
        did(Counter({9: 2, 7: 1}), 0)
        == "ended with exit 7, ended with exit 9 2 times; started again"
    )
    assert did(Counter(), 1) == "killed; started again"


def test_damage() -> None:
    data = bytes(range(100))
    assert sum(a != b for a, b in zip(flipped(data), data, strict=True)) == 1
    assert 93 <= len(shortened(data)) < 100


def test_each_fault_has_its_scenes_and_a_name_of_its_own() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)
    assert {scene for fault in FAULTS for scene in fault.scenes} == set(SCENES)
