"""What Spark is told: slots, pools, secrets off the command line."""

from __future__ import annotations

import shlex
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest

from ratchet.jobs.config.config import Config, load_config
from ratchet.jobs.engine.spark import log_folder
from ratchet.jobs.engine.sparksettings import (
    is_delayable,
    is_local,
    is_open,
    launch_settings,
    pools,
    settings,
    slots,
    stays_here,
)

CONFIG = """\
lake: ./lake
sources:
  shop: {kind: binlog, shards: {a: {host: a, user: u}, b: {host: b, user: u}}}
snapshot: {parallel: 3}
merge: {parallel: 2}
"""


@pytest.fixture
def config(tmp_path: Path) -> Config:
    path = tmp_path / "ratchet.yaml"
    path.write_text(CONFIG)
    return load_config(path, {})


def told(config: Config) -> dict[str, str]:
    home = Path("/tmp/home")
    return settings(
        config, home=home, log_file=Path("/x/run.log"), log4j=Path("/c/log4j2"), secret="made"
    )


def test_what_goes_to_an_object_store_is_kept_where_nobody_else_looks(config: Config) -> None:
    """Hadoop's own default is a folder of /tmp whose name anybody knows."""
    name = "spark.hadoop.hadoop.tmp.dir"
    assert told(config)[name] == "${java.io.tmpdir}/home-hadoop"
    assert "-Djava.io.tmpdir=/tmp/home" in told(config)["spark.driver.extraJavaOptions"]


def test_folders_with_blanks_and_quotes(config: Config) -> None:
    """Spark splits Java's options as a shell does: a blank in TMPDIR ended each command."""
    home, log = Path('/tmp/a b\n"c\\'), Path("/my logs/run.log")
    found = settings(config, home=home, log_file=log, log4j=Path("/c/log4j2"), secret="made")
    options = shlex.split(found["spark.driver.extraJavaOptions"])
    assert f"-Djava.io.tmpdir={home}" in options
    assert f"-Dratchet.log={log}" in options
    assert found["spark.scheduler.allocation.file"] == f"file://{home}/pools.xml"


def test_sockets_that_nobody_else_reaches(config: Config) -> None:
    """Files of the session's own folder, on this machine, if their names are not too long."""
    name = "spark.python.unix.domain.socket"
    assert told(config)[f"{name}.enabled"] == "true"
    assert told(config)[f"{name}.dir"] == "/tmp/home"
    assert not is_delayable(told(config))
    cluster = replace(config, spark=replace(config.spark, master="spark://host:7077"))
    assert is_delayable(told(cluster))
    for length, fits in ((64, True), (65, False)):
        home = Path("/" + "x" * (length - 1))
        found = settings(config, home=home, log_file=Path("/l"), log4j=Path("/c"))
        assert is_delayable(found) != fits


def test_slots_for_everything_at_once(config: Config) -> None:
    assert slots(config) == 2 + 3 + 4
    assert told(config)["spark.master"] == "local[9]"
    assert told(config)["spark.driver.host"] == "127.0.0.1"


def test_the_config_wins(config: Config) -> None:
    conf = {"spark.sql.shuffle.partitions": "8", "spark.driver.extraJavaOptions": "-Xss4m"}
    spark = replace(config.spark, master="spark://host:7077", conf=conf, driver_memory="3g")
    found = told(replace(config, spark=spark))
    assert found["spark.master"] == "spark://host:7077"
    assert "spark.driver.host" not in found
    assert found["spark.sql.shuffle.partitions"] == "8"
    assert found["spark.driver.memory"] == "3g"
    assert "log4j2.configurationFile=file:///c/log4j2" in found["spark.driver.extraJavaOptions"]
    assert found["spark.driver.extraJavaOptions"].endswith(" -Xss4m")
    assert "-XX:ReservedCodeCacheSize=512m" in found["spark.driver.extraJavaOptions"]


@pytest.mark.parametrize(
    ("master", "in_this_jvm", "on_this_machine"),
    [
        (None, True, True),
        ("local", True, True),
        ("local[4]", True, True),
        ("local-cluster[2,4,2048]", False, True),
        ("spark://host:7077", False, False),
    ],
)
def test_where_spark_is(
    config: Config, master: str | None, *, in_this_jvm: bool, on_this_machine: bool
) -> None:
    """Executors of `local-cluster` are processes of their own: jars have to be given to them."""
    config = replace(config, spark=replace(config.spark, master=master))
    assert (is_local(config), stays_here(config)) == (in_this_jvm, on_this_machine)
    assert ("spark.driver.host" in told(config)) == on_this_machine


def test_keys_of_object_stores_are_not_on_the_command_line(config: Config) -> None:
    spark = replace(config.spark, conf={"spark.hadoop.fs.s3a.secret.key": "x"})
    found = told(replace(config, spark=spark))
    assert found["spark.hadoop.fs.s3a.secret.key"] == "x"
    assert not any("secret" in name for name in launch_settings(found))
    assert {"spark.driver.memory", "spark.master"} <= set(launch_settings(found))


def test_the_way_to_s3_is_the_environments(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hadoop's client takes the keys from there by itself, but neither endpoint nor region."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    assert not any("s3a" in name for name in told(config)), "the lake is a folder"
    remote = replace(config, lake="s3://bucket/lake")
    head = "spark.hadoop.fs.s3a"
    assert {name: value for name, value in told(remote).items() if name.startswith(head)} == {
        f"{head}.endpoint": "http://127.0.0.1:9",
        f"{head}.path.style.access": "true",
        f"{head}.connection.ssl.enabled": "false",
        f"{head}.endpoint.region": "eu-west-1",
    }
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    assert told(remote)[f"{head}.endpoint.region"] == "eu-west-1"
    assert f"{head}.endpoint" not in told(remote)
    own = replace(remote.spark, conf={f"{head}.endpoint.region": "us-east-1"})
    assert told(replace(remote, spark=own))[f"{head}.endpoint.region"] == "us-east-1"


@pytest.mark.parametrize(
    ("master", "conf", "guarded", "secret"),
    [
        (None, {}, True, None),  # Spark makes one by itself
        ("local[4]", {}, True, None),
        ("local-cluster[2,4,2048]", {}, True, "made"),
        ("local-cluster[2,4,2048]", {"spark.authenticate.secret": "own"}, True, "own"),
        ("spark://host:7077", {"spark.authenticate.secret": "own"}, True, "own"),
        ("spark://host:7077", {}, False, None),
        ("spark://host:7077", {"spark.authenticate": "true"}, True, None),
        (None, {"spark.authenticate": "false"}, False, None),
    ],
)
def test_whom_sparks_ports_answer(
    config: Config, master: str | None, conf: dict[str, str], secret: str | None, *, guarded: bool
) -> None:
    config = replace(config, spark=replace(config.spark, master=master, conf=conf))
    found = told(config)
    assert is_open(found) != guarded
    assert found.get("spark.authenticate.secret") == secret
    assert not any("secret" in name or "auth" in name for name in launch_settings(found))


def test_pools(config: Config) -> None:
    root = ET.fromstring(pools(config))
    assert {p.get("name"): p.findtext("minShare") for p in root} == {
        "capture": "2",
        "dump": "3",
        "merge": "4",
    }


def test_where_the_log_goes(
    config: Config, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Into the lake only when it is ours: a folder of other people's stays as it is."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert log_folder(config) == tmp_path / "state" / "ratchet"
    (tmp_path / "lake" / "_ratchet").mkdir(parents=True)
    assert log_folder(config) == tmp_path / "state" / "ratchet"
    (tmp_path / "lake" / "_ratchet" / "format.json").write_text("{}")
    assert log_folder(config) == tmp_path / "lake" / "_ratchet" / "logs"
    given = replace(config, spark=replace(config.spark, log_dir="logs"))
    assert log_folder(given) == tmp_path / "logs"
