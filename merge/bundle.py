"""Upkeep of the change log: the small objects of old rounds together, in bundles.

Lives here: which objects go together, copying them, and removing them afterwards. Does not live
here: what is noted meanwhile (`store.bundles`), changing the rounds (`store.rounds`), removing
bundles with their rounds (`maintain`).

A bundle is a segment (`store.segments`) over many rounds: the objects that it was copied from, byte
for byte, one behind the other. So each part of it is the complete Parquet file that it was.

Invariant: an object is removed only when no round names it, and none has for so long that nobody
reads by what a round said before.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Final

from ratchet.core.errors import LakeAwayError, LakeError
from ratchet.core.rounds import Round
from ratchet.store import layout
from ratchet.store.bundles import Bundle, Bundles
from ratchet.store.crashpoints import reach
from ratchet.store.delta.commits import check_epoch
from ratchet.store.failures import lake_errors
from ratchet.store.files import Lake
from ratchet.store.rounds import RoundLog
from ratchet.store.segments import LARGEST_PART, SegmentPart, part_of

_READERS: Final = 16  # of an object store: they wait most of their time
_BITE: Final = 8 << 20  # bytes of objects in memory, unless one is larger


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleLimits:
    """What goes together, and when.

    Attributes:
        age: seconds since a round's commit. Whoever reads recent rounds is done by then.
        kept: seconds for which objects stay that no round names any more: readers may know them.
        rounds: the most that go together: a bundle is kept as long as the newest of them.
        objects: likewise; copying so many takes an object store some seconds.
        bytes: likewise; unless one round has more.
        few: so many objects are worth a bundle.
        largest: bytes; a larger object stays as it is.
    """

    age: float = 3600.0
    kept: float = 3600.0
    rounds: int = 1000
    objects: int = 2000
    bytes: int = 64 << 20
    few: int = 10
    largest: int = 32 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundGroup:
    """Rounds that follow each other, and their small objects.

    Attributes:
        first: the first of the rounds.
        last: the last one.
        holding: the last one with such an object; 0: none has one.
        objects: object -> its bytes, as far as the rounds name any; in the order of the rounds.
        full: whether the next round did not fit.
    """

    first: int
    last: int
    holding: int = 0
    objects: Mapping[str, int] = field(default_factory=dict)
    full: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleResult:
    """What became of a group.

    Attributes:
        last: the last of its rounds.
        objects: how many went into a bundle; 0: there is none.
        bytes: the size of the bundle.
        unread: objects that are gone, cut short or cannot be read: their rounds name them still.
    """

    last: int
    objects: int = 0
    bytes: int = 0
    unread: tuple[str, ...] = ()


def bundle_rounds(
    lake: Lake,
    log: RoundLog,
    *,
    above: int,
    below: int | None,
    now: Callable[[], int],
    limits: BundleLimits,
) -> Iterator[BundleResult]:
    """Put the small objects of old rounds together, group by group.

    Where few objects are left behind the last full group, they wait until there are more.

    Args:
        lake: the lake.
        log: its rounds.
        above: up to this round it was done.
        below: from this round on somebody may have to merge; None: nobody waits. The newest round
            is left alone in any case.
        now: microseconds UTC.
        limits: see there.

    Yields:
        What became of each group; it is done up to its last round then.

    Raises:
        LateError: another run has taken the lake over.
        LakeError: the lake cannot be read or written.
    """
    last = log.last_number()
    first, end = max(above + 1, log.first_number()), min(last, below or last)
    since = now() - int(limits.age * 1e6)
    due = takewhile(lambda value: value.committed_at <= since, log.walk(first, end - 1))
    for group in groups(due, limits):
        if len(group.objects) >= limits.few:
            yield _put_together(lake, log, group, now, limits)
        elif group.full:
            yield BundleResult(last=group.last)


def groups(rounds: Iterable[Round], limits: BundleLimits) -> Iterator[RoundGroup]:
    """Rounds that go together, in their order; only the last group may not be full."""
    taken: list[tuple[int, Mapping[str, int]]] = []
    count = size = 0
    for value in rounds:
        small = _small_objects(value, limits)
        count, size = count + len(small), size + sum(small.values())
        fits = len(taken) < limits.rounds and count <= limits.objects and size <= limits.bytes
        if taken and not fits:
            yield _group(taken, full=True)
            taken, count, size = [], len(small), sum(small.values())
        taken.append((value.number, small))
    if taken:
        yield _group(taken, full=False)


def _group(taken: Sequence[tuple[int, Mapping[str, int]]], *, full: bool) -> RoundGroup:
    return RoundGroup(
        first=taken[0][0],
        last=taken[-1][0],
        holding=max((number for number, small in taken if small), default=0),
        objects={path: size for _, small in taken for path, size in small.items()},
        full=full,
    )


def _small_objects(value: Round, limits: BundleLimits) -> Mapping[str, int]:
    """Object -> its bytes, as far as the round names them."""
    found: dict[str, int] = {}
    for file in value.files:
        part = part_of(file.path)
        if part is None:
            # A larger one would be read whole as a part, instead of column by column.
            if file.bytes <= LARGEST_PART:
                found[file.path] = file.bytes
        elif not part.path.startswith(layout.BUNDLED + "/"):  # that is copied once
            found[part.path] = max(part.offset + part.length, found.get(part.path, 0))
    return {path: size for path, size in found.items() if size <= limits.largest}


def _put_together(
    lake: Lake, log: RoundLog, group: RoundGroup, now: Callable[[], int], limits: BundleLimits
) -> BundleResult:
    bundles = Bundles(lake)
    path = layout.bundle_path(group.first, group.holding, part=secrets.randbits(40))
    bundle = bundles.save(Bundle(path=path, round=group.holding))
    places = _copied(lake, group.objects, path)
    unread = tuple(one for one in group.objects if one not in places)
    if len(places) < limits.few:
        lake.delete(path)
        bundles.remove(bundle)
        return BundleResult(last=group.last, unread=unread)
    # Before the commit: no round tells the names afterwards.
    bundle = bundles.save(replace(bundle, objects=tuple(places)))
    reach("bundle.before_commit")
    log.move_files(group.first, group.holding, places)
    reach("bundle.after_commit")
    bundles.save(replace(bundle, replaced_at=now()))
    end = max(place.offset + place.length for place in places.values())
    return BundleResult(last=group.last, objects=len(places), bytes=end, unread=unread)


def _copied(lake: Lake, objects: Mapping[str, int], path: str) -> dict[str, SegmentPart]:
    """Write a bundle; object -> where its copy lies, of those that could be read."""
    places: dict[str, SegmentPart] = {}
    end = 0
    with lake_errors("put change files together", path), lake.open_output(path) as sink:
        for one, content in _contents(lake, objects):
            reach("bundle.copying")
            sink.write(content)
            places[one] = SegmentPart(path, end, len(content))
            end += len(content)
    return places


def _contents(lake: Lake, objects: Mapping[str, int]) -> Iterator[tuple[str, bytes]]:
    """The objects that can be read, whole; a few at a time, as an object store is slow to begin."""
    with ThreadPoolExecutor(_READERS, "bundle-read") as pool:
        for some in _bites(objects):
            found = pool.map(lambda path: _content(lake, path, objects[path]), some)
            yield from ((path, one) for path, one in zip(some, found, strict=True) if one)


def _bites(objects: Mapping[str, int]) -> Iterator[list[str]]:
    """Objects that are in memory together: of _BITE bytes, or one."""
    some: list[str] = []
    held = 0
    for path, size in objects.items():
        if some and held + size > _BITE:
            yield some
            some, held = [], 0
        some.append(path)
        held += size
    if some:
        yield some


def _content(lake: Lake, path: str, size: int) -> bytes | None:
    """An object; None if it cannot be read, or is shorter than its round says.

    Then it stays as it is, and whoever needs it is told. Nothing that goes on needs it: that a file
    of history is gone ends no run.

    Raises:
        LakeAwayError: no object can be read for now.
    """
    try:
        found = lake.read_file(path)
    except LakeAwayError:
        raise
    except LakeError:
        return None
    return found if found and len(found) >= size else None


def remove_replaced(
    lake: Lake, log: RoundLog, *, now: Callable[[], int], limits: BundleLimits
) -> Iterator[int]:
    """Remove the objects that bundles have taken the place of, and bundles that came to nothing.

    Not while a bundle is being made.

    Args:
        lake: the lake.
        log: its rounds.
        now: microseconds UTC.
        limits: see there.

    Yields:
        How many objects went, for each bundle.

    Raises:
        LateError: another run has taken the lake over.
        LakeError: the lake cannot be read or written.
    """
    bundles = Bundles(lake)
    for one in bundles.each():
        if one.replaced_at is None:
            # A run was killed, or failed. Nobody commits the bundle any more: only who has made it
            # could, and if that one stands still, the log of rounds is fenced by now.
            if log.names(one.round, one.path):
                bundles.save(replace(one, replaced_at=now()))
                continue
            check_epoch(lake, log.epoch(), layout.CHANGES, "remove what nobody has committed")
            lake.delete(one.path)
            bundles.remove(one)
        elif one.replaced_at <= now() - int(limits.kept * 1e6):
            reach("bundle.before_removal")
            check_epoch(lake, log.epoch(), layout.CHANGES, "remove old change files")
            lake.delete_files(one.objects)
            reach("bundle.after_removal")
            bundles.remove(one)
            yield len(one.objects)
