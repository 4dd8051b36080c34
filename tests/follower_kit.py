"""A mirror that is followed step by step: real servers, capture and the small merges, no Spark.

All in this process, so that many steps take seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

from capture_kit import Capturer, source_of
from fix_e2e import assert_identical

from lab.servers import Server
from ratchet.core.patterns import TablePatterns
from ratchet.core.types import InvalidValuePolicy, arrow_schema
from ratchet.jobs.preflight.foreignkeys import ForeignKeyWatch, read_keys
from ratchet.merge.rounds import Merger
from ratchet.merge.step import MergeOptions, StepResult
from ratchet.store.delta.tables import create_mirrored_table
from ratchet.store.dumpstates import DumpState
from ratchet.store.tables import Tables, TableState
from ratchet.wire.decode.catalog import read_schemas
from ratchet.wire.decode.foreignkeys import ForeignKeys, read_foreign_keys
from ratchet.wire.session import Session

POLICY = InvalidValuePolicy()


class Follower:
    """A mirror of a database that was empty when it began."""

    def __init__(self, server: Server, database: str, folder: Path) -> None:
        self.server, self.database = server, database
        self.source = source_of(server, database, triggers=True)
        self.capturer = Capturer(self.source, folder)
        self.lake = self.capturer.lake
        self.tables = Tables(self.lake)
        self.keys = self.read_keys()
        position = self.capturer.begin
        with Session.connect(self.source) as session:
            schemas = read_schemas(session.query, keyspace="shop", database=database)
        for name, schema in schemas.items():
            dump = DumpState(
                id=f"d-{name}", start_round=1, start={"shop/-": position}, end={"shop/-": position},
                done=True,
            )  # fmt: skip
            state = TableState(
                keyspace="shop", table=name, schema=schema, key=schema.key, phase="catching_up",
                dump=dump, foreign_keys=self.keys.by_table.get(name, ()),
            )  # fmt: skip
            create_mirrored_table(
                self.lake, state.path, arrow_schema(schema, POLICY), key=state.key,
                name=state.name, now=1,
            )  # fmt: skip
            self.tables.save(state)
        self.merger = self.new_merger()

    def new_merger(self) -> Merger:
        """Without Spark: what needs it fails."""
        return Merger(None, self.lake, MergeOptions(policy=POLICY))  # type: ignore[arg-type]

    def read_keys(self) -> ForeignKeys:
        """As an account sees them that may only SELECT."""
        with Session.connect(self.source) as session:
            return read_foreign_keys(session.query, database=self.database)

    def read_again(self) -> None:
        """As the run does between two steps."""
        self.keys = self.read_keys()
        for state in self.tables.list():
            self.tables.save(replace(state, foreign_keys=self.keys.by_table.get(state.table, ())))

    def begin(self) -> None:
        """Get over the catch-up: there a table between two others would be a doubt."""
        self.execute("INSERT INTO a VALUES (100, NULL, 0)")
        self.step()
        assert {state.phase for state in self.tables.list()} == {"streaming"}

    def begin_with(self, *statements: str) -> None:
        """The same with these rows."""
        self.execute(*statements)
        self.step()
        assert {state.phase for state in self.tables.list()} == {"streaming"}
        assert not self.doubts()

    def step(self) -> StepResult:
        """Capture all there is, and merge it."""
        self.capturer.catch_up()
        return self.merger.step()

    def compare(self, *tables: str) -> int:
        """The mirror has what the server has."""
        names = tables or tuple(state.table for state in self.tables.list())
        return assert_identical(Path(self.capturer.root), [self.server], self.database, names)

    def doubts(self) -> dict[str, str]:
        """Table -> why it is in doubt."""
        return {
            state.table: doubt.message
            for state in self.tables.list()
            for doubt in state.doubts.values()
        }

    def execute(self, *statements: str) -> None:
        """In one session of its own."""
        with self.server.connect(database=self.database, autocommit=True) as connection:
            for statement in statements:
                connection.cursor().execute(statement)


Make = Callable[..., Follower]  # what the fixture `follow` gives


def watch_of(follower: Follower) -> ForeignKeyWatch:
    """One that reads the keys of the follower's server."""
    return ForeignKeyWatch(
        follower.lake,
        lambda keyspace: read_keys(keyspace, {follower.source.shard: follower.source}),
        sources=lambda: {"shop": SimpleNamespace(tables=TablePatterns())},  # type: ignore[dict-item]
        last_round=follower.capturer.log.last_number,
    )
