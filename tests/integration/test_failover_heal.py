"""A failover that loses transactions, with real replicas: only the rows that these touched heal.

Two shards; one fails over to a replica that had not received the last transactions, which are
mirrored already, and which goes on with writes of its own.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
import yaml
from deltalake import DeltaTable, QueryBuilder
from fix_e2e import PASSWORD, TABLES, Ratchet, Writer, assert_identical, create_tables, end_of
from halt_kit import HEALING, stands_still

from lab.objectstore import S3Server
from lab.servers import (
    Server,
    create_ratchet_user,
    replicate_from,
    stop_replication,
    wait_for_replica,
)
from ratchet.store.crashpoints import HALT
from ratchet.store.files import Lake
from ratchet.store.lease import MACHINE
from ratchet.store.tables import Tables

pytestmark = pytest.mark.long
DATABASE = "fleet"
FAILED = "shop/80-"


@dataclass
class Fleet:
    """A server of one shard; a primary and its replica of the other; and their mirror."""

    left: Server
    primary: Server
    replica: Server
    ratchet: Ratchet
    root: str = ""  # of the lake, if it is no folder

    @property
    def lake(self) -> Any:
        """Where it is."""
        return self.root or self.ratchet.lake

    def write(self, server: Server, *, seed: int, transactions: int = 60) -> None:
        """Transactions on the left shard, or on a server of the right one."""
        writer = self.writer(server, seed)
        while writer.transactions < transactions and writer.is_alive():
            writer.join(0.05)
        writer.finish()

    def writer(self, server: Server, seed: int) -> Writer:
        """Keys of the two shards do not meet."""
        first = 0 if server is self.left else 1
        writer = Writer(server, DATABASE, seed=seed, first=first, step=2)
        writer.start()
        return writer

    def catch_up(self) -> str:
        return self.ratchet.run("run", "--until-caught-up").stderr

    def lose(self, *statements: str) -> None:
        """Fail over; what was written last is mirrored, and the replica lacks it."""
        wait_for_replica(self.replica, self.primary)
        stop_replication(self.replica)
        self.write(self.primary, seed=3)
        for statement in statements:
            self.primary.execute(statement)
        self.write(self.left, seed=4)
        self.catch_up()
        self.primary.kill()
        self.write(self.replica, seed=5, transactions=20)
        config = yaml.safe_load(self.ratchet.config.read_text())
        config["sources"]["shop"]["shards"]["80-"]["port"] = self.replica.port
        self.ratchet.config.write_text(yaml.safe_dump(config))

    def assert_healed(self) -> None:
        self.catch_up()
        assert assert_identical(self.lake, [self.left, self.replica], DATABASE, TABLES)
        assert "identical: 3 tables" in self.ratchet.run("verify").stdout

    def dumps(self) -> dict[str, str]:
        """Table -> id of its dump."""
        states = Tables(Lake.at(str(self.lake))).list()
        return {state.table: state.dump.id for state in states if state.dump}

    def tokens(self, table: str) -> dict[tuple[Any, ...], dict[str, Any]]:
        """Key -> token of each row of a table."""
        key = {"orders": ("id",), "items": ("order_id", "line"), "people": ("name",)}[table]
        path = self.ratchet.lake / "shop" / table
        reader = QueryBuilder().register("t", DeltaTable(str(path)))
        rows = pa.table(reader.execute("SELECT * FROM t").read_all()).to_pylist()
        return {tuple(row[name] for name in key): row["_token"] for row in rows}


MakeFleet = Callable[..., Fleet]


@pytest.fixture
def make_fleet(make_server: Any, make_ratchet: Any) -> MakeFleet:
    def make(flavor: str, *, streamed: bool = True, **more: Any) -> Fleet:
        left, primary, replica = (make_server(flavor) for _ in range(3))
        replicate_from(replica, primary)
        for server in (left, primary):
            server.execute(f"CREATE DATABASE {DATABASE}")
            create_tables(server, DATABASE)
            create_ratchet_user(server, PASSWORD, [DATABASE])
        ratchet = make_ratchet({"-80": left, "80-": primary}, DATABASE, **more)
        fleet = Fleet(left, primary, replica, ratchet, str(more.get("lake", "")))
        for seed in (1, 2) if streamed else (1,):  # dumped, and streamed
            fleet.write(left, seed=seed)
            fleet.write(primary, seed=seed, transactions=150)
            fleet.catch_up()
        return fleet

    return make


def test_only_the_rows_of_lost_transactions_are_read_again(make_fleet: MakeFleet) -> None:
    fleet = make_fleet("mysql")
    before, dumps = {table: fleet.tokens(table) for table in TABLES}, fleet.dumps()
    fleet.lose()
    planned = fleet.ratchet.run("heal", "--shard", FAILED, "--dry-run").stdout
    assert f"{FAILED}: continues after round" in planned
    assert "rows would be read again" in planned
    writer = fleet.writer(fleet.replica, 6)
    done = fleet.ratchet.run("heal", "--shard", FAILED).stdout
    assert "shop/-80: can continue" in done
    assert "read again: " in done
    assert "to be dumped again" not in done
    writer.finish()
    fleet.assert_healed()
    assert fleet.dumps() == dumps
    for table in TABLES:
        kept = {key: token for key, token in fleet.tokens(table).items() if key in before[table]}
        same = [key for key, token in kept.items() if token == before[table][key]]
        assert len(same) > len(kept) // 3, table
    assert "can continue" in fleet.ratchet.run("heal").stdout


@pytest.mark.parametrize("flavor", ["mariadb", "mysql"])
def test_in_the_first_round_after_a_dump(make_fleet: MakeFleet, flavor: str) -> None:
    """The dump's own position is a place to part at."""
    fleet = make_fleet(flavor, streamed=False)
    dumps = fleet.dumps()
    fleet.lose()
    done = fleet.ratchet.run("heal", "--shard", FAILED).stdout
    assert "read again: " in done
    assert "to be dumped again" not in done
    fleet.assert_healed()
    assert fleet.dumps() == dumps


def test_a_heal_that_is_killed(make_fleet: MakeFleet) -> None:
    """The tables wait, and say for what; the next heal goes on."""
    fleet = make_fleet("mysql")
    dumps = fleet.dumps()
    fleet.lose()
    for seed, point in enumerate(("heal.states_saved", "heal.begun", "heal.after_table")):
        fleet.ratchet.run("heal", "--shard", FAILED, crash_at=point, expect=-9)
        assert "are not read again yet" in fleet.ratchet.run("status").stdout
        fleet.write(fleet.replica, seed=20 + seed, transactions=20)
    done = fleet.ratchet.run("run", "--until-caught-up", expect=6)
    assert "`ratchet heal CONFIG` continues with it" in done.stderr
    fleet.write(fleet.replica, seed=7, transactions=20)
    fleet.ratchet.run("heal")
    fleet.assert_healed()
    assert fleet.dumps() == dumps


@pytest.mark.parametrize("where", ["folder", "s3"])
@pytest.mark.parametrize("point", HEALING)
def test_a_heal_that_is_halted(
    make_fleet: MakeFleet,
    s3_server: S3Server,
    monkeypatch: pytest.MonkeyPatch,
    point: str,
    where: str,
) -> None:
    """Another machine's takes over, and heals; what the first one does when it wakes is refused."""
    more = {}
    if where == "s3":
        more["lake"] = s3_server.new_root()
        for name, value in s3_server.environment.items():
            monkeypatch.setenv(name, value)
    fleet = make_fleet("mysql", **more)
    dumps = fleet.dumps()
    fleet.lose()
    late = fleet.ratchet.start("heal", "--shard", FAILED, **{MACHINE: "one", HALT: point})
    assert stands_still(late, 200), "it did not come to the point"
    fleet.write(fleet.replica, seed=30, transactions=20)
    fleet.ratchet.run("heal", "--shard", FAILED, **{MACHINE: "two"})
    os.kill(late.pid, signal.SIGCONT)
    _, told = end_of(late, 240)
    assert late.returncode == 7, told[-3000:]
    # Whichever it sees first: who has the lease, a fence, or that its own lease is over.
    refused = ("lost its lease", "taken this lake over", "this process stood still")
    assert any(why in told for why in refused), told[-3000:]
    fleet.write(fleet.replica, seed=31, transactions=20)
    fleet.assert_healed()
    assert fleet.dumps() == dumps


def test_a_server_that_comes_back_after_all(make_fleet: MakeFleet) -> None:
    """Killed before the stream began anew, a heal has done nothing, and the tables stream on."""
    fleet = make_fleet("mariadb")
    dumps, config = fleet.dumps(), fleet.ratchet.config.read_text()
    fleet.lose()
    fleet.ratchet.run("heal", "--shard", FAILED, crash_at="heal.states_saved", expect=-9)
    fleet.primary.start()
    fleet.ratchet.config.write_text(config)
    fleet.write(fleet.primary, seed=8)
    fleet.ratchet.run("run", "--until-caught-up", expect=6)
    fleet.write(fleet.primary, seed=9)
    assert "continues to stream" in fleet.ratchet.run("heal").stdout
    fleet.replica = fleet.primary
    fleet.assert_healed()
    assert fleet.dumps() == dumps


def test_by_itself_where_the_config_says_so(make_fleet: MakeFleet) -> None:
    """MariaDB's numbers are used twice: the server has as many transactions, and others."""
    fleet = make_fleet("mariadb", capture={"lost_position": "heal"})
    dumps = fleet.dumps()
    fleet.lose()
    fleet.write(fleet.replica, seed=10, transactions=150)
    assert "read again: " in fleet.catch_up()
    fleet.assert_healed()
    assert fleet.dumps() == dumps


def test_what_no_row_tells_is_dumped(make_fleet: MakeFleet) -> None:
    """A TRUNCATE among what was lost: that table's shard, and no other table."""
    fleet = make_fleet("mysql")
    dumps = fleet.dumps()
    fleet.lose(f"TRUNCATE {DATABASE}.items")
    planned = fleet.ratchet.run("heal", "--shard", FAILED, "--dry-run").stdout
    assert "shop.items: would be dumped again: what was lost includes: TRUNCATE" in planned
    done = fleet.ratchet.run("heal", "--shard", FAILED).stdout
    assert "shop.items: to be dumped again: what was lost includes" in done
    fleet.assert_healed()
    after = fleet.dumps()
    assert {table for table in TABLES if after[table] != dumps[table]} == {"items"}
    states = Tables(Lake.at(str(fleet.ratchet.lake))).list()
    assert {s.dump.read for s in states if s.table == "items" and s.dump} == {(FAILED,)}
