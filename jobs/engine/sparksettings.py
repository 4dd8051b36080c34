"""What the Spark session is told: slots, pools, memory, Delta, and where its files go.

Lives here: pure functions from a config to settings. Does not live here: starting the JVM
(`spark`).

Invariant: more slots than cores, so that a capture that waits on its socket never takes the slot of
a merge or of a chunk; and the three pools share fairly, each with a minimum of its own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from ratchet.jobs.config.config import Config

CAPTURE, DUMP, MERGE = "capture", "dump", "merge"
# Jobs of one table's merge that can run side by side (scan, write, deletion vectors).
_SLOTS_PER_MERGE: Final = 2

# Each merge compiles code of its own, and a JVM with room for none ends ("Out of space in CodeCache
# for adapters"): with the quick compiler alone, which has 48 MB, after two minutes of a busy run.
_CODE_CACHE: Final = "-XX:ReservedCodeCacheSize=512m"
_SOCKETS: Final = "spark.python.unix.domain.socket.enabled"
_LONGEST_SOCKET: Final = 107  # characters of a Unix socket's path
_SOCKET_NAME: Final = len("/.00000000-0000-0000-0000-000000000000.sock")
# Java would show its counters in a file of /tmp, under a name that everybody knows.
_NO_COUNTERS: Final = "-XX:-UsePerfData"
_TUNED: Final[Mapping[str, str]] = {
    "spark.app.name": "ratchet",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.scheduler.mode": "FAIR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # Measured with MERGE on 10.5 million rows, 2 to 2.4 times as fast as the defaults (facts.md).
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.merge.materializeSource": "none",
    "spark.sql.autoBroadcastJoinThreshold": "300MB",
    # A merge has a hundred pieces of generated code, and every table its own. With the default of
    # 100 pieces all were compiled anew in each step: 40 % of the time of steps with few changes.
    "spark.sql.codegen.cache.maxEntries": "4000",
    "spark.sql.ui.explainMode": "simple",
    # What a task is told may hold a password, and larger than this PySpark writes it to a file.
    "spark.broadcast.UDFCompressionThreshold": "1g",
    # A run lives for months: no history of jobs, stages and queries that nobody looks at.
    "spark.ui.retainedJobs": "50",
    "spark.ui.retainedStages": "50",
    "spark.ui.retainedTasks": "500",
    "spark.sql.ui.retainedExecutions": "20",
    "spark.python.worker.reuse": "true",
    "spark.python.worker.faulthandler.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # A task that failed is tried again by us, with a backoff, not at once by Spark.
    "spark.task.maxFailures": "1",
}


def _local() -> dict[str, str]:
    return {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        # There are more slots than cores; scans and captures are cut for the cores.
        "spark.default.parallelism": str(_cores()),
    }


def _unreachable(home: Path) -> dict[str, str]:
    """PySpark's own sockets are files of the session's folder: nobody else may enter that.

    As ports of the loopback address they are open to each user of the machine. Without the token
    he is told nothing, but where one connection is served at a time, he may be that one.
    """
    if len(str(home)) + _SOCKET_NAME > _LONGEST_SOCKET:
        return {}
    return {_SOCKETS: "true", "spark.python.unix.domain.socket.dir": str(home)}


def _guarded(config: Config, secret: str) -> dict[str, str]:
    """Spark's ports answer nobody who does not know the session's secret.

    In this process's own JVM Spark makes the secret by itself, and it never leaves the JVM. A
    cluster has one that master and workers know: without one in `spark.conf` it is as its operator
    made it.
    """
    theirs = not stays_here(config)
    if is_open({"spark.authenticate": "true", **config.spark.conf}):
        return {}  # Spark refuses a session that encrypts and does not authenticate
    if theirs and "spark.authenticate.secret" not in config.spark.conf:
        return {}
    found = {"spark.authenticate": "true", "spark.network.crypto.enabled": "true"}
    if not theirs:
        # A master that the user started may know the older way only.
        found["spark.network.crypto.saslFallback"] = "false"
    if not theirs and not is_local(config):
        found["spark.authenticate.secret"] = secret
    return found


def _modes(config: Config) -> dict[str, str]:
    """Hadoop sets its files' modes by itself, by a umask of its own."""
    if config.lake_umask is None:
        return {}
    return {"spark.hadoop.fs.permissions.umask-mode": f"{config.lake_umask:03o}"}


def is_in_s3(config: Config) -> bool:
    """Whether the lake is in S3, or in a store that speaks as S3 does."""
    return config.lake.startswith(("s3://", "s3a://"))


def _s3(environment: Mapping[str, str]) -> dict[str, str]:
    """How Spark commits there, and what Hadoop's client does not take from the environment.

    Args:
        environment: AWS_ENDPOINT_URL, AWS_REGION or AWS_DEFAULT_REGION; keys it takes by itself.
    """
    # Delta's own store looks whether a commit is there, and puts it then (`logstore`).
    found = {"spark.delta.logStore.s3a.impl": "ratchet.ConditionalLogStore"}
    endpoint = environment.get("AWS_ENDPOINT_URL")
    if endpoint:
        found["spark.hadoop.fs.s3a.endpoint"] = endpoint
        found["spark.hadoop.fs.s3a.path.style.access"] = "true"
        secure = not endpoint.startswith("http://")
        found["spark.hadoop.fs.s3a.connection.ssl.enabled"] = str(secure).lower()
    region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
    if region:
        found["spark.hadoop.fs.s3a.endpoint.region"] = region
    return found


def _cores() -> int:
    return max(2, os.cpu_count() or 2)


def _captures(config: Config) -> int:
    """Tasks of a capture round (ingest.rounds.spark_runner)."""
    # A reshard may make more shards of these while the run goes on.
    spare = sum(len(one.shards) for one in config.sources.values() if one.kind == "vitess")
    return min(len(config.shards) + spare, _cores())


def slots(config: Config) -> int:
    """Tasks that may run at once: of captures, of all chunks and of all merges."""
    merges = _SLOTS_PER_MERGE * config.merge.parallel
    return _captures(config) + config.snapshot.readers + merges


def is_local(config: Config) -> bool:
    """Whether Spark runs inside this process's own JVM."""
    return stays_here(config) and not (config.spark.master or "").startswith("local-cluster")


def stays_here(config: Config) -> bool:
    """Whether all of Spark is on this machine, `local-cluster`'s executors among it."""
    return config.spark.master is None or config.spark.master.startswith("local")


def settings(
    config: Config,
    *,
    home: Path,
    log_file: Path,
    log4j: Path,
    java: Sequence[str] = (),
    secret: str = "",
) -> dict[str, str]:
    """All settings of the session but the jars; the config's own ones win.

    Args:
        config: the whole config.
        home: a folder of this session's own for temporary files.
        log_file: where Spark's log goes.
        log4j: the log4j2 settings that send it there.
        java: more options for the JVM.
        secret: made for this session, for executors that are processes of this machine.
    """
    options = (
        *java,
        _CODE_CACHE,
        _NO_COUNTERS,
        f"-Dlog4j2.configurationFile={log4j.as_uri()}",
        _whole(f"-Dratchet.log={log_file}"),
        _whole(f"-Dderby.system.home={home}"),
        _whole(f"-Djava.io.tmpdir={home}"),
    )
    found = {
        **_TUNED,
        **({**_local(), **_unreachable(home)} if stays_here(config) else {}),
        **_guarded(config, secret),
        **_modes(config),
        **(_s3(os.environ) if is_in_s3(config) else {}),
        "spark.master": config.spark.master or f"local[{slots(config)}]",
        "spark.driver.memory": config.spark.driver_memory,
        "spark.driver.extraJavaOptions": " ".join(options),
        "spark.local.dir": str(home),
        # S3A keeps what it uploads there: by default in a folder of /tmp that anybody can make.
        "spark.hadoop.hadoop.tmp.dir": f"${{java.io.tmpdir}}/{home.name}-hadoop",
        "spark.sql.warehouse.dir": str(home / "warehouse"),
        "spark.scheduler.allocation.file": f"file://{home}/pools.xml",  # Hadoop decodes nothing
    }
    for name, value in config.spark.conf.items():
        # Options for the JVM are added to ours: without ours Spark's log is on the terminal.
        both = name == "spark.driver.extraJavaOptions"
        found[name] = f"{found[name]} {value}" if both else value
    return found


def _whole(option: str) -> str:
    r"""An option of Java's in quotes: Spark takes all of them as one text and splits it at blanks.

    >>> _whole("-Da=/my folder")
    '"-Da=/my folder"'
    """
    escaped = option.replace("\\", r"\\").replace('"', r"\"")
    return f'"{escaped}"'


def pools(config: Config) -> str:
    """The scheduler's pools, as the XML file that Spark reads."""
    minimum = {
        CAPTURE: _captures(config),
        DUMP: config.snapshot.readers,
        MERGE: _SLOTS_PER_MERGE * config.merge.parallel,
    }
    entries = "".join(
        f'  <pool name="{name}"><schedulingMode>FAIR</schedulingMode>'
        f"<weight>1</weight><minShare>{share}</minShare></pool>\n"
        for name, share in minimum.items()
    )
    return f'<?xml version="1.0"?>\n<allocations>\n{entries}</allocations>\n'


def is_open(given: Mapping[str, str]) -> bool:
    """Whether whoever reaches Spark's ports may ask them for anything.

    Args:
        given: the session's settings.
    """
    return given.get("spark.authenticate", "false").lower() != "true"


def is_delayable(given: Mapping[str, str]) -> bool:
    """Whether other users of this machine can hold up PySpark's work, through its own ports.

    Args:
        given: the session's settings.
    """
    return given.get(_SOCKETS, "false").lower() != "true"


def launch_settings(given: Mapping[str, str]) -> dict[str, str]:
    """Those that the JVM needs on its command line, where everybody on the machine can read them.

    All others are set inside it: they may hold the keys of an object store.
    """
    heads = ("spark.driver.", "spark.jars", "spark.master", "spark.submit.")
    return {name: value for name, value in given.items() if name.startswith(heads)}
