"""A lake for whoever reads it: its tables, its cuts, and their rows as Spark frames.

This is Ratchet's public interface; `ratchet` itself offers all of its names. Everything below
`ratchet.core`, `ratchet.merge` and so on is internal and may change.

Lives here: what a reader asks for, and the plain values that it gets. Does not live here: finding
a cut (`ratchet.jobs.inspect.asof`), laying changes over a table (`ratchet.merge.fresh`).

Invariant: nothing here changes a lake, asks a source, or needs a password of one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from ratchet.core.errors import ConfigError, DecodeError, NoCutError
from ratchet.core.gtid import Flavor, Gtid, parse_gtid
from ratchet.core.lineage import NO_LINEAGE
from ratchet.core.shard import ShardId
from ratchet.core.token import Coordinates, EventToken, Order, Rank
from ratchet.core.token import compare as _compare
from ratchet.core.types import InvalidValuePolicy
from ratchet.jobs.inspect.asof import find_cut, newest_cut, parse_moment
from ratchet.merge.fresh import read_fresh
from ratchet.store.cuts import Cut, Cuts
from ratchet.store.datenote import dates_are_text
from ratchet.store.files import Lake
from ratchet.store.formats import open_lake
from ratchet.store.tables import Tables, TableState

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# The notations differ: three numbers; a file's name with a dot; what is left.
_NOTATIONS: Final[tuple[Flavor, ...]] = ("mariadb", "file", "mysql")
_OPERATION: Final = "read the mirror"


@dataclass(frozen=True, slots=True, kw_only=True)
class MirroredTable:
    """A table of the mirror, as it stood when it was asked for.

    Attributes:
        name: "keyspace.table".
        phase: new, dumping, catching_up, streaming or stopped.
        key: the columns that identify a row.
        path: its Delta table, as Spark and deltalake take it.
        doubts: what happened that may have changed rows without a word in the log; it is compared
            with its source before it counts as right again.
        stopped: why it is not merged any more; empty if it is.
        remedy: what to do then.
    """

    name: str
    phase: str
    key: tuple[str, ...]
    path: str
    doubts: tuple[str, ...] = ()
    stopped: str = ""
    remedy: str = ""

    @property
    def is_right(self) -> bool:
        """Whether it follows its source, and nothing puts its rows in doubt."""
        return self.phase == "streaming" and not self.doubts


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsistentCut:
    """All tables at one moment of every shard.

    Attributes:
        number: counts from 1, without holes.
        round: everything that was captured up to this round is in it.
        latest: nothing in it was committed later, by the servers' clocks; UTC.
        merged_at: when it was written; UTC.
        versions: "keyspace.table" -> version of its Delta table.
        stopped: tables that stopped earlier, and do not belong to the moment.
        positions: "keyspace/shard" -> the transactions in it, in the server's own notation.
    """

    number: int
    round: int
    latest: datetime
    merged_at: datetime
    versions: Mapping[str, int]
    stopped: tuple[str, ...]
    positions: Mapping[str, str]


class Mirror:
    """A lake that is only read. Cheap to make; each question reads the lake as it is then."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake

    def tables(self) -> tuple[MirroredTable, ...]:
        """All tables, those that are being dumped or have stopped among them, by name.

        Raises:
            LakeError: the lake cannot be read.
        """
        states = sorted(Tables(self._lake).list(), key=lambda state: state.name)
        return tuple(self._table(state) for state in states)

    def table(self, name: str) -> MirroredTable:
        """One table by its name, "keyspace.table".

        Raises:
            ConfigError: there is none of this name.
        """
        return self._table(self._state(name))

    def cut(self, as_of: str | datetime | None = None) -> ConsistentCut:
        """The cut that shows a moment: the newest one that holds nothing later.

        Args:
            as_of: a time (without a zone it is UTC), or a text as `ratchet sql --as-of` takes it:
                "2026-03-01T12:00:00Z", "round:12", "gtid:0-1-100". None: the newest cut.

        Raises:
            NoCutError: there is none, or it is not kept any more.
            ConfigError: the text is no moment.
        """
        if as_of is None:
            return _public_cut(newest_cut(Cuts(self._lake)))
        text = as_of.isoformat() if isinstance(as_of, datetime) else as_of
        return _public_cut(find_cut(self._lake, parse_moment(text)))

    def read(
        self,
        session: SparkSession,
        table: str,
        *,
        as_of: str | datetime | ConsistentCut | None = None,
        fresh: bool = False,
    ) -> DataFrame:
        """A table's rows, with `_token`, which says which transaction wrote each of them.

        The frame is pinned: it shows this moment until `merge.table_history` takes its files away.
        Tables read as of the same `ConsistentCut` show the same moment.

        Args:
            session: a Spark session with Delta.
            table: "keyspace.table".
            as_of: as `cut` takes it, or a cut. None: the newest one.
            fresh: lay what is captured but not merged yet over the newest cut, by the merge's own
                rules. A change that the merge alone can bring (a TRUNCATE, other columns) ends it
                there.

        Raises:
            ConfigError: there is no such table, or `fresh` and `as_of` are both given.
            NoCutError: the table is in no such cut: it is being dumped, or had stopped.
        """
        state = self._state(table)
        if fresh:
            if as_of is not None:
                raise ConfigError(
                    "a fresh read shows the newest rows, and takes no moment",
                    operation=_OPERATION,
                    hint="give either `fresh` or `as_of`",
                )
            policy = InvalidValuePolicy(zero_dates="text" if dates_are_text(self._lake) else "null")
            found = read_fresh(session, self._lake, lambda one: one.name == table, policy)
            if found is None or table not in found.frames:
                raise _not_shown(state, "the newest cut")
            return found.frames[table]
        cut = as_of if isinstance(as_of, ConsistentCut) else self.cut(as_of)
        if table not in cut.versions or table in cut.stopped:
            raise _not_shown(state, f"cut {cut.number}")
        reader = session.read.format("delta").option("versionAsOf", cut.versions[table])
        return reader.load(self._lake.hadoop_uri(state.shown_path))

    def _table(self, state: TableState) -> MirroredTable:
        stopped = state.stopped
        return MirroredTable(
            name=state.name,
            phase=state.phase,
            key=state.key,
            path=self._lake.hadoop_uri(state.shown_path),
            doubts=tuple(sorted({doubt.message for doubt in state.doubts.values()})),
            stopped="" if stopped is None else stopped.message,
            remedy="" if stopped is None else stopped.hint,
        )

    def _state(self, name: str) -> TableState:
        states = Tables(self._lake).list()
        found = [state for state in states if state.name == name]
        if len(found) == 1:
            return found[0]
        known = ", ".join(sorted(state.name for state in states)) or "none yet"
        raise ConfigError(
            f"there is {'no table' if not found else 'more than one table'} of the name {name!r}",
            operation=_OPERATION,
            hint=f"a table is named as keyspace.table; the tables are: {known}",
        )


def open_mirror(lake: str | os.PathLike[str]) -> Mirror:
    """A lake, to be read.

    Args:
        lake: its folder or URL, as `lake:` in the config. The keys of an object store come from
            the environment (docs/operations.md).

    Raises:
        LakeError: there is no lake of Ratchet's there, or it cannot be read.
    """
    return Mirror(open_lake(lake, now=0, create=False))


def token(row: Mapping[str, Any]) -> EventToken:
    """The value of a row's `_token`, from a Spark `Row`, its `asDict()` or Arrow's `as_py()`.

    `ts` may have no zone, as Spark gives it to a process that lives in UTC (`TZ=UTC`); with any
    other local zone give the value with its zone.
    """
    of: dict[str, Any] = row.asDict() if hasattr(row, "asDict") else dict(row)
    ts = of["ts"] if of["ts"].tzinfo else of["ts"].replace(tzinfo=UTC)
    return EventToken(
        ts=(ts - _EPOCH) // timedelta(microseconds=1),
        at=Coordinates(
            shard=ShardId.parse(of["shard"]),
            rank=Rank(generation=of["generation"], seq=of["seq"], idx=of["idx"]),
            gtid=None if of["gtid"] is None else _gtid(of["gtid"]),
        ),
    )


def compare(
    a: EventToken, b: EventToken, *, clock_bound: timedelta = timedelta(seconds=1)
) -> Order:
    """How the first token stands to the second: OLDER, SAME, NEWER or UNKNOWN.

    On one shard their ranks decide. Between shards the commit times do, if they are further apart
    than two servers' clocks may be; else it is not known.

    Args:
        a: one token.
        b: the other.
        clock_bound: by how much two servers' clocks may differ.
    """
    bound = clock_bound // timedelta(microseconds=1)
    return _compare(a, b, clock_bound_us=bound, lineage=NO_LINEAGE)


def _gtid(text: str) -> Gtid:
    for flavor in _NOTATIONS:
        with suppress(DecodeError):
            return parse_gtid(flavor, text)
    raise ConfigError(
        f"{text!r} is no GTID",
        operation=_OPERATION,
        hint="give the value of a column `_token` as it was read",
    )


def _not_shown(state: TableState, where: str) -> NoCutError:
    hint = "`ratchet status` shows how far it is"
    if state.stopped is not None:
        hint = f"it has stopped: {state.stopped.message}; {state.stopped.hint}"
    return NoCutError(
        f"{state.name} is not in {where} as of its moment", operation=_OPERATION, hint=hint
    )


def _public_cut(cut: Cut) -> ConsistentCut:
    return ConsistentCut(
        number=cut.number,
        round=cut.round,
        latest=_time(cut.latest_ts),
        merged_at=_time(cut.merged_at),
        versions=dict(cut.tables),
        stopped=cut.stopped,
        positions={name: str(one.position.executed) for name, one in cut.shards.items()},
    )


def _time(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)
