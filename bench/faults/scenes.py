"""The scenes: one server and a folder; both; a small disk; a wrong clock; a cluster and S3.

Lives here: setting them up. Does not live here: what happens to them.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from bench.faults.scene import ROWS, TABLES, Scene
from bench.soak.fleet import furnish
from bench.soak.life import Life
from lab.clock import Clock
from lab.cluster import SparkCluster
from lab.disks import small_disk
from lab.objectstore import S3Server
from lab.proxy import Proxy
from lab.servers import MariadbServer, MysqlServer, Server
from ratchet.store.lease import MACHINE

Make = Callable[[Path], AbstractContextManager[Scene]]

_KINDS: Final[Mapping[str, Callable[[], Server]]] = {
    "mariadb": MariadbServer,
    "mysql": lambda: MysqlServer(options={"max-allowed-packet": str(1 << 30)}),
}
BOTH: Final = tuple(_KINDS)
# A JVM that lives for minutes: the quick compiler alone does the same work in less.
_JAVA: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_STALL: Final = "90s"  # the default is 10 minutes


@contextmanager
def _scene(
    home: Path,
    kinds: Sequence[str],
    *,
    lake: Path | str | None = None,
    named: Path | str | None = None,
    spark: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    inside: Sequence[str] = (),
    **parts: Any,
) -> Iterator[Scene]:
    config = {
        "capture": {"look_seconds": 3},
        # A dump is to last for some seconds.
        "snapshot": {"parallel": 2, "chunk_rows": 10_000, "max_rows_per_second": 10_000},
        "spark": spark or {"conf": {"spark.driver.extraJavaOptions": _JAVA}},
    }
    with ExitStack() as ends:
        servers = {kind: ends.enter_context(_KINDS[kind]()) for kind in kinds}
        proxies = {}
        for kind, server in servers.items():
            furnish(server, TABLES, ROWS)
            proxies[kind] = Proxy(server.host, server.port)
            ends.callback(proxies[kind].close)
        where = lake or home / "lake"
        lives: list[Life] = []

        def new_life(name: str, more: Mapping[str, str]) -> Life:
            folder = home / name
            folder.mkdir()
            lives.append(
                Life(
                    folder,
                    servers,
                    {**config, "lake": str(named or where)},
                    ports={kind: proxy.port for kind, proxy in proxies.items()},
                    environment={MACHINE: name, **(environment or {}), **more},
                    inside=inside,
                )
            )
            return lives[-1]

        ends.callback(_kill_all, lives)
        yield Scene(
            home=home,
            servers=servers,
            lake=where,
            is_elsewhere=named is not None,
            life=new_life("one", {}),
            new_life=new_life,
            proxies=proxies,
            **parts,
        )


def _kill_all(lives: Sequence[Life]) -> None:
    for life in lives:
        life.kill()


def one(kind: str) -> Make:
    """A server of a kind, and a lake in a folder."""
    return lambda home: _scene(home, (kind,))


def both(home: Path) -> AbstractContextManager[Scene]:
    """A server of each kind, and a lake in a folder."""
    return _scene(home, BOTH)


@contextmanager
def with_small_disk(home: Path) -> Iterator[Scene]:
    """The same, and the lake is on a disk that gets full."""
    with small_disk(home / "disk", "400m") as disk:
        seen, named = disk.seen / "lake", disk.mounted / "lake"
        made = _scene(home, BOTH, lake=seen, named=named, inside=disk.inside, disk=disk)
        with made as scene:
            yield scene


@contextmanager
def with_small_temp(home: Path) -> Iterator[Scene]:
    """The same, and temporary files are on a disk of 24 MB."""
    with small_disk(home / "disk", "24m") as disk:
        environment = {"TMPDIR": str(disk.mounted)}
        made = _scene(home, BOTH, environment=environment, inside=disk.inside, disk=disk)
        with made as scene:
            yield scene


@contextmanager
def with_clock(home: Path) -> Iterator[Scene]:
    """The same, and the run's clock may be wrong."""
    clock = Clock(home)
    with _scene(home, BOTH, environment=clock.environment, clock=clock) as scene:
        yield scene


def heap(size: str) -> Make:
    """A MySQL, and a JVM with a heap of that size."""
    return lambda home: _scene(home, ("mysql",), spark={"driver_memory": size})


def cluster(*, remembers: bool) -> Make:
    """A cluster of a master and two workers with a secret, and a lake in S3.

    Args:
        remembers: whether the master finds again what it knew before it died.
    """

    @contextmanager
    def made(home: Path) -> Iterator[Scene]:
        own = {"spark.authenticate": "true", "spark.authenticate.secret": secrets.token_hex(16)}
        memory = {
            "spark.deploy.recoveryMode": "FILESYSTEM",
            "spark.deploy.recoveryDirectory": str(home / "recovery"),
        }
        conf = {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.extraJavaOptions": _JAVA,
            "spark.executor.extraJavaOptions": _JAVA,
            **own,
        }
        before = dict(os.environ)
        with S3Server(home / "s3") as store:
            os.environ.update(store.environment)  # all of the lake's clients look there
            try:
                settings = {**own, **(memory if remembers else {})}
                with SparkCluster(home / "cluster", conf=settings) as spark:
                    used = {"master": spark.url, "conf": conf, "stall_seconds": _STALL}
                    lake = store.new_root()
                    with _scene(home, BOTH, lake=lake, spark=used, cluster=spark) as scene:
                        yield scene
            finally:
                for name in store.environment:
                    os.environ.pop(name, None)
                os.environ.update(before)

    return made
