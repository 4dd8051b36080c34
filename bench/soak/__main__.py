"""A long run under a steady load, killed now and then: `python -m bench.soak [options]`.

    --hours H         how long the writers write (8)
    --tables N        half of them on a MySQL, half on a MariaDB (40)
    --rows N          of each table at first; keys run up to four times as many (2,000)
    --rate N          changes of rows in a second, on both servers together (400)
    --kill-every S    seconds between two kills of the run; 0: none (600)
    --sample-every S  seconds between two looks (10)
    --config FILE     more of the config, YAML
    --report FILE     where the report goes, beside the output
    --samples FILE    where all samples go, as JSON; `bench.soak.plot` draws them
    --home DIR        where servers' data, lake and logs stay; with it the soak can go on later
    --piece H         with --home: hours after which everything is stopped, if more are left

At the end (of each piece) the writers stop, a last run catches up, and all rows of all tables are
compared with the source, read by neither Ratchet nor Spark. Exit code 1: rows differ, a run
ended by itself, or the lake outgrew its bound (docs/operations.md).
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import yaml

from bench.soak.equal import differences
from bench.soak.fleet import Writer, fleet
from bench.soak.life import Life
from bench.soak.past import Past
from bench.soak.report import Outcome, as_markdown
from bench.soak.samples import take_sample
from lab.servers import Server

_PATIENCE: Final = 1800.0  # seconds that the last run may take
_STOP: Final = 300.0
_KEEP: Final = 60.0  # seconds of a soak that a machine's end may cost


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a soak."""
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    parser.add_argument("--hours", type=float, default=8.0)
    parser.add_argument("--tables", type=int, default=40)
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--rate", type=float, default=400.0)
    parser.add_argument("--kill-every", type=float, default=600.0)
    parser.add_argument("--sample-every", type=float, default=10.0)
    parser.add_argument("--config", type=Path)
    parser.add_argument("--report", type=Path)
    parser.add_argument("--samples", type=Path)
    parser.add_argument("--home", type=Path)
    parser.add_argument("--piece", type=float, default=float("inf"))
    given = parser.parse_args(arguments)
    home = given.home or Path(tempfile.mkdtemp(prefix="ratchet-soak-"))
    home.mkdir(parents=True, exist_ok=True)
    more = {} if given.config is None else yaml.safe_load(given.config.read_text())
    with fleet(given.tables, given.rows, given.home) as servers:
        outcome = soak(home, servers, given, more)
    load = f"{given.tables} tables, {given.rate:,.0f} changes/s"
    title = f"{load}, a kill every {given.kill_every:,.0f} s"
    text = as_markdown(outcome, title)
    print(text)
    if given.report:
        given.report.write_text(text)
    if given.samples:
        given.samples.write_text(json.dumps([asdict(one) for one in outcome.samples]))
    if outcome.is_good and given.home is None:
        shutil.rmtree(home)
    else:
        print(f"lake and logs stay in {home}")
    return 0 if outcome.is_good else 1


def soak(
    home: Path, servers: Mapping[str, Server], given: argparse.Namespace, more: Mapping[str, Any]
) -> Outcome:
    """Write, follow, kill; then compare.

    Args:
        home: an empty folder, or that of the pieces before.
        servers: by keyspace.
        given: the options.
        more: of the config.
    """
    life, past = Life(home, servers, more), Past.read(home)
    rate, tables = given.rate / len(servers), given.tables // len(servers)
    writers = [
        Writer(server, tables, given.rows, rate, seed)
        for seed, server in enumerate(servers.values(), past.pieces * len(servers))
    ]
    try:
        for writer in writers:
            writer.start()
        now = _watch(life, writers, list(servers), given, past)
        for writer in writers:
            writer.finish()
        if (code := life.stop(_STOP)) != 0:
            now.ends[code] += 1
        if (code := life.catch_up(_PATIENCE)) != 0:
            now.ends[code] += 1
        now.write(life.home)
    finally:
        life.kill()
    compared = 0
    wrong: dict[str, str] = {}
    for keyspace, server in servers.items():
        rows, found = differences(life.lake, keyspace, server)
        compared += rows
        wrong |= {f"{keyspace}.{table}": what for table, what in found.items()}
    return Outcome(
        seconds=now.seconds,
        pieces=now.pieces,
        changes=now.changes,
        kills=now.kills,
        ends=now.ends,
        compared=compared,
        wrong=wrong,
        samples=now.samples,
        kept=life.kept,
    )


def _watch(
    life: Life,
    writers: Sequence[Writer],
    keyspaces: list[str],
    given: argparse.Namespace,
    past: Past,
) -> Past:
    """Keep the run going, and look at it, until the piece is over; what was until then."""
    samples = past.samples.copy()
    begin = time.monotonic()

    def until_now() -> Past:
        return Past(
            pieces=past.pieces + 1,
            seconds=past.seconds + time.monotonic() - begin,
            changes=past.changes + sum(writer.changes for writer in writers),
            kills=past.kills + life.kills,
            ends=past.ends + life.ends,
            samples=samples,
        )

    end = begin + min(given.hours * 3600 - past.seconds, given.piece * 3600)
    kill = begin + (given.kill_every or float("inf"))
    look = kept = begin
    while (now := time.monotonic()) < end:
        life.look()
        if now >= kill:
            life.kill()
            kill = now + given.kill_every
        elif now >= look and life.pid is not None:
            look = now + given.sample_every
            began = begin - past.seconds
            if (sample := take_sample(life.pid, life.lake, keyspaces, began)) is not None:
                samples.append(sample)
        if now >= kept:
            kept = now + _KEEP
            until_now().write(life.home)
        time.sleep(0.5)
    return until_now()


if __name__ == "__main__":
    sys.exit(main())
