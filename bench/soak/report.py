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
_HOUR: Final = 3600.0
_DUMPED: Final = 600.0  # seconds by which the tables have been dumped
_TIDYING: Final = 10.0
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
        kept: seconds that the config keeps anything: history, change log, tokens of deleted rows.
    """

    seconds: float
    pieces: int = 1
    changes: int
    kills: int
    ends: Mapping[int, int]
    compared: int
    wrong: Mapping[str, str]
    samples: Sequence[Sample]
    kept: float = float("inf")

    @property
    def bound(self) -> tuple[float, float] | None:
        """MiB and files that the lake may come to at most, as docs/operations.md has it.

        It grows as in the first hour, dumps aside, until `kept` and two hours more have passed.
        None: the soak is not that long.
        """
        grown = [one for one in self.samples if _DUMPED <= one.at <= _HOUR]
        time = self.kept + 2 * _HOUR
        if not grown or self.samples[-1].at < time:
            return None
        begin, end = grown[0], grown[-1]
        factor = (time - begin.at) / (end.at - begin.at)
        return (
            begin.size + (end.size - begin.size) * factor,
            begin.files + (end.files - begin.files) * factor,
        )

    @property
    def has_outgrown(self) -> bool:
        """Whether the lake has come to more than its bound."""
        if self.bound is None:
            return False
        size, files = self.bound
        return any(one.size > size or one.files > files for one in self.samples)

    @property
    def is_good(self) -> bool:
        """Whether all rows are equal, no run ended by itself, and the lake kept to its bound."""
        return self.compared > 0 and not self.wrong and not self.ends and not self.has_outgrown


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
        *_bound(outcome),
        *_tidying(outcome.samples),
        "",
        _HEAD,
        *(_row(span) for span in _spans(outcome.samples)),
    ]
    return "\n".join(lines) + "\n"


def _bound(outcome: Outcome) -> list[str]:
    if outcome.bound is None:
        return []
    size, files = outcome.bound
    most = max(one.size for one in outcome.samples), max(one.files for one in outcome.samples)
    kept = "outgrew" if outcome.has_outgrown else "kept to"
    sizes = f"at most {most[0]:,.0f} MiB of {size:,.0f}, {most[1]:,} files of {files:,.0f}"
    return [f"The lake {kept} its bound: {sizes}."]


def _tidying(samples: Sequence[Sample]) -> list[str]:
    """What removing costs those who read: lags while it goes on, and else."""
    parted: dict[bool, list[float]] = {True: [], False: []}
    for sample in samples:
        parted[sample.tidied < _TIDYING].extend(sample.lag.values())
    if not all(parted.values()):
        return []
    during, else_ = (np.percentile(parted[is_tidying], 99) for is_tidying in (True, False))
    share = len(parted[True]) / sum(map(len, parted.values()))
    when = f"within {_TIDYING:.0f} s of removing what is old ({share:.0%} of the looks)"
    return [f"Lag, 99 %: {during:.1f} s {when}, {else_:.1f} s else."]


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
