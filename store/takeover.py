"""Taking a lake over from a run that may still be there: a new epoch, fenced wherever it counts.

Lives here: the order of a take-over. Does not live here: who holds the lease (`lease`), what a
fence is (`commits`), where notes lie (`notes`).

The order is what makes it safe to be killed, to stand still, or to be overtaken at any point:

1. The epoch is claimed by a commit to the round log, on top of exactly one version. One of several
   gets it; rounds of earlier epochs are refused from then on.
2. Cuts and all known tables are fenced: whatever an earlier epoch commits comes before, or never.
3. The notes are copied: they say at least what there was to say of what the fences let through,
   as after a kill. Then the marker makes the copy the current one.

Who is overtaken meanwhile, by a higher epoch, cannot commit a round any more, and its marker is not
the highest.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from ratchet.core.errors import LakeError, TableFileError
from ratchet.store import layout
from ratchet.store.anew import named_version
from ratchet.store.crashpoints import reach
from ratchet.store.cuts import Cuts
from ratchet.store.delta.commits import LateError, check_epoch, fence, late
from ratchet.store.delta.log import replay
from ratchet.store.fields import HIGHEST
from ratchet.store.files import Lake
from ratchet.store.formats import HELD_FORMAT, need_format
from ratchet.store.notes import Notes, current_epoch, epochs
from ratchet.store.rounds import RoundLog
from ratchet.store.tables import Tables

log: Final = logging.getLogger("ratchet.jobs.run")

OTHER_AGES: Final = (
    "parts of the lake are older than others, as in a copy that was made while a run wrote, or "
    "where one of them was put back from a backup"
)
NEWER_COPY: Final = (
    "continue with a copy that was made while no run worked, or set `lake` in the config to a new "
    "folder, which is filled from the start"
)
_AT_ONCE: Final = 16
_SECONDS: Final = 5.0  # a take-over that takes longer is told of


def refuse_older_rounds(lake: Lake) -> None:
    """Refuse a lake whose log of rounds ends before its newest cut.

    What was mirrored behind its end would be captured again under other numbers.

    Raises:
        LakeError: it does, or the lake cannot be read.
    """
    cut = Cuts(lake).last()
    if cut is None:
        return
    end = RoundLog(lake).last_number()
    if cut.round > end:
        raise LakeError(
            f"the newest cut shows round {cut.round}, but the log of rounds ends at {end}",
            operation="open the lake",
            hint=f"{OTHER_AGES}: {NEWER_COPY}, or remove the folders {layout.ROUNDS} and "
            f"{layout.CUTS} in the lake: the next run empties each table and dumps it again",
        )


def go_on(lake: Lake, epoch: int) -> Lake | None:
    """The lake with the epoch of a holder that ended cleanly; None if it has to be taken over."""
    if epoch > 0 and current_epoch(lake) == epoch == RoundLog(lake).epoch():
        return replace(lake, epoch=epoch)
    return None


def newest_epoch(lake: Lake) -> int:
    """The newest epoch that was claimed; 0: none was.

    Raises:
        LakeError: the lake cannot be read.
    """
    return max(RoundLog(lake).epoch(), current_epoch(lake))


def claim(lake: Lake, above: int, owner: str) -> Lake:
    """The lake with a new epoch.

    Args:
        lake: the lake.
        above: an epoch that was there.
        owner: who claims it; no other run has that name.

    Raises:
        LateError: another run was faster.
        LakeError: the lake cannot be read or written, or there is no higher epoch.
    """
    newest = max(above, newest_epoch(lake))
    if newest >= HIGHEST:
        raise LakeError(
            f"the lake is at epoch {newest}, behind which there is none: a damaged lease file has "
            "led an earlier version of Ratchet there",
            operation="take the lake over",
            hint="nothing can write to this lake any more, and what it holds can still be read: "
            "set `lake` in the config to a new folder, which is filled from the start",
        )
    held = replace(lake, epoch=newest + 1)
    reach("takeover.before_claim")
    RoundLog(held).claim(owner)
    reach("takeover.after_claim")
    return held


def take_over(held: Lake, owner: str, alive: Callable[[], None], *, now: int) -> None:
    """Fence what earlier epochs may write to, and make the notes those of this one.

    Args:
        held: with the epoch that was claimed.
        owner: who claimed it.
        alive: called now and then; says that the run is there, and raises if it lost the lease.
        now: microseconds UTC.

    Raises:
        LateError: another run has claimed a later epoch.
        LakeError: the lake cannot be read or written.
    """
    began = time.monotonic()
    with _older_log_told(held, layout.CUTS):
        Cuts(held).fence()
    anyone = replace(held, epoch=0)
    states, cut = Tables(anyone).list(), Cuts(anyone).last()
    paths = sorted({path for state in states for path in (state.path, state.shown_path)})
    named = {state.path: named_version(cut, state) for state in states}
    _each(lambda path: _fence(held, path, named.get(path, 0), now), paths, alive)
    reach("takeover.after_fences")
    source = current_epoch(held)
    if source >= held.epoch:
        raise late(layout.EPOCHS, "take the lake over")
    _each(lambda path: _copy(held, path, source), _noted(held, source), alive)
    reach("takeover.before_marker")
    need_format(held, HELD_FORMAT)  # keeps out versions that know no epochs
    marker = {"epoch": held.epoch, "from": source, "owner": owner, "at": now}
    if not held.create_json(layout.epoch_path(held.epoch), marker):
        raise late(layout.EPOCHS, "take the lake over")
    reach("takeover.after_marker")
    _remove_old(held, source)
    seconds = time.monotonic() - began
    tell = log.info if seconds > _SECONDS else log.debug
    tell("took the lake over: epoch %d, %d tables, %.1f s", held.epoch, len(paths), seconds)


def _fence(held: Lake, path: str, named: int, now: int) -> None:
    """Fence a table, unless its log is damaged or ends before the version that the cut names.

    Whoever merges stops such a table by name (merge.ages), and no other is the worse for it. A
    fence would hide that versions are gone: it would have the number of the first one.
    """
    with _older_log_told(held, path):
        try:
            files = replay(held, path)
            if files is None or files.version >= named:
                fence(held, path, now=now, known=files)
        except TableFileError as error:
            log.debug("%s is not fenced: %s", path, error)


@contextmanager
def _older_log_told(lake: Lake, path: str) -> Iterator[None]:
    try:
        yield
    except LateError:
        refuse_later_epoch(lake, path)
        raise


def refuse_later_epoch(lake: Lake, path: str) -> None:
    """Call where a later epoch than the lake's stands in a table: it says why.

    An epoch is claimed in the log of rounds before any table is fenced for it. So if that log has
    none, there is no other run: the log is older than the table.

    Args:
        lake: the lake, held.
        path: the table's folder.

    Raises:
        LateError: another run has taken the lake over.
        LakeError: the log of rounds is older than the table.
    """
    check_epoch(lake, RoundLog(lake).epoch(), path, "begin a run")
    raise LakeError(
        f"{path} knows a later take-over than the log of rounds: {OTHER_AGES}",
        operation="begin a run",
        hint=NEWER_COPY,
    )


def _each(work: Callable[[str], object], paths: Iterable[str], alive: Callable[[], None]) -> None:
    with ThreadPoolExecutor(_AT_ONCE, "take-over") as pool:
        for _ in pool.map(work, paths):
            alive()


def _noted(lake: Lake, source: int) -> list[str]:
    """The notes of an epoch, as they would lie in a lake that was never held."""
    root = layout.noted_path(layout.PRIVATE + "/", source)
    files = [
        layout.PRIVATE + "/" + file.path.removeprefix(root)
        for folder in layout.NOTED
        for file in lake.list(layout.noted_path(folder, source))
    ]
    singles = [p for p in layout.NOTED_FILES if lake.is_file(layout.noted_path(p, source))]
    return files + singles


def _copy(held: Lake, path: str, source: int) -> None:
    content = held.read_file(layout.noted_path(path, source))
    if content is not None:  # who wrote it may be at work still, and remove it
        held.create_file(Notes(held).own(path), content)


def _remove_old(held: Lake, source: int) -> None:
    """Remove the notes that nobody can need: those before the ones that were copied.

    Whoever takes over from us lists the markers behind its claim, so it finds ours, or the one that
    we have copied if we are late; the look at the round log tells which.
    """
    older = [epoch for epoch in epochs(held) if epoch < source]
    check_epoch(held, RoundLog(held).epoch(), layout.ROUNDS, "remove old notes")
    for epoch in older:
        held.delete_folder(f"{layout.NOTES}/{epoch:012d}")
        held.delete(layout.epoch_path(epoch))
    if source:
        for folder in layout.NOTED:
            held.delete_folder(folder)
        for path in layout.NOTED_FILES:
            held.delete(path)
