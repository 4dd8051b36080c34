"""A private Vitess cluster: etcd, vtctld, vtgate, and a vttablet with its MySQL for each shard.

Lives here: the processes' flags, their start and end, failovers. Does not live here: the steps of a
reshard and of moving tables (`vitessflows`), where the programs come from (`vitessbuild`).

    with VitessCluster() as cluster:
        cluster.add_keyspace("commerce", ["0"])
        cluster.query("CREATE TABLE t (id BIGINT PRIMARY KEY)", target="commerce")

Invariant: every process names the cluster's own folder in its command line; whatever ends us, the
guard then kills all that name it. Everything listens on 127.0.0.1. Vitess refuses to run as root,
so where we are root it runs in a user namespace in which we are somebody else.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import pymysql

from lab.daemon import Daemon, tail
from lab.places import new_home
from lab.ports import LOOPBACK, Port
from lab.vitessbuild import VitessInstallation, vitess
from lab.vitessflows import MoveTables, Reshard
from ratchet.core.errors import OperatorError

CELL: Final = "zone1"
_TIMEOUT: Final = 120.0
_STOP_TIMEOUT: Final = 20.0
_POLL: Final = 0.1
_SETTINGS: Final = """
innodb_buffer_pool_size = 64M
innodb_flush_log_at_trx_commit = 2
sync_binlog = 0
innodb_doublewrite = 0
innodb_redo_log_capacity = 64M
innodb_use_native_aio = 0
performance_schema = OFF
mysqlx = OFF
binlog_row_metadata = FULL
bind-address = 127.0.0.1
"""
# For the MySQL servers, which mysqlctl starts: ends all that has the cluster's folder in its
# command line, itself excepted.
_GUARD: Final = """
read -r _
for folder in /proc/[0-9]*; do
  pid=${folder#/proc/}
  [ "$pid" = "$$" ] && continue
  if tr '\\0' ' ' < "$folder/cmdline" 2>/dev/null | grep -qF -- "$1"; then kill -KILL "$pid"; fi
done
sleep 1; rm -rf -- "$1"
"""


@dataclass(frozen=True, slots=True)
class Tablet:
    """One vttablet and its MySQL.

    Attributes:
        uid: its number in the cell.
        keyspace: what it serves.
        shard: which shard of it.
        mysql_port: where its MySQL listens; user `vt_dba` without a password, on the socket.
        grpc_port: where the vttablet answers.
        socket: its MySQL's Unix socket.
    """

    uid: int
    keyspace: str
    shard: str
    mysql_port: int
    grpc_port: int
    socket: Path

    @property
    def alias(self) -> str:
        """Its name in the topology."""
        return f"{CELL}-{self.uid}"


@dataclass(frozen=True, slots=True)
class Vtgate:
    """A vtgate besides the cluster's own.

    Attributes:
        grpc_port: where it answers gRPC.
        mysql_port: where it speaks MySQL's protocol.
    """

    grpc_port: int
    mysql_port: int


class VitessCluster:
    """One cell. Use it as a context; `add_keyspace` next."""

    def __init__(
        self, *, vtgate_flags: Sequence[str] = (), vttablet_flags: Sequence[str] = ()
    ) -> None:
        """Prepare; nothing runs yet.

        Args:
            vtgate_flags: more flags for vtgate.
            vttablet_flags: more flags for every vttablet.
        """
        self._programs: VitessInstallation = vitess()
        self.home = new_home("ratchet-vt-")
        self._ports: list[Port] = []
        self._vtgate_flags = tuple(vtgate_flags)
        self._vttablet_flags = tuple(vttablet_flags)
        self._running: dict[str, Daemon] = {}
        self.tablets: dict[int, Tablet] = {}
        self._uids = iter(range(1, 1000))
        self._guard: subprocess.Popen[bytes] | None = None
        self.grpc_port = self._port()
        self.mysql_port = self._port()
        self._vtctld_port, self._etcd_port, self._peer_port = (self._port() for _ in range(3))

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # --- the cluster ------------------------------------------------------------------------------

    def _start(self) -> None:
        (self.home / "data").mkdir()
        (self.home / "extra.cnf").write_text(_SETTINGS)
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, "guard", str(self.home)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        client, peer = (f"http://{LOOPBACK}:{p}" for p in (self._etcd_port, self._peer_port))
        self._daemon(
            "etcd",
            [
                str(self._programs.etcd),
                f"--data-dir={self.home}/data/etcd",
                f"--listen-client-urls={client}",
                f"--advertise-client-urls={client}",
                f"--listen-peer-urls={peer}",
                f"--initial-advertise-peer-urls={peer}",
                f"--initial-cluster=default={peer}",
                "--unsafe-no-fsync",
                "--log-level=error",
            ],
            self._etcd_port,
        )
        self._vitess(
            "vtctld",
            [
                f"--cell={CELL}",
                f"--port={self._port()}",
                f"--grpc-port={self._vtctld_port}",
                "--service-map=grpc-vtctl,grpc-vtctld",
            ],
            self._vtctld_port,
        )
        self.ctl(
            "AddCellInfo",
            f"--root=/vitess/{CELL}",
            f"--server-address={LOOPBACK}:{self._etcd_port}",
            CELL,
        )

    def start_vtgate(self) -> None:
        """Start vtgate on the ports that it always has; needs a keyspace with a primary."""
        self._run_vtgate("vtgate", Vtgate(self.grpc_port, self.mysql_port), self._vtgate_flags)

    def stop_vtgate(self) -> None:
        """End vtgate, as a restart of it would."""
        _end(self._running.pop("vtgate"))

    @contextmanager
    def vtgate(self, *flags: str) -> Iterator[Vtgate]:
        """One more vtgate, with ports and flags of its own; it ends with the context."""
        found = Vtgate(self._port(), self._port())
        name = f"vtgate-{found.grpc_port}"
        try:
            self._run_vtgate(name, found, flags)
            yield found
        finally:
            _end(self._running.pop(name))

    def _run_vtgate(self, name: str, ports: Vtgate, flags: Sequence[str]) -> None:
        self._vitess(
            name,
            [
                f"--cell={CELL}",
                f"--cells-to-watch={CELL}",
                "--tablet-types-to-wait=PRIMARY",
                f"--port={self._port()}",
                f"--grpc-port={ports.grpc_port}",
                f"--mysql-server-port={ports.mysql_port}",
                f"--mysql-server-bind-address={LOOPBACK}",
                "--mysql-auth-server-impl=none",
                "--service-map=grpc-vtgateservice",
                "--tablet-refresh-interval=1s",
                *flags,
            ],
            ports.mysql_port,
        )
        self.wait(
            lambda: self._answers(name, ports.grpc_port),
            f"{name} answers on port {ports.grpc_port}",
        )

    def close(self) -> None:
        """End everything and remove the folder."""
        topology = self._running.pop("etcd", None)
        # All at once: each takes a moment to say good-bye to the topology.
        with ThreadPoolExecutor(max_workers=16) as pool:
            list(pool.map(_end, self._running.values()))
        if topology is not None:
            _end(topology)
        if self._guard is not None and self._guard.stdin is not None:
            self._guard.stdin.close()  # ends the MySQL servers, and removes the folder
            self._guard.wait()
        shutil.rmtree(self.home, ignore_errors=True)
        for port in self._ports:
            port.release()

    # --- keyspaces and shards ---------------------------------------------------------------------

    def add_keyspace(
        self, name: str, shards: Sequence[str], *, vschema: dict[str, Any] | None = None
    ) -> None:
        """Create a keyspace, a tablet for each shard, and vtgate if it is not there yet.

        Args:
            name: the keyspace.
            shards: "0" for an unsharded one, else key ranges like "-80".
            vschema: tables and vindexes; None for an unsharded keyspace.
        """
        self.ctl("CreateKeyspace", "--durability-policy=none", name)
        for shard in shards:
            self.add_tablet(name, shard)
        if vschema is not None:
            self.apply_vschema(name, vschema)
        if "vtgate" not in self._running:
            self.start_vtgate()
        self.wait(lambda: self._serves(name, shards), f"vtgate serves {name}")

    def apply_vschema(self, keyspace: str, vschema: dict[str, Any]) -> None:
        """Set a keyspace's tables and vindexes."""
        self.ctl("ApplyVSchema", f"--vschema={json.dumps(vschema)}", keyspace)

    def apply_schema(self, keyspace: str, sql: str) -> None:
        """Run DDL on every shard."""
        self.ctl("ApplySchema", f"--sql={sql}", keyspace)

    def add_tablet(self, keyspace: str, shard: str, *, primary: bool = True) -> Tablet:
        """Start a tablet of a shard; its primary, unless told otherwise."""
        uid = next(self._uids)
        tablet = Tablet(
            uid=uid,
            keyspace=keyspace,
            shard=shard,
            mysql_port=self._port(),
            grpc_port=self._port(),
            socket=self.home / "data" / f"vt_{uid:010d}" / "mysql.sock",
        )
        self._run(
            self._bin("mysqlctl"),
            f"--tablet-uid={uid}",
            f"--mysql-port={tablet.mysql_port}",
            "--config-file-not-found-handling=ignore",
            "init",
            operation=f"start the MySQL of tablet {uid}",
        )
        self.tablets[uid] = tablet
        self.start_tablet(tablet)
        if primary:
            self.reparent(tablet)
        return tablet

    def start_tablet(self, tablet: Tablet) -> None:
        """Start the vttablet of a tablet, whose MySQL runs."""
        self._vitess(
            f"vttablet-{tablet.uid}",
            [
                f"--tablet-path={tablet.alias}",
                f"--tablet-hostname={LOOPBACK}",
                f"--init-keyspace={tablet.keyspace}",
                f"--init-shard={tablet.shard}",
                "--init-tablet-type=replica",
                "--health-check-interval=1s",
                f"--port={self._port()}",
                f"--grpc-port={tablet.grpc_port}",
                "--service-map=grpc-queryservice,grpc-tabletmanager,grpc-updatestream",
                "--vreplication-heartbeat-update-interval=1",
                "--migration-check-interval=2s",
                *self._vttablet_flags,
            ],
            tablet.grpc_port,
        )

    def stop_tablet(self, tablet: Tablet) -> None:
        """End a vttablet politely; its MySQL goes on. `start_tablet` starts it again."""
        _end(self._running.pop(f"vttablet-{tablet.uid}"))

    def reparent(self, tablet: Tablet) -> None:
        """Make a tablet the primary of its shard, as planned: nothing is lost."""
        shard = f"{tablet.keyspace}/{tablet.shard}"
        self.wait(
            lambda: self._tries("PlannedReparentShard", shard, f"--new-primary={tablet.alias}"),
            f"{tablet.alias} is the primary of {shard}",
        )

    def fail_over(self, tablet: Tablet) -> None:
        """Make a tablet the primary of its shard, whose primary is dead.

        What that one had not sent is lost.
        """
        shard = f"{tablet.keyspace}/{tablet.shard}"
        self.ctl("EmergencyReparentShard", shard, f"--new-primary={tablet.alias}")

    def kill_tablet(self, tablet: Tablet) -> None:
        """Kill a vttablet and its MySQL, as a lost machine would."""
        self._running.pop(f"vttablet-{tablet.uid}").kill()
        pid = int((tablet.socket.parent / "mysql.pid").read_text())
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        del self.tablets[tablet.uid]

    # --- asking -----------------------------------------------------------------------------------

    def ctl(self, *arguments: str) -> str:
        """Run vtctldclient; its output."""
        server = f"--server={LOOPBACK}:{self._vtctld_port}"
        return self._run(
            self._bin("vtctldclient"), server, *arguments, operation=f"vtctldclient {arguments[0]}"
        )

    def connect(self, target: str, **settings: Any) -> pymysql.Connection[Any]:
        """A connection to vtgate.

        Args:
            target: keyspace, keyspace:shard or either with @tablet_type.
            settings: for PyMySQL.
        """
        given = {
            "user": "root",
            "charset": "utf8mb4",
            "autocommit": True,
            "ssl_disabled": True,  # see Server.connect
            **settings,
        }
        connection = pymysql.connect(host=LOOPBACK, port=self.mysql_port, **given)
        with connection.cursor() as cursor:
            cursor.execute(f"USE `{target}`")
        return connection

    def query(self, statement: str, *, target: str) -> tuple[tuple[Any, ...], ...]:
        """The rows of one statement by a connection of its own."""
        with self.connect(target) as connection, connection.cursor() as cursor:
            cursor.execute(statement)
            return tuple(cursor.fetchall())

    # --- workflows --------------------------------------------------------------------------------

    def reshard(self, keyspace: str, sources: Sequence[str], targets: Sequence[str]) -> Reshard:
        """Start the tablets of the new shards and the copy into them; see Reshard."""
        for shard in targets:
            self.add_tablet(keyspace, shard)
        flow = Reshard(self, keyspace, f"r{next(self._uids)}", tuple(sources), tuple(targets))
        flow.create()
        return flow

    def move_tables(self, source: str, target: str, tables: Sequence[str]) -> MoveTables:
        """Start to copy tables of a keyspace into another one that is there; see MoveTables."""
        flow = MoveTables(self, source, target, f"m{next(self._uids)}", tuple(tables))
        flow.create()
        return flow

    # --- processes --------------------------------------------------------------------------------

    @property
    def _environment(self) -> dict[str, str]:
        programs = self._programs
        return {
            **os.environ,
            "VTROOT": str(programs.root),
            "VT_MYSQL_ROOT": str(programs.mysql_root),
            "VT_MYSQL_BASEDIR": str(programs.mysql_base),
            "VTDATAROOT": str(self.home / "data"),
            "EXTRA_MY_CNF": str(self.home / "extra.cnf"),
            "HOME": str(self.home),
            "PATH": f"{programs.root}/bin:{programs.mysql_root}/bin:{os.environ.get('PATH', '')}",
        }

    def _bin(self, name: str) -> str:
        return str(self._programs.root / "bin" / name)

    def _vitess(self, name: str, flags: Sequence[str], port: int) -> None:
        self._daemon(
            name,
            [
                self._bin(name.partition("-")[0]),
                "--topo-implementation=etcd2",
                f"--topo-global-server-address={LOOPBACK}:{self._etcd_port}",
                "--topo-global-root=/vitess/global",
                "--config-file-not-found-handling=ignore",
                f"--bind-address={LOOPBACK}",
                f"--grpc-bind-address={LOOPBACK}",
                f"--pid-file={self.home}/{name}.pid",
                *flags,
            ],
            port,
        )

    def _daemon(self, name: str, command: Sequence[str], port: int) -> None:
        self._running[name] = Daemon(
            [*_not_root(), *command],
            log=self._log(name),
            datadir=self.home,
            environment=self._environment,
            cwd=self.home / "data",
        )
        self.wait(lambda: self._answers(name, port), f"{name} answers on port {port}")

    def _log(self, name: str) -> Path:
        return self.home / f"{name}.log"

    def _answers(self, name: str, port: int) -> bool:
        if not self._running[name].running:
            raise OperatorError(
                f"{name} has ended",
                operation="start a Vitess cluster",
                hint=f"its log ends with:\n{tail(self._log(name))}",
            )
        with socket.socket() as probe:
            return probe.connect_ex((LOOPBACK, port)) == 0

    def _serves(self, keyspace: str, shards: Sequence[str]) -> bool:
        try:
            for shard in shards:
                self.query("SELECT 1", target=f"{keyspace}:{shard}@primary")
        except pymysql.err.Error:
            return False
        return True

    def _run(self, *command: str, operation: str) -> str:
        done = subprocess.run(
            [*_not_root(), *command],
            env=self._environment,
            cwd=self.home / "data",
            check=False,
            capture_output=True,
            text=True,
            start_new_session=True,
        )
        if done.returncode:
            raise OperatorError(
                f"exit code {done.returncode}",
                operation=operation,
                hint=(done.stdout + done.stderr)[-3000:],
            )
        return done.stdout

    def _tries(self, *arguments: str) -> bool:
        try:
            self.ctl(*arguments)
        except OperatorError:
            return False
        return True

    def wait(self, done: Callable[[], bool], what: str) -> None:
        """Until that is so.

        Raises:
            OperatorError: it is not, after two minutes.
        """
        deadline = time.monotonic() + _TIMEOUT
        while not done():
            if time.monotonic() > deadline:
                raise OperatorError(
                    f"after {_TIMEOUT:.0f} s it is not so that {what}",
                    operation="wait for a Vitess cluster",
                    hint=f"the logs are in {self.home}",
                )
            time.sleep(_POLL)

    def _port(self) -> int:
        self._ports.append(Port())
        return self._ports[-1].number


def _end(process: Daemon) -> None:
    with suppress(OperatorError):  # it took too long, and was killed: that will do here
        process.terminate(timeout=_STOP_TIMEOUT)


def _not_root() -> list[str]:
    """The head of a command line that runs as somebody else than root, with our rights."""
    if os.geteuid() != 0:
        return []
    return ["unshare", "--user", "--map-user=1000", "--map-group=1000"]
