"""A Spark session for benchmarks."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from ratchet.jobs.engine.jars import ivy_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def bench_session(master: str = "local[2]") -> SparkSession:
    """Spark with the settings that anybody would have.

    Args:
        master: Spark's.
    """
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from delta import configure_spark_with_delta_pip
    from pyspark.sql import SparkSession

    settings = {
        "spark.jars.ivy": str(ivy_folder()),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "4g",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }
    builder = SparkSession.builder.master(master).appName("bench")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = configure_spark_with_delta_pip(builder).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session
