"""What was captured and is not merged: what a comparison of the newest cut says nothing about.

Lives here: judging the rounds behind a cut. Does not live here: comparing (`verify`), merging.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from ratchet.core.rounds import Round
from ratchet.jobs.reporting.text import counted, moment
from ratchet.store.cuts import Cut
from ratchet.store.files import Lake
from ratchet.store.rounds import RoundLog
from ratchet.store.segments import missing, object_of

# Microseconds without a merge, with rounds that wait: a merge step of a large table takes minutes.
_STANDS_STILL: Final = 900 * 1_000_000


@dataclass(frozen=True, slots=True)
class UnmergedRounds:
    """The rounds behind a cut.

    Attributes:
        rounds: how many.
        since: when the first of them was committed, microseconds UTC; None: there are none.
        trouble: why they do not get into the mirror, and what to do; empty while they may.
    """

    rounds: int
    since: int | None
    trouble: str = ""


def look_behind(lake: Lake, cut: Cut, tables: Collection[str], *, now: int) -> UnmergedRounds:
    """Look at the rounds behind a cut, and whether they can be merged.

    Args:
        lake: the lake.
        cut: its newest cut.
        tables: keyspace.table of those that are compared.
        now: microseconds UTC.

    Raises:
        LakeError: the rounds cannot be read.
    """
    rounds = RoundLog(lake).since(cut.round)
    if not rounds:
        return UnmergedRounds(0, None)
    trouble = _lost(lake, rounds, tables) or _standing_still(rounds, cut, now)
    return UnmergedRounds(len(rounds), rounds[0].committed_at, trouble)


def _lost(lake: Lake, rounds: Sequence[Round], tables: Collection[str]) -> str:
    named: dict[str, str] = {}  # file -> its table
    for file in (file for one in rounds for file in one.files):
        name = f"{file.keyspace}.{file.table}"
        if name in tables:
            named[file.path] = name
    gone: dict[str, str] = {}
    for path in missing(lake, named):
        gone.setdefault(named[path], object_of(path))
    if not gone:
        return ""
    names = "; ".join(f"{table}: {path}" for table, path in sorted(gone.items()))
    return (
        f"captured changes are gone ({names}): `ratchet run CONFIG` stops these tables by name, "
        "and `ratchet table CONFIG redump TABLE` dumps one again"
    )


def _standing_still(rounds: Sequence[Round], cut: Cut, now: int) -> str:
    since = rounds[0].committed_at
    if now - max(since, cut.merged_at) <= _STANDS_STILL:
        return ""
    return (
        f"{counted(len(rounds), 'captured round')} since {moment(since)} not merged, and nothing "
        f"was merged since {moment(cut.merged_at)}: `ratchet run CONFIG` merges them, and its "
        "log shows what delays it"
    )
