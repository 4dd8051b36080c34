"""Faults of servers, of lines to them, and of their logs."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from typing import Final

from bench.faults.scene import NotFitError, Scene, below, signal_all
from bench.faults.trial import Fault, Step
from lab.proxy import Proxy
from lab.servers import Server

_EACH: Final = ("mariadb", "mysql")
_ALWAYS: Final = 1 << 60
_random: Final = random.Random(1)


def flipped(data: bytes) -> bytes:
    """A segment, a byte of which is another one."""
    place = _random.randrange(len(data))
    return data[:place] + bytes([data[place] ^ 0x5A]) + data[place + 1 :]


def shortened(data: bytes) -> bytes:
    """A segment that lacks some bytes."""
    place = _random.randrange(len(data))
    return data[:place] + data[place + 7 :]


def _servers(do: Callable[[Server], object]) -> Step:
    def do_all(scene: Scene) -> None:
        for server in scene.servers.values():
            do(server)

    return do_all


def _lines(*steps: Callable[[Proxy], object]) -> Step:
    def do_all(scene: Scene) -> None:
        for proxy in scene.proxies.values():
            for step in steps:
                step(proxy)

    return do_all


def _damage(how: Callable[[bytes], bytes], count: int) -> Step:
    return _lines(lambda proxy: proxy.damage(how, count))


_mended: Final = _lines(lambda proxy: proxy.damage(None, 0))


def _purge(scene: Scene) -> None:
    """Leave only the newest log. What was written just before is lost to the mirror.

    A file stays for as long as the server has not seen that its reader is gone, or (MariaDB) has
    not noted that a crash would not need it.
    """
    time.sleep(3)
    for server in scene.servers.values():
        server.execute("FLUSH BINARY LOGS")
        deadline = time.monotonic() + 60
        while len(server.execute("SHOW BINARY LOGS")) > 1:
            if time.monotonic() > deadline:
                raise NotFitError("a log is still in use")
            server.execute("FLUSH BINARY LOGS")
            newest = str(server.execute("SHOW BINARY LOGS")[-1][0])
            server.execute(f"PURGE BINARY LOGS TO '{newest}'")


def _purge_while_away(scene: Scene) -> None:
    scene.stop()
    _purge(scene)


def _purge_while_frozen(scene: Scene) -> None:
    pid = scene.life.pid or 0
    run = [pid, *below(pid)]
    signal_all(run, signal.SIGSTOP)
    _lines(Proxy.cut)(scene)
    _purge(scene)
    signal_all(run, signal.SIGCONT)


ALONE: Final = (
    Fault(
        name="server killed, back after 5 s",
        scenes=_EACH,
        begin=_servers(Server.kill),
        lasts=5,
        end=_servers(Server.start),
        recalls="4 to 9 s",
    ),
    Fault(
        name="server stopped, back after 20 s",
        scenes=_EACH,
        begin=_servers(Server.stop),
        lasts=20,
        end=_servers(Server.start),
        recalls="0.7 and 15 s",
    ),
    Fault(
        name="server frozen for 60 s",
        scenes=_EACH,
        begin=_servers(lambda server: server.daemon.suspend()),
        lasts=60,
        end=_servers(lambda server: server.daemon.resume()),
        recalls="2.5 to 7 s",
    ),
    Fault(
        name="all connections closed (FIN)",
        scenes=_EACH,
        begin=_lines(Proxy.finish),
        recalls="2.5 to 3.4 s",
    ),
    Fault(
        name="all connections reset (RST)",
        scenes=_EACH,
        begin=_lines(Proxy.cut),
        recalls="4.5 s",
    ),
    Fault(
        name="line half open for 60 s",
        scenes=_EACH,
        begin=_lines(Proxy.pause),
        lasts=60,
        end=_lines(Proxy.half_open, Proxy.resume),
        recalls="7 to 9.5 s",
    ),
    Fault(
        name="connections refused for 20 s",
        scenes=_EACH,
        begin=_lines(Proxy.refuse, Proxy.cut),
        lasts=20,
        end=_lines(Proxy.accept),
        recalls="3 to 15 s",
    ),
    Fault(
        name="a byte flipped in each of 3 segments",
        scenes=_EACH,
        begin=_damage(flipped, 3),
        lasts=5,
        end=_mended,
        recalls="1 to 4 s",
    ),
    Fault(
        name="bytes dropped from each of 2 segments",
        scenes=_EACH,
        begin=_damage(shortened, 2),
        lasts=5,
        end=_mended,
        recalls="1 to 4 s",
    ),
    Fault(
        name="a byte flipped in all segments for 20 s",
        scenes=_EACH,
        begin=_damage(flipped, _ALWAYS),
        lasts=20,
        end=_mended,
        recalls="exit 8, started again: 37 s",
    ),
    Fault(
        name="bytes dropped from all segments for 15 s",
        scenes=_EACH,
        begin=_damage(shortened, _ALWAYS),
        lasts=15,
        end=_mended,
        recalls="exit 8, started again: 35 s",
    ),
    Fault(
        name="line slow for 20 s: 0.5 s a segment",
        scenes=_EACH,
        begin=_lines(lambda proxy: proxy.slow_down(0.5)),
        lasts=20,
        end=_lines(lambda proxy: proxy.slow_down(0)),
        recalls="24 s",
    ),
    Fault(
        name="log purged while no run is there",
        scenes=_EACH,
        begin=_purge_while_away,
        end=Scene.heal,
        recalls="exit 5, heal: 23 s",
    ),
    Fault(
        name="log purged under a frozen run",
        scenes=_EACH,
        begin=_purge_while_frozen,
        end=Scene.heal,
        recalls="exit 5, heal: 19 s",
    ),
)
