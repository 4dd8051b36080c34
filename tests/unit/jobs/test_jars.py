"""Which jars a session gets, and how: from Ivy's cache, or by Ivy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ratchet.core.errors import OperatorError
from ratchet.jobs.config.config import Config, load_config
from ratchet.jobs.engine.jarhashes import DIGESTS, digest
from ratchet.jobs.engine.jars import (
    delta_jars,
    ivy_folder,
    jars_of,
    missing_packages,
    s3_jars,
    with_own,
)

CONFIG = """\
lake: ./lake
sources:
  shop: {kind: binlog, shards: {a: {host: a, user: u}}}
spark: {conf: {spark.jars.ivy: %s}}
"""
S3 = "s3://bucket/lake"
DELTA = [
    "io.delta_delta-kernel-api-4.4.0.jar",
    "io.delta_delta-spark_4.2_2.13-4.4.0.jar",
    "io.delta_delta-storage-4.4.0.jar",
]
CLIENT = [
    "org.apache.hadoop_hadoop-aws-3.5.0.jar",
    "software.amazon.awssdk_bundle-2.35.4.jar",
    "software.amazon.s3.analyticsaccelerator_analyticsaccelerator-s3-1.3.1.jar",
    "org.wildfly.openssl_wildfly-openssl-2.2.5.Final.jar",
]
PACKAGE = "io.delta:delta-spark_4.2_2.13:4.4.0"
S3_PACKAGE = "org.apache.hadoop:hadoop-aws:3.5.0"


@pytest.fixture
def ivy(tmp_path: Path) -> Path:
    folder = tmp_path / "ivy" / "jars"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def config(tmp_path: Path, ivy: Path) -> Config:
    path = tmp_path / "ratchet.yaml"
    path.write_text(CONFIG % ivy.parent)
    return load_config(path, {})


@pytest.fixture
def cached(ivy: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[list[str]], list[str]]:
    """Put files into Ivy's cache, as if they were released like this; their paths."""

    def put(names: list[str]) -> list[str]:
        for name in names:
            (ivy / name).write_bytes(b"")
            released[name] = digest(ivy / name)
        return [str(ivy / name) for name in names]

    released: dict[str, str] = {}
    monkeypatch.setattr("ratchet.jobs.engine.jarhashes.DIGESTS", released)
    return put


def conf(config: Config, **more: str) -> Config:
    values = {name.replace("_", "."): value for name, value in more.items()}
    return replace(config, spark=replace(config.spark, conf={**config.spark.conf, **values}))


def test_what_is_not_cached_is_fetched_by_ivy(
    config: Config, cached: Callable[[list[str]], list[str]]
) -> None:
    wanted = {"spark.jars.packages": PACKAGE, "spark.jars.ivy": str(ivy_folder(config))}
    assert missing_packages(config) == wanted
    cached(DELTA[:2])
    assert missing_packages(config) == wanted
    with pytest.raises(OperatorError, match="missing in Ivy's cache") as caught:
        jars_of(config)
    assert "make setup" in str(caught.value.hint)
    cached(DELTA[2:])
    assert missing_packages(config) == {}


def test_ivy_fetches_to_where_it_is_looked_for(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Java by itself does not follow HOME."""
    unsaid = replace(config, spark=replace(config.spark, conf={}))
    monkeypatch.setenv("HOME", "/somewhere/else")
    assert missing_packages(unsaid)["spark.jars.ivy"] == "/somewhere/else/.ivy2.5.2"


def test_what_is_cached_is_on_the_class_path(
    config: Config, cached: Callable[[list[str]], list[str]]
) -> None:
    files = cached(DELTA)
    cached(["io.delta_delta-spark_4.2_2.13-4.3.0.jar"])
    assert delta_jars(config) == files
    found = jars_of(config)
    assert found.settings == {"spark.driver.extraClassPath": ":".join(files)}
    assert list(found.last) == []
    mine = conf(config, spark_driver_extraClassPath="/opt/x.jar")
    both = {"spark.driver.extraClassPath": ":".join([*files, "/opt/x.jar"])}
    assert jars_of(mine).settings == both
    cluster = replace(config, spark=replace(config.spark, master="spark://h:7077"))
    assert jars_of(cluster).settings == {"spark.jars": ",".join(files)}


def test_a_lake_in_s3_needs_hadoops_client(
    config: Config, cached: Callable[[list[str]], list[str]]
) -> None:
    """At the end of the class path: at its head the class archive would be of no use."""
    remote = replace(config, lake=S3)
    both = {
        "spark.jars.packages": f"{PACKAGE},{S3_PACKAGE}",
        "spark.jars.ivy": str(ivy_folder(config)),
    }
    assert missing_packages(remote) == both
    files = cached(DELTA)
    assert missing_packages(remote) == {**both, "spark.jars.packages": S3_PACKAGE}
    client = cached(CLIENT[:-1])
    assert s3_jars(remote) is None
    assert missing_packages(remote) == {**both, "spark.jars.packages": S3_PACKAGE}
    client += cached(CLIENT[-1:])
    assert missing_packages(remote) == {}
    found = with_own(jars_of(remote), remote, "/home/own.jar")
    assert found.settings == {"spark.driver.extraClassPath": ":".join(files)}
    assert list(found.last) == [*client, "/home/own.jar"]
    cluster = replace(remote, spark=replace(config.spark, master="spark://h:7077"))
    settings = with_own(jars_of(cluster), cluster, "/home/own.jar").settings
    assert settings == {"spark.jars": ",".join([*files, *client, "/home/own.jar"])}
    cached(["org.apache.hadoop_hadoop-aws-3.4.2.jar"])
    assert s3_jars(remote) == client, "of Spark's Hadoop"


def test_a_client_that_the_config_brings_is_left_to_it(
    config: Config, cached: Callable[[list[str]], list[str]]
) -> None:
    files = cached(DELTA)
    remote = conf(replace(config, lake=S3), spark_jars="/opt/hadoop-aws-3.5.0.jar")
    found = jars_of(remote)
    assert found.settings == {"spark.driver.extraClassPath": ":".join(files)}
    assert list(found.last) == []


def test_jars_that_were_changed_are_not_run(
    config: Config, ivy: Path, cached: Callable[[list[str]], list[str]]
) -> None:
    cached(DELTA)
    (ivy / DELTA[1]).write_bytes(b"more than was released")
    with pytest.raises(OperatorError, match="not the ones that were released") as caught:
        jars_of(config)
    assert DELTA[1] in str(caught.value)
    assert DELTA[0] not in str(caught.value)
    assert str(ivy) in caught.value.hint


@pytest.mark.parametrize("above", [0, 1, 2])
def test_jars_that_others_may_exchange_are_not_run(
    config: Config, ivy: Path, cached: Callable[[list[str]], list[str]], above: int
) -> None:
    jar = Path(cached(DELTA)[0])
    (jar, *jar.parents)[above].chmod(0o777)
    with pytest.raises(OperatorError, match="can be written by everybody") as caught:
        jars_of(config)
    assert str(ivy) in caught.value.hint


def test_jars_that_nobody_knows_are_not_run(
    config: Config, ivy: Path, cached: Callable[[list[str]], list[str]]
) -> None:
    cached(DELTA)
    (ivy / "io.unitycatalog_unitycatalog-odd-1.0.jar").write_bytes(b"")
    with pytest.raises(OperatorError, match="unitycatalog-odd"):
        jars_of(config)


def test_the_digests_are_of_what_is_used() -> None:
    names = {Path(jar).name for jar in delta_jars()}
    assert names
    assert names <= set(DIGESTS)
    assert set(CLIENT) <= set(DIGESTS)
