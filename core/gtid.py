"""GTID sets as interval sets, for MySQL, MariaDB and servers without GTIDs.

One value type serves the three flavours, because all of them are sets of numbered transactions by
origin:

- `mysql`: the origin is the server's UUID, with `:tag` behind it for tagged GTIDs; holes are real.
- `mariadb`: the origin is the replication domain. A position `0-1-100` stands for numbers 1 to 100
  of domain 0: MariaDB's sequence numbers only rise within a domain, so a number that the
  server skipped will never come. The server id of the last one is kept to ask for it again.
- `file`: no GTIDs. The origin is the binlog's base name and the number packs file number and end
  offset, so that "contains" means "at or before". Valid on one server only.

Invariant: intervals are sorted, disjoint, not adjacent, and begin at 1 or above.
No function here compares two sets by size, and there is no `<`.
"""

from __future__ import annotations

import re
import uuid
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ratchet.core.errors import DecodeError

Flavor = Literal["mysql", "mariadb", "file"]
Interval = tuple[int, int]  # first and last number, both inside

FILE_BITS = 40  # offsets below 1 TiB within one binlog file; file numbers up to 2**23
_LAST = (1 << 63) - 1  # of a transaction's number, and of a set's cardinality: ranks are BIGINT
_LAST_ID = (1 << 32) - 1  # of MariaDB's domains and servers
_DIGITS = 20
# Characters of a set: a hundred thousand holes, where servers have a few. Reading one takes some
# thirty times its length, and who sends it may be anybody.
_LONGEST = 4 << 20


@dataclass(frozen=True, slots=True)
class Gtid:
    """One transaction's name.

    Attributes:
        origin: server UUID (with `:tag`), MariaDB domain, or binlog base name.
        number: the sequence number within the origin, from 1.
        server: MariaDB's server id, else 0. It plays no part in containment.
    """

    origin: str
    number: int
    server: int = 0


@dataclass(frozen=True, slots=True)
class GtidSet:
    """An immutable set of transactions.

    Attributes:
        flavor: which notation and which meaning.
        intervals: origin -> its intervals.
        servers: MariaDB only: domain -> server id of the last transaction.
    """

    flavor: Flavor
    intervals: Mapping[str, tuple[Interval, ...]] = field(default_factory=dict)
    servers: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def parse(cls, flavor: Flavor, text: str) -> GtidSet:
        """Read the server's own notation.

        Raises:
            DecodeError: the text is not a set in that notation.
        """
        if len(text) > _LONGEST:
            raise DecodeError(
                f"a GTID set of {len(text):,} characters, more than {_LONGEST:,}",
                operation="parse a GTID set",
                hint="one with so many holes is no server's that works as it should",
            )
        try:
            found = _PARSERS[flavor](text)
            if found.cardinality > _LAST:
                raise ValueError(text)  # noqa: TRY301 - as what the parsers raise
        except (ValueError, IndexError) as error:
            raise DecodeError(
                f"not a {flavor} GTID set: {text[:200]!r}", operation="parse a GTID set"
            ) from error
        return found

    @classmethod
    def empty(cls, flavor: Flavor) -> GtidSet:
        """The set that holds nothing."""
        return cls(flavor)

    @property
    def cardinality(self) -> int:
        """How many transactions it stands for: `seq` of a stream that has executed this set.

        MariaDB: the sum of the last numbers of its domains. File: the packed position.
        """
        return sum(last - first + 1 for spans in self.intervals.values() for first, last in spans)

    def contains(self, gtid: Gtid) -> bool:
        """Whether this one transaction is inside."""
        spans = self.intervals.get(gtid.origin, ())
        at = bisect_right(spans, (gtid.number, gtid.number)) - 1
        if at + 1 < len(spans) and spans[at + 1][0] == gtid.number:
            return True
        return at >= 0 and spans[at][0] <= gtid.number <= spans[at][1]

    def contains_all(self, other: GtidSet) -> bool:
        """Whether every transaction of `other` is inside: the only order there is on sets."""
        return not other.minus(self).intervals

    def with_interval(self, origin: str, first: int, last: int, server: int = 0) -> GtidSet:
        """This set and the numbers `first` to `last` of `origin`."""
        return self.with_intervals({origin: [(first, last)]}, {origin: server})

    def with_intervals(
        self, added: Mapping[str, Sequence[Interval]], servers: Mapping[str, int]
    ) -> GtidSet:
        """This set and more.

        Args:
            added: origin -> numbers, first and last.
            servers: MariaDB: domain -> server of the last of its numbers; 0 unless named.
        """
        spans, last_servers = dict(self.intervals), dict(self.servers)
        for origin, more in added.items():
            spans[origin] = _merge([*spans.get(origin, ()), *more])
            if self.flavor == "mariadb" and any(last == spans[origin][-1][1] for _, last in more):
                last_servers[origin] = servers.get(origin, 0)
        return GtidSet(self.flavor, spans, last_servers)

    def union(self, other: GtidSet) -> GtidSet:
        """All transactions of both."""
        spans, servers = dict(self.intervals), dict(self.servers)
        for origin, more in other.intervals.items():
            spans[origin] = _merge([*spans.get(origin, ()), *more])
            if self.flavor == "mariadb" and spans[origin][-1][1] == more[-1][1]:
                servers[origin] = other.servers.get(origin, 0)
        return GtidSet(self.flavor, spans, servers)

    def minus(self, other: GtidSet) -> GtidSet:
        """The transactions that `other` lacks."""
        left: dict[str, tuple[Interval, ...]] = {}
        for origin, spans in self.intervals.items():
            rest = _subtract(spans, other.intervals.get(origin, ()))
            if rest:
                left[origin] = rest
        servers = {origin: s for origin, s in self.servers.items() if origin in left}
        return GtidSet(self.flavor, left, servers)

    def __str__(self) -> str:
        return _FORMATTERS[self.flavor](self)


def format_gtid(flavor: Flavor, gtid: Gtid) -> str:
    """The transaction's name in its server's notation."""
    if flavor == "mariadb":
        return f"{gtid.origin}-{gtid.server}-{gtid.number}"
    if flavor == "file":
        return f"{gtid.origin}.{gtid.number >> FILE_BITS:06d}:{gtid.number & (1 << FILE_BITS) - 1}"
    return f"{gtid.origin}:{gtid.number}"


def parse_gtid(flavor: Flavor, text: str) -> Gtid:
    """Read one transaction's name.

    Raises:
        DecodeError: the text is not one GTID of that flavour.
    """
    try:
        if flavor == "mariadb":
            domain, server, number = text.split("-")
            return Gtid(str(_number(domain, _LAST_ID)), _first(number), _number(server, _LAST_ID))
        if flavor == "file":
            return _parse_file(text)
        origin, number = text.rsplit(":", 1)
        head, _, tag = origin.partition(":")
        return Gtid(str(uuid.UUID(head)) + (f":{tag}" if tag else ""), _first(number))
    except ValueError as error:
        raise DecodeError(f"not a {flavor} GTID: {text[:200]!r}") from error


def pack_file(name: str, offset: int) -> Gtid:
    """A binlog file and end offset as the name of a transaction of flavour `file`."""
    return _parse_file(f"{name}:{offset}")


def _parse_file(text: str) -> Gtid:
    name, _, offset = text.rpartition(":")
    base, _, number = name.rpartition(".")
    if not base:
        raise ValueError(text)
    file, place = _number(number, _LAST >> FILE_BITS), _number(offset, (1 << FILE_BITS) - 1)
    return Gtid(base, (file << FILE_BITS) + place)


def _number(text: str, most: int) -> int:
    """A number as the servers write it: digits alone, and not more than they and the lake hold."""
    digits = text.strip()
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS):
        raise ValueError(text)
    value = int(digits)
    if value > most:
        raise ValueError(text)
    return value


def _first(text: str) -> int:
    """The number of a transaction, from 1."""
    value = _number(text, _LAST)
    if value == 0:
        raise ValueError(text)
    return value


_TAG = re.compile(r"[a-z_][a-z0-9_]{0,31}")


def _parse_mysql(text: str) -> GtidSet:
    spans: dict[str, list[Interval]] = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        head, *items = part.split(":")
        server = origin = str(uuid.UUID(head.strip()))
        if not items:
            raise ValueError(part)
        for item in (i.strip().lower() for i in items):
            if _TAG.fullmatch(item):
                origin = f"{server}:{item}"
                continue
            first, _, last = item.partition("-")
            interval = (_first(first), _first(last or first))
            if interval[1] < interval[0]:
                raise ValueError(item)
            spans.setdefault(origin, []).append(interval)
    return GtidSet("mysql", {origin: _merge(found) for origin, found in spans.items()})


def _parse_mariadb(text: str) -> GtidSet:
    spans: dict[str, tuple[Interval, ...]] = {}
    servers: dict[str, int] = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        first, second, last = part.split("-")
        domain = str(_number(first, _LAST_ID))
        if domain in spans:
            raise ValueError(part)
        spans[domain] = ((1, _first(last)),)
        servers[domain] = _number(second, _LAST_ID)
    return GtidSet("mariadb", spans, servers)


def _parse_file_set(text: str) -> GtidSet:
    if not text:
        return GtidSet("file")
    gtid = _parse_file(text)
    if gtid.number == 0:
        raise ValueError(text)
    return GtidSet("file", {gtid.origin: ((1, gtid.number),)})


def _format_mysql(value: GtidSet) -> str:
    parts = []
    for origin, spans in sorted(value.intervals.items()):
        numbers = ":".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)
        parts.append(f"{origin}:{numbers}")
    return ",".join(parts)


def _format_last(value: GtidSet) -> str:
    return ",".join(
        format_gtid(value.flavor, Gtid(origin, spans[-1][1], value.servers.get(origin, 0)))
        for origin, spans in sorted(value.intervals.items(), key=lambda item: item[0].zfill(12))
    )


_PARSERS = {"mysql": _parse_mysql, "mariadb": _parse_mariadb, "file": _parse_file_set}
_FORMATTERS = {"mysql": _format_mysql, "mariadb": _format_last, "file": _format_last}


def _merge(spans: Iterable[Interval]) -> tuple[Interval, ...]:
    merged: list[Interval] = []
    for first, last in sorted(spans):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return tuple(merged)


def _subtract(spans: tuple[Interval, ...], gone: tuple[Interval, ...]) -> tuple[Interval, ...]:
    """Both in order and apart; each is gone through once, as a set may have very many holes."""
    rest: list[Interval] = []
    at = 0
    for first, last in spans:
        start = first
        while at < len(gone) and gone[at][1] < start:
            at += 1
        reached = at
        while reached < len(gone) and gone[reached][0] <= last:
            low, high = gone[reached]
            if low > start:
                rest.append((start, low - 1))
            start = high + 1
            if start > last:
                break  # it may reach into the next one
            reached += 1
        at = reached
        if start <= last:
            rest.append((start, last))
    return tuple(rest)
