"""The table of the peers."""

from __future__ import annotations

from bench.peers.contract import Result
from bench.peers.race import Usage
from bench.peers.report import Line, Outcome, good, markdown


def _outcome(rate: int, *, wrong: int = 0) -> Outcome:
    result = Result(
        seconds=2.0,
        rows=2 * rate,
        version="it 1.0",
        settings="its own",
        target={"format": "delta", "path": "x"},
    )
    usage = Usage(code=0, wall=9.0, cpu=3.0, server_cpu=1.0, peak=900.0, peak_outside_java=80.0)
    return Outcome(result=result, usage=usage, wrong={"missing": 0, "extra": wrong, "different": 0})


def test_rates_stand_beside_ratchets() -> None:
    lines = [
        Line(name="ratchet", load=_outcome(1000), follow=_outcome(100)),
        Line(name="other", load=_outcome(2500), follow=_outcome(50, wrong=7), remark="blind"),
    ]
    text = markdown(lines, title="A race.")
    assert "| ratchet | 1,000 | 1.00 | 9.0 s | 100 | 1.00 | 9.0 s |" in text
    assert "| other | 2,500 | 2.50 | 9.0 s | 50 | 0.50 | 9.0 s |" in text
    assert "| 7 (7 extra) |" in text
    assert "- **other** (it 1.0): load: its own. follow: its own. blind." in text


def test_a_failure_is_a_line_that_says_why() -> None:
    failed = Outcome(failure="no jars")
    text = markdown([Line(name="other", load=failed)], title="A race.")
    assert "| other | failed |" in text
    assert "load failed: no jars" in text


def test_good_is_about_ratchet_alone() -> None:
    failed = Outcome(failure="no jars")
    assert good([Line(name="ratchet", load=_outcome(1)), Line(name="other", load=failed)])
    assert not good([Line(name="ratchet", load=failed)])
    assert not good([Line(name="ratchet", load=_outcome(1), follow=_outcome(1, wrong=1))])
