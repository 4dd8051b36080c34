"""Mirrors whose runs are made to stand still (SIGSTOP) at named points, and what leads to each.

Lives here: the points, the ways to them, one mirror's halts. Does not live here: which tests do it
(`tests/e2e/test_halt.py`; of a heal `tests/integration/test_failover_heal.py`).
"""

from __future__ import annotations

import logging
import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from bundle_kit import AGED, customized
from fix_e2e import (
    PASSWORD,
    TABLES,
    Ratchet,
    Writer,
    assert_identical,
    create_tables,
    end_of,
    execute,
)
from lease_kit import held
from process_kit import is_halted

from lab.objectstore import S3Server
from lab.servers import create_ratchet_user
from ratchet.store.crashpoints import HALT
from ratchet.store.files import Lake
from ratchet.store.lease import MACHINE
from ratchet.store.passes import Passes
from ratchet.store.stops import Doubt
from ratchet.store.tables import Tables

log = logging.getLogger(__name__)

SEED: Final = os.environ.get("RATCHET_SEED", "0")
OWN: Final = ("altered", "swapped", "emptied", "spoilt")  # tables beside the writer's
ALL: Final = (*TABLES, *OWN)


@dataclass(frozen=True, kw_only=True)
class Way:
    """A kind of history.

    Attributes:
        points: what a process comes to by it.
        before: what is done first.
        command: of the process that is halted.
        again: whether a point may be one that is reached a second time.
        patch: what a process does first, of both runs; see `customized`.
        after: what the successor does besides a run.
    """

    points: tuple[str, ...]
    before: Callable[[Mirror], None] = lambda _: None
    command: tuple[str, ...] = ("run",)
    again: bool = False
    patch: str = ""
    after: tuple[str, ...] = ()


class Deck:
    """All points, in an order of chance: each comes once before one comes twice. For threads.

    Args:
        ways: the ways that are gone.
        seed: of the order.
    """

    def __init__(self, ways: Sequence[str], seed: str) -> None:
        self._every = [(way, point) for way in ways for point in WAYS[way].points]
        self._random = random.Random(seed)
        self._left: list[tuple[str, str]] = []
        self._lock = threading.Lock()

    def draw(self) -> tuple[str, str]:
        """The next way and point."""
        with self._lock:
            if not self._left:
                self._left = self._random.sample(self._every, len(self._every))
            return self._left.pop()

    def put_back(self, way: str, point: str) -> None:
        """One that was not reached comes once more, later."""
        with self._lock:
            self._left.insert(0, (way, point))


class Mirror:
    """A lake of its own on a database of its own, beside which others halt as well.

    `root` is the lake's, if it is no folder.
    """

    def __init__(
        self, server: Any, number: int, make_ratchet: Callable[..., Ratchet], root: str = ""
    ) -> None:
        self.server, self.database = server, f"halts_{number}"
        self.random = random.Random(f"{SEED} {number}")
        server.execute(f"CREATE DATABASE {self.database}")
        create_tables(server, self.database)
        for table in OWN:
            self.execute(
                f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT)",
                f"INSERT INTO {table} VALUES {', '.join(f'({n}, {n})' for n in range(1, 400))}",
            )
        more: dict[str, Any] = {"lake": root} if root else {}
        self.ratchet = make_ratchet(
            {"-": server}, self.database, f"lake{number}", snapshot={"chunk_rows": 200},
            verify={"load": "100%"}, merge={"maintenance": "100%"}, **more,
        )  # fmt: skip
        self.lake = root or self.ratchet.lake
        folder = self.ratchet.config.parent
        self.patched = {
            name: customized(folder / f"{name} patch", way.patch)
            for name, way in WAYS.items()
            if way.patch
        }
        self.number = 0
        self.seen: list[str] = []

    def load(self) -> None:
        """Fill the lake."""
        self.write(100)
        self.ratchet.run("run", "--until-caught-up")

    def halt(self, name: str, point: str) -> bool:
        """One run stands still somewhere, another takes over, the first one wakes.

        Returns:
            Whether it came to the point.
        """
        way = WAYS[name]
        self.number += 1
        own, heir = {MACHINE: f"late {self.number}"}, {MACHINE: f"next {self.number}"}
        if name == "taking over":
            self._kill_one(own)
        way.before(self)
        nth = f":{self.random.choice((1, 1, 1, 2, 3))}" if way.again else ""
        self.write(60)
        more = self.patched.get(name, {})
        late = self.ratchet.start(*way.command, **own, **more, **{HALT: point + nth})
        writer = self.writer()
        reached = _stands_still(late)
        writer.finish()
        if not reached:  # not all come to each point so often
            _end(late)
        self.ratchet.run("run", "--until-caught-up", **heir)
        if reached:
            self._wake(late, point)
        self.write(20)
        self.ratchet.run("run", "--until-caught-up", **heir, **more)
        if way.after:
            self.ratchet.run(*way.after, **heir)
        assert assert_identical(self.lake, [self.server], self.database, ALL) > 0, point
        if reached:
            self.seen.append(point)
            log.info("%s, halt %d: %s%s", self.database, len(self.seen), point, nth)
        return reached

    def execute(self, *statements: str) -> None:
        """Statements on this mirror's database."""
        execute(self.server, *statements, database=self.database)

    def unlogged(self, *statements: str) -> None:
        """The same, of which the log says nothing."""
        self.execute("SET SESSION sql_log_bin = 0", *statements)

    def held(self) -> Lake:
        """The lake as its last holder had it."""
        return held(Lake.at(self.lake))

    def writer(self) -> Writer:
        """One that writes."""
        writer = Writer(self.server, self.database, seed=self.random.randrange(1 << 30))
        writer.start()
        return writer

    def write(self, transactions: int) -> None:
        """Some transactions."""
        writer = self.writer()
        while writer.transactions < transactions and writer.is_alive():
            writer.join(0.05)
        writer.finish()

    def _kill_one(self, own: dict[str, str]) -> None:
        """A run that leaves its lease, in the midst of a round: of the same machine, so that the
        next one need not wait."""
        self.write(20)
        killed = self.ratchet.start("run", crash_at="capture.before_commit", **own)
        killed.communicate(timeout=240)
        assert killed.returncode == -signal.SIGKILL

    def _wake(self, late: Any, point: str) -> None:
        """It writes nothing that counts, and ends by itself."""
        os.kill(late.pid, signal.SIGCONT)
        if point.startswith("takeover.before_claim"):
            # It had claimed nothing yet, and may find a lake that is free again.
            with suppress(subprocess.TimeoutExpired):
                late.wait(20)
            _end(late)
            assert late.returncode in {0, 7}, point
        else:
            _, told = end_of(late, 240)
            assert late.returncode == 7, (point, told[-3000:])


def make_mirrors(
    server: Any, make_ratchet: Callable[..., Ratchet], count: int, s3: S3Server | None
) -> list[Mirror]:
    """Some mirrors side by side, in folders or in a store, and the account that reads for them."""
    roots = [s3.new_root() if s3 else "" for _ in range(count)]
    mirrors = [Mirror(server, n, make_ratchet, root) for n, root in enumerate(roots)]
    create_ratchet_user(server, PASSWORD, [one.database for one in mirrors])
    return mirrors


def stands_still(process: Any, seconds: float) -> bool:
    """Whether it is stopped within that time, as /proc says; it must not end before."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert process.poll() is None, process.communicate()
        if is_halted(process.pid):
            return True
        time.sleep(0.1)
    return False


def _stands_still(process: Any) -> bool:
    return stands_still(process, 120)


def _end(process: Any) -> None:
    """Tell a run to end, also if it comes to its point only now."""
    process.send_signal(signal.SIGTERM)
    done = threading.Event()

    def wake() -> None:
        while not done.wait(0.5):
            process.send_signal(signal.SIGCONT)

    waking = threading.Thread(target=wake)
    waking.start()
    try:
        end_of(process, 240)
    finally:
        done.set()
        waking.join()


# --- what leads to the points ---------------------------------------------------------------------


def _dump_again(mirror: Mirror) -> None:
    """Behind the table that a cut shows."""
    mirror.ratchet.run("table", "redump", mirror.random.choice(TABLES))


def _alter(mirror: Mirror) -> None:
    """All rows get a value, which the mirror computes."""
    mirror.execute(
        "UPDATE altered SET v = v + 1 WHERE id % 3 = 0",
        f"ALTER TABLE altered ADD x{mirror.number} INT NOT NULL DEFAULT 7",
        "UPDATE altered SET v = v + 1 WHERE id % 5 = 0",
    )


def _add_column(mirror: Mirror) -> None:
    """It has no value in any old row."""
    name = f"y{mirror.number}"
    mirror.execute(
        f"ALTER TABLE altered ADD {name} INT", f"UPDATE altered SET {name} = v WHERE id % 3 = 0"
    )


def _swap(mirror: Mirror) -> None:
    """As tools do that make a copy; all of it stands in the log."""
    mirror.execute(
        "CREATE TABLE _swapped_new LIKE swapped",
        f"ALTER TABLE _swapped_new ADD x{mirror.number} INT NOT NULL DEFAULT 7",
        "INSERT INTO _swapped_new (id, v) SELECT id, v FROM swapped ORDER BY id",
        "UPDATE _swapped_new SET v = v + 1 WHERE id % 7 = 0",
        "RENAME TABLE swapped TO _swapped_old, _swapped_new TO swapped",
        "DROP TABLE _swapped_old",
        "UPDATE swapped SET v = v + 1 WHERE id % 11 = 0",
    )


def _empty(mirror: Mirror) -> None:
    """A batch that rewrites a table is noted before it is tried."""
    rows = ", ".join(f"({n}, {mirror.number})" for n in range(1, 400))
    mirror.execute("TRUNCATE TABLE emptied", f"INSERT INTO emptied VALUES {rows}")


def _spoil(mirror: Mirror) -> None:
    """Rows that no log tells of."""
    key = mirror.random.randrange(1, 200)
    mirror.unlogged(
        f"DELETE FROM spoilt WHERE id = {key}",
        f"UPDATE spoilt SET v = -{mirror.number} WHERE id = {key + 100}",
        f"INSERT INTO spoilt VALUES ({mirror.number + 1000}, 0)",
    )


def _doubt(mirror: Mirror) -> None:
    """A table in doubt that differs, and others whose turn it is to be compared."""
    tables = Tables(mirror.held())
    state = tables.load("shop", "spoilt")
    assert state is not None
    doubt = Doubt(message="why", statement="ALTER TABLE spoilt ...", round=state.merged_round)
    tables.save(replace(state, doubts={"shop/-": doubt}))
    _spoil(mirror)
    names = [f"shop.{table}" for table in ALL]
    Passes(mirror.held()).save_schedule({name: 1 for name in names if name != "shop.spoilt"})


# So few rows of one shard are repaired without Spark, at the points of a merge.
BY_SPARK: Final = """
import functools
import ratchet.jobs.recovery.repair as repair
repair.repair_table = functools.partial(repair.repair_table, direct=False)
"""
_SHOWING: Final = ("staged.after_copies", "staged.after_commit", "merge.before_staged_removed")
WAYS: Final[dict[str, Way]] = {
    "streaming": Way(
        points=(
            "capture.slice_read", "capture.files_written", "capture.before_commit",
            "capture.after_commit", "merge.before_side", "merge.after_side", "merge.before_merge",
            "merge.after_merge", "merge.before_cut", "merge.after_cut", "upkeep.before_compact",
            "upkeep.after_compact", "lease.renewing",
        ),
        again=True,
    ),
    "dumping": Way(
        points=(
            "dump.before_chunk", "dump.after_read", "dump.before_commit", "dump.after_commit",
            "dump.before_done",
        ),
        before=_dump_again,
        again=True,
    ),
    "taking over": Way(
        points=(
            "takeover.before_claim", "takeover.after_claim", "takeover.after_fences",
            "takeover.before_marker", "takeover.after_marker",
        ),
    ),
    "showing": Way(points=_SHOWING, before=_dump_again),
    "altering": Way(
        points=("remake.before_commit", "remake.after_commit", *_SHOWING), before=_alter
    ),
    "adding": Way(points=("merge.columns_added",), before=_add_column),
    "swapping": Way(points=("fromlog.before_done",), before=_swap),
    "emptying": Way(points=("merge.attempted",), before=_empty),
    "bundling": Way(
        points=(
            "bundle.copying", "bundle.before_commit", "bundle.after_commit",
            "bundle.before_removal", "bundle.after_removal",
        ),
        patch=AGED,
    ),
    "verifying": Way(
        points=("verify.before_verdict", "verify.before_progress"), before=_doubt
    ),
    "repairing": Way(
        points=("repair.before_side", "repair.after_side", "repair.after_merge"),
        before=_spoil,
        patch=BY_SPARK,
        command=("repair", "--table", "shop.spoilt"),
        after=("repair", "--table", "shop.spoilt"),
    ),
}  # fmt: skip
# A heal needs a server of its own, which loses what is mirrored: test_failover_heal.py.
HEALING: Final = ("heal.states_saved", "heal.begun", "heal.after_table")
# Points at which no run is halted, and why not.
LEFT_OUT: Final[dict[str, str]] = {}
