"""Sessions with a source: connecting, statements, positions, consistent reads, raw rows.

Lives here: `Session`, and which position a read is sure to contain. Does not live here: logging in
(`wire.connect`), the binlog stream (`wire.binlog`), what a server is fit for (`wire.probe`).

Invariant: a position from `executed()` is contained in every read that begins afterwards, and the
floor of `snapshot()` in every read inside it. How each flavour gets there was found by experiment
(tests/integration/test_floor_positions.py, docs/decisions/0010-floor-positions.md), and that it
holds through vtgate, where a session is not one connection with one server, is in
docs/decisions/0061-reads-through-vtgate.md.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import pymysql
from pymysql.constants import COMMAND
from pymysql.cursors import Cursor

from ratchet.core.errors import (
    BehindError,
    DatabaseGoneError,
    DecodeError,
    LockedError,
    RatchetError,
    RetryableError,
    SourceUnfitError,
    UnverifiedServerError,
)
from ratchet.core.gtid import Flavor, GtidSet, pack_file
from ratchet.core.position import Position
from ratchet.wire.connect import SourceConfig, open_connection
from ratchet.wire.connected import RawConnection, Verified
from ratchet.wire.decode.answers import (
    as_count,
    as_name,
    as_text,
    or_null,
    settled,
    shaped,
    single,
    single_value,
)
from ratchet.wire.failures import TABLET_HINT, UnsoundAnswer, server_failure
from ratchet.wire.stream import RowStream
from ratchet.wire.vitess import refuse_other_settings

__all__ = ["MARK", "Session", "Snapshot", "SourceConfig", "quoted"]

log: Final = logging.getLogger(__name__)

# What our statements begin with: an administrator sees whose they are, and so do we when it is
# counted what others run (snapshot.running).
MARK: Final = "/* ratchet */ "
BINLOG_START: Final = 4  # the first event of any binlog file stands behind the magic number
_COMMIT_WAIT: Final = 0.25  # seconds that a commit under way may take before the exact way is used
_REPLICA_WAIT: Final = 1.0  # seconds that commits may wait for a replica, until one looks again
_SETTLES: Final = 0.2  # seconds in which a commit comes in that waits for nobody
_TABLET_WAIT: Final = 5.0  # seconds of tries to read position and rows from one and the same tablet
_MYSQL_NEW_STATUS: Final = (8, 2)  # from here on SHOW MASTER STATUS has its new name only

# From here on a table without a key may get an invisible one, which a server may hide altogether.
_MYSQL_HIDDEN_KEYS: Final = (8, 0, 30)
_MARIADB_VERSIONED: Final = (10, 3, 4)
# Bytes of a name or a key that a server compares where it sorts; more than either has.
_SORTED_BY: Final = 32_768
_LOCK_WAIT: Final = 5  # seconds that a statement waits for a locked table
_NOT_LOCKED: Final = frozenset({1205, 1213})
# A MariaDB waits for each table's lock, twice as long as it may: thirty that hang (CREATE TABLE ...
# SELECT, behind a row that is locked) take minutes. Most locks are held for a moment.
_ASKS_TABLES: Final = re.compile(r"\s*SELECT\b.*information_schema", re.IGNORECASE | re.DOTALL)
# And it goes on with a question of which nobody waits for the answer any more.
_NOT_WAITING: Final = "SET STATEMENT lock_wait_timeout = 0, max_statement_time = {:.1f} FOR "
_SHARE: Final = 0.9  # of the time that a statement may be silent
_PAUSES: Final = (0.02, 0.1, 0.3, 0.6)  # seconds, before it is asked once more
_OF_TABLES: Final = re.compile(r"information_schema|^\s*SHOW\b", re.IGNORECASE)
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A consistent read that is open.

    Attributes:
        floor: transactions that its rows are sure to contain; they may contain more.
        read_at: the server's clock when it was opened, microseconds since the epoch, UTC.
    """

    floor: Position
    read_at: int


# A shard's servers -> which of them was used last in this process.
_serving: Final[dict[tuple[SourceConfig, ...], int]] = {}
# Servers that have let this process in.
_entered: Final[set[SourceConfig]] = set()


class Session:
    """One logged-in connection. Not for several threads at once. Use `Session.connect`."""

    def __init__(self, config: SourceConfig, connection: RawConnection) -> None:
        """Take over a connection that is logged in."""
        self.config = config
        self._connection = connection
        self.version = single_value(self.query("SELECT VERSION()"), as_text)
        numbers = self.version.split("-")[0].split(".")
        self.version_numbers = tuple(int(n) for n in numbers if n.isascii() and n.isdigit())
        self.flavor: Flavor = self._find_flavor()
        self._prepare()
        self.server_identity = self._find_identity()

    @classmethod
    def connect(
        cls, config: SourceConfig, accept: Callable[[Session], None] = lambda _: None
    ) -> Session:
        """Connect and log in; where there are standbys, at the first server that will do.

        They are tried in turn, beginning with the one that this process used last: so a run stays
        where it is when a server comes back that others have taken over from.

        Args:
            config: where.
            accept: raises if the server is of no use.

        Returns:
            A session; its `config` is that of the one server it is with.

        Raises:
            RetryableError: no server can be reached.
            SourceUnfitError: they refuse us; the hint has the GRANT.
            ConfigError: TLS settings that do not go together.
        """
        servers = config.servers()
        last = _serving.get(servers, 0)
        failures: dict[str, RatchetError] = {}
        for number in (last, *(n for n in range(len(servers)) if n != last)):
            server = servers[number]
            try:
                session = cls._accepted(server, accept)
            except RatchetError as error:
                if len(servers) == 1:
                    raise
                failures[server.address] = error
            else:
                if number != last:
                    log.warning("%s: continuing at %s", session.source, server.address)
                _serving[servers] = number
                return session
        raise _none_will_do(failures)

    @classmethod
    def _accepted(cls, config: SourceConfig, accept: Callable[[Session], None]) -> Session:
        try:
            connection = open_connection(config)
        except (DatabaseGoneError, UnverifiedServerError, DecodeError) as error:
            if config not in _entered:
                raise
            # It was there a moment ago: a run goes on without it for a while. What a login of now
            # looks like may be anybody's doing who is in between.
            raise RetryableError(
                error.message,
                operation=error.operation,
                source=error.source,
                hint=f"{error.hint}; a run waits for it for a while",
            ) from error
        _entered.add(config)
        try:
            session = cls(config, connection)
        except BaseException:
            if connection.open:
                connection.close()
            raise
        try:
            accept(session)
        except BaseException:
            session.close()
            raise
        return session

    @property
    def source(self) -> str:
        """keyspace/shard, for messages."""
        return str(self.config.shard)

    @property
    def cipher(self) -> str:
        """The TLS cipher of this connection, as our own end has it; "" without TLS."""
        return self._connection.cipher

    @property
    def verified(self) -> Verified:
        """What TLS has verified of the server; "" if it may be anybody."""
        return self._connection.verified

    @property
    def through_vtgate(self) -> bool:
        """Whether the server is a vtgate, and not a MySQL or MariaDB itself."""
        return self.config.through_vtgate

    @property
    def usable(self) -> bool:
        """Whether statements can still be sent."""
        return bool(self._connection.open)

    def query(self, sql: str, args: Sequence[object] | None = None) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows, with values as PyMySQL converts them.

        Raises:
            LockedError: of a question about tables: one of them is locked.
        """
        if not (_ASKS_TABLES.match(sql) and self.is_mariadb):
            return self._rows(sql, args)
        bounded = _NOT_WAITING.format(_SHARE * self.config.read_timeout) + sql
        return settled(lambda: self._rows(bounded, args), pauses=_PAUSES, unless=(LockedError,))

    def _rows(self, sql: str, args: Sequence[object] | None) -> list[tuple[Any, ...]]:
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(MARK + sql, args)
                if cursor.description is None:
                    raise UnsoundAnswer("the server sent an OK instead of rows")
                rows = list(cursor.fetchall())
                _refuse_incomplete(cursor, sql)
                return rows
        except pymysql.err.Error as error:
            raise self._failure(error, "query the server") from error

    def query_named(self, sql: str) -> list[dict[str, Any]]:
        """Run a statement and return its rows by the columns' names."""
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(MARK + sql)
                names = [str(column[0]) for column in cursor.description or ()]
                rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
                _refuse_incomplete(cursor, sql)
                return rows
        except pymysql.err.Error as error:
            raise self._failure(error, "query the server") from error

    def execute(self, sql: str, args: Sequence[object] | None = None) -> int:
        """Run a statement and return the number of affected rows."""
        try:
            with self._connection.cursor() as cursor:
                affected: int | None = cursor.execute(MARK + sql, args)
                if affected is None:
                    raise UnsoundAnswer("the server sent rows instead of an OK")
                return affected
        except pymysql.err.Error as error:
            raise self._failure(error, "run a statement") from error

    def stream_rows(self, sql: str) -> RowStream:
        """Send a SELECT and hand out its rows as raw packets; see `RowStream`."""
        sock = self.send_command(COMMAND.COM_QUERY, (MARK + sql).encode())
        sock.settimeout(self.config.read_timeout)
        hint = TABLET_HINT if self.config.target else ""
        return RowStream(
            sock,
            source=self.source,
            on_broken=self.close,
            hint=hint,
            patience=self.config.read_timeout,
        )

    def send_command(self, command: int, payload: bytes) -> Any:
        """Send one command and return the socket, to read the answer from.

        Between commands PyMySQL's own read buffer is empty, so nothing of the answer is in it.
        """
        try:
            self._connection.send_command(command, payload)
        except pymysql.err.Error as error:
            raise self._failure(error, "send a command") from error
        return self._connection.socket

    def read_reply(self) -> None:
        """Read the OK packet that answers a command, or raise its error."""
        try:
            self._connection.read_reply()
        except pymysql.err.Error as error:
            raise self._failure(error, "read the server's answer") from error

    def close(self) -> None:
        """Close the connection. Harmless when repeated."""
        if self._connection.open:
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def executed(self) -> Position:
        """A position that every read which begins after this call is sure to contain.

        Flavour `file`: the start of the current binlog file.
        """
        if self.flavor == "mariadb":
            with self.snapshot() as snapshot:
                return snapshot.floor
        if self.flavor == "file":
            # MySQL lets every transaction of a file commit before it opens the next one, while
            # the end of the file runs ahead of what a read sees.
            name, _ = self.binlog_end()
            return self._file_position(name, BINLOG_START)
        return self._gtid_executed()

    def contains(self, position: Position) -> bool:
        """Whether every read that begins after this call is sure to contain a position.

        A server hands its log out before it commits, so what the log tells may not be there yet:
        for an instant, or for as long as it waits for a semi-synchronous replica (AFTER_SYNC).
        Flavour `file`: of the newest file nothing tells how far it is committed, so its end is
        asked for, and whether commits wait for a replica.
        """
        if position.flavor != self.flavor:
            return False
        if self.executed().executed.contains_all(position.executed):
            return True
        if self.flavor != "file":
            return False
        end = self._file_position(*self.binlog_end())
        return end.executed.contains_all(position.executed) and self._has_committed()

    def _has_committed(self) -> bool:
        """Whether all has come in that waited for a semi-synchronous replica at the beginning."""
        # With sync_binlog=0 the log is handed out before this delay, else behind it.
        delay = self.value("binlog_group_commit_sync_delay", as_count) / 1e6
        waiting, done = self._semi_synchronous()
        deadline = time.monotonic() + _REPLICA_WAIT
        while time.monotonic() < deadline:
            time.sleep(_SETTLES + delay)
            left, ended = self._semi_synchronous()
            if not left or ended >= done + waiting:
                return True
        return False

    def _semi_synchronous(self) -> tuple[int, int]:
        """Commits that wait for a replica, and those that have waited; zeros without the plugin."""
        # "master" or "source" stands in between, by the plugin's name.
        status = self.query("SHOW GLOBAL STATUS LIKE 'Rpl_semi_sync_%'")
        ends = ("_wait_sessions", "_yes_tx", "_no_tx")
        counts = [row for row in status if str(row[0]).lower().endswith(ends)]
        found = [(name.lower(), count) for name, count in shaped(counts, as_name, as_count)]
        waiting = sum(count for name, count in found if name.endswith("_wait_sessions"))
        return waiting, sum(count for _, count in found) - waiting

    def beginning(self) -> Position:
        """`executed`, as the beginning of a stream: with the file of the log that it lies in.

        By GTIDs alone it is not known which transactions *without* one reads contain. The place in
        the file is its beginning: behind what is flushed, commits may yet be to come.
        """
        if self.flavor != "mysql" or self.config.target:
            return self.executed()
        name, _ = self.binlog_end()
        return replace(self.executed(), file=name, offset=BINLOG_START)

    def head(self) -> Position:
        """The end of the server's binlog now: for telling whether a stream has reached it.

        Not for reads: on MariaDB and without GTIDs it runs ahead of what a read sees.
        """
        if self.flavor == "mariadb":
            return self._position(self.variable("gtid_binlog_pos"))
        if self.flavor == "file":
            return self._file_position(*self.binlog_end())
        return self._gtid_executed()

    def purged(self) -> GtidSet:
        """The transactions that are no longer in any binlog; empty where there are no GTIDs.

        MariaDB tells it by the state at the beginning of its oldest binlog.
        """
        if self.flavor == "mysql":
            return GtidSet.parse("mysql", self.variable("gtid_purged"))
        if self.flavor == "mariadb" and (files := self.binlog_files()):
            first = self.query("SELECT BINLOG_GTID_POS(%s, 4)", (files[0],))
            # NULL if that file has gone meanwhile: the server itself refuses the position then.
            return GtidSet.parse("mariadb", single_value(first, or_null(as_text)) or "")
        return GtidSet.empty(self.flavor)

    def binlog_files(self) -> list[str]:
        """The names of the log's files, the oldest first."""
        return [name for (name,) in shaped(self.query("SHOW BINARY LOGS"), as_name, wider=True)]

    def binlog_end(self) -> tuple[str, int]:
        """Name and end offset of the current binlog file."""
        kind = "BINARY LOG" if self._has_new_names() else "MASTER"
        rows = self.query(f"SHOW {kind} STATUS")
        if not rows:
            raise SourceUnfitError(
                "the server writes no binlog",
                operation="find the end of the binlog",
                source=self.source,
                hint="start it with log_bin (MySQL: the default; MariaDB: --log-bin)",
            )
        name, offset = single(rows, as_name, as_count, wider=True)
        return name, offset

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        """Open a consistent read; several SELECTs may run in it. Keep it to a few seconds."""
        floor = self._open_snapshot()
        try:
            now = self.query("SELECT CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED)")
            yield Snapshot(floor=floor, read_at=single_value(now, as_count))
        except RatchetError:
            self.close()  # there may be nothing left to commit, and that would hide the cause
            raise
        finally:
            if self.usable:
                self.execute("COMMIT")

    def _open_snapshot(self) -> Position:
        if self.config.target:
            return self._open_on_one_tablet()
        if self.flavor != "mariadb":
            floor = self.executed()
            self.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
            return floor
        # gtid_binlog_pos runs ahead of what a read sees: MariaDB writes the binlog before the
        # engine commits. But it is behind or at the binlog's end read after it, and a snapshot
        # that says of itself to stand at or behind that end holds it all. That needs no
        # BINLOG_GTID_POS(), which reads the whole file (docs/decisions/0010-floor-positions.md).
        claimed = self.head()
        end = self.binlog_end()
        deadline = time.monotonic() + _COMMIT_WAIT
        while True:
            self.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
            reached = self._snapshot_position()
            if (len(reached[0]), *reached) >= (len(end[0]), *end):
                return claimed
            if time.monotonic() >= deadline:
                # A commit hangs, for instance on a semi-synchronous replica.
                return self._exact_position(*reached)
            self.execute("COMMIT")

    def _open_on_one_tablet(self) -> Position:
        # Outside of a transaction vtgate may send each statement to another tablet, and one replica
        # may be behind another. Inside of one it stays with the tablet on which it began, and it
        # begins with the first statement.
        deadline = time.monotonic() + _TABLET_WAIT
        while True:
            floor = self.executed()
            self.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
            if self.variable("server_uuid") == floor.server:
                return floor
            self.execute("COMMIT")
            if time.monotonic() >= deadline:
                raise RetryableError(
                    f"vtgate used another tablet each time for {_TABLET_WAIT:g} s",
                    operation="open a consistent read",
                    source=self.source,
                    hint="read from @primary, or from a tablet type with fewer tablets",
                )

    def _snapshot_position(self) -> tuple[str, int]:
        rows = shaped(self.query("SHOW STATUS LIKE 'binlog_snapshot_%'"), as_name, as_text)
        status = {name.lower(): value for name, value in rows}
        place = [status.get(f"binlog_snapshot_{what}") for what in ("file", "position")]
        file, offset = single([place], as_text, as_count)
        return file, offset

    def _exact_position(self, file: str, offset: int) -> Position:
        rows = self.query("SELECT BINLOG_GTID_POS(%s, %s)", (file, offset))
        text = single_value(rows, or_null(as_text))
        if text is None:
            raise RetryableError(
                f"the server does not know its own position {file}:{offset}",
                operation="find a snapshot's position",
                source=self.source,
                hint="the binlog file was purged meanwhile; a run tries again by itself",
            )
        return self._position(text)

    def _gtid_executed(self) -> Position:
        # In one statement: through vtgate the next one may go to another server.
        rows = self.query("SELECT @@GLOBAL.server_uuid, @@GLOBAL.gtid_executed")
        server, text = single(rows, as_name, as_text)
        executed = GtidSet.parse("mysql", text.replace("\n", ""))
        return Position(executed=executed, server=server)

    def _position(self, text: str) -> Position:
        executed = GtidSet.parse(self.flavor, text.replace("\n", ""))
        return Position(executed=executed, server=self.server_identity)

    def _file_position(self, name: str, offset: int) -> Position:
        gtid = pack_file(name, offset)
        executed = GtidSet.empty("file").with_interval(gtid.origin, 1, gtid.number)
        return Position(executed=executed, server=self.server_identity, file=name, offset=offset)

    def variable(self, name: str) -> str:
        """A global variable as it is now; 0 and 1 stand for OFF and ON where it is a switch."""
        return self.value(name, as_text)

    def value(self, name: str, column: Callable[[Any], T]) -> T:
        """As `variable`, read by one of the rules of `wire.decode.answers`."""
        return single_value(self.query(f"SELECT @@GLOBAL.{name}"), column)

    def _has_new_names(self) -> bool:
        return not self.is_mariadb and self.version_numbers >= _MYSQL_NEW_STATUS

    @property
    def is_mariadb(self) -> bool:
        """Whether the server calls itself MariaDB."""
        return "mariadb" in self.version.lower()

    def _find_flavor(self) -> Flavor:
        if self.is_mariadb:
            return "mariadb"
        return "mysql" if self.variable("gtid_mode") == "ON" else "file"

    def _find_identity(self) -> str:
        if self.flavor == "mariadb":
            rows = self.query("SELECT @@GLOBAL.server_id, @@hostname, @@port")
            return "{}@{}:{}".format(*single(rows, as_count, as_text, as_count))
        return self.variable("server_uuid")

    def _prepare(self) -> None:
        if self.config.target:
            self._prepare_behind_vtgate()
            return
        limit = "max_statement_time" if self.is_mariadb else "max_execution_time"
        # By warnings alone MariaDB tells what it has left out of an answer (`_refuse_incomplete`).
        # MySQL leaves nothing out, and asks a privilege for this.
        warnings = "max_error_count = 65535, " if self.is_mariadb else ""
        self.execute(
            "SET SESSION time_zone = '+00:00', sql_mode = '', autocommit = 1, "
            "net_write_timeout = 3600, net_read_timeout = 3600, wait_timeout = 28800, "
            # The default is a year: a read behind an ALTER TABLE would hang, and others behind it.
            # Whoever reads tries again; meanwhile the thread does something else.
            f"lock_wait_timeout = {_LOCK_WAIT}, sql_select_limit = {2**64 - 1}, {limit} = 0, "
            # Not to be inherited: sorting by the first bytes alone, refusing large reads, leaving
            # quotes out, a new transaction or the end of the connection behind each COMMIT.
            f"max_sort_length = {_SORTED_BY}, sql_big_selects = 1, sql_quote_show_create = 1, "
            f"{warnings}completion_type = 'NO_CHAIN'"
        )
        if self.is_mariadb and self.version_numbers >= _MARIADB_VERSIONED:
            # Here DEFAULT is not the global value: a SELECT reads the rows of now.
            self.execute("SET SESSION system_versioning_asof = DEFAULT")
        self.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        if not self.is_mariadb:
            # Table estimates are otherwise up to a day old.
            self.execute("SET SESSION information_schema_stats_expiry = 0")
            if self.version_numbers >= _MYSQL_HIDDEN_KEYS:
                self.execute("SET SESSION show_gipk_in_create_table_and_information_schema = ON")

    def _prepare_behind_vtgate(self) -> None:
        # vtgate passes these on with every statement; the others of `_prepare` it leaves out.
        self.execute(
            "SET SESSION time_zone = '+00:00', sql_mode = '', autocommit = 1, "
            "transaction_isolation = 'REPEATABLE-READ', information_schema_stats_expiry = 0"
        )
        # Otherwise no result may have more than 10,000 rows.
        self.execute("SET SESSION workload = 'olap'")
        refuse_other_settings(self.query, self.source)

    def _failure(self, error: pymysql.err.Error, operation: str) -> Exception:
        config = self.config
        return server_failure(
            error,
            operation=operation,
            source=self.source,
            user=config.user,
            database=config.database,
            vtgate=config.through_vtgate,
            logged_in=True,
        )


def _refuse_incomplete(cursor: Cursor, sql: str) -> None:
    """Take no answer about tables for whole that the server calls incomplete in a warning.

    MariaDB (10.11) leaves out of information_schema what it could not lock in time: a table's
    columns, its keys, its triggers. The answer looks as if there were none.

    Raises:
        pymysql.err.OperationalError: it is incomplete.
    """
    if not cursor.warning_count or not _OF_TABLES.search(sql):
        return
    cursor.execute(MARK + "SHOW WARNINGS")
    for _, code, text in cursor.fetchall():
        if code in _NOT_LOCKED:
            raise pymysql.err.OperationalError(
                code, f"an answer about tables is incomplete: {text}"
            )


def quoted(name: str) -> str:
    """An identifier as SQL takes it."""
    if "\0" in name:
        raise DecodeError(f"a name with a null character: {name!r}", operation="quote a name")
    return "`" + name.replace("`", "``") + "`"


def _none_will_do(failures: Mapping[str, RatchetError]) -> RatchetError:
    """What all of a shard's servers say; it may come right if it may at one of them."""
    errors = list(failures.values())
    # One that answers, and is behind, says more of what to do than one that does not answer.
    kinds = (BehindError, RetryableError)
    hopeful = [error for kind in kinds for error in errors if isinstance(error, kind)]
    chosen = hopeful[0] if hopeful else errors[0]
    told = "; ".join(f"{address}: {error.message}" for address, error in failures.items())
    return type(chosen)(
        f"none of the shard's servers can be used: {told}",
        operation=chosen.operation,
        source=chosen.source,
        position=chosen.position,
        hint=chosen.hint,
    )
