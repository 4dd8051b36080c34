"""What the command line does: a campaign with its figures, a kept finding once more."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from lab.servers import MariadbServer, MysqlServer, Server

from .driver import Campaign, Figures, Source, replayed, save
from .grammar import Step
from .mirror import Finding, Mirror
from .shrink import shrunk

DATABASE = "fuzzed"


def server_of(flavor: str, *, native: bool = False) -> Server:
    """A server of our own, not started."""
    if flavor == "mariadb":
        return MariadbServer()
    return MysqlServer(options={"innodb-native-foreign-keys": "ON"} if native else {})


def campaign(
    flavor: str,
    folder: Path,
    kept: Path,
    *,
    seed: int,
    statements: int,
    every: int,
    epoch: int | None,
    most_findings: int,
    without: Collection[str],
    native: bool,
) -> int:
    """Run one, print its figures, keep its findings."""
    with server_of(flavor, native=native) as server:
        source = Source(server, DATABASE, folder)
        mirror = Mirror(server, DATABASE, folder)
        ran = Campaign(source, mirror, seed=seed, every=every, without=without, tell=_tell)
        try:
            ran.run(
                400 if epoch is not None else statements,
                first_epoch=epoch or 0,
                most_findings=most_findings,
            )
        finally:
            mirror.end()
            source.close()
            _print(flavor, seed, ran.figures)
            for number, found in enumerate(ran.found):
                path = kept / f"{flavor}-{seed}-{found.epoch}-{number}-{found.finding.what}.json"
                save(path, seed, flavor, found)
                _tell(f"kept: {path}")
    return 1 if ran.found else 0


def _tell(line: str) -> None:
    print(time.strftime("%H:%M:%S"), line, flush=True)


def _print(flavor: str, seed: int, figures: Figures) -> None:
    values = {one.name: getattr(figures, one.name) for one in fields(figures)}
    plain = {name: value for name, value in values.items() if not isinstance(value, Counter)}
    _tell(f"{flavor}, seed {seed}: {plain}")
    for title, counted in (("stopped by name", figures.stops), ("kinds", figures.kinds)):
        _tell(f"{title}: " + ", ".join(f"{n} {what}" for what, n in counted.most_common()))


def replay(data: dict[str, Any], folder: Path, *, smaller: bool) -> int:
    """A kept finding once more; with `smaller` as few statements as it takes.

    Args:
        data: as `driver.save` wrote it.
        folder: for config and lake.
        smaller: whether to shrink it.
    """
    steps = [Step.from_json(one) for one in data["steps"]]
    wanted = (data["what"], data["table"])
    with server_of(data["flavor"], native=data.get("native", False)) as server:
        source = Source(server, DATABASE, folder)
        mirror = Mirror(server, DATABASE, folder)
        tries = 0
        last: list[Finding] = []

        def fails(some: Sequence[Step]) -> bool:
            nonlocal tries, last
            tries += 1
            findings = replayed(source, mirror, some)
            same = [one for one in findings if (one.what, one.table) == wanted]
            last = same or last
            _tell(f"try {tries}: {len(some)} steps: {'the same' if same else 'not'}")
            return bool(same)

        try:
            mirror.begin()
            if not fails(steps):
                _tell("it does not come again")
                return 0
            small = shrunk(steps, fails, table=data["table"]) if smaller else steps
        finally:
            mirror.end()
            source.close()
    for step in small:
        print(f"-- {step.kind}\n{step}", end="")
    for one in last:
        print(f"{one.what} {one.table!r}: {one.detail}")
    return 1
