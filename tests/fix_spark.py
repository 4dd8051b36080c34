"""One small Spark session for all unit tests that need Delta through Spark.

`spark`: local[2], Delta, nothing written outside a temporary folder but Ivy's cache of jars.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from ratchet.jobs.engine.jars import ivy_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Set for every test process: sessions that the tested code starts must stay on the loopback
# address and run the same Python as well.
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session's SparkSession. Tests that change settings take `spark.newSession()`."""
    from delta import configure_spark_with_delta_pip
    from pyspark.sql import SparkSession

    home = tmp_path_factory.mktemp("spark")
    settings = {
        "spark.jars.ivy": str(ivy_folder()),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "2g",
        # The quick compiler alone: most of these tests' time would go into compiling well.
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={home} -Djava.io.tmpdir={home} "
        "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=512m",
        "spark.local.dir": str(home),
        "spark.sql.warehouse.dir": str(home / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.codegen.cache.maxEntries": "4000",
        "spark.sql.shuffle.partitions": "2",
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }
    builder = SparkSession.builder.master("local[2]").appName("ratchet-tests")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = configure_spark_with_delta_pip(builder).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
