"""`ratchet check` on real servers: fit, unfit, and that each mending statement mends."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from alike import ALIKE
from fix_servers import purge_binlogs

from lab.servers import create_ratchet_user
from ratchet.core.shard import ShardId
from ratchet.jobs.topology.begin import record_starts
from ratchet.store.formats import open_lake
from ratchet.store.rounds import RoundLog
from ratchet.wire.session import Session, SourceConfig
from tests.forked import completed

PASSWORD = "check-Me-7"


def check(
    folder: Path, server: Any, database: str, *args: str, user: str = "checker", **more: Any
) -> subprocess.CompletedProcess[str]:
    shard = {
        "host": server.host, "port": server.port, "user": user, "password": "${RATCHET_CHECK_PW}",
        "database": database, **more.pop("shard", {}),
    }  # fmt: skip
    source = {"kind": "binlog", "shards": {"-": shard}, **more.pop("source", {})}
    config = {"lake": "./lake", "sources": {"shop": source}, **more}
    path = folder / "ratchet.yaml"
    path.write_text(yaml.safe_dump(config))
    return completed("check", str(path), *args, RATCHET_CHECK_PW=PASSWORD)


def findings(done: subprocess.CompletedProcess[str]) -> dict[str, dict[str, str]]:
    assert PASSWORD not in done.stdout + done.stderr
    return {finding["check"]: finding for finding in json.loads(done.stdout)["findings"]}


def failed(done: subprocess.CompletedProcess[str]) -> set[str]:
    return {name for name, finding in findings(done).items() if finding["status"] == "fail"}


@pytest.fixture
def ready(server: Any, database: str) -> Any:
    server.execute(f"CREATE TABLE `{database}`.orders (id INT NOT NULL PRIMARY KEY, v INT)")
    create_ratchet_user(server, PASSWORD, [database], user="checker")
    return server


def test_a_fit_source(ready: Any, database: str, tmp_path: Path) -> None:
    """Exit 0, nothing failed, and nothing was made on the way."""
    done = check(tmp_path, ready, database, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert failed(done) == set()
    assert "least privilege" not in findings(done)  # the documented account has no needless one
    assert not (tmp_path / "lake").exists()
    ready.execute(f"GRANT INSERT (v) ON `{database}`.orders TO 'checker'@'%'")
    found = findings(check(tmp_path, ready, database, "--json"))["least privilege"]
    assert (found["status"], "INSERT ON" in found["text"]) == ("warn", True), found
    text = check(tmp_path, ready, database)
    assert text.returncode == 0
    assert "fit (" in text.stdout


def test_two_names_that_would_share_a_folder(ready: Any, database: str, tmp_path: Path) -> None:
    first, second = sorted(ALIKE)
    for name in ALIKE:
        ready.execute(f"CREATE TABLE `{database}`.`{name}` (id INT PRIMARY KEY)")
    told = findings(check(tmp_path, ready, database, "--json"))
    assert f"the same folder in the lake as that of {first}" in told[f"kind of {second}"]["text"]
    assert f"kind of {first}" not in told


def test_each_statement_mends(make_server: Callable[..., Any], tmp_path: Path) -> None:
    """A server with everything wrong that can be wrong while it runs, mended by what check says."""
    for flavor in ("mariadb", "mysql"):
        server = make_server(flavor)
        server.execute("CREATE DATABASE shop")
        server.execute("CREATE TABLE shop.orders (id INT NOT NULL PRIMARY KEY)")
        server.execute("CREATE USER 'checker'@'%%' IDENTIFIED BY %s", (PASSWORD,))
        server.execute("GRANT SELECT ON shop.orders TO 'checker'@'%'")
        wrong = ["binlog_format = 'STATEMENT'", "binlog_row_image = 'MINIMAL'"]
        wrong.append("binlog_row_metadata = 'MINIMAL'")
        expected = {"binlog_format", "binlog_row_image", "binlog_row_metadata"}
        expected |= {"replication slave", "replication client", "select"}
        if flavor == "mysql":
            wrong.append("binlog_row_value_options = 'PARTIAL_JSON'")
            expected.add("binlog_row_value_options")
        for setting in wrong:
            server.execute(f"SET GLOBAL {setting}")
        done = check(tmp_path, server, "shop", "--json")
        assert done.returncode == 3
        assert failed(done) == expected
        for name in expected:
            server.execute(findings(done)[name]["mend"].split("  --")[0])
        done = check(tmp_path, server, "shop", "--json")
        assert failed(done) == set()
        assert done.returncode == 0
        server.close()


def test_tables_that_cannot_be_mirrored(ready: Any, database: str, tmp_path: Path) -> None:
    for definition in (
        "nokey (a INT)",
        "prefix_key (a VARCHAR(100) NOT NULL, UNIQUE (a(5)))",
        "null_key (a INT NULL, UNIQUE (a))",
        "unique_key (a INT NOT NULL, UNIQUE (a))",
        "prefix_primary (a VARCHAR(100) NOT NULL, PRIMARY KEY (a(5)))",
        "ORDERS (id INT NOT NULL PRIMARY KEY)",
    ):
        ready.execute(f"CREATE TABLE `{database}`.{definition}")
    unfit = {"key of nokey", "key of prefix_key", "key of null_key"}
    if ready.flavor == "mariadb":  # where the server has a hash of it, and no order
        ready.execute(f"CREATE TABLE `{database}`.hashed (a TEXT NOT NULL, UNIQUE (a))")
        unfit.add("key of hashed")
    done = check(tmp_path, ready, database, "--json")
    assert done.returncode == 3
    assert failed(done) == unfit
    assert findings(done)["table names"]["status"] == "warn"


def test_servers_that_do_not_answer(ready: Any, database: str, tmp_path: Path) -> None:
    """Wrong port, wrong user, wrong database: exit 3, the cause, and what to do."""
    done = check(tmp_path, ready, database, "--json", shard={"port": 9, "connect_timeout": 2})
    assert done.returncode == 3
    assert "127.0.0.1:9" in findings(done)["connection"]["text"]
    done = check(tmp_path, ready, database, "--json", user="nobody-there")
    assert done.returncode == 3
    assert "GRANT" in findings(done)["connection"]["mend"]
    done = check(tmp_path, ready, f"{database}_not", "--json")
    assert done.returncode == 3


def test_a_wrong_config_or_lake(ready: Any, database: str, tmp_path: Path) -> None:
    assert check(tmp_path, ready, database, captur={}).returncode == 2
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "thesis.txt").write_text("mine")
    done = check(tmp_path, ready, database, "--json")
    assert done.returncode == 2
    assert failed(done) == {"usable"}


def test_what_nothing_can_mirror_is_named(mariadb: Any, database: str, tmp_path: Path) -> None:
    """The source stays fit: the other tables are mirrored."""
    mariadb.execute(f"CREATE TABLE `{database}`.orders (id INT NOT NULL PRIMARY KEY, v INT)")
    mariadb.execute(
        f"CREATE TABLE `{database}`.history (id INT NOT NULL PRIMARY KEY) WITH SYSTEM VERSIONING"
    )
    create_ratchet_user(mariadb, PASSWORD, [database], user="checker")
    done = check(tmp_path, mariadb, database, "--json")
    assert done.returncode == 0
    found = findings(done)["kind of history"]
    assert found["status"] == "warn"
    assert '"!history"' in found["mend"]


@pytest.mark.parametrize("flavor", ["mariadb", "mysql"])
def test_a_mirror_that_can_go_on_and_one_that_cannot(
    make_server: Callable[..., Any], tmp_path: Path, flavor: str
) -> None:
    """What `run` would refuse is known before: positions that are gone, or another server's."""
    server, other = make_server(flavor), make_server(flavor)
    for one in (server, other):
        one.execute("CREATE DATABASE shop")
        one.execute("CREATE TABLE shop.orders (id INT NOT NULL PRIMARY KEY)")
        create_ratchet_user(one, PASSWORD, ["shop"], user="checker")
    config = SourceConfig(
        shard=ShardId("shop", "-"), host=server.host, port=server.port, user="checker",
        password=PASSWORD, database="shop", tls="disabled",
    )  # fmt: skip
    with Session.connect(config) as session:
        begin = session.executed()
    rounds = RoundLog(open_lake(tmp_path / "lake", now=1))
    record_starts(rounds, {"shop/-": begin}, now=1)
    server.execute("INSERT INTO shop.orders VALUES (1)")
    done = check(tmp_path, server, "shop", "--json")
    assert findings(done)["position"]["status"] == "ok", done.stdout
    if flavor == "mysql":  # by the servers' UUIDs; numbers in a domain are alike everywhere
        swapped = findings(check(tmp_path, other, "shop", "--json"))["position"]
        assert swapped["status"] == "fail"
        assert "another shard's server, correct them" in swapped["mend"]
    purge_binlogs(server)
    done = check(tmp_path, server, "shop", "--json")
    assert findings(done)["position"]["status"] == "fail"
    assert "ratchet heal CONFIG" in findings(done)["position"]["mend"]
    assert done.returncode == 3


def test_a_name_that_no_table_has(ready: Any, database: str, tmp_path: Path) -> None:
    tables = {"tables": ["ordrs", "log_*", "!old"]}
    found = findings(check(tmp_path, ready, database, "--json", source=tables))
    assert found["table ordrs"]["status"] == "warn"
    assert "did you mean 'orders'?" in found["table ordrs"]["mend"]
    assert {name for name in found if name.startswith("table ")} == {"table ordrs"}
