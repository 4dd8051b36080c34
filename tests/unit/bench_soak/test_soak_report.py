"""The report of a soak: what counts as good, and its table."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from bench.soak.past import Past
from bench.soak.report import Outcome, as_markdown
from bench.soak.samples import Sample

SAMPLE = Sample(
    at=0.0, python=300.0, java=900.0, descriptors=40, threads=30, size=10.0,
    kinds={"data": 60, "log": 30, "changes": 9, "notes": 1}, lag={"mysql": 1.0},
)  # fmt: skip
NONE = {"data": 0, "log": 0, "changes": 0}
SAMPLES = [replace(SAMPLE, at=60.0 * n, lag={"mysql": float(n), "b": 0.5}) for n in range(25)]
OUTCOME = Outcome(
    seconds=1500.0, changes=12_000, kills=2, ends={}, compared=500, wrong={}, samples=SAMPLES
)


def test_rows_that_differ_and_runs_that_end_are_not_good() -> None:
    assert OUTCOME.is_good
    assert not replace(OUTCOME, wrong={"mysql.t0": "1 rows missing"}).is_good
    assert not replace(OUTCOME, ends={70: 1}).is_good
    assert not replace(OUTCOME, compared=0).is_good


def test_the_report_has_a_row_for_each_span_and_names_what_is_wrong() -> None:
    bad = replace(OUTCOME, wrong={"mysql.t0": "1 rows missing"}, ends={9: 2})
    text = as_markdown(bad, "4 tables")
    assert "4 tables: 12,000 changes of rows in 25 minutes, 2 kills; ended by itself: 2 x" in text
    assert "- mysql.t0: 1 rows missing" in text
    rows = [line for line in text.splitlines() if " to " in line]
    assert len(rows) == 12
    assert rows[0] == "| 0 to 1 | 0.5 | 1.0 | 1.0 | 300 | 900 | 40 | 30 | 60 | 30 | 9 | 10 |"
    assert rows[-1].startswith("| 22 to 24 |")


def test_without_a_sample_there_is_no_table() -> None:
    assert "| 0" not in as_markdown(replace(OUTCOME, samples=[]), "x")


def test_a_piece_goes_on_with_what_was_before(tmp_path: Path) -> None:
    assert Past.read(tmp_path) == Past(ends=Counter(), samples=[])
    past = Past(pieces=2, seconds=7200.5, changes=9, kills=3, ends=Counter({7: 1}), samples=SAMPLES)
    past.write(tmp_path)
    assert Past.read(tmp_path) == past
    assert [one.name for one in tmp_path.iterdir()] == ["soak.json"]
    assert "in 3 pieces, 2 kills" in as_markdown(replace(OUTCOME, pieces=3), "x")


def grown(*, after: float) -> Outcome:
    """Eight hours; 100 MiB and as many files more in each, up to so many hours."""
    samples = [
        replace(SAMPLE, at=at, size=part, kinds={**NONE, "data": int(part)}, tidied=float(at % 600))
        for at in range(0, 8 * 3600, 300)
        for part in [min(at / 3600, after) * 100.0]
    ]
    return replace(OUTCOME, samples=samples, kept=2 * 3600.0)


def test_a_lake_has_a_bound() -> None:
    """A config that keeps two hours: four hours' worth."""
    assert grown(after=4).bound == (pytest.approx(400.0, 0.01), pytest.approx(400.0, 0.01))
    assert grown(after=4).is_good
    assert not grown(after=5).is_good
    assert "The lake outgrew its bound: at most 500 MiB of 400" in as_markdown(grown(after=5), "x")
    assert replace(grown(after=5), kept=7 * 3600.0).bound is None


def test_lags_are_told_with_and_without_removal() -> None:
    text = as_markdown(grown(after=4), "x")
    assert "Lag, 99 %: 1.0 s within 10 s of removing what is old (50% of the looks), 1.0" in text
    assert "Lag, 99 %" not in as_markdown(OUTCOME, "x")
