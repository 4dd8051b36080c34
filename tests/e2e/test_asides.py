"""A source that fails does not hold up the others, whatever it is that fails.

Two servers, one lake. The one fails; the other's changes are merged on, before and behind a start.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from fix_e2e import PASSWORD, Ratchet, assert_identical, end_of, mirror_rows, status
from fix_servers import purge_binlogs

from lab.servers import create_ratchet_user
from ratchet.store.endings import Endings
from ratchet.store.files import Lake

TABLE = "CREATE TABLE {}.t (id INT NOT NULL PRIMARY KEY, v INT)"
WITHIN = 180.0


class Two:
    """A good source `good` and a bad one `bad`, each with a table `t`."""

    def __init__(self, good: Any, bad: Any, ratchet: Ratchet) -> None:
        self.good, self.bad, self.ratchet, self.written = good, bad, ratchet, 1
        for server, name in ((good, "good"), (bad, "bad")):
            server.execute(f"CREATE DATABASE {name}")
            server.execute(TABLE.format(name))
            server.execute(f"INSERT INTO {name}.t VALUES (1, 1)")
            create_ratchet_user(server, PASSWORD, [name])

    def write(self) -> None:
        """A row into the good one."""
        self.written += 1
        self.good.execute(f"INSERT INTO good.t VALUES ({self.written}, 1)")

    def goes_on(self) -> None:
        """The good one's changes arrive."""
        self.write()
        until(lambda: len(mirror_rows(self.ratchet.lake, "good", "t")) == self.written)

    def states(self) -> dict[str, str]:
        """Shard -> its state."""
        return {one["shard"]: one["state"] for one in status(self.ratchet)["shards"]}

    def lag(self) -> float:
        """Seconds that the tables are behind, by `status`."""
        return float(status(self.ratchet)["tables_lag_max"])

    def reason(self) -> str:
        """Why the bad one is not followed."""
        (one,) = [s for s in status(self.ratchet)["shards"] if s["shard"] == "bad/-"]
        return str(one["reason"])


def until(holds: Callable[[], bool], within: float = WITHIN) -> None:
    """Wait for it."""
    end = time.monotonic() + within
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.3)


@pytest.fixture
def two(make_server: Callable[..., Any], make_ratchet: Callable[..., Ratchet]) -> Two:
    """Both servers, with their mirror before its first run."""
    good, bad = make_server("mariadb"), make_server("mysql")
    ratchet = make_ratchet({"-": good}, "good", capture={"reconnect_seconds": 3})
    config = yaml.safe_load(ratchet.config.read_text())
    (source,) = config["sources"].values()
    (shard,) = source["shards"].values()
    other = {**shard, "host": bad.host, "port": bad.port, "database": "bad"}
    config["sources"] = {
        "bad": {**source, "shards": {"-": other}},
        "good": {**source, "shards": {"-": {**shard, "database": "good"}}},
    }
    ratchet.config.write_text(yaml.safe_dump(config))
    return Two(good, bad, ratchet)


def ended(ratchet: Ratchet) -> set[str]:
    """The keyspaces that the last run went on without."""
    return set(Endings(Lake.at(str(ratchet.lake))).aside())


def stop(running: Any) -> None:
    """End a run, which must have lived until now."""
    assert running.poll() is None
    running.send_signal(signal.SIGTERM)
    _, told = end_of(running, 120)
    assert running.returncode == 0, told


@pytest.mark.long
def test_a_server_that_is_away(two: Two) -> None:
    two.ratchet.run("run", "--until-caught-up")
    running = two.ratchet.start("run")
    two.goes_on()
    two.bad.stop()
    until(lambda: "bad" in ended(two.ratchet))
    two.goes_on()
    assert two.states() == {"bad/-": "disconnected", "good/-": "idle"}
    two.bad.start()
    two.bad.execute("INSERT INTO bad.t VALUES (2, 2)")
    until(lambda: len(mirror_rows(two.ratchet.lake, "bad", "t")) == 2)
    assert not ended(two.ratchet)
    two.goes_on()
    stop(running)

    # It is away when a run begins, too.
    two.bad.stop()
    running = two.ratchet.start("run")
    two.goes_on()
    stop(running)
    two.write()
    done = two.ratchet.run("run", "--until-caught-up", expect=4)
    assert "bad/-" in done.stderr
    assert len(mirror_rows(two.ratchet.lake, "good", "t")) == two.written
    two.bad.start()
    two.bad.execute("INSERT INTO bad.t VALUES (3, 3)")
    two.ratchet.run("run", "--until-caught-up")
    for server, name in ((two.good, "good"), (two.bad, "bad")):
        assert_identical(two.ratchet.lake, [server], name, ["t"], keyspace=name)


def test_a_source_that_lost_its_position(two: Two) -> None:
    two.ratchet.run("run", "--until-caught-up")
    for number in (2, 3):
        two.bad.execute(f"INSERT INTO bad.t VALUES ({number}, 1)")
        two.bad.execute("FLUSH BINARY LOGS")
    purge_binlogs(two.bad)
    running = two.ratchet.start("run")
    two.goes_on()
    until(lambda: two.states() == {"bad/-": "lost", "good/-": "idle"})
    assert "heal" in two.reason()
    lag = two.lag()
    two.goes_on()
    assert two.lag() > lag  # nobody reads it, and it is counted
    stop(running)
    done = two.ratchet.run("run", "--until-caught-up", expect=5)
    assert "purged" in done.stderr
    two.ratchet.run("heal")
    two.ratchet.run("run", "--until-caught-up")
    for server, name in ((two.good, "good"), (two.bad, "bad")):
        assert_identical(two.ratchet.lake, [server], name, ["t"], keyspace=name)


@pytest.mark.long
def test_a_source_whose_log_cannot_be_read(two: Two) -> None:
    """Its server is well, so only the run knows; and it is told while others go on."""
    two.ratchet.run("run", "--until-caught-up")
    running = two.ratchet.start("run")
    two.goes_on()
    with two.bad.connect(autocommit=True) as connection, connection.cursor() as cursor:
        for statement in (
            "SET GLOBAL gtid_mode = ON_PERMISSIVE",
            "SET gtid_next = 'ANONYMOUS'",
            "INSERT INTO bad.t VALUES (60, 1)",
            "SET gtid_next = 'AUTOMATIC'",
            "SET GLOBAL gtid_mode = ON",
        ):
            cursor.execute(statement)
    until(lambda: two.states()["bad/-"] == "aside")
    # Its mode may have been seen on the way from one to the other; it is looked at again.
    until(lambda: "has no GTID" in two.reason())
    assert "ratchet heal CONFIG --shard 'bad/-' --dump" in two.reason()
    two.goes_on()
    stop(running)
    two.ratchet.run("run", "--until-caught-up", expect=3)
    two.ratchet.run("heal", "--shard", "bad/-", "--dump")
    two.ratchet.run("run", "--until-caught-up")
    assert_identical(two.ratchet.lake, [two.bad], "bad", ["t"], keyspace="bad")


@pytest.mark.long
def test_a_server_that_is_away_before_its_first_dump(two: Two) -> None:
    two.bad.stop()
    running = two.ratchet.start("run")
    until(lambda: two.ratchet.lake.is_dir() and (two.ratchet.lake / "good" / "t").is_dir())
    two.goes_on()
    two.bad.start()
    until((two.ratchet.lake / "bad" / "t" / "_delta_log").is_dir)
    until(lambda: len(mirror_rows(two.ratchet.lake, "bad", "t")) == 1)
    stop(running)
