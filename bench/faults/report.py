"""The table of faults. Pure functions; where it is written the caller decides."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Final

from bench.faults.trial import NOT_TRIED, Outcome

_HEAD: Final = (
    "| fault | scene | times | the run | s until a change is seen | rows compared "
    "| in the findings |\n|---|---|---|---|---|---|---|"
)


def as_markdown(outcomes: Sequence[Outcome], where: str) -> str:
    """The report.

    Args:
        outcomes: in the order of the faults.
        where: the date, the commit, the machine.
    """
    bad = [one for one in outcomes if not one.is_good]
    rows = sum(one.rows for one in outcomes)
    lines = [
        where,
        "",
        f"{len(outcomes)} tries, {rows:,} rows compared, {len(bad)} not as they should be.",
        *(f"- {one.name} ({one.scene}): {_verdict(one)}" for one in bad),
        "",
        _HEAD,
    ]
    for (name, scene), some in groupby(outcomes, lambda one: (one.name, one.scene)):
        lines.append(_row(name, scene, list(some)))
    return "\n".join(lines) + "\n"


def _row(name: str, scene: str, some: Sequence[Outcome]) -> str:
    did = dict.fromkeys("; ".join((one.did, *one.notes)) for one in some)
    times = " / ".join("-" if one.seconds is None else f"{one.seconds:.0f}" for one in some)
    equal = " / ".join(_verdict(one) for one in some)
    cells = (name, scene, str(len(some)), " / ".join(did), times, equal, some[0].recalls)
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def _verdict(outcome: Outcome) -> str:
    if outcome.did == NOT_TRIED:
        return f"not tried: {outcome.wrong}"
    if outcome.seconds is None:
        return "hung: the change was never seen"
    return f"differs: {outcome.wrong}" if outcome.wrong else f"{outcome.rows:,} equal"
