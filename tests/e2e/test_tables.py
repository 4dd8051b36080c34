"""Tables come, go and are dumped again in a running pipeline, with a command each."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from fix_e2e import (
    PASSWORD,
    TABLES,
    Ratchet,
    Writer,
    assert_identical,
    create_tables,
    end_of,
    status,
)

from lab.servers import create_ratchet_user
from ratchet.store.cuts import Cuts
from ratchet.store.files import Lake
from ratchet.store.tables import Tables


def select(ratchet: Ratchet, *patterns: str) -> None:
    config = yaml.safe_load(ratchet.config.read_text())
    config["sources"]["shop"]["tables"] = list(patterns)
    ratchet.config.write_text(yaml.safe_dump(config))


def dump_of(lake: Lake, table: str) -> str:
    state = Tables(lake).load("shop", table)
    assert state is not None
    assert state.dump is not None
    return state.dump.id


@pytest.mark.long
def test_the_others_stream_on(
    mariadb: Any, database: str, make_ratchet: Callable[..., Ratchet]
) -> None:
    create_tables(mariadb, database)
    create_ratchet_user(mariadb, PASSWORD, [database])
    writer = Writer(mariadb, database, seed=7)
    writer.start()
    ratchet = make_ratchet({"-": mariadb}, database, source={"tables": ["*", "!people"]})
    run = ratchet.start("run")
    lake = Lake.at(ratchet.lake)
    deadline = time.monotonic() + 120
    while not ratchet.lake.exists() or Cuts(lake).last() is None:
        assert run.poll() is None, run.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.5)

    dumped = {table: dump_of(lake, table) for table in ("orders", "items")}
    done = ratchet.run("table", "redump", "items", "--wait")
    assert "shop.items: streams" in done.stdout
    assert dump_of(lake, "items") != dumped["items"]

    refused = ratchet.run("table", "add", "people", expect=2)
    assert "let it match `tables`" in refused.stderr
    select(ratchet, "*")
    ratchet.run("table", "add", "shop.people", "--wait")
    select(ratchet, "*", "!items")
    refused = ratchet.run("table", "drop", "orders", expect=2)
    assert 'add "!orders" to `sources.shop.tables`' in refused.stderr
    ratchet.run("table", "drop", "items", "--delete")
    assert not (ratchet.lake / "shop" / "items").exists()
    assert {one["table"] for one in status(ratchet)["tables"]} == {"orders", "people"}
    select(ratchet, "*")
    ratchet.run("table", "add", "items", "--wait")
    # At the versions that the run has noted in its cut: the files are new ones.
    assert "identical: 1 table" in ratchet.run("verify", "--table", "items").stdout

    assert dump_of(lake, "orders") == dumped["orders"]  # nobody touched it
    assert run.poll() is None
    writer.finish()
    run.send_signal(signal.SIGTERM)
    _, err = end_of(run, 120)
    assert run.returncode == 0, err
    ratchet.run("run", "--until-caught-up")
    assert_identical(ratchet.lake, [mariadb], database, TABLES)
    assert dump_of(lake, "orders") == dumped["orders"]

    done = ratchet.run("table", "redump", "orders")
    assert "the next `ratchet run` dumps it" in done.stdout


def test_a_table_that_cannot_be_taken_stops_alone(
    mariadb: Any, database: str, make_ratchet: Callable[..., Ratchet]
) -> None:
    """Its rows come by the log all the same: they end neither the run nor the next one.

    And values that become NULL are told of, by the dump and by the stream.
    """
    create_tables(mariadb, database)
    create_ratchet_user(mariadb, PASSWORD, [database])
    own = "CREATE TABLE own (id INT PRIMARY KEY, `_token` INT)"
    mariadb.execute(own, database=database)
    mariadb.execute("INSERT INTO own VALUES (1, 1)", database=database)
    mariadb.execute("CREATE TABLE dated (id INT PRIMARY KEY, day DATE)", database=database)
    mariadb.execute("INSERT INTO dated VALUES (1, '0000-00-00')", database=database)
    writer = Writer(mariadb, database, seed=8)
    writer.start()
    ratchet = make_ratchet({"-": mariadb}, database)
    done = ratchet.run("run", "--until-caught-up", expect=6)
    assert "own column" in done.stderr
    became = "shop.dated: zero or invalid dates became NULL (day 1)"
    assert became in done.stderr
    mariadb.execute("INSERT INTO dated VALUES (2, '0000-00-00')", database=database)
    mariadb.execute("INSERT INTO own VALUES (2, 2)", database=database)
    mariadb.execute(own.replace("own", "later", 1), database=database)
    mariadb.execute("INSERT INTO later VALUES (2, 2)", database=database)
    writer.finish()
    assert became in ratchet.run("run", "--until-caught-up", expect=6).stderr
    assert_identical(ratchet.lake, [mariadb], database, TABLES)
    phases = {one["table"]: one["phase"] for one in status(ratchet)["tables"]}
    assert phases["own"] == phases["later"] == "stopped"
    assert {phases[table] for table in TABLES} == {"streaming"}
