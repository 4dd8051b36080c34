"""`ratchet heal` on a real server and a lake made by hand: which shards begin anew, and the tables.

That the mirror is right afterwards is shown with Spark, in test_cli_run and tests/spark/test_gaps.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from fix_servers import purge_binlogs

from lab.servers import MysqlServer, create_ratchet_user
from ratchet.core.schema import TableSchema
from ratchet.core.shard import ShardId
from ratchet.jobs.topology.begin import record_starts
from ratchet.store.dumpstates import DumpState
from ratchet.store.files import Lake
from ratchet.store.formats import open_lake
from ratchet.store.rounds import RoundLog
from ratchet.store.tables import Tables, TableState
from ratchet.wire.session import Session, SourceConfig
from tests.forked import completed

PASSWORD = "heal-Me-7"
LEFT, RIGHT = "shop/-80", "shop/80-"


@pytest.fixture
def server(make_server: Any) -> MysqlServer:
    """One server with two databases: the two shards."""
    server: MysqlServer = make_server("mysql")
    for name in ("left", "right"):
        server.execute(f"CREATE DATABASE {name}_half")
        server.execute(f"CREATE TABLE {name}_half.orders (id INT NOT NULL PRIMARY KEY)")
    create_ratchet_user(server, PASSWORD, ["left_half", "right_half"], user="healer")
    return server


@pytest.fixture
def lake(server: MysqlServer, tmp_path: Path) -> Lake:
    """A lake with one table that streams, from where the server is now."""
    lake = open_lake(tmp_path / "lake", now=1)
    source = SourceConfig(
        shard=ShardId("shop", "-"), host=server.host, port=server.port, user="healer",
        password=PASSWORD, database="left_half", tls="disabled",
    )  # fmt: skip
    with Session.connect(source) as session:
        here = session.executed()
    record_starts(RoundLog(lake), {LEFT: here, RIGHT: here}, now=1)
    schema = TableSchema(keyspace="shop", table="orders", columns=(), key=("id",))
    dump = DumpState(id="first", start_round=1, start={LEFT: here, RIGHT: here})
    Tables(lake).save(
        TableState(
            keyspace="shop", table="orders", schema=schema, key=("id",), phase="streaming",
            dump=dump, merged_round=1,
        )
    )  # fmt: skip
    return lake


def heal(folder: Path, server: MysqlServer, *args: str) -> subprocess.CompletedProcess[str]:
    shards = {
        name: {"host": server.host, "port": server.port, "user": "healer",
               "password": "${RATCHET_HEAL_PW}", "database": database}
        for name, database in (("-80", "left_half"), ("80-", "right_half"))
    }  # fmt: skip
    path = folder / "ratchet.yaml"
    config = {"lake": "./lake", "sources": {"shop": {"kind": "binlog", "shards": shards}}}
    path.write_text(yaml.safe_dump(config))
    return completed("heal", str(path), *args, RATCHET_HEAL_PW=PASSWORD)


def test_only_the_named_shard_begins_anew(server: MysqlServer, lake: Lake, tmp_path: Path) -> None:
    done = heal(tmp_path, server)
    assert done.stdout == f"{LEFT}: can continue\n{RIGHT}: can continue\n", done.stderr
    assert RoundLog(lake).last_number() == 1
    server.execute("INSERT INTO right_half.orders VALUES (1)")
    done = heal(tmp_path, server, "--shard", RIGHT)
    assert done.stdout == f"{LEFT}: can continue\n{RIGHT}: can continue\n", done.stderr
    done = heal(tmp_path, server, "--shard", RIGHT, "--dump", "--dry-run")
    assert f"{RIGHT}: begins from scratch (asked for)" in done.stdout
    assert RoundLog(lake).last_number() == 1
    done = heal(tmp_path, server, "--shard", RIGHT, "--dump")
    assert done.returncode == 0, done.stderr
    assert f"{LEFT}: can continue" in done.stdout
    assert f"{RIGHT}: begins from scratch (asked for)" in done.stdout
    streams = RoundLog(lake).streams()
    assert (streams[LEFT].generation, streams[RIGHT].generation) == (0, 1)
    assert streams[RIGHT].ancestors == {RIGHT: 0}
    (state,) = Tables(lake).list()
    assert state.phase == "dumping"
    assert state.dump is not None
    assert state.dump.read == (RIGHT,)
    assert state.dump.kept is not None
    assert state.dump.kept.names == (LEFT,)


def test_what_all_shards_have_lost(server: MysqlServer, lake: Lake, tmp_path: Path) -> None:
    """Nothing is left to be kept."""
    server.execute("INSERT INTO right_half.orders VALUES (1)")
    purge_binlogs(server)
    done = heal(tmp_path, server)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("begins from scratch (the server has purged") == 2
    assert f"{RIGHT} begins from scratch: the server has purged" in done.stderr
    (state,) = Tables(lake).list()
    assert (state.phase, state.dump) == ("new", None)


def test_a_server_that_may_be_behind_is_left_alone(
    lake: Lake, tmp_path: Path, make_server: Any
) -> None:
    """It lacks transactions that are not its own: a replica looks like that."""
    other = make_server("mysql")
    for name in ("left", "right"):
        other.execute(f"CREATE DATABASE {name}_half")
        other.execute(f"CREATE TABLE {name}_half.orders (id INT NOT NULL PRIMARY KEY)")
    create_ratchet_user(other, PASSWORD, ["left_half", "right_half"], user="healer")
    purge_binlogs(other)  # and what it has purged the mirror never had
    done = heal(tmp_path, other)
    assert done.returncode == 4
    assert done.stdout.count("left as it is (the server lacks transactions") == 2
    assert "ratchet heal CONFIG" in done.stderr
    assert Tables(lake).list()[0].phase == "streaming"


def test_a_shard_that_is_not_there(server: MysqlServer, lake: Lake, tmp_path: Path) -> None:
    done = heal(tmp_path, server, "--shard", "shop/80")
    assert done.returncode == 2
    assert "did you mean 'shop/80-'?" in done.stderr
    assert RoundLog(lake).last_number() == 1
