"""The Spark session of the peers that are Spark jobs, tuned as one who measures would tune it.

local[2] and 4 GB. The settings of MERGE are those that were the fastest of what we tried for our
own MERGE before Ratchet had a merge of its own: fewer shuffle partitions than Spark's 200, a
source that is not materialised once more (it is Parquet files that nobody changes), deletion
vectors, and a broadcast of the changes' keys.
"""

from __future__ import annotations

import importlib.metadata
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ratchet.jobs.engine.jars import delta_jars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# MariaDB's own driver, of Maven's central repository.
DRIVER: Final = "org.mariadb.jdbc:mariadb-java-client:3.5.6"
SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "4g",
    "spark.driver.extraJavaOptions": "-Duser.timezone=UTC",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.autoBroadcastJoinThreshold": str(300 << 20),
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.databricks.delta.merge.materializeSource": "none",
    "spark.databricks.delta.properties.defaults.enableDeletionVectors": "true",
}
MERGE_SETTINGS: Final = (
    "local[2], 4 GB, deletion vectors, 2 shuffle partitions, changes broadcast, "
    "materializeSource=none"
)


def session() -> SparkSession:
    """A session with Delta and the driver."""
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from delta import configure_spark_with_delta_pip
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("peer")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    files = _jars()
    if files:
        builder = builder.config("spark.jars", ",".join(files))
    else:
        builder = configure_spark_with_delta_pip(builder, extra_packages=[DRIVER])
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _jars() -> list[str]:
    """What Ivy has fetched before; empty if it is still to fetch something.

    A job that runs again and again has its jars on the disk. Ivy's look at what it has takes some
    5 s, which Ratchet does not spend either.
    """
    group, artifact, number = DRIVER.split(":")
    driver = Path(f"~/.ivy2.5.2/jars/{group}_{artifact}-{number}.jar").expanduser()
    delta = delta_jars()
    return [*delta, str(driver)] if delta and driver.exists() else []


def version() -> str:
    """Spark's and Delta's."""
    names = ("pyspark", "delta-spark")
    return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in names)


def prepare() -> None:
    """Have the jars fetched, unless they are there, before anything is measured."""
    if not _jars():
        session().stop()


if __name__ == "__main__":
    prepare()
