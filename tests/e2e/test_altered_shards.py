"""A statement that goes from shard to shard is computed from what the mirror has, once all have it.

Until then the table stays as it was.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

import pymysql
import pytest
from altered_kit import asked, change, computed, create, execute, wait_until_shown
from fix_e2e import PASSWORD, Ratchet, assert_identical, end_of, mirror_rows

from lab.servers import MariadbServer, MysqlServer, create_ratchet_user
from ratchet.store.files import Lake
from ratchet.store.partitionlooks import PartitionLooks

FAR: Final = 100_000  # between the keys of two shards
COMPUTED: Final = {
    "number": "ADD x INT NOT NULL DEFAULT 7",
    "words": "ADD x VARCHAR(20) NOT NULL DEFAULT 'it''s none' AFTER id",
    "gone": "DROP COLUMN n",
    "swapped": "RENAME COLUMN s TO l, RENAME COLUMN l TO s",
    "replaced": "DROP COLUMN n, ADD COLUMN n INT NOT NULL DEFAULT 5",
    "key_renamed": "RENAME COLUMN id TO ident, ADD INDEX i (n)",
}
ASKED: Final = {
    "made_of_others": "ADD x INT AS (n + 1) STORED, DROP COLUMN l",
    "numbered": "ADD x INT NOT NULL AUTO_INCREMENT UNIQUE",
    "time_of_each": "ADD x DATETIME(6) DEFAULT CURRENT_TIMESTAMP(6)",
}
EVERY: Final = {**COMPUTED, **ASKED}
QUIET: Final = "quiet"  # no row is written to it behind the statement
TABLES: Final = [f"t{n}" for n in range(3)]


class Shards:
    """Servers with the same tables, and keys of their own each."""

    def __init__(self, servers: list[Any], database: str, names: list[str]) -> None:
        self.servers, self.database = servers, database
        for number, server in enumerate(servers):
            create(server, database, names, first=FAR * number)
            create_ratchet_user(server, PASSWORD, [database])

    def change(self, name: str, number: int, *shards: int) -> None:
        """Change rows of these shards, or of all."""
        for shard in shards or range(len(self.servers)):
            change(self.servers[shard], self.database, name, number, first=FAR * shard)

    def alter(self, shard: int, name: str, what: str) -> None:
        """Alter a table of one of them."""
        execute(self.servers[shard], self.database, f"ALTER TABLE {name} {what}")

    def mirror(self, make_ratchet: Callable[..., Ratchet]) -> Ratchet:
        """A mirror that has caught up."""
        names = ["-40", "40-80", "80-"][-len(self.servers) :]
        ratchet = make_ratchet(dict(zip(names, self.servers, strict=True)), self.database)
        ratchet.run("run", "--until-caught-up")
        return ratchet


MakeShards = Callable[..., Shards]


@pytest.fixture
def make_shards(database: str) -> Iterator[MakeShards]:
    """Makes shards on new servers of a kind."""
    with ExitStack() as stack:

        def make(kind: Any, count: int, names: list[str]) -> Shards:
            servers = [stack.enter_context(kind()) for _ in range(count)]
            for server in servers:
                server.execute(f"CREATE DATABASE `{database}`")
            return Shards(servers, database, names)

        yield make


@pytest.mark.long
def test_on_mariadb(
    make_shards: MakeShards, make_ratchet: Callable[..., Ratchet], tmp_path: Path
) -> None:
    while_it_runs(make_shards(MariadbServer, 2, [*EVERY, QUIET]), make_ratchet, tmp_path)


def test_on_mysql(
    make_shards: MakeShards, make_ratchet: Callable[..., Ratchet], tmp_path: Path
) -> None:
    while_it_runs(make_shards(MysqlServer, 2, [*EVERY, QUIET]), make_ratchet, tmp_path)


def while_it_runs(shards: Shards, make_ratchet: Callable[..., Ratchet], folder: Path) -> None:
    """All tables on the first shard, then all on the second, with rows on both all the time."""
    ratchet, said = shards.mirror(make_ratchet), folder / "said"
    names = [*EVERY, QUIET]
    running = ratchet.start("run", log=said)
    for name in names:
        shards.change(name, 1)
    for number, shard in enumerate((1, 0)):
        for name in names:
            shards.alter(shard, name, EVERY.get(name, COMPUTED["number"]))
        for name in EVERY:
            shards.change(name, 100 + number)
            if not number:
                shards.change(name, 150, 0)
        if not number:
            assert_it_stands(ratchet, running, said)
    wait_until_shown(running, said, names)
    assert computed(said) == {*COMPUTED, QUIET}, said.read_text()
    assert asked(said) == {*ASKED}, said.read_text()
    running.send_signal(signal.SIGTERM)
    end_of(running, 120)
    assert running.returncode == 0, said.read_text()
    ratchet.run("run", "--until-caught-up")
    assert "to dump" not in said.read_text()
    assert_identical(ratchet.lake, shards.servers, shards.database, names)
    ratchet.run("verify")


PARTED: Final = (
    "CREATE TABLE {} (id INT PRIMARY KEY, v INT) PARTITION BY RANGE (id) (PARTITION a VALUES LESS "
    "THAN (10), PARTITION b VALUES LESS THAN (20), PARTITION c VALUES LESS THAN MAXVALUE)"
)


@pytest.mark.parametrize("alone", [False, pytest.param(True, marks=pytest.mark.long)])
def test_partitions_that_go(
    make_shards: MakeShards, make_ratchet: Callable[..., Ratchet], tmp_path: Path, *, alone: bool
) -> None:
    """On one shard after the other; of one table on one shard alone, which is read again."""
    shards = make_shards(MysqlServer, 2, ["plain"])
    names = ["everywhere", *(["alone"] if alone else [])]
    for shard, server in enumerate(shards.servers):
        for name in names:
            rows = ", ".join(f"({2 * n + shard}, {n})" for n in range(20))
            execute(server, shards.database, PARTED.format(name))
            execute(server, shards.database, f"INSERT INTO {name} VALUES {rows}")
    ratchet, said = shards.mirror(make_ratchet), tmp_path / "said"
    running = ratchet.start("run", log=said)
    looks, deadline = PartitionLooks(Lake.at(ratchet.lake)), time.monotonic() + 120
    while any(len(looks.of("shop", name)) < 2 for name in names):
        assert time.monotonic() < deadline, said.read_text()
        time.sleep(0.5)
    shards.alter(1, "everywhere", "DROP PARTITION b")
    if alone:
        shards.alter(0, "alone", "TRUNCATE PARTITION a")
    for key in (3, 12, 15, 18, 25):
        for name in names:
            row = f"REPLACE INTO {name} VALUES ({key}, 100)"
            execute(shards.servers[key % 2], shards.database, row)
    time.sleep(8)
    shards.alter(0, "everywhere", "DROP PARTITION b")
    execute(shards.servers[0], shards.database, "INSERT INTO everywhere VALUES (10, 200)")
    wait_until_shown(running, said, names)
    assert computed(said) == {"everywhere"}, said.read_text()
    running.send_signal(signal.SIGTERM)
    end_of(running, 120)
    ratchet.run("run", "--until-caught-up")
    assert_identical(ratchet.lake, shards.servers, shards.database, names)
    ratchet.run("verify")


def assert_it_stands(ratchet: Ratchet, running: Any, said: Path) -> None:
    """A table stays as it was at the statement: a row may move to the shard that was altered."""
    deadline = time.monotonic() + 120
    while (
        said.read_text().count("once its other shards have had the statement") < len(COMPUTED) + 1
    ):
        assert running.poll() is None, said.read_text()
        assert time.monotonic() < deadline, said.read_text()
        time.sleep(1)
    before = mirror_rows(ratchet.lake, "shop", "number")
    time.sleep(6)
    assert mirror_rows(ratchet.lake, "shop", "number") == before


BACKLOG: Final = (
    "ADD x INT NOT NULL DEFAULT 7, ADD y VARCHAR(9) DEFAULT 'why'",
    "RENAME COLUMN n TO m, ALGORITHM=COPY",
    "ADD w INT",
    "ADD z DECIMAL(4,1) NOT NULL DEFAULT 1, DROP COLUMN y",
    "RENAME COLUMN s TO l, RENAME COLUMN l TO s",
)


@pytest.mark.parametrize(
    "point",
    [
        "remake.after_commit",
        pytest.param("remake.before_commit", marks=pytest.mark.long),
        pytest.param("remake.after_commit:3", marks=pytest.mark.long),
        pytest.param("staged.after_copies:2", marks=pytest.mark.long),
        pytest.param("staged.after_commit", marks=pytest.mark.long),
        pytest.param("merge.after_merge:2", marks=pytest.mark.long),
        pytest.param("merge.after_merge:4", marks=pytest.mark.long),
        pytest.param("merge.before_cut:2", marks=pytest.mark.long),
    ],
)
def test_killed_with_a_backlog(
    make_shards: MakeShards, make_ratchet: Callable[..., Ratchet], point: str
) -> None:
    """One shard is altered several times before the next one is; three of them."""
    shards = make_shards(MysqlServer, 3, ["t", "other"])
    ratchet = shards.mirror(make_ratchet)
    for shard in (1, 0, 2):
        for number, what in enumerate(BACKLOG):
            shards.change("t", number)
            shards.change("other", number)
            shards.alter(shard, "t", what)
            shards.change("t", number + 100)
    ratchet.run("run", "--until-caught-up", crash_at=point, expect=-signal.SIGKILL)
    shards.change("t", 50)
    said = ratchet.run("run", "--until-caught-up").stderr
    assert "to dump" not in said, said
    assert_identical(ratchet.lake, shards.servers, shards.database, ["t", "other"])
    ratchet.run("verify")


@pytest.mark.long
def test_what_is_read_again(
    make_shards: MakeShards, make_ratchet: Callable[..., Ratchet], tmp_path: Path
) -> None:
    """Shards altered otherwise, one without a word, and a row that moves between them meanwhile."""
    names = ["otherwise", "silent", "moved", "back", "nulls", "nullable"]
    shards = make_shards(MysqlServer, 2, names)
    ratchet, said = shards.mirror(make_ratchet), tmp_path / "said"
    running = ratchet.start("run", log=said)
    for name in names:
        shards.alter(0, name, "ADD x INT NOT NULL DEFAULT 7")
        shards.change(name, 100)
    time.sleep(5)
    shards.alter(1, "otherwise", "ADD x INT NOT NULL DEFAULT 8")
    silent = "ALTER TABLE silent ADD x INT NOT NULL DEFAULT 7"
    execute_silently(shards.servers[1], shards.database, silent)
    shards.alter(0, "back", "DROP COLUMN x")
    shards.alter(1, "nulls", "ADD x INT")
    execute_silently(shards.servers[1], shards.database, "ALTER TABLE nullable ADD x INT")
    shards.servers[0].execute(f"DELETE FROM `{shards.database}`.moved WHERE id = 3")
    shards.servers[1].execute(f"INSERT INTO `{shards.database}`.moved (id, s) VALUES (3, 'over')")
    time.sleep(5)
    shards.alter(1, "moved", "ADD x INT NOT NULL DEFAULT 7")
    wait_until_shown(running, said, names)
    running.send_signal(signal.SIGTERM)
    end_of(running, 120)
    ratchet.run("run", "--until-caught-up")
    assert not computed(said), said.read_text()
    assert_identical(ratchet.lake, shards.servers, shards.database, names)
    ratchet.run("verify")


def execute_silently(server: Any, database: str, statement: str) -> None:
    with server.connect(database=database, autocommit=True) as connection:
        connection.cursor().execute("SET sql_log_bin = 0")
        connection.cursor().execute(statement)


@pytest.mark.long
@pytest.mark.parametrize("kind", [MysqlServer, MariadbServer])
@pytest.mark.parametrize("seed", range(4))
def test_random_sequences(
    make_shards: MakeShards,
    make_ratchet: Callable[..., Ratchet],
    tmp_path: Path,
    kind: Any,
    seed: int,
) -> None:
    """Each shard is altered in its own time, by the same statements; runs are killed."""
    dice = random.Random(seed)
    shards = make_shards(kind, dice.choice([2, 2, 3]), TABLES)
    ratchet = shards.mirror(make_ratchet)
    every = range(len(shards.servers))
    todo: dict[tuple[str, int], list[str]] = {(name, one): [] for name in TABLES for one in every}
    done: list[str] = []
    for turn in range(5):
        running = ratchet.start("run", log=tmp_path / f"said{turn}")
        for number in range(40):
            name = dice.choice(TABLES)
            if dice.random() < 0.1:
                what = _alteration(dice)
                for one in every:
                    todo[name, one].append(what)
            one = dice.choice(every)
            if todo[name, one] and dice.random() < 0.5:
                what = todo[name, one].pop(0)
                done.append(f"{one}: {name} {what}")
                with suppress(pymysql.err.Error):  # it may not be possible as the table is now
                    shards.alter(one, name, what)
            else:
                shards.change(name, turn * 40 + number, one)
            time.sleep(dice.choice([0, 0.05, 0.5]))
        assert running.poll() is None, (tmp_path / f"said{turn}").read_text()
        running.send_signal(signal.SIGKILL if turn % 2 else signal.SIGTERM)
        end_of(running, 120)
    for (name, one), left in todo.items():
        for what in left:
            with suppress(pymysql.err.Error):
                shards.alter(one, name, what)
    ratchet.run("run", "--until-caught-up")
    for name in TABLES:
        shards.change(name, 300)
    ratchet.run("run", "--until-caught-up")
    try:
        assert_identical(ratchet.lake, shards.servers, shards.database, TABLES)
    except AssertionError as error:
        raise AssertionError("\n".join([str(error), *done])) from error
    ratchet.run("verify")


def _alteration(dice: random.Random) -> str:
    one, two = dice.sample(["s", "n", "d", "l", "a", "x", "y"], 2)
    return dice.choice(
        [
            f"ADD {one} INT NOT NULL DEFAULT {dice.randrange(9)}",
            f"ADD {two} VARCHAR(20) NOT NULL DEFAULT 'it is'",
            f"ADD {one} INT",
            f"DROP COLUMN {one}",
            f"RENAME COLUMN {one} TO {two}, RENAME COLUMN {two} TO {one}",
            f"RENAME COLUMN {one} TO {two}",
            f"MODIFY {one} BIGINT",
            f"ADD INDEX ({one})",
            f"DROP COLUMN {one}, ADD COLUMN {one} INT NOT NULL DEFAULT 3",
        ]
    )
