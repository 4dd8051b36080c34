"""What the command line does: a campaign with its figures, a kept finding once more."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import asdict
from pathlib import Path

from lab.servers import MariadbServer, MysqlServer, Server

from .driver import Campaign, Figures, Source, save
from .mirror import Mirror

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
    values = asdict(figures)
    stops, kinds = values.pop("stops"), values.pop("kinds")
    _tell(f"{flavor}, seed {seed}: {values}")
    for title, counted in (("stopped by name", stops), ("kinds", kinds)):
        _tell(f"{title}: " + ", ".join(f"{n} {what}" for what, n in counted.most_common()))


def replay(data: dict[str, object], *, smaller: bool) -> int:
    """A kept finding once more."""
    raise NotImplementedError
