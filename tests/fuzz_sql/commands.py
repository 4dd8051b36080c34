"""What the command line does: a campaign with its figures, a kept finding once more."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from lab.servers import MariadbServer, MysqlServer, Server

from .driver import Campaign, Figures, Source, replayed, save
from .grammar import Step
from .mirror import Finding, Mirror
from .shrink import shrunk

DATABASE: Final = "fuzzed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a campaign is to do.

    Attributes:
        flavor: the server.
        seed: of all that is drawn.
        statements: how many, in epochs of some hundred.
        every: statements between two looks at the mirror.
        epoch: the first one; with `statements` below its length, the only one.
        most_findings: ends it.
        without: kinds and modes that are left out.
    """

    flavor: str
    seed: int
    statements: int
    every: int
    epoch: int = 0
    most_findings: int = 10**9
    without: tuple[str, ...] = ()


def server_of(flavor: str) -> Server:
    """A server of our own, not started; of MySQL's, InnoDB cascades as in all before 9.6."""
    if flavor == "mariadb":
        return MariadbServer()
    return MysqlServer(options={"innodb-native-foreign-keys": "ON"})


def campaign(wish: Wish, folder: Path, kept: Path) -> Campaign:
    """Run one, print its figures, keep its findings.

    Args:
        wish: see Wish.
        folder: for configs and lakes.
        kept: where findings go.
    """
    with server_of(wish.flavor) as server:
        source = Source(server, DATABASE, folder)
        mirror = Mirror(server, DATABASE, folder)
        if wish.seed % 2:  # an account that sees triggers has less to doubt of logged statements
            server.execute(f"GRANT TRIGGER ON {DATABASE}.* TO 'ratchet'@'%'")
        ran = Campaign(
            source, mirror, seed=wish.seed, every=wish.every, without=wish.without, tell=_tell
        )
        try:
            ran.run(wish.statements, first_epoch=wish.epoch, most_findings=wish.most_findings)
        finally:
            mirror.end()
            source.close()
            _print(wish, ran.figures)
            for number, found in enumerate(ran.found):
                name = f"{wish.flavor}-{wish.seed}-{found.epoch}-{number}-{found.finding.what}"
                save(kept / f"{name}.json", wish.seed, wish.flavor, found)
                _tell(f"kept: {kept / name}.json")
    return ran


def replay(data: dict[str, Any], folder: Path, *, smaller: bool) -> int:
    """A kept finding once more; with `smaller` as few statements as it takes.

    Args:
        data: as `driver.save` wrote it.
        folder: for configs and lakes.
        smaller: whether to shrink it.
    """
    steps = [Step.from_json(one) for one in data["steps"]]
    wanted = (data["what"], data["table"])
    with server_of(data["flavor"]) as server:
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


def _tell(line: str) -> None:
    print(time.strftime("%H:%M:%S"), line, flush=True)


def _print(wish: Wish, figures: Figures) -> None:
    values = {one.name: getattr(figures, one.name) for one in fields(figures)}
    plain = {name: value for name, value in values.items() if not isinstance(value, Counter)}
    _tell(f"{wish.flavor}, seed {wish.seed}: {plain}")
    for title, counted in (("stopped by name", figures.stops), ("kinds", figures.kinds)):
        _tell(f"{title}: " + ", ".join(f"{n} {what}" for what, n in counted.most_common()))
