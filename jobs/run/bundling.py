"""The part of the upkeep that puts the change log's small objects together, within a time.

Lives here: how far it has come, for how long it goes on, what is told. Does not live here: what is
put together and how (`merge.bundle`), when it is due (`merging`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from ratchet.jobs.reporting.text import size
from ratchet.merge.bundle import BundleLimits, BundleResult, bundle_rounds, remove_replaced
from ratchet.merge.maintain import needed_from
from ratchet.store.cuts import Cuts
from ratchet.store.files import Lake
from ratchet.store.rounds import RoundLog
from ratchet.store.tables import Tables
from ratchet.store.upkeeps import UpkeepRecord, write_upkeep

log: Final = logging.getLogger("ratchet.jobs.run")

# Of work, after which the rest is left for the next hour: a backlog would take many hours, in which
# nothing else were cleaned. By default (`merge.maintenance`) an hour has 180 seconds for all of it.
BUNDLE_SECONDS: Final = 120.0


def bundle_change_log(
    lake: Lake,
    done: UpkeepRecord,
    *,
    began: float,
    limits: BundleLimits,
    wall: Callable[[], float],
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[None]:
    """Remove what was put together an hour ago, then put more together; a bite at each `next`.

    Args:
        lake: the lake.
        done: what was done of the upkeep; it is written again with how far this has come.
        began: when the hour's upkeep began, seconds since the epoch: the next one is due by that.
        limits: see there.
        wall: seconds since the epoch.
        clock: seconds, rising.

    Raises:
        LateError: another run has taken the lake over.
        LakeError: the lake cannot be read or written.
    """

    def now() -> int:
        return int(wall() * 1e6)

    def bites() -> Iterator[UpkeepRecord]:
        rounds, cut = RoundLog(lake), Cuts(lake).last()
        for files in remove_replaced(lake, rounds, now=now, limits=limits):
            log.debug("change log: %d files removed that were put together before", files)
            yield done
        for group in bundle_rounds(
            lake,
            rounds,
            above=done.bundled,
            below=needed_from(Tables(lake).list(), cut),
            now=now,
            limits=limits,
        ):
            _tell(group)
            yield replace(done, bundled=group.last)

    spent, work, newest = 0.0, bites(), done
    while spent < BUNDLE_SECONDS:
        since = clock()
        found = next(work, None)
        if found is None:
            break
        if found != newest:
            newest = found
            write_upkeep(lake, newest)
        spent += clock() - since
        yield
    write_upkeep(lake, replace(newest, bundles=began))


def _tell(group: BundleResult) -> None:
    if group.objects:
        log.debug("change log: %d files put together (%s)", group.objects, size(group.bytes))
    if group.unread:
        log.warning(
            "change log: %d old files are gone or cannot be read, the first of them %s",
            len(group.unread),
            group.unread[0],
        )
