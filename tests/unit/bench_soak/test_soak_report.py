"""The report of a soak: what counts as good, and its table."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

from bench.soak.past import Past
from bench.soak.report import Outcome, as_markdown
from bench.soak.samples import Sample

SAMPLE = Sample(
    at=0.0, python=300.0, java=900.0, descriptors=40, threads=30, size=10.0,
    kinds={"data": 60, "log": 30, "changes": 9, "notes": 1}, lag={"mysql": 1.0},
)  # fmt: skip
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
