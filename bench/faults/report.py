"""The table of faults. Pure functions; where it is written the caller decides."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Final

from bench.faults.trial import NOT_TRIED, Outcome

_WHAT: Final = """\
# Faults, one by one

`python -m bench.faults`, {where}

While writers change rows, each fault is begun and ended. A run that ends is started again after
5 s, as by a supervisor; nothing else is typed, but for `ratchet heal` where a log was purged: that
changes are lost is for a person to decide. The seconds are from the fault's end (or its begin, if
it does not end) until a change that is made then is in the lake; where a table was being dumped,
until that is done too. Then nobody writes, and all rows of all tables are compared, by the server's
SELECT and deltalake's engine. A cluster's stall_seconds are 90, not 10 minutes as by default. The
last column is what was measured by hand on 2026-11-25, at d72542b, with other work beside.
"""
_HEAD: Final = (
    "| fault | scene | times | the run | s until a change is seen | rows compared "
    "| on 2026-11-25 |\n|---|---|---|---|---|---|---|"
)


def as_markdown(outcomes: Sequence[Outcome], where: str, missing: Sequence[str] = ()) -> str:
    """The report.

    Args:
        outcomes: in the order of the faults.
        where: the date, the commit, the machine.
        missing: faults and their scenes of which there is no outcome.
    """
    bad = [one for one in outcomes if not one.is_good]
    rows = sum(one.rows for one in outcomes)
    lines = [
        _WHAT.format(where=where),
        f"{len(outcomes)} tries, {rows:,} rows compared, {len(bad)} not as they should be.",
        *(f"- {one.name} ({one.scene}): {_verdict(one)}" for one in bad),
        *([f"Not tried: {', '.join(missing)}."] if missing else []),
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
