"""Runs steps on the real server, and looks at the mirror behind each few.

Lives here: `Source` (a session per step, the tables of now, a fresh beginning), `Campaign` (epochs,
findings, figures). Does not live here: what the steps are (`grammar`), the mirror (`mirror`),
making a finding small (`shrink`).

Invariant: which steps a seed makes depends on the server's answers alone, never on the mirror's.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pymysql
from pymysql.constants import CLIENT

from lab.servers import Server

from .catalog import read_model
from .draw import OTHER
from .grammar import Grammar, Step
from .mirror import FENCE, Finding, Mirror, Seen
from .model import Model

_LOCKED: Final = 1205  # the server's number of a lock that was not got
_TRIES: Final = 60
_AGAIN: Final = 3  # tables that are dumped again between two looks
EPOCH: Final = 400  # statements from an empty database on
# Stands among steps where the mirror was looked at.
LOOK: Final = Step(kind="look", body=(), ddl=False)


class Source:
    """The database that steps are done in.

    Args:
        server: runs.
        database: its name; made anew by `begin`.
        folder: for the file that LOAD DATA reads.
    """

    def __init__(self, server: Server, database: str, folder: Path) -> None:
        self.server, self.database = server, database
        self._file = folder / "load.csv"
        self._file.write_text("1,x\n2,y\n3,\n")
        for name in (database, OTHER):
            server.execute(f"CREATE DATABASE IF NOT EXISTS `{name}`")
        server.execute(
            f"CREATE TABLE IF NOT EXISTS {OTHER}.heartbeat (id INT PRIMARY KEY, ts BIGINT)"
        )
        self._catalog = server.connect(database=database)

    def begin(self) -> None:
        """Take away all that is there."""
        self._start_again()
        with self.server.connect(database=self.database) as connection:
            cursor = connection.cursor()
            cursor.execute("SET foreign_key_checks = 0")
            drops = []
            for schema in (self.database, OTHER):
                cursor.execute(
                    "SELECT TABLE_NAME, TABLE_TYPE FROM information_schema.TABLES "
                    "WHERE TABLE_SCHEMA = %s AND TABLE_NAME NOT IN ('fence', 'heartbeat')",
                    (schema,),
                )
                for name, kind in cursor.fetchall():
                    what = {"VIEW": "VIEW", "SEQUENCE": "SEQUENCE"}.get(kind, "TABLE")
                    quoted = name.replace("`", "``")
                    drops.append(f"DROP {what} IF EXISTS `{schema}`.`{quoted}`")
            _patiently(cursor, drops)
            for number in range(3):
                cursor.execute(f"DROP PROCEDURE IF EXISTS proc{number}")
            cursor.execute("DROP EVENT IF EXISTS nightly")

    def model(self) -> Model:
        """The tables of now."""
        self._start_again()
        with self._catalog.cursor() as cursor:
            return read_model(cursor, self.database)

    def do(self, step: Step) -> list[str]:
        """Run a step in a session of its own; what each statement was answered, "" for yes.

        What the session leaves open is rolled back when it ends.
        """
        answers = []
        self._start_again()
        with self.server.connect(
            database=self.database,
            local_infile=True,
            read_timeout=60,
            client_flag=CLIENT.MULTI_STATEMENTS,
        ) as connection:
            cursor = connection.cursor()
            for text in (*step.setup, *(sql.text for sql in step.body)):
                try:
                    cursor.execute(text.replace("@FILE@", str(self._file)))
                    while cursor.nextset():
                        pass
                    answers.append("")
                except pymysql.err.MySQLError as error:
                    answers.append(str(error))
                except UnicodeError as error:  # an answer in another character set
                    answers.append(str(error))
        return answers

    def _start_again(self) -> None:
        """A statement may have ended the server; what that means to the mirror is looked at."""
        if not self.server.running:
            self.server.start()
            self._catalog = self.server.connect(database=self.database)

    def close(self) -> None:
        """Let go of the server."""
        self._catalog.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A finding, and how to get there.

    Attributes:
        finding: what is wrong.
        epoch: of which epoch.
        steps: all steps of the epoch until then.
    """

    finding: Finding
    epoch: int
    steps: tuple[Step, ...]

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {
            "what": self.finding.what,
            "table": self.finding.table,
            "detail": self.finding.detail,
            "epoch": self.epoch,
            "steps": [step.to_json() for step in self.steps],
        }


@dataclass(slots=True)
class Figures:
    """What was done and seen.

    Attributes:
        statements: sent, without those that set modes.
        refused: of them, by the server.
        looks: at the mirror.
        compared: tables that were compared and right, over all looks.
        rows: of them.
        stops: reason (its first words) -> how often.
        kinds: kind of step -> how often all of it was taken.
        doubts: looks that waited for a doubt.
        waiting: seconds that looks took.
        seconds: that all took.
    """

    statements: int = 0
    refused: int = 0
    looks: int = 0
    compared: int = 0
    rows: int = 0
    stops: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    doubts: int = 0
    waiting: float = 0.0
    seconds: float = 0.0


class Campaign:
    """Epochs: a fresh database, some hundred steps, a look every few.

    Args:
        source: the database.
        mirror: of it.
        seed: of all.
        every: statements between two looks.
        epoch: statements in an epoch.
        without: what the grammar leaves out.
        tell: takes lines for a human.
    """

    def __init__(
        self,
        source: Source,
        mirror: Mirror,
        *,
        seed: int,
        every: int,
        epoch: int = EPOCH,
        without: Collection[str] = (),
        tell: Callable[[str], None] = print,
    ) -> None:
        self._source, self._mirror = source, mirror
        self._seed, self._every, self._epoch = seed, every, epoch
        flavor = source.server.flavor
        self._grammar = Grammar(flavor, source.database, without)
        self._tell = tell
        self.figures = Figures()
        self.found: list[Found] = []

    def run(self, statements: int, *, first_epoch: int = 0, most_findings: int = 10**9) -> None:
        """Go on until that many statements were sent, or that many findings were made."""
        began = time.monotonic()
        number = first_epoch
        self._mirror.begin()
        figures = self.figures
        while figures.statements < statements and len(self.found) < most_findings:
            self._one(number, statements)
            number += 1
            figures.seconds = time.monotonic() - began
            self._tell(
                f"{figures.statements} statements in {figures.seconds:.0f} s, "
                f"{figures.waiting:.0f} s of them at {figures.looks} looks; "
                f"{figures.compared} tables right, {figures.stops.total()} stopped by name"
            )

    def _one(self, number: int, statements: int) -> None:
        rng = random.Random(f"{self._seed}:{number}")
        self._source.begin()
        done: list[Step] = []
        for step in self._grammar.beginning(rng):
            self._do(step, done)
        self._look(number, done)
        model, began, last = self._source.model(), self.figures.statements, self.figures.statements
        looked = len(done)
        while min(began + self._epoch, statements) > self.figures.statements:
            step = self._grammar.step(rng, model)
            self._do(step, done)
            if step.ddl:
                model = self._source.model()
            if self.figures.statements - last >= self._every:
                self._look(number, done)
                last, looked = self.figures.statements, len(done)
        if looked < len(done):
            self._look(number, done)

    def _do(self, step: Step, done: list[Step]) -> None:
        answers = self._source.do(step)
        done.append(step)
        own = answers[len(step.setup) :]
        self.figures.statements += len(own)
        self.figures.refused += sum(bool(answer) for answer in own)
        if not any(own):
            self.figures.kinds[step.kind] += 1

    def _look(self, number: int, done: list[Step]) -> None:
        began = time.monotonic()
        seen = self._mirror.look()
        steps = tuple(done)
        done.append(LOOK)
        figures = self.figures
        figures.looks += 1
        figures.compared += len(seen.right)
        figures.rows += seen.rows
        figures.doubts += bool(seen.doubts)
        for reason in seen.stopped.values():
            figures.stops[_head(reason)] += 1
        for finding in seen.findings:
            found = Found(finding=finding, epoch=number, steps=steps)
            self.found.append(found)
            self._tell(f"epoch {number}, {figures.statements} statements: {finding.what} "
                       f"{finding.table!r}: {finding.detail[:700]}")  # fmt: skip
        # In every other epoch the next statements come while tables are dumped again, also some
        # that need not be: others hang on them.
        busy = number % 2 == 1
        if busy:
            rng = random.Random(f"{self._seed}:{number}:{figures.looks}")
            tables = sorted(set(seen.right) - {FENCE})  # by which a look knows that it is behind
            self._mirror.again(rng.sample(tables, min(_AGAIN, len(tables))))
        mend(self._mirror, seen, wait=not busy)
        figures.waiting += time.monotonic() - began


def mend(mirror: Mirror, seen: Seen, *, wait: bool) -> None:
    """Bring a mirror to where all tables stream again, so that what comes next is looked at.

    Args:
        mirror: was looked at.
        seen: what came of it.
        wait: until they do.
    """
    if {finding.what for finding in seen.findings} & {"died", "hung"}:
        mirror.begin()
        return
    wrong = {finding.table for finding in seen.findings if finding.what != "gone"}
    mirror.again(sorted(wrong | set(seen.stopped)))
    if wait:
        mirror.rest()


def replayed(source: Source, mirror: Mirror, steps: Sequence[Step]) -> list[Finding]:
    """Do steps from an empty database on; all that is found, in the end or where it was looked."""
    source.begin()
    findings: list[Finding] = []
    for step in steps:
        if step.kind == LOOK.kind:
            seen = mirror.look()
            findings += seen.findings
            mend(mirror, seen, wait=True)
        else:
            source.do(step)
    seen = mirror.look()
    if {finding.what for finding in seen.findings} & {"died", "hung"}:
        mirror.begin()
    return [*findings, *seen.findings]


def _patiently(cursor: Any, statements: Sequence[str]) -> None:
    """Statements that others may be in the way of for a while, such as a dump that reads.

    MariaDB also refuses so, and at once, to drop a parent of which a child has no tablespace: that
    goes when the child is gone.
    """
    left = list(statements)
    for tries in reversed(range(_TRIES)):
        refused = []
        for statement in left:
            try:
                cursor.execute(statement)
            except pymysql.err.OperationalError as error:
                if error.args[0] != _LOCKED:
                    raise
                if not tries:
                    raise AssertionError(f"{statement}: {error}\n{_who_holds(cursor)}") from error
                refused.append(statement)
        if not refused:
            return
        if len(refused) == len(left):
            time.sleep(1)
        left = refused


def _who_holds(cursor: Any) -> str:
    """What the server says of its sessions and locks."""
    told = []
    for question in ("SHOW FULL PROCESSLIST", "SHOW ENGINE INNODB STATUS", "XA RECOVER"):
        cursor.execute(question)
        told += ["\t".join(str(value) for value in row) for row in cursor.fetchall()]
    return "\n".join(told)


def _head(reason: str) -> str:
    """A reason without what is special to the case."""
    return reason.split(":", maxsplit=1)[0].split("(", maxsplit=1)[0][:70]


def save(path: Path, seed: int, flavor: str, found: Found) -> None:
    """Keep a finding as a file that `--replay` takes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"seed": seed, "flavor": flavor, **found.to_json()}, indent=1))
