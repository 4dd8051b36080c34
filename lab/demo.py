"""`ratchet demo`: the whole story on two private servers, told while it happens.

Everything is done by the same commands a user types, run as processes of their own, so what is
shown is what users get. Does not live here: the data and its writer (`demo_data`), the servers
(`lab`).
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.rule import Rule

from lab import demo_data
from lab.demo_data import DATABASE, SHARDS, Shoppers
from lab.places import refuse_shared
from lab.servers import MariadbServer, create_ratchet_user
from ratchet.core.errors import LakeError, RetryableError
from ratchet.jobs.config.config import load_config
from ratchet.resources import IMPORTED_FROM, make_folder
from ratchet.store.cuts import Cuts
from ratchet.store.formats import open_lake
from ratchet.store.tables import Tables

PASSWORD: Final = "demo-only-on-loopback"  # noqa: S105 - servers that live for four minutes
MARK: Final = ".ratchet-demo"  # only a folder with this file in it is ever emptied
AUDITED: Final = 4242  # an even key: it lives on the first shard
STREAM_SECONDS: Final = 12
WAIT_SECONDS: Final = 240
LOOK_SECONDS: Final = 2

_CONFIG: Final = """\
# Written by `ratchet demo`. Its servers ended with the demo; the lake is still here to look at.
lake: ./lake
sources:
  shop:
    kind: binlog
    shards:
{shards}
    tables: ["*"]
    key: primary
# For commands that last seconds: Java's thorough compiler would take more time than it saves.
spark:
  conf: {{spark.driver.extraJavaOptions: "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}}
"""


class Demo:
    """The stage: two servers, one config, and the console it is told on."""

    def __init__(self, home: Path, console: Console, servers: Mapping[str, MariadbServer]) -> None:
        """Write the config for these servers into `home`."""
        self.home = home
        self.console = console
        self.servers = servers
        self.config = home / "ratchet.yaml"
        shards = "\n".join(
            f'      "{name}": {{host: {server.host}, port: {server.port}, user: ratchet, '
            f'password: "${{DEMO_PASSWORD}}", database: {DATABASE}}}'
            for name, server in servers.items()
        )
        self.config.write_text(_CONFIG.format(shards=shards))
        # Found from whichever folder the demo was started in, installed or not.
        path = os.pathsep.join(filter(None, (str(IMPORTED_FROM), os.environ.get("PYTHONPATH"))))
        self._env = {**os.environ, "DEMO_PASSWORD": PASSWORD, "PYTHONPATH": path}

    def chapter(self, title: str, text: str = "") -> None:
        """A headline and a sentence or two."""
        self.console.print()
        self.console.print(Rule(f"[bold]{title}", align="left"))
        if text:
            self.console.print(text, style="dim")

    def command(self, *args: str) -> list[str]:
        """The command line of `ratchet ARGS[0] CONFIG ARGS[1:]`."""
        return [sys.executable, "-m", "ratchet", args[0], str(self.config), *args[1:]]

    def ratchet(self, *args: str) -> None:
        """Run a command in full view.

        Raises:
            RetryableError: it did not end with exit code 0.
        """
        words = (args[0], "ratchet.yaml", *args[1:])
        shown = " ".join(f'"{word}"' if " " in word else word for word in words)
        self.console.print(f"$ ratchet {shown}", style="bold green", markup=False, soft_wrap=True)
        self._flush()
        done = subprocess.run(self.command(*args), env=self._env, check=False)
        if done.returncode:
            raise RetryableError(
                f"`ratchet {args[0]}` ended with exit code {done.returncode}",
                operation="demo",
                hint=f"what it said stands above; its config is {self.config}",
            )

    def follow(self) -> subprocess.Popen[bytes]:
        """Start `ratchet run` in the background; its log goes to run.log."""
        self.console.print("[bold green]$ ratchet run ratchet.yaml &", highlight=False)
        with (self.home / "run.log").open("ab") as log:
            return subprocess.Popen(
                self.command("run"), env=self._env, stdout=log, stderr=log, start_new_session=True
            )

    def wait_for_cut(self, process: subprocess.Popen[bytes], after: int) -> int:
        """Wait until all tables stream and hold a round above `after`; that round.

        Raises:
            RetryableError: it ended, or four minutes went by.
        """
        deadline = time.monotonic() + WAIT_SECONDS
        lake = open_lake(load_config(self.config, self._env).lake, now=0, create=False)
        while time.monotonic() < deadline and process.poll() is None:
            tables = Tables(lake).list()
            cut = Cuts(lake).last()
            if cut and cut.round > after and all(one.phase == "streaming" for one in tables):
                return cut.round
            time.sleep(LOOK_SECONDS)
        tail = (self.home / "run.log").read_text(errors="replace")[-2000:]
        raise RetryableError(f"`ratchet run` did not get further:\n{tail}", operation="demo")

    def _flush(self) -> None:
        self.console.file.flush()


def run_demo(home: Path, *, rows: int) -> int:
    """Tell the story; 0 if it ended as it should.

    Raises:
        LakeError: `home` exists and was not made by an earlier demo.
        RatchetError: a step failed.
    """
    began = time.monotonic()
    console = Console()
    home = _prepare(home)
    with ExitStack() as stack:
        demo = _stage(stack, home, console, rows)
        _dump(demo)
        shoppers = Shoppers(demo.servers, rows)
        shoppers.start()
        before = _stream_and_kill(demo, shoppers)
        _audit(demo, before)
        _prove(demo)
    _farewell(demo, time.monotonic() - began)
    return 0


def _prepare(home: Path) -> Path:
    home = home.resolve()
    refuse_shared(home, hint="name a folder of your own with --home")
    if home.exists() and any(home.iterdir()):
        if not (home / MARK).exists():
            raise LakeError(
                f"{home} holds files that no demo made",
                operation="demo",
                hint="name another folder with --home",
            )
        shutil.rmtree(home)
    make_folder(home)
    (home / MARK).touch()
    return home


def _stage(stack: ExitStack, home: Path, console: Console, rows: int) -> Demo:
    console.print(Rule("[bold]Ratchet: a live database, mirrored into Delta Lake"))
    console.print("Starting two private MariaDB servers on 127.0.0.1: the shards -80 and 80- ...")
    servers = {name: stack.enter_context(MariadbServer()) for name in SHARDS}
    written = demo_data.create(servers, rows)
    for server in servers.values():
        create_ratchet_user(server, PASSWORD, [DATABASE])
    console.print(f"{written:,} rows in {len(demo_data.TABLES)} tables of mixed types.")
    demo = Demo(home, console, servers)
    demo.chapter("1. Is the source fit?")
    demo.ratchet("check")
    return demo


def _dump(demo: Demo) -> None:
    demo.chapter(
        "2. The dump",
        "Both shards at once, in chunks by primary key, without a lock. Capture of the log begins "
        "before the first chunk.",
    )
    demo.ratchet("dump")


def _stream_and_kill(demo: Demo, shoppers: Shoppers) -> datetime:
    demo.chapter(
        "3. A busy shop, a kill, a restart",
        "A writer now inserts, updates, deletes and changes keys on both shards.",
    )
    running = demo.follow()
    try:
        merged = demo.wait_for_cut(running, 0)
        _shop(demo, shoppers)
        demo.console.print("[bold red]$ kill -9 the run, in the middle of its work")
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()
        _shop(demo, shoppers, 2)
        running = demo.follow()
        demo.wait_for_cut(running, merged)
        before = demo_data.tell_tale(demo.servers[SHARDS[0]], AUDITED)
        _shop(demo, shoppers)
        running.send_signal(signal.SIGTERM)
        running.wait(timeout=WAIT_SECONDS)
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
        shoppers.finish()
    demo.console.print(
        f"The shop is closed: {shoppers.transactions:,} transactions changed {shoppers.rows:,} "
        "rows. The run stopped cleanly on SIGTERM; one more takes the rest."
    )
    demo.ratchet("run", "--until-caught-up")
    demo.ratchet("status")
    return before


def _shop(demo: Demo, shoppers: Shoppers, seconds: float = STREAM_SECONDS) -> None:
    before = shoppers.rows
    shoppers.join(seconds)
    if shoppers.error is not None:
        raise RetryableError("the demo's writer failed", operation="demo") from shoppers.error
    demo.console.print(f"... {shoppers.rows - before:,} rows changed in {seconds:g} s")


def _audit(demo: Demo, before: datetime) -> None:
    demo.chapter("4. SQL over the mirror")
    demo.ratchet(
        "sql",
        "SELECT c.tier, o.status, count(*) orders, sum(o.total) total FROM shop.orders o "
        "JOIN shop.customers c ON c.id = o.customer_id GROUP BY 1, 2 ORDER BY 1, 2",
    )
    demo.chapter(
        "5. Time travel",
        f"Order {AUDITED} was changed in passing. What did it look like before, and which "
        "transaction changed it?",
    )
    one = f"SELECT id, status, total, note, _token.gtid FROM shop.orders WHERE id = {AUDITED}"
    moment = before.strftime("%Y-%m-%dT%H:%M:%SZ")
    demo.ratchet("sql", one, "--as-of", moment)
    demo.ratchet("sql", one)
    demo.ratchet(
        "sql",
        "SELECT token.ts, token.gtid, token.shard, before.status old_status, after.status "
        "new_status, before.note old_note, after.note new_note FROM shop.orders "
        f"WHERE before.id = {AUDITED} OR after.id = {AUDITED} "
        "ORDER BY token.generation, token.seq, token.idx",
        "--changes",
    )


def _prove(demo: Demo) -> None:
    demo.chapter("6. The proof", "Every row of both shards against every row of the mirror.")
    demo.ratchet("verify")


def _farewell(demo: Demo, seconds: float) -> None:
    lake = demo.home / "lake"
    demo.chapter(f"Done in {seconds:.0f} s. The lake is yours to look at:")
    demo.console.print(
        f"  tables      {lake / DATABASE}\n"
        f"  the config  {demo.config}\n"
        f"  SQL         DEMO_PASSWORD=x ratchet sql {demo.config} "
        "'SELECT * FROM shop.orders LIMIT 5'\n"
        f"  Python      deltalake.QueryBuilder().register('o', deltalake.DeltaTable("
        f"'{lake / DATABASE / 'orders'}')).execute('SELECT * FROM o LIMIT 5').read_all()",
        highlight=False,
        soft_wrap=True,
    )
