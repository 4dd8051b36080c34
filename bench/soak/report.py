"""A soak in figures: a table by spans of time, and what is to hold at its end.

Pure functions; where it is written the caller decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from bench.soak.samples import Sample

_SPANS: Final = 12
_HEAD: Final = (
    "| minutes | lag s, median | 99 % | at most | Python MiB | Java MiB | descriptors | threads "
    "| data files | log files | change files | lake MiB |\n"
    "|---|---|---|---|---|---|---|---|---|---|---|---|"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a soak came to.

    Attributes:
        seconds: of writing, all pieces together.
        pieces: in which it was done, servers and machine off in between.
        changes: of rows, by the writers.
        kills: of the run, by us.
        ends: exit code -> runs that ended by themselves.
        compared: rows, at the end.
        wrong: keyspace.table -> what is wrong.
        samples: in the order of time.
    """

    seconds: float
    pieces: int = 1
    changes: int
    kills: int
    ends: Mapping[int, int]
    compared: int
    wrong: Mapping[str, str]
    samples: Sequence[Sample]

    @property
    def is_good(self) -> bool:
        """Whether all rows are equal and no run ended by itself."""
        return self.compared > 0 and not self.wrong and not self.ends


def as_markdown(outcome: Outcome, title: str) -> str:
    """The report.

    Args:
        outcome: see Outcome.
        title: what was asked for.
    """
    ends = ", ".join(f"{count} x exit {code}" for code, count in sorted(outcome.ends.items()))
    done = f"{outcome.changes:,} changes of rows in {outcome.seconds / 60:.0f} minutes"
    pieces = "" if outcome.pieces == 1 else f" in {outcome.pieces} pieces"
    lines = [
        f"{title}: {done}{pieces}, {outcome.kills} kills; ended by itself: {ends or 'no run'}.",
        f"At the end {outcome.compared:,} rows compared, {len(outcome.wrong)} tables differ.",
        *(f"- {name}: {what}" for name, what in sorted(outcome.wrong.items())),
        "",
        _HEAD,
        *(_row(span) for span in _spans(outcome.samples)),
    ]
    return "\n".join(lines) + "\n"


def _spans(samples: Sequence[Sample]) -> list[Sequence[Sample]]:
    if not samples:
        return []
    begin, width = samples[0].at, (samples[-1].at - samples[0].at) / _SPANS or 1.0
    spans: dict[int, list[Sample]] = {}
    for sample in samples:
        number = min(int((sample.at - begin) / width), _SPANS - 1)
        spans.setdefault(number, []).append(sample)
    return [spans[number] for number in sorted(spans)]


def _row(span: Sequence[Sample]) -> str:
    lags = [lag for sample in span for lag in sample.lag.values()] or [float("nan")]
    last = span[-1]
    figures = (
        f"{span[0].at / 60:.0f} to {last.at / 60:.0f}",
        f"{np.median(lags):.1f}",
        f"{np.percentile(lags, 99):.1f}",
        f"{max(lags):.1f}",
        f"{max(one.python for one in span):,.0f}",
        f"{max(one.java for one in span):,.0f}",
        f"{max(one.descriptors for one in span)}",
        f"{max(one.threads for one in span)}",
        *(f"{last.kinds[kind]:,}" for kind in ("data", "log", "changes")),
        f"{last.size:,.0f}",
    )
    return f"| {' | '.join(figures)} |"
