"""Random histories: a command stands still while tables are dropped, added, dumped again and
damaged; then it wakes, and what is printed is typed until all is well.

`RATCHET_HISTORIES` of them for each store, on `RATCHET_LAKES` lakes side by side, in the order of
`RATCHET_SEED`. `tests/e2e/test_halt.py` halts at each point; here the moment is drawn, and what
comes to pass meanwhile.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import yaml
from fix_e2e import Ratchet, assert_identical, end_of
from halt_kit import ALL, SEED, WAYS, Mirror, make_mirrors
from process_kit import is_halted

from lab.objectstore import S3Server
from ratchet.store.crashpoints import HALT
from ratchet.store.files import Lake
from ratchet.store.lease import MACHINE

log = logging.getLogger(__name__)

LAKES = int(os.environ.get("RATCHET_LAKES", "6"))
HISTORIES = int(os.environ.get("RATCHET_HISTORIES", "12"))
KEPT = ("streaming", "dumping", "showing", "altering", "adding", "swapping", "emptying")
COMMANDS = ("redump", "drop", "delete", "add", "repair")
MOST_REMEDIES = 8


class History:
    """What happens to one mirror, one late command at a time."""

    def __init__(self, mirror: Mirror) -> None:
        self.mirror, self.ratchet, self.random = mirror, mirror.ratchet, mirror.random
        self.gone: set[str] = set()
        self.seen: Counter[str] = Counter()
        self.told: list[str] = []

    def live_once(self) -> None:
        """One late command, and all that comes to pass before and behind it."""
        self.told = []
        self.mirror.number += 1
        late = self._late()
        try:
            if (
                self.random.random() < 0.7
            ):  # else what is asked for waits two minutes for a late run
                self._run()
            for _ in range(self.random.randint(0, 3)):
                self._act()
            late.send_signal(signal.SIGCONT)
            for _ in range(self.random.randint(0, 2)):
                self._act()
            self._end(late)
        except BaseException:
            log.exception("lake %s: %s", self.mirror.database, self.told)
            raise
        self._settle()
        self.seen["histories"] += 1
        log.info("%s: %s", self.mirror.database, "; ".join(self.told))

    # --- the late one -----------------------------------------------------------------------------

    def _late(self) -> Any:
        """A command that stands still, at a point or at any moment."""
        own = {MACHINE: f"late {self.mirror.number}"}
        if self.random.random() < 0.5:
            way = WAYS[self.random.choice(KEPT)]
            point = self.random.choice(way.points)
            if not self.gone:
                way.before(self.mirror)
            self.mirror.write(40)
            nth = self.random.choice((1, 1, 2, 3))
            late = self.ratchet.start("run", **own, **{HALT: f"{point}:{nth}"})
            self._note(f"late run at {point}:{nth}")
            self._wait_or_stop(late, 12)
            return late
        command = self.random.choice(COMMANDS)
        table = self.random.choice(ALL)
        if command == "repair":
            late = self.ratchet.start("repair", "--table", f"shop.{table}", **own)
        else:
            self._put(table, there=command in {"redump", "add"})
            more = ["--delete"] if command == "delete" else []
            name = "drop" if command == "delete" else command
            late = self.ratchet.start("table", name, f"shop.{table}", *more, **own)
        self._note(f"late {command} {table}")
        self._wait_or_stop(late, self.random.choice((0.02, 0.1, 0.2, 0.4, 0.8, 2)))
        return late

    def _wait_or_stop(self, late: Any, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end and late.poll() is None and not is_halted(late.pid):
            time.sleep(0.02)
        late.send_signal(signal.SIGSTOP)

    def _end(self, late: Any) -> None:
        """It ends by itself, or as it is told to; never in a bug."""
        late.send_signal(signal.SIGCONT)
        end = time.monotonic() + 60
        while late.poll() is None and time.monotonic() < end:
            late.send_signal(signal.SIGCONT)  # it may have come to its point just now
            time.sleep(0.2)
        late.send_signal(signal.SIGTERM)
        late.send_signal(signal.SIGCONT)
        _, said = end_of(late, 240)
        self._note(f"late one ended with {late.returncode}")
        assert late.returncode in {0, 2, 3, 4, 6, 7, 130, -signal.SIGTERM}, said[-4000:]

    # --- what comes to pass -----------------------------------------------------------------------

    def _act(self) -> None:
        act = self.random.choice(
            (self._run, self._drop, self._add, self._redump, self._hurt, self._hurt, self._write)
        )
        act()

    def _run(self) -> None:
        self._command("run", "--until-caught-up")

    def _write(self) -> None:
        self.mirror.write(20)

    def _drop(self) -> None:
        table = self.random.choice(ALL)
        self._put(table, there=False)
        self._command("table", "drop", f"shop.{table}", *self.random.choice(([], ["--delete"])))

    def _add(self) -> None:
        table = self.random.choice(sorted(self.gone) or ALL)
        self._put(table, there=True)
        self._command("table", "add", f"shop.{table}")

    def _redump(self) -> None:
        self._command("table", "redump", f"shop.{self.random.choice(ALL)}")

    def _hurt(self) -> None:
        """Files of a table's folder go, or are torn."""
        table = self.random.choice(ALL)
        lake = Lake.at(str(self.mirror.lake))
        commits = sorted(
            file.path
            for file in lake.list(f"shop/{table}/_delta_log")
            if re.fullmatch(r"\d{20}\.json", file.path.rpartition("/")[2])
        )
        data = sorted(
            file.path for file in lake.list(f"shop/{table}") if file.path.endswith(".parquet")
        )
        how = self.random.choice(("first", "last", "all", "log", "torn", "checkpoint", "data"))
        if how == "first":
            lake.delete_files(commits[: self.random.randint(1, max(len(commits), 1))])
        elif how == "last":
            lake.delete_files(commits[-self.random.randint(1, 3) :])
        elif how == "all":
            lake.delete_folder(f"shop/{table}")
        elif how == "log":
            lake.delete_folder(f"shop/{table}/_delta_log")
        elif how == "checkpoint":
            lake.delete_files([f"shop/{table}/_delta_log/_last_checkpoint"])
        elif how == "torn" and commits:
            with lake.filesystem.open_output_stream(lake.absolute(commits[-1])) as stream:
                stream.write(b'{"add"')
        elif how == "data" and data:
            lake.delete_files([self.random.choice(data)])
        self._note(f"hurt {table}: {how}")

    # --- afterwards -------------------------------------------------------------------------------

    def _settle(self) -> None:
        """What is printed is typed, until a run ends well; then all rows are compared."""
        for table in sorted(self.gone):
            self._put(table, there=True)
            self._command("table", "add", f"shop.{table}")
        for _ in range(MOST_REMEDIES):
            done = self._command("run", "--until-caught-up")
            if done.returncode == 0:
                verified = self._command("verify")
                if verified.returncode == 0:
                    break
                done = verified
            self._type(done.stdout + done.stderr)
        else:
            pytest.fail(f"{self.mirror.database}: {self.told}\n{done.stdout}\n{done.stderr}")
        rows = assert_identical(self.mirror.lake, [self.mirror.server], self.mirror.database, ALL)
        assert rows > 0, self.told

    def _type(self, said: str) -> None:
        typed = set()
        for words in re.findall(r"`ratchet (\w+) (?:CONFIG|\S+ratchet\.yaml) ?([^`]*)`", said):
            if words not in typed:
                typed.add(words)
                first, rest = words
                self._command(first, *rest.replace("'", "").split())

    def _command(self, *args: str) -> Any:
        heir = {MACHINE: f"next {self.mirror.number}"}
        done = self.ratchet.run(*args, expect=None, timeout=240, **heir)
        self._note(f"{' '.join(args)}: {done.returncode}")
        assert done.returncode in {0, 1, 2, 3, 4, 6, 7}, (self.told, done.stderr[-6000:])
        return done

    def _put(self, table: str, *, there: bool) -> None:
        """Into the config's tables, or out of them."""
        (self.gone.discard if there else self.gone.add)(table)
        config = yaml.safe_load(self.ratchet.config.read_text())
        config["sources"]["shop"]["tables"] = ["*", *(f"!{name}" for name in sorted(self.gone))]
        self.ratchet.config.write_text(yaml.safe_dump(config))

    def _note(self, what: str) -> None:
        self.told.append(what)
        self.seen[what.partition(":")[0].partition(" shop.")[0]] += 1


@pytest.mark.long
@pytest.mark.parametrize("where", ["folder", "s3"])
def test_late_commands_and_damage(
    mariadb: Any,
    make_ratchet: Callable[..., Ratchet],
    s3_server: S3Server,
    monkeypatch: pytest.MonkeyPatch,
    where: str,
) -> None:
    """No row is wrong, no command ends in a bug, and what is printed gets out."""
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    store = s3_server if where == "s3" else None
    mirrors = make_mirrors(mariadb, make_ratchet, min(LAKES, HISTORIES), store)

    def work(mirror: Mirror) -> Counter[str]:
        mirror.load()
        history = History(mirror)
        for _ in range(HISTORIES // len(mirrors)):
            history.live_once()
        return history.seen

    with ThreadPoolExecutor(len(mirrors)) as pool:
        seen = sum(pool.map(work, mirrors), Counter())
    log.warning("%s: %s", SEED, dict(seen.most_common()))
