"""What every private server can do: start, stop, kill, restart, answer to root.

Lives here: the life of a server and the settings that both flavours share. Does not live here:
what is special to one of them (`servers`), where the programs come from (`provision`), fresh
data directories (`template`).

Invariant: a server keeps its port, socket and data from `start()` to `close()`, over any number
of stops, kills and restarts; `close()` leaves nothing behind but a data directory that was given.
"""

from __future__ import annotations

import atexit
import os
import shutil
import time
import weakref
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Final, Self

import pymysql
from pymysql.connections import Connection
from pymysql.cursors import Cursor

from lab.daemon import Daemon, tail
from lab.places import new_home
from lab.ports import LOOPBACK, Port
from lab.provision import Flavor, Installation
from lab.template import base_command, new_datadir, root_password
from lab.tls import Certificates, make_certificates
from ratchet.core.errors import BugError, OperatorError

Options = Mapping[str, str | None]
Rows = tuple[tuple[object, ...], ...]

# What a statement on a lab server fails with, for callers that may not import a driver.
ServerError = pymysql.err.Error

_START_TIMEOUT: Final = 120.0
_STOP_TIMEOUT: Final = 60.0
_POLL: Final = 0.05

# What Ratchet asks of a source, and otherwise a server that is small and quick to start.
# The two durability settings survive kill -9 of the server (everything is in the system's page
# cache at commit) and not a crash of the machine: tests kill processes. With
# innodb-flush-log-at-trx-commit=0 a killed server would lose commits that its binlog has.
_COMMON: Final[Options] = {
    "bind-address": LOOPBACK,
    "skip-name-resolve": "ON",
    "log-bin": "bin",
    "binlog-row-image": "FULL",
    "binlog-row-metadata": "FULL",
    "character-set-server": "utf8mb4",
    "sync-binlog": "0",
    "innodb-flush-log-at-trx-commit": "2",
    "max-connections": "200",
    "local-infile": "ON",
}


class Server:
    """What both flavours share. Use `servers.MariadbServer` or `servers.MysqlServer`.

    Attributes:
        host: always 127.0.0.1.
        port: chosen when the object is made, and kept.
        home: the folder of its socket, log and certificates, and of its data unless given.
        datadir: the data directory.
        tmpdir: its folder for temporary tables, no other server's.
        socket: the path of its Unix socket.
        tls: the certificates, if it was made with `tls=True`.
    """

    flavor: ClassVar[Flavor]
    host: ClassVar[str] = LOOPBACK
    admin_user: ClassVar[str] = "root"

    def __init__(
        self,
        *,
        options: Options | None = None,
        datadir: Path | None = None,
        gtid: bool = True,
        tls: bool = False,
        buffer_pool: str = "128M",
        zone: str = "UTC",
    ) -> None:
        """Prepare a server; nothing runs before `start()`.

        Args:
            options: server options without dashes in front; None stands for an option without a
                value. They win over the defaults.
            datadir: used as it is if it exists, else created there; temporary when not given.
            gtid: False starts a MySQL without GTIDs.
            tls: make certificates and offer TLS; without it the server offers none.
            buffer_pool: InnoDB's buffer pool.
            zone: the machine's time zone, as it sees it (TZ).
        """
        defaults = self._defaults(gtid=gtid)  # may refuse, so before anything is made
        self.installation = self._installation()
        # Always a short path of our own: a socket's path may have 107 bytes at most.
        self.home = new_home(f"ratchet-{self.flavor}-")
        self.datadir = datadir if datadir is not None else self.home / "data"
        self.socket = self.home / "socket"
        self.log = self.home / "error.log"
        # MariaDB's start deletes every `#sql*` file in its tmpdir, another server's in /tmp too.
        self.tmpdir = self.home / "tmp"
        self.tmpdir.mkdir()
        self.tls: Certificates | None = make_certificates(self.home / "tls") if tls else None
        self._zone = zone
        self._port = Port()
        self._daemon: Daemon | None = None
        self._options: dict[str, str | None] = {
            **_COMMON,
            "server-id": str(self.port),  # as unique as the port
            "innodb-buffer-pool-size": buffer_pool,
            "secure-file-priv": str(self.home),  # not the files of whoever runs it
            **defaults,
            **self._tls_options(),
            **{name.replace("_", "-"): value for name, value in (options or {}).items()},
        }
        _live.add(self)

    @classmethod
    def _installation(cls) -> Installation:
        raise NotImplementedError

    def _defaults(self, *, gtid: bool) -> Options:
        raise NotImplementedError

    def _tls_options(self) -> Options:
        if self.tls is None:
            return {}
        return {
            "ssl-ca": str(self.tls.ca),
            "ssl-cert": str(self.tls.certificate),
            "ssl-key": str(self.tls.key),
        }

    @property
    def port(self) -> int:
        """The TCP port, the same over restarts."""
        return self._port.number

    @property
    def version(self) -> str:
        """The version that the program reports."""
        return self.installation.version

    @property
    def running(self) -> bool:
        """Whether the process is there."""
        return self._daemon is not None and self._daemon.running

    @property
    def daemon(self) -> Daemon:
        """The running process, to suspend and resume it."""
        if self._daemon is None:
            raise BugError("the server was not started", operation=f"use a {self.flavor} server")
        return self._daemon

    def start(self, *, options: Options | None = None) -> Self:
        """Start and wait until the server answers; `options` change it from now on."""
        if self.running:
            raise BugError("it is running already", operation=f"start a {self.flavor} server")
        self._options |= {name.replace("_", "-"): v for name, v in (options or {}).items()}
        if not self.datadir.exists():
            lower_case = self._options.get("lower-case-table-names") == "1"
            new_datadir(self.installation, self.datadir, lower_case=lower_case)
        self._daemon = Daemon(
            self._command(),
            log=self.log,
            datadir=self.datadir,
            remove=self.home,
            environment={**os.environ, "TZ": self._zone},
        )
        self._wait_until_ready(self._daemon)
        return self

    def stop(self) -> None:
        """Stop cleanly. The data stays, and `start()` goes on with it."""
        if self._daemon is not None:
            self._daemon.terminate(timeout=_STOP_TIMEOUT)

    def kill(self) -> None:
        """End the process as a crash would (SIGKILL). `start()` recovers."""
        if self._daemon is not None:
            self._daemon.kill()

    def restart(self, *, options: Options | None = None) -> Self:
        """Stop cleanly and start again, with `options` changed from now on."""
        self.stop()
        return self.start(options=options)

    def close(self) -> None:
        """Kill the server and delete its folder; a data directory that was given stays."""
        self.kill()  # nobody will read the data again, so a clean stop would be lost time
        self._port.release()
        shutil.rmtree(self.home, ignore_errors=True)
        _live.discard(self)

    def connect(self, *, tcp: bool = False, **settings: object) -> Connection[Cursor]:
        """A PyMySQL connection, as root through the socket unless `settings` say otherwise.

        It commits by itself. With `tcp` it goes over host and port, and root has a password. It is
        not encrypted unless `settings` say how: PyMySQL would read the system's authorities for
        each connection, which takes 50 ms of a processor.
        """
        where: dict[str, object] = (
            {"host": self.host, "port": self.port} if tcp else {"unix_socket": str(self.socket)}
        )
        fixed: dict[str, object] = {
            "user": self.admin_user,
            "charset": "utf8mb4",
            "autocommit": True,
        }
        if not any(name.startswith("ssl") for name in settings):
            fixed["ssl_disabled"] = True
        if tcp and "user" not in settings:
            fixed["password"] = root_password()
        return pymysql.connect(**{**where, **fixed, **settings})  # type: ignore[call-overload,no-any-return]

    def execute(self, sql: str, args: object = None, *, database: str | None = None) -> Rows:
        """Run one statement as root on a connection of its own and return its rows."""
        with self.connect(database=database) as connection, connection.cursor() as cursor:
            cursor.execute(sql, args)
            return tuple(cursor.fetchall())

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _command(self) -> list[str]:
        options = {
            **self._options,
            "datadir": str(self.datadir),
            "tmpdir": str(self.tmpdir),
            "port": str(self.port),
            "socket": str(self.socket),
            "pid-file": str(self.home / "pid"),
            "log-error": str(self.log),
        }
        given = [f"--{k}" if v is None else f"--{k}={v}" for k, v in options.items()]
        return base_command(self.installation) + given

    def _wait_until_ready(self, daemon: Daemon) -> None:
        deadline = time.monotonic() + _START_TIMEOUT
        while True:
            try:
                self.connect(connect_timeout=5).close()
            except pymysql.err.OperationalError as error:
                if daemon.running and time.monotonic() < deadline:
                    time.sleep(_POLL)
                    continue
                why = "it does not answer" if daemon.running else "it ended by itself"
                daemon.kill()
                raise OperatorError(
                    f"{why}; its log ends with:\n{tail(self.log)}",
                    operation=f"start a {self.flavor} server",
                    hint=f"the command was: {' '.join(self._command())}",
                ) from error
            else:
                return


_live: Final[weakref.WeakSet[Server]] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for server in list(_live):
        server.close()
