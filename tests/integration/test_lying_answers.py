"""Every question to a server, answered with what nobody asked for: an error of the source, no bug.

The questions are asked of real servers; then one answer after the other is changed, as a proxy, a
fork or somebody in between may change it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from capture_kit import source_of

from lab.servers import Server
from ratchet.core.errors import BugError, RatchetError
from ratchet.core.patterns import TablePatterns
from ratchet.jobs.config.settings import SourceSection
from ratchet.jobs.config.spelling import ask_spelling
from ratchet.jobs.preflight.facts import gather, gather_log
from ratchet.jobs.preflight.restarts import look_at_life
from ratchet.jobs.topology.discover import look
from ratchet.snapshot.positions import is_committed
from ratchet.snapshot.running import running
from ratchet.snapshot.source import SourceCatalog, made_at
from ratchet.wire.continues import check_continues
from ratchet.wire.decode.foreignkeys import read_foreign_keys
from ratchet.wire.hints import ServerCatalog
from ratchet.wire.logends import read_log_ends
from ratchet.wire.logstart import executed_before, first_file
from ratchet.wire.session import Session, SourceConfig

Rows = list[tuple[Any, ...]]
VALUES: tuple[object, ...] = (
    None, "", "-1", -1, "9" * 30, 10**30, "1e999", float("nan"), float("inf"), "\u00b2", "\u0663",
    b"\xff\xfe", "a\0b", "\x1b[31m\nline", "(" * 3000, "`'\"\\", "0-1", "x:1", 1.5, b"", "../../x",
    "\ud800",
)  # fmt: skip
TRIALS = 400
CHILD = (
    "CREATE TABLE child (id INT NOT NULL, e ENUM('a','b'), ts TIMESTAMP(3) NULL, b BIT(9), "
    "v INT AS (id + 1) VIRTUAL, s VARCHAR(9) AS (CONCAT(id)) STORED, p INT, UNIQUE (id), "
    "FOREIGN KEY (p) REFERENCES parent (b) ON DELETE CASCADE)"
)
RANGES = (
    "CREATE TABLE ranges (id INT PRIMARY KEY) PARTITION BY RANGE (id) "
    "(PARTITION a VALUES LESS THAN (5), PARTITION b VALUES LESS THAN (9))"
)
TABLES = (
    "CREATE TABLE parent (a INT, b INT, d DECIMAL(9,2), PRIMARY KEY (a, b), UNIQUE (b))",
    CHILD,
    "CREATE TABLE parts (id INT PRIMARY KEY) ENGINE=MyISAM",
    RANGES,
)


def whole(rows: Rows, rng: random.Random) -> Rows:
    value = rng.choice(VALUES)
    return [(value,) * len(row) for row in rows]


def one(rows: Rows, rng: random.Random) -> Rows:
    found = [list(row) for row in rows]
    if found and found[0]:
        row = rng.choice(found)
        row[rng.randrange(len(row))] = rng.choice(VALUES)
    return [tuple(row) for row in found]


MUTATIONS: tuple[Callable[[Rows, random.Random], Rows], ...] = (
    whole,
    one,
    one,
    one,
    lambda _rows, _rng: [],
    lambda rows, _rng: rows * 2,
    lambda rows, _rng: [row[1:] for row in rows],
    lambda rows, _rng: [(*row, "z") for row in rows],
    lambda rows, _rng: [row[::-1] for row in rows],
    lambda rows, _rng: [() for _ in rows],
    lambda rows, rng: [tuple(rng.choice(VALUES) for _ in rows[0])] if rows else [("x",)],
)


@dataclass
class Liar:
    """Changes the answer to one question."""

    rng: random.Random
    at: int = -1
    asked: int = 0
    lied: list[str] = field(default_factory=list)

    def wrap(self, query: Callable[..., Rows]) -> Callable[..., Rows]:
        def lying(session: Session, sql: str, args: Any = None) -> Rows:
            rows = query(session, sql, args)
            self.asked += 1
            if self.asked - 1 != self.at:
                return rows
            told = self.rng.choice(MUTATIONS)(rows, self.rng)
            self.lied = [sql, repr(told)[:300]]
            return told

        return lying


def everything(source: SourceConfig) -> list[Callable[[], object]]:
    """What asks a server, each by a session of its own."""

    def asked(ask: Callable[[Session], object]) -> Callable[[], object]:
        def run() -> object:
            with Session.connect(source) as session:
                return ask(session)

        return run

    def facts(session: Session) -> object:
        names = {"shard": source.shard, "database": source.database}
        gather_log(session, **names)  # type: ignore[arg-type]
        return gather(session, host="h", user="u", patterns=TablePatterns(("*",)), **names)  # type: ignore[arg-type]

    def log(session: Session) -> object:
        start = session.beginning()
        check_continues(session, start)
        is_committed(session, start)
        if not session.is_mariadb:
            first_file(session, start)
        file, _ = session.binlog_end()
        return executed_before(session, file), read_log_ends(session), session.purged()

    def reading(session: Session) -> object:
        with session.snapshot() as snapshot:
            session.contains(snapshot.floor)
        return running(session), made_at(session, "child")

    def hints(session: Session) -> object:
        told = ServerCatalog(session, keyspace="shop")
        told.folds(), told.base_tables(), told.is_base("child"), told.spelling("child")
        return told.hints("child"), told.is_plain(source.database, "parent")

    section = SourceSection(kind="binlog", shards={}, tables=TablePatterns(("*",)), key="primary")
    return [
        asked(facts),
        asked(log),
        asked(reading),
        asked(hints),
        asked(lambda session: look_at_life(session, lambda _: True, None, None, {})),
        asked(lambda session: read_foreign_keys(session.query, database=source.database)),
        lambda: ask_spelling(source),
        lambda: SourceCatalog({str(source.shard): source}).table(str(source.shard), "child"),
        lambda: SourceCatalog({str(source.shard): source}).table(str(source.shard), "ranges"),
        lambda: look({"shop": section}, {source.shard: source}),
    ]


def test_no_answer_is_a_bug(server: Server, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for statement in TABLES:
        server.execute(statement, database=database)
    source = replace(source_of(server, database), trusts_virtual=True)
    monkeypatch.setattr("ratchet.wire.decode.foreignkeys._PAUSES", ())
    monkeypatch.setattr("ratchet.wire.decode.catalog._PAUSES", ())
    query = Session.query
    seed = 20261128
    ended: dict[str, int] = {}
    for run in everything(source):
        truth = Liar(random.Random(seed))
        monkeypatch.setattr(Session, "query", truth.wrap(query))
        run()
        assert truth.asked
        for trial in range(max(TRIALS // len(everything(source)), 2 * truth.asked)):
            liar = Liar(random.Random(seed + trial), at=trial % truth.asked)
            monkeypatch.setattr(Session, "query", liar.wrap(query))
            how = "went on"
            try:
                run()
            except BugError as error:
                raise AssertionError(liar.lied) from error
            except RatchetError as error:
                how = type(error).__name__
            except Exception as error:
                raise AssertionError(liar.lied) from error
            ended[how] = ended.get(how, 0) + 1
    assert ended["went on"] > TRIALS // 8, ended
    assert ended["DecodeError"] > TRIALS // 8, ended
