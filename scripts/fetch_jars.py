"""Fetch Delta's jars once, so that later starts of Spark find them in the cache.

Spark's launcher fetches them. They are compared with what was released before any of them is run;
then a session proves that Java, PySpark and Delta fit together.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # the project is not installed yet

from pyspark import SparkConf
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from ratchet.jobs.engine.jarhashes import altered, digest
from ratchet.jobs.engine.jars import delta_jars, delta_packages
from ratchet.jobs.engine.sparkhome import use_own_spark


def main() -> None:
    """Fetch the jars, look at them, and only then run them: write and read one Delta table."""
    use_own_spark()
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    logging.getLogger("py4j").setLevel(logging.ERROR)
    jars = [Path(jar) for jar in delta_jars()]
    if not jars:
        _fetch()
        jars = [Path(jar) for jar in delta_jars()]
    wrong = altered(jars)
    for jar in wrong:
        print(f'    "{jar.name}":\n        "{digest(jar)}",')
    if wrong or not jars:
        sys.exit(
            "Delta's jars in Ivy's cache are not the ones that were released: remove them and make "
            "setup again. For a new version of Delta put the lines above into "
            "jobs/engine/jarhashes.py"
        )
    if (rows := _rows_read(jars)) != 1:
        sys.exit(f"Delta does not work here: wrote 1 row, read {rows}")
    print("Spark and Delta work; the jars are in the cache")


def _fetch() -> None:
    """Have Spark's launcher fetch them; nothing of them is run."""
    launch = SparkConf(loadDefaults=False)
    launch.set("spark.master", "local[1]")
    launch.set("spark.ui.enabled", "false")
    for name, value in delta_packages().items():
        launch.set(name, value)
    gateway = launch_gateway(launch)  # type: ignore[no-untyped-call]
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


def _rows_read(jars: Sequence[Path]) -> int:
    with tempfile.TemporaryDirectory(prefix="ratchet-jars-") as folder:
        spark = (
            SparkSession.builder.master("local[1]")
            .appName("ratchet-fetch-jars")
            .config("spark.driver.extraClassPath", ":".join(map(str, jars)))
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.databricks.delta.snapshotPartitions", "1")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.sql.warehouse.dir", folder)
            .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
            .config(
                "spark.sql.catalog.spark_catalog",
                "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            )
            .getOrCreate()
        )
        try:
            table = os.path.join(folder, "t")  # noqa: PTH118 - Spark wants a plain string
            spark.range(1).write.format("delta").save(table)
            return int(spark.read.format("delta").load(table).count())
        finally:
            spark.stop()


if __name__ == "__main__":
    main()
