"""Does to a server what gh-ost does, so that a mirror can be tried beside it.

gh-ost itself cannot be had from the package registries. Its documents and its source tell which
statements it sends, and in which order: a ghost table with the new shape, rows copied into it in
chunks, row events of the table applied to it, and a cut-over by two sessions.

Lives here: `GhostMigration`. Does not live here: what a mirror makes of it.

Invariant: the table is there under its name at every moment, with all rows.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import pymysql
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent

from lab.server import Server
from lab.template import root_password

_LOCK_SECONDS: Final = 3  # gh-ost's --cut-over-lock-timeout-seconds
_PATIENCE: Final = 60.0
_MARK: Final = "state"


class GhostMigration:
    """One ALTER of one table with a primary key of one integer column.

    Attributes:
        copied: rows that were copied in chunks.
        applied: row events that were applied to the ghost table.
        attempts: cut-overs that were tried.
    """

    def __init__(
        self, server: Server, database: str, table: str, alter: str, *, chunk: int = 1000
    ) -> None:
        """Make the ghost table and the changelog table.

        Args:
            server: where.
            database: the table's.
            table: its name.
            alter: what stands behind ALTER TABLE.
            chunk: rows to copy at a time.
        """
        self.copied = self.applied = self.attempts = 0
        self._server, self._database, self._table, self._chunk = server, database, table, chunk
        self._ghost, self._log, self._old = (f"_{table}_{end}" for end in ("gho", "ghc", "del"))
        self._session = server.connect(database=database)
        for name in (self._ghost, self._log, self._old):
            self._run(f"drop /* gh-ost */ table if exists `{database}`.`{name}`")
        self._run(
            f"create /* gh-ost */ table `{database}`.`{self._log}` (id bigint unsigned "
            "auto_increment, last_update timestamp not null DEFAULT CURRENT_TIMESTAMP ON UPDATE "
            "CURRENT_TIMESTAMP, hint varchar(64) charset ascii not null, value varchar(4096) "
            "charset ascii not null, primary key(id), unique key hint_uidx(hint)) "
            "auto_increment=256"
        )
        self._run(
            f"create /* gh-ost */ table `{database}`.`{self._ghost}` like `{database}`.`{table}`"
        )
        self._run(f"alter /* gh-ost */ table `{database}`.`{self._ghost}` {alter}")
        shown = {name: self._columns(name) for name in (table, self._ghost)}
        self._key = self._run(
            "SELECT COLUMN_NAME FROM information_schema.KEY_COLUMN_USAGE WHERE TABLE_SCHEMA = %s "
            "AND TABLE_NAME = %s AND CONSTRAINT_NAME = 'PRIMARY'",
            (database, table),
        )[0][0]
        self._shared = [name for name in shown[table] if name in shown[self._ghost]]
        file, offset = self._position()
        self._stream = BinLogStreamReader(
            connection_settings={
                "host": server.host,
                "port": server.port,
                "user": server.admin_user,
                "password": root_password(),
            },
            server_id=99_999,
            log_file=file,
            log_pos=offset,
            resume_stream=True,
            only_events=[DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent],
            only_schemas=[database],
            only_tables=[table, self._log],
        )
        self._marks: set[str] = set()

    def run(self) -> None:
        """Copy all rows beside the writers, then cut over; returns when the table is the new one.

        Raises:
            TimeoutError: the table could not be locked.
        """
        try:
            self._copy_rows()
            deadline = time.monotonic() + _PATIENCE
            while not self._cut_over():
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{self._table} could not be locked")
                time.sleep(1)
            for name in (self._log, self._old):
                self._run(f"drop /* gh-ost */ table if exists `{self._database}`.`{name}`")
        finally:
            self._stream.close()
            self._session.close()

    # --- rows -------------------------------------------------------------------------------------

    def _copy_rows(self) -> None:
        key, names = f"`{self._key}`", ", ".join(f"`{name}`" for name in self._shared)
        ((low, high),) = self._run(f"select min({key}), max({key}) from `{self._table}`")
        begin = None if low is None else low - 1
        while begin is not None and begin < high:
            found = self._run(
                f"select /* gh-ost */ {key} from `{self._table}` where {key} > %s and {key} <= %s "
                f"order by {key} asc limit 1 offset {self._chunk - 1}",
                (begin, high),
            )
            end = found[0][0] if found else high
            self.copied += self._session.cursor().execute(
                f"insert /* gh-ost `{self._database}`.`{self._table}` */ ignore into "
                f"`{self._database}`.`{self._ghost}` ({names}) (select {names} from "
                f"`{self._database}`.`{self._table}` force index (PRIMARY) where {key} > %s and "
                f"{key} <= %s lock in share mode)",
                (begin, end),
            )
            begin = end
            self._tell("heartbeat", str(time.time()))
            self._apply_events()

    def _apply_events(self) -> None:
        """All row events up to the end of the log; rows of the changelog table are marks."""
        for event in self._stream:
            for row in event.rows:
                if event.table == self._log:
                    told = row.get("values") or row.get("after_values") or {}
                    self._marks |= {str(value) for value in told.values()}
                elif isinstance(event, UpdateRowsEvent):
                    before, after = row["before_values"], row["after_values"]
                    if before[self._key] != after[self._key]:
                        self._delete(before)
                    self._replace(after)
                elif isinstance(event, WriteRowsEvent):
                    self._replace(row["values"])
                else:
                    self._delete(row["values"])

    def _replace(self, row: Mapping[str, Any]) -> None:
        names = ", ".join(f"`{name}`" for name in self._shared)
        self.applied += 1
        self._run(
            f"replace /* gh-ost `{self._database}`.`{self._ghost}` */ into "
            f"`{self._database}`.`{self._ghost}` ({names}) values "
            f"({', '.join(['%s'] * len(self._shared))})",
            [row[name] for name in self._shared],
        )

    def _delete(self, row: Mapping[str, Any]) -> None:
        self.applied += 1
        self._run(
            f"delete /* gh-ost `{self._database}`.`{self._ghost}` */ from "
            f"`{self._database}`.`{self._ghost}` where ((`{self._key}` = %s))",
            (row[self._key],),
        )

    # --- the cut-over -----------------------------------------------------------------------------

    def _cut_over(self) -> bool:
        """Swap the tables while one session holds them both; whether that was possible."""
        self.attempts += 1
        locker, renamer = (self._server.connect(database=self._database) for _ in range(2))
        for session in (locker, renamer):
            session.cursor().execute(f"set /* gh-ost */ session lock_wait_timeout={_LOCK_SECONDS}")
        cursor = locker.cursor()
        try:
            cursor.execute(
                f"create /* gh-ost */ table `{self._database}`.`{self._old}` "
                "(id int auto_increment primary key) comment='ghost-cut-over-sentry'"
            )
            cursor.execute(
                f"lock /* gh-ost */ tables `{self._database}`.`{self._table}` write, "
                f"`{self._database}`.`{self._old}` write"
            )
        except pymysql.err.OperationalError:  # a transaction has the table
            locker.close()
            renamer.close()
            self._run(f"drop /* gh-ost */ table if exists `{self._database}`.`{self._old}`")
            return False
        mark = f"AllEventsUpToLockProcessed:{self.attempts}"
        self._tell(_MARK, mark)
        deadline = time.monotonic() + _PATIENCE
        while mark not in self._marks and time.monotonic() < deadline:
            self._apply_events()
        with renamer.cursor() as asked:
            asked.execute("SELECT CONNECTION_ID()")
            ((thread,),) = asked.fetchall()
        failures: list[Exception] = []
        rename = threading.Thread(target=self._rename, args=(renamer, failures))
        rename.start()
        while not self._waits(thread) and rename.is_alive():
            time.sleep(0.01)
        cursor.execute(f"drop /* gh-ost */ table if exists `{self._database}`.`{self._old}`")
        cursor.execute("unlock /* gh-ost */ tables")
        rename.join()
        locker.close()
        renamer.close()
        return not failures

    def _rename(self, session: Any, failures: list[Exception]) -> None:
        try:
            session.cursor().execute(
                f"rename /* gh-ost */ table `{self._database}`.`{self._table}` to "
                f"`{self._database}`.`{self._old}`, `{self._database}`.`{self._ghost}` to "
                f"`{self._database}`.`{self._table}`"
            )
        except pymysql.err.MySQLError as error:
            failures.append(error)

    def _waits(self, thread: int) -> bool:
        """Whether the session's RENAME waits for the lock."""
        return any(
            row[0] == thread and "metadata lock" in str(row[6]) and "rename" in str(row[7])
            for row in self._run("SHOW FULL PROCESSLIST")
        )

    # --- small things -----------------------------------------------------------------------------

    def _tell(self, hint: str, value: str) -> None:
        """A line in the changelog table, which comes back by the log."""
        self._run(
            f"insert /* gh-ost */ into `{self._database}`.`{self._log}` (id, hint, value) values "
            "(NULL, %s, %s) on duplicate key update last_update=NOW(), value=VALUES(value)",
            (hint, value),
        )

    def _columns(self, table: str) -> list[str]:
        found = self._run(f"show /* gh-ost */ columns from `{table}`")
        return [row[0] for row in found if "GENERATED" not in row[5]]

    def _position(self) -> tuple[str, int]:
        with suppress(pymysql.err.MySQLError):  # a MariaDB, which has the older words
            return self._end("SHOW BINARY LOG STATUS")
        return self._end("SHOW MASTER STATUS")

    def _end(self, question: str) -> tuple[str, int]:
        file, offset, *_ = self._run(question)[0]
        return str(file), int(offset)

    def _run(self, sql: str, args: Sequence[Any] = ()) -> Any:
        with self._session.cursor() as cursor:
            cursor.execute(sql, args or None)
            return cursor.fetchall()
