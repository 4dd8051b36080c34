"""What the races have shown, as a table in Markdown. Pure: figures in, text out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bench.peers.contract import Result
from bench.peers.known import RATCHET
from bench.peers.race import Usage

_NONE: Final = "-"
_HEAD: Final = (
    "peer",
    "load rows/s",
    "of Ratchet's",
    "load, whole process",
    "follow changes/s",
    "of Ratchet's",
    "follow, whole process",
    "CPU s per million, load; follow",
    "the server's",
    "peak MiB",
    "outside Java",
    "rows wrong at the end",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one race of one peer.

    Attributes:
        failure: why there is no result, in a few words.
        result: what the peer said.
        usage: what was measured from outside.
        wrong: missing, extra and different rows; None if the target cannot be read here.
        sums_agree: whether count and sums are the source's; None if nobody knows.
    """

    failure: str | None = None
    result: Result | None = None
    usage: Usage | None = None
    wrong: Mapping[str, int] | None = None
    sums_agree: bool | None = None

    @property
    def rate(self) -> float | None:
        """Rows or changes a second."""
        return self.result.rows / self.result.seconds if self.result else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A peer with its races.

    Attributes:
        name: the peer's.
        remark: what a reader must know.
        load: the first race; None if it was not run.
        follow: the second.
    """

    name: str
    remark: str = ""
    load: Outcome | None = None
    follow: Outcome | None = None


def markdown(lines: Sequence[Line], *, title: str) -> str:
    """The table, and below it each peer's version, settings and remark.

    Args:
        lines: the peers.
        title: a sentence on what was raced over.
    """
    ours = next((line for line in lines if line.name == RATCHET), None)
    rows = [_HEAD, tuple("---" for _ in _HEAD), *(_row(line, ours) for line in lines)]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    notes = "\n".join(_note(line) for line in lines)
    return f"{title}\n\n{table}\n\n{notes}\n"


def good(lines: Sequence[Line]) -> bool:
    """Whether Ratchet, if it ran, came through with no row wrong."""
    return not any(
        outcome is not None
        and (outcome.failure is not None or bool(outcome.wrong and sum(outcome.wrong.values())))
        for line in lines
        if line.name == RATCHET
        for outcome in (line.load, line.follow)
    )


def shortfall(outcome: Outcome) -> str:
    """What keeps a copy from being one; empty if nothing does."""
    if outcome.wrong is not None:
        wrong = sum(outcome.wrong.values())
        return f"{wrong:,} rows wrong" if wrong else ""
    if outcome.sums_agree is not None:
        return "" if outcome.sums_agree else "count or sums differ"
    return "keeps no rows"


def _row(line: Line, ours: Line | None) -> tuple[str, ...]:
    races = (line.load, line.follow)
    peaks = [outcome.usage for outcome in races if outcome and outcome.usage and outcome.result]
    return (
        line.name,
        *_figures(line.load, ours.load if ours else None),
        *_figures(line.follow, ours.follow if ours else None),
        "; ".join(_per_million(outcome, of_server=False) for outcome in races),
        "; ".join(_per_million(outcome, of_server=True) for outcome in races),
        f"{max(usage.peak for usage in peaks):,.0f}" if peaks else _NONE,
        f"{max(usage.peak_outside_java for usage in peaks):,.0f}" if peaks else _NONE,
        _wrong(line),
    )


def _figures(outcome: Outcome | None, ours: Outcome | None) -> tuple[str, str, str]:
    """The rate, the rate over Ratchet's, the seconds of the whole process."""
    if outcome is None:
        return _NONE, _NONE, _NONE
    if outcome.rate is None or outcome.usage is None:
        return "failed", _NONE, _NONE
    ratio = f"{outcome.rate / ours.rate:.2f}" if ours and ours.rate else _NONE
    return f"{outcome.rate:,.0f}", ratio, f"{outcome.usage.wall:,.1f} s"


def _per_million(outcome: Outcome | None, *, of_server: bool) -> str:
    if outcome is None or outcome.result is None or outcome.usage is None:
        return _NONE
    seconds = outcome.usage.server_cpu if of_server else outcome.usage.cpu
    return f"{seconds * 1e6 / outcome.result.rows:,.1f}"


def _wrong(line: Line) -> str:
    last = line.follow if line.follow and line.follow.result else line.load
    if last is None or last.result is None:
        return _NONE
    if last.wrong is not None:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in last.wrong.items() if count)
        return f"{sum(last.wrong.values()):,}" + (f" ({kinds})" if kinds else "")
    return shortfall(last) or "count and sums agree"


def _note(line: Line) -> str:
    parts = []
    for what, outcome in (("load", line.load), ("follow", line.follow)):
        if outcome is None:
            continue
        if outcome.result is not None:
            parts.append(f"{what}: {outcome.result.settings}")
        if outcome.failure is not None:
            parts.append(f"{what} failed: {outcome.failure}")
    outcomes = (line.load, line.follow)
    versions = [outcome.result.version for outcome in outcomes if outcome and outcome.result]
    head = f"- **{line.name}**" + (f" ({versions[0]})" if versions else "")
    return f"{head}: " + ". ".join([*parts, *([line.remark] if line.remark else [])]) + "."
