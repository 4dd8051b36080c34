"""The verdict on one key for which mirror and source differed. Pure functions; see `verify`.

Lives here: what a list of changes says of a key, and when that explains a difference.

Invariant: "same" is only said if the row before the first change is the mirror's row, and the row
that was read again is what the changes make of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ratchet.core.gtid import Flavor, parse_gtid
from ratchet.core.position import Position
from ratchet.snapshot.rows import Row, different_columns, frozen_row

Kind = Literal["changed", "missing", "extra", "doubled"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyChange:
    """A change of one key.

    Attributes:
        shard: where it happened.
        rank: (generation, seq, idx).
        gtid: its transaction, in the server's notation.
        before: the key's row before it; None if there was none.
        after: the key's row after it; None if there is none.
    """

    shard: str
    rank: tuple[int, int, int]
    gtid: str
    before: Row | None
    after: Row | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PointRead:
    """What a read of the source showed of a key on one shard.

    Attributes:
        row: None if there was no such row.
        floor: what the read is sure to contain.
    """

    row: Row | None
    floor: Position


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyVerdict:
    """What is to be said of a key.

    Attributes:
        kind: "same", the kind of a difference, or "unsettled".
        columns: the columns that differ.
        reason: why it is unsettled.
    """

    kind: Kind | Literal["same", "unsettled"]
    columns: tuple[str, ...] = ()
    reason: str = ""


def events_of(
    changes: Iterable[Mapping[str, Any]], *, key: Sequence[str], columns: Sequence[str]
) -> dict[Row, list[KeyChange]]:
    """The changes of each key, in the order of their shards' streams.

    A change that moves a row to another key is a change of both keys. A change that is given
    twice counts once.

    Args:
        changes: rows as core.change.change_schema has them.
        key: columns that identify a row.
        columns: columns of the frozen rows.
    """
    found: dict[Row, dict[tuple[str, tuple[int, int, int]], KeyChange]] = {}
    for change in changes:
        token, before, after = change["token"], change["before"], change["after"]
        rank = (token["generation"], token["seq"], token["idx"])
        keys = {frozen_row(image, key) for image in (before, after) if image is not None}
        for name in keys - {None}:
            assert name is not None  # noqa: S101 - for the type checker
            images = [
                frozen_row(image, columns) if frozen_row(image, key) == name else None
                for image in (before, after)
            ]
            event = KeyChange(
                shard=token["shard"],
                rank=rank,
                gtid=token["gtid"],
                before=images[0],
                after=images[1],
            )
            found.setdefault(name, {})[token["shard"], rank] = event
    return {
        name: sorted(events.values(), key=lambda event: (event.shard, event.rank))
        for name, events in found.items()
    }


def judge(
    mirror: Row | None,
    events: Sequence[KeyChange],
    looks: Mapping[str, PointRead],
    columns: Sequence[str],
    *,
    scanned: bool,
) -> KeyVerdict:
    """The verdict on a key.

    Args:
        mirror: its row in the mirror.
        events: its changes after the mirror's cut, ordered by `events_of`.
        looks: shard -> what the second read showed there.
        columns: names of the rows' columns.
        scanned: whether the scan saw a row of it; that it differs from the mirror's is known.
    """
    rows = [look.row for look in looks.values() if look.row is not None]
    if not events:
        return _unexplained(mirror, rows, columns, scanned=scanned)
    shards = {event.shard for event in events}
    if len(shards) > 1 or len(rows) > 1:
        # Moving between shards, whose streams have no common order.
        known = {mirror, *(event.after for event in events)}
        if len(rows) <= 1 and (rows[0] if rows else None) in known:
            return KeyVerdict(kind="same")
        return KeyVerdict(kind="unsettled", reason="the row moves between shards")
    if events[0].before != mirror:
        return _difference(mirror, events[0].before, columns)
    look = looks[next(iter(shards))]
    certain = [i for i, event in enumerate(events, start=1) if _inside(event, look.floor)]
    states = [mirror, *(event.after for event in events)]
    if look.row in states[max(certain, default=0) :]:
        return KeyVerdict(kind="same")
    return _difference(states[-1], look.row, columns)


def row_at_cut(events: Sequence[KeyChange], look: PointRead) -> Row | None:
    """A key's row on one shard at the mirror's cut.

    Args:
        events: its changes there after the cut, in order, up to beyond the look.
        look: what the second read showed.
    """
    return events[0].before if events else look.row


def _inside(event: KeyChange, floor: Position) -> bool:
    flavor: Flavor = floor.flavor
    return floor.executed.contains(parse_gtid(flavor, event.gtid))


def _unexplained(
    mirror: Row | None, rows: Sequence[Row], columns: Sequence[str], *, scanned: bool
) -> KeyVerdict:
    """The verdict on a key of which the log has no changes: nothing explains the scan's row."""
    if mirror is None:
        return KeyVerdict(kind="missing")
    if not scanned:
        return KeyVerdict(kind="extra")
    # The second look's values are the scan's, unless rows change without the log.
    odd = different_columns(mirror, rows[0], columns) if len(rows) == 1 else ()
    return KeyVerdict(kind="changed", columns=odd)


def _difference(mirror: Row | None, source: Row | None, columns: Sequence[str]) -> KeyVerdict:
    if mirror is None:
        return KeyVerdict(kind="missing")
    if source is None:
        return KeyVerdict(kind="extra")
    return KeyVerdict(kind="changed", columns=different_columns(mirror, source, columns))
