"""Which changes may lead on by foreign keys, and which tables hang together by them.

Lives here: what is known from the rounds' records and the keys alone. Does not live here: which
keys there are (`graph`), following them over rows (`follow`), a step (`step`). Pure.

Invariant: a change that may have changed rows of children is never taken for one that cannot.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ratchet.core.foreignkeys import ForeignKey
from ratchet.core.rounds import ChangeFile, Round
from ratchet.merge.cascades.follow import Link, descendants
from ratchet.merge.cascades.graph import KeyGraph


def touched(keys: KeyGraph, rounds: Iterable[Round]) -> dict[str, set[str]]:
    """Shard -> parents that have changes there by which rows of children may have changed."""
    found: dict[str, set[str]] = {}
    for value in rounds:
        for file in value.files:
            name = f"{file.keyspace}.{file.table}"
            if touching(file, [key for _, key in keys.by_parent.get(name, ())]):
                found.setdefault(file.shard, set()).add(name)
    return found


def touching(file: ChangeFile, keys: Iterable[ForeignKey]) -> bool:
    """Whether changes of parents may have changed rows of children by some keys."""
    return file.silent != 0 and any(applies(file, key) for key in keys)


def applies(file: ChangeFile, key: ForeignKey) -> bool:
    """Whether there are changes of a parent of the kind by which a key changes rows."""
    deletes = bool(file.deletes) and key.on_delete != "none"
    return deletes or (bool(file.updates) and key.on_update != "none")


def may_touch(file: ChangeFile) -> bool:
    """Whether changes of a table may have changed rows of others, whatever keys there are."""
    return file.silent != 0 and bool(file.deletes or file.updates)


def families(links: Iterable[Link]) -> list[list[Link]]:
    """Foreign keys by which tables hang together, directly or over others."""
    found: list[tuple[set[str], list[Link]]] = []
    for link in links:
        names, members = {link.child, link.parent}, [link]
        apart = []
        for one in found:
            if names.isdisjoint(one[0]):
                apart.append(one)
            else:
                names, members = names | one[0], [*one[1], *members]
        found = [*apart, (names, members)]
    return [members for _, members in found]


def tables_below(links: Sequence[Link], untold: Mapping[str, str]) -> dict[str, str]:
    """Tables that hang on one whose changes cannot be told."""
    by_parent = links_by_parent(links)
    return {name: why for table, why in untold.items() for name in descendants(table, by_parent)}


def links_by_parent(links: Iterable[Link]) -> dict[str, list[Link]]:
    """Parent -> the foreign keys that refer to it."""
    found: dict[str, list[Link]] = {}
    for link in links:
        found.setdefault(link.parent, []).append(link)
    return found
