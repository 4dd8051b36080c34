"""What a server may have done to rows, by its start or since, which its log does not tell.

Lives here: opening MEMORY tables at each look, so that their emptying stands in the log; noting
each server's start, and how many rows it has taken by INSERT DELAYED; putting tables in doubt when
it is found to have been started again, or to have taken some. Does not live here: when it is looked
(`unfit`), how a log's files ended (`wire.logends`), comparing (`doubts`).

Measured on MySQL 9.7 and MariaDB 10.11: whoever opens a MEMORY table first after a restart makes
the server log a TRUNCATE for it, under read_only too. But MariaDB logs nothing where that session
has sql_log_bin=0 (mariadb-upgrade has), and then nothing ever tells of it. And a server that was
killed may have lost rows that its log has (innodb_flush_log_at_trx_commit other than 1). That
setting can be made less for a while, and no log tells: only who looked shortly before knows.

Measured on MySQL 9.7 and MariaDB 10.11: OPTIMIZE LOCAL TABLE is in no log, and computes STORED
columns anew, by settings that may be others than when the rows were written. DROP PARTITION that
fails on MariaDB may have dropped partitions, and is not logged. Of both the time tells at which a
table was made (CREATE_TIME), or the list of its partitions; no other statement but TRUNCATE, and
EXCHANGE and TRUNCATE PARTITION, leaves both as they were where it writes rows anew.

Measured on MariaDB 10.11: TRUNCATE, DROP PARTITION and the like are done in InnoDB before they
stand in the log, and what a crash parts is not put together again, whatever the settings (seen
where a large transaction was being logged). MySQL has both in one transaction.

Measured on MariaDB 10.11: rows of INSERT DELAYED and REPLACE DELAYED are written by a thread that
may log them behind a DELETE that has found them. So the log, and a replica, has rows that are gone.
Only the server's count of such rows tells that there were any. MySQL has no such thing.

Invariant: a start is noted only when the tables that it concerns are in doubt.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass, field, replace
from typing import Any, Final

from ratchet.core.errors import RetryableError, SourceUnfitError, TableStoppedError
from ratchet.core.position import Position
from ratchet.core.shard import ShardId
from ratchet.jobs.preflight.fitness import not_durable
from ratchet.jobs.preflight.lostparts import is_read_to, untold
from ratchet.store import layout
from ratchet.store.files import Lake
from ratchet.store.notes import Notes
from ratchet.store.rounds import RoundLog
from ratchet.store.stops import Doubt
from ratchet.store.tables import Tables, TableState
from ratchet.wire.decode.answers import as_count, as_name, as_text, or_null, refusal, shaped, single
from ratchet.wire.decode.views import beside_views
from ratchet.wire.logends import read_log_ends
from ratchet.wire.session import Session, quoted

log: Final = logging.getLogger("ratchet.jobs.run")

# Seconds by which two looks may differ about one start. A clock that is set makes no difference: a
# server takes both its uptime and the time from it.
ROUNDED: Final = 2
_WATCHED: Final = 600  # seconds from a look to the next start: longer, and some life was not seen
_EMPTIED: Final = "its server was restarted, which empties a MEMORY table, logged or not"
_BEFORE_ITS_LOG: Final = "and MariaDB executes statements about tables before it logs them"
_LATE: Final = "its server has executed INSERT DELAYED, whose rows may be logged too late"
_TABLES: Final = (
    "SELECT TABLE_NAME, ENGINE FROM information_schema.TABLES "
    "WHERE TABLE_SCHEMA = %s AND TABLE_TYPE = 'BASE TABLE'"
)
_WITH_STORED: Final = (
    "SELECT DISTINCT TABLE_NAME FROM information_schema.COLUMNS "
    "WHERE TABLE_SCHEMA = %s AND (EXTRA LIKE '%%STORED%%' OR EXTRA LIKE '%%PERSISTENT%%')"
)
_MADE: Final = (
    "SELECT TABLE_NAME, CREATE_TIME FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s"
)
_PARTITIONS: Final = (
    "SELECT DISTINCT TABLE_NAME, PARTITION_NAME FROM information_schema.PARTITIONS "
    "WHERE TABLE_SCHEMA = %s AND PARTITION_NAME IS NOT NULL"
)
_ANEW: Final = (
    "its server has rewritten it, which computes STORED columns again (OPTIMIZE LOCAL does it "
    "without a log entry)"
)
_IN_MEMORY: Final = " AND ENGINE = 'MEMORY'"
_STATUS: Final = "SHOW GLOBAL STATUS WHERE Variable_name IN ('Uptime', 'Delayed_writes')"
_SERVER: Final = "SELECT CONCAT_WS('/', @@hostname, @@port, @@server_id), UNIX_TIMESTAMP()"


@dataclass(frozen=True, slots=True)
class Start:
    """A server's start, as it is noted in the lake.

    Attributes:
        server: which server it is.
        at: when it was started, seconds since the epoch by its clock.
        file: the file of its log that it wrote when that was noted; empty if it is not known.
        loose: the settings it had then with which a crash may part rows and log.
        seen: the last look of a run that ended because a server was away, by the same clock; or 0.
        delayed: rows that it has taken by INSERT DELAYED since then.
        late: whether some of these may not have been in its log when they were counted.
        stored: table with STORED columns -> when the server says that it was made.
        parts: partitioned table -> its partitions.
        round: the newest round when that was noted; 0: an earlier version did not say.
    """

    server: str
    at: int
    file: str = ""
    loose: str = ""
    seen: int = 0
    delayed: int = 0
    late: bool = False
    stored: dict[str, str] = field(default_factory=dict)
    parts: dict[str, list[str]] = field(default_factory=dict)
    round: int = 0

    def is_later(self, other: Start | None) -> bool:
        """Whether the server that is read was started since, be it the same one or not."""
        return other is None or self.at > other.at + ROUNDED

    def is_same(self, other: Start | None) -> bool:
        """Whether it is the very same start, not a quick restart behind it."""
        return (
            other is not None and self.server == other.server and abs(self.at - other.at) <= ROUNDED
        )

    def is_news(self, other: Start | None) -> bool:
        """Whether it is to be noted."""
        if other is None or not self.is_same(other):
            return True
        same_life = replace(
            other,
            server=self.server,
            at=self.at,
            file=self.file,
            seen=self.seen,
            round=self.round,
        )
        return self != same_life

    def has_delayed(self, other: Start | None) -> bool:
        """Whether rows came by INSERT DELAYED since another one was noted, be it the same start."""
        before = other.delayed if other is not None and self.is_same(other) else 0
        return self.delayed != before

    def rewritten(self, other: Start | None) -> dict[str, str]:
        """Tables that the same server has written anew since, whatever its log says, and why."""
        if other is None or other.server_id != self.server_id:
            return {}
        return {
            table: _ANEW
            for table, made in self.stored.items()
            if other.stored.get(table, made) != made
        }

    def lost_parts(self, other: Start | None) -> dict[str, frozenset[str]]:
        """Table -> partitions that the same server had then, and has no more."""
        if other is None or other.server_id != self.server_id:
            return {}
        fewer = {
            table: frozenset(other.parts.get(table, ())) - set(parts)
            for table, parts in self.parts.items()
        }
        return {table: gone for table, gone in fewer.items() if gone}

    def has_rewritten(self, state: TableState, shard: str, noted: Mapping[str, Start]) -> bool:
        """Whether it has written a table anew since its dump began, and before the first look."""
        if shard in noted and state.table in noted[shard].stored:
            return False  # see `rewritten`
        before = state.dump.made.get(shard) if state.dump else None
        now = self.stored.get(state.table)
        same_server = (before or "").partition(" ")[0] == self.server_id
        return bool(before and now and same_server) and before != f"{self.server_id} {now}"

    @property
    def server_id(self) -> str:
        """What tells servers of one topology apart; a host's name may change with each start."""
        return self.server.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class Life:
    """What one look has found of one shard's server.

    Attributes:
        start: its start.
        looked_at: when that was, seconds since the epoch by its clock.
        watched: whether a run looked at it shortly before it was started.
        doubts: mirrored table -> what may have happened to its rows; only if the start is news.
        gone: mirrored table -> partitions that it has no more.
        head: the end of the server's log behind that; None: it tells no positions.
    """

    start: Start
    looked_at: int
    watched: bool = False
    doubts: Mapping[str, str] = field(default_factory=dict)
    gone: Mapping[str, frozenset[str]] = field(default_factory=dict)
    head: Position | None = None


def read_starts(lake: Lake) -> dict[str, Start]:
    """ShardId as text -> the start that was noted last."""

    def parse(noted: Any) -> dict[str, Start]:
        return {shard: Start(str(one[0]), int(one[1]), *one[2:]) for shard, one in noted.items()}

    return Notes(lake).read(layout.STARTS_FILE, parse, {})


def look_at_life(
    session: Session,
    matches: Callable[[str], bool],
    noted: Start | None,
    before: Life | None,
    variables: Mapping[str, str],
) -> Life:
    """Open a server's MEMORY tables, and find out what its start may have done.

    Args:
        session: on the server, with the mirrored database.
        matches: which of its tables are mirrored.
        noted: what the lake has of it.
        before: what this run's last look has found; None: this is its first.
        variables: the server's (`facts.LOG_VARIABLES`), names in lower case.

    Raises:
        RetryableError: the server does not answer.
        SourceUnfitError: it refuses us.
    """
    start, now = _start_of(session)
    start = replace(start, loose=not_durable(variables))
    start = replace(
        start,
        late=start.has_delayed(noted),
        stored=_stored(session, matches),
        parts=_parts(session, matches),
    )
    if before is None and noted is not None:
        before = Life(noted, noted.seen)
    memory = sorted(_engines(session, matches, _IN_MEMORY))
    _open(session, memory)
    file = noted.file if noted is not None and noted.server == start.server else ""
    watched = was_watched(start, noted, before)
    doubts: dict[str, str] = {}
    if noted is not None and (start.late or noted.late):
        # The one who counted them did not wait for the log: once more at the look behind that.
        engines = _engines(session, matches)
        doubts = {name: _LATE for name, engine in engines.items() if engine != "innodb"}
    doubts |= start.rewritten(noted)
    if start.is_later(noted):
        ends = read_log_ends(session, since=file)
        file = ends.newest
        if ends.unclean:
            why = _why_all(start, noted, before, watched=watched, mariadb=session.is_mariadb)
            doubts |= _crashed(ends.unclean, why, _engines(session, matches))
    if not start.is_same(noted):
        doubts |= dict.fromkeys(memory, _EMPTIED)
    gone = start.lost_parts(noted)
    head = session.head() if gone and session.flavor != "file" else None
    return Life(replace(start, file=file), now, watched, doubts, gone, head)


def started_at(session: Session) -> int:
    """When a server was started, seconds since the epoch by its clock.

    Raises:
        RetryableError: the server does not answer.
        SourceUnfitError: it refuses us.
    """
    return _start_of(session)[0].at


def _start_of(session: Session) -> tuple[Start, int]:
    """A server's start, and the time; both by its clock."""
    server, now = single(session.query(_SERVER), as_name, as_count)
    status = {
        name.lower(): count for name, count in shaped(session.query(_STATUS), as_name, as_count)
    }
    if "uptime" not in status:
        raise refusal("it does not say how long it has been up")
    delayed = status.get("delayed_writes", 0)
    return Start(server, now - status["uptime"], delayed=delayed), now


def was_watched(start: Start, noted: Start | None, before: Life | None) -> bool:
    """Whether a run looked at a server's settings until its life before this one ended.

    Args:
        start: of the life that it has now.
        noted: of the life that it had before, unless this one is noted already.
        before: the last look.
    """
    if before is None:
        return False
    if start.is_same(before.start):
        return before.watched  # that look was at this life, which is only not noted yet
    return before.start.is_same(noted) and start.at - before.looked_at <= _WATCHED


def _why_all(
    start: Start, noted: Start | None, before: Life | None, *, watched: bool, mariadb: bool
) -> str:
    """Why a crash may have parted rows and log of InnoDB too; nothing if it cannot have."""
    settings = [one.loose for one in (start, noted, before and before.start) if one and one.loose]
    if settings:
        return f"with {settings[0]}"
    # Of a table that was never mirrored from it, it cannot have lost what the mirror has; and
    # another server of the topology, a replica that crashed, reads its source's log again.
    if noted is None or noted.server_id != start.server_id:
        return ""
    if not watched:
        return "with settings that no run had checked shortly before"
    return _BEFORE_ITS_LOG if mariadb else ""


def _engines(session: Session, matches: Callable[[str], bool], which: str = "") -> dict[str, str]:
    """Mirrored table -> its engine, in lower case."""
    found = session.query(_TABLES + which, (session.config.database,))
    engines = shaped(found, as_name, or_null(as_text))
    return {name: (engine or "").lower() for name, engine in engines if matches(name)}


def _stored(session: Session, matches: Callable[[str], bool]) -> dict[str, str]:
    """Mirrored table with STORED columns -> when it was made: anew by each rebuild."""
    database = session.config.database
    beside = beside_views(session.query, database, "TABLE_NAME")
    names = shaped(session.query(_WITH_STORED + beside, (database,)), as_name)
    wanted = [name for (name,) in names if matches(name)]
    if not wanted:
        return {}
    places = ", ".join(["%s"] * len(wanted))
    found = session.query(f"{_MADE} AND TABLE_NAME IN ({places})", (database, *wanted))
    return {name: str(made) for name, made in shaped(found, as_name, or_null(as_text))}


def _parts(session: Session, matches: Callable[[str], bool]) -> dict[str, list[str]]:
    """Mirrored table that is partitioned -> its partitions."""
    found: dict[str, list[str]] = {}
    rows = session.query(_PARTITIONS, (session.config.database,))
    for table, part in shaped(rows, as_name, as_name):
        if matches(table):
            found.setdefault(table, []).append(part)
    return {table: sorted(parts) for table, parts in found.items()}


def _open(session: Session, memory: list[str]) -> None:
    if not memory:
        return
    session.execute("SET SESSION lock_wait_timeout = 1")
    for name in memory:
        try:
            session.query(f"SELECT 1 FROM {quoted(session.config.database)}.{quoted(name)} LIMIT 1")
        except (RetryableError, SourceUnfitError, TableStoppedError) as error:
            log.debug("%s was not opened: %s", name, error)  # locked, or gone: at the next look


def _crashed(unclean: str, why_all: str, engines: Mapping[str, str]) -> dict[str, str]:
    """Tables of which the server may have lost rows that its log has, or the other way round."""
    why = f"its server may have crashed: {unclean}"
    return {
        name: f"{why}, {why_all}" if why_all else f"{why}; {engine} tables do not survive it"
        for name, engine in engines.items()
        if why_all or engine != "innodb"
    }


def doubt_restarted(
    lake: Lake, tables: Tables, lives: Mapping[str, Life], *, last_round: int
) -> None:
    """Put tables in doubt that the start of their server concerns, and note the start.

    Only while nobody else writes states.

    Args:
        lake: where starts are noted.
        tables: the states.
        lives: ShardId as text -> what was found there.
        last_round: the start is behind it, or in it.
    """
    noted = read_starts(lake)
    news = {shard: one for shard, one in lives.items() if one.start.is_news(noted.get(shard))}
    if not news:
        return
    for shard, one in news.items():
        keyspace = ShardId.parse(shard).keyspace
        states = [state for state in tables.list() if state.keyspace == keyspace]
        doubts = {s.table: _ANEW for s in states if one.start.has_rewritten(s, shard, noted)}
        doubts |= one.doubts
        start, lost = _partless(lake, shard, one, noted.get(shard), last_round)
        doubts |= lost
        concerned = [state for state in states if state.table in doubts]
        if any(state.phase == "dumping" for state in concerned):
            continue  # its rows may be from before: it is put in doubt when they are all there
        for state in concerned:
            if state.is_past_dump:
                why = doubts[state.table]
                log.warning("%s is compared with its source: %s", state.name, why)
                # What a crash took at the source differs rightly.
                doubt = Doubt(message=why, statement="", round=last_round)
                tables.save(state.in_doubt(doubt))
        noted[shard] = start
    _write_starts(lake, noted)


def _partless(
    lake: Lake, shard: str, life: Life, noted: Start | None, last_round: int
) -> tuple[Start, dict[str, str]]:
    """What is to be noted, and the tables that have lost partitions without a word in the log."""
    log, start = RoundLog(lake), replace(life.start, round=last_round)
    if noted is None or not life.gone:
        return start, {}
    if is_read_to(log, shard, life.head):
        return start, untold(log, shard, life.gone, since=noted.round)
    # They are looked at again when the log has been read so far.
    before = {table: noted.parts.get(table, []) for table in life.gone}
    return replace(start, parts={**start.parts, **before}, round=noted.round), {}


def note_looks(lake: Lake, lives: Mapping[str, Life]) -> None:
    """Note when servers were looked at, for the run behind one that ends since one is away.

    Args:
        lake: where starts are noted.
        lives: ShardId as text -> what the last look has found there.
    """
    noted = read_starts(lake)
    known = {shard: one for shard, one in noted.items() if shard in lives}
    seen = {
        shard: replace(one, seen=lives[shard].looked_at)
        for shard, one in known.items()
        if lives[shard].start.is_same(one)
    }
    _write_starts(lake, noted | seen)


def _write_starts(lake: Lake, noted: Mapping[str, Start]) -> None:
    lake.write_json(
        Notes(lake).own(layout.STARTS_FILE),
        {shard: astuple(one) for shard, one in noted.items()},
    )
