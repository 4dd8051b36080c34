"""Faults of the machine that the run is on: its disks, its clock, its memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from bench.faults.scene import NotFitError, Scene, peak_of
from bench.faults.trial import Fault, Step
from bench.lib.following import DATABASE, add_rows
from bench.soak.fleet import BLOBS

_HOUR: Final = 3600
_DISK: Final = ("lake on a small disk",)
_TEMP: Final = ("small temporary folder",)
_CLOCK: Final = ("a clock of its own",)
_HEAPS: Final = ("heap of 1 GB", "heap of 2 GB")
_LATER: Final = 1_000_000  # keys that nobody else writes
_WITHIN: Final = 240.0


def _fill(scene: Scene) -> None:
    if scene.disk is not None:
        scene.disk.fill(but=0)


def _free(scene: Scene) -> None:
    if scene.disk is not None:
        scene.disk.free()


def _fill_and_write(scene: Scene) -> None:
    _fill(scene)
    for server in scene.servers.values():
        add_rows(server, "t0", _LATER, 60_000)


def _set(seconds: int) -> Step:
    def do(scene: Scene) -> None:
        if scene.clock is not None:
            scene.clock.set(seconds)

    return do


def _other_clock(scene: Scene) -> None:
    """A run on a machine whose clock is right, beside one that is an hour behind."""
    _set(-_HOUR)(scene)
    scene.wait(10)
    code = scene.another(LD_PRELOAD="").command("run").wait(_WITHIN)
    scene.notes.append(f"the second one: exit {code}")


def _killed_ahead(scene: Scene) -> None:
    _set(_HOUR)(scene)
    scene.wait(15)
    scene.life.kill()
    _set(0)(scene)


def _redumped_ahead(scene: Scene) -> None:
    _set(_HOUR)(scene)
    for keyspace in scene.servers:
        code = scene.life.command("table", "redump", f"{keyspace}.t1").wait(_WITHIN)
        if code != 0:
            raise NotFitError(f"`table redump`: exit {code}")


def _big(megabytes: int) -> str:
    """Bytes that files hold in little room, and memory does not."""
    return f"REPEAT(x'00112233445566778899aabbccddeeff', {megabytes << 16})"


def _blobs(scene: Scene) -> None:
    scene.execute(f"CREATE TABLE {BLOBS} (id INT PRIMARY KEY, v LONGBLOB)")
    scene.execute(*(f"INSERT INTO {BLOBS} VALUES ({n}, {_big(16)})" for n in range(8)))
    scene.execute(*(f"INSERT INTO {BLOBS} VALUES ({n}, {_big(1)})" for n in range(8, 28)))


def _statements(*statements: str) -> Step:
    return lambda scene: scene.execute(*statements)


def _rows(count: int) -> Step:
    def do(scene: Scene) -> None:
        for server in scene.servers.values():
            add_rows(server, "t1", _LATER + count, count)

    return do


def _two_hundred(scene: Scene) -> None:
    for server in scene.servers.values():
        with server.connect(database=DATABASE, autocommit=False) as connection:
            cursor = connection.cursor()
            for number in range(1000, 1200):
                cursor.execute(f"INSERT INTO {BLOBS} VALUES ({number}, {_big(1)})")
            connection.commit()


def _tell_memory(scene: Scene) -> None:
    """What the run has held at most since it was started."""
    parts = {"Python": [scene.life.pid or 0], "JVM": scene.processes("java")}
    told = [f"{name} {max(map(peak_of, pids)):,.0f} MB" for name, pids in parts.items() if pids]
    scene.notes.append(f"at most {', '.join(told)}")


def _heap(name: str, begin: Callable[[Scene], None], recalls: str) -> Fault:
    return Fault(
        name=name, scenes=_HEAPS, begin=begin, after=_tell_memory, limit=600, recalls=recalls
    )


MACHINE: Final = (
    Fault(
        name="disk of the lake full for 8 s while it dumps",
        scenes=_DISK,
        begin=_fill,
        lasts=8,
        end=_free,
        in_dump=True,
        recalls="exit 7; 70 to 156 s",
    ),
    Fault(
        name="disk of the lake full for 8 s while it merges",
        scenes=_DISK,
        begin=_fill,
        lasts=8,
        end=_free,
        recalls="exit 7; 70 to 156 s",
    ),
    Fault(
        name="disk of the lake full for 40 s while it merges",
        scenes=_DISK,
        begin=_fill,
        lasts=40,
        end=_free,
        recalls="not tried",
    ),
    Fault(
        name="disk of temporary files full for 20 s, 60,000 rows in a transaction",
        scenes=_TEMP,
        begin=_fill_and_write,
        lasts=20,
        end=_free,
        recalls="went on",
    ),
    Fault(name="clock 1 h ahead", scenes=_CLOCK, begin=_set(_HOUR), recalls="went on"),
    Fault(name="clock right again", scenes=_CLOCK, begin=_set(0), recalls="2 to 5 s"),
    Fault(name="clock 1 h behind", scenes=_CLOCK, begin=_set(-_HOUR), recalls="2 to 5 s"),
    Fault(
        name="a run with the right clock beside one that is 1 h behind",
        scenes=_CLOCK,
        begin=_other_clock,
        end=_set(0),
        recalls="taken over at once, alive",
    ),
    Fault(
        name="run killed when its clock was 1 h ahead",
        scenes=_CLOCK,
        begin=_killed_ahead,
        recalls="void",
    ),
    Fault(
        name="table dumped again while the clock is 1 h ahead",
        scenes=_CLOCK,
        begin=_redumped_ahead,
        lasts=15,
        end=_set(0),
        recalls="not reached",
    ),
    _heap("dump of 8 rows of 16 MB and 20 of 1 MB", _blobs, "15 s (1 GB)"),
    _heap(
        "8 updates of rows of 16 MB",
        _statements(*(f"UPDATE {BLOBS} SET v = CONCAT(v, 'x') WHERE id = {n}" for n in range(8))),
        "1 GB: exit 9 for ever; 2 GB: 41 s",
    ),
    _heap("200 rows of 1 MB in a transaction", _two_hundred, "2 GB: 27 s"),
    _heap(
        "a statement of 200 MB",
        _statements(f"INSERT INTO {BLOBS} VALUES (5000, {_big(200)})"),
        "2 GB: exit 9, started again",
    ),
    _heap("50,000 rows in a transaction", _rows(50_000), "1 GB: not tested alone"),
    _heap("500,000 rows in a transaction", _rows(500_000), "2 GB: under 45 s"),
    _heap(
        "500,000 updates in a transaction",
        _statements(f"UPDATE t1 SET amount = amount + 1 WHERE id >= {_LATER + 500_000}"),
        "2 GB: under 45 s",
    ),
)
