"""Fetch Delta's jars once, so that later starts of Spark find them in the cache.

Spark resolves packages when a session starts; this starts one for that alone, and proves on the
way that Java, PySpark and Delta fit together.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # the project is not installed yet

from delta import configure_spark_with_delta_pip
from pyspark.sql import SparkSession

from ratchet.jobs.engine.jarhashes import altered, digest
from ratchet.jobs.engine.jars import delta_jars, ivy_folder


def main() -> None:
    """Start a session, write and read one Delta table, stop."""
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    logging.getLogger("py4j").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory(prefix="ratchet-jars-") as folder:
        builder = (
            SparkSession.builder.master("local[1]")
            .appName("ratchet-fetch-jars")
            .config("spark.jars.ivy", str(ivy_folder()))
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
        )
        spark = configure_spark_with_delta_pip(builder).getOrCreate()
        try:
            table = os.path.join(folder, "t")  # noqa: PTH118 - Spark wants a plain string
            spark.range(1).write.format("delta").save(table)
            rows = spark.read.format("delta").load(table).count()
        finally:
            spark.stop()
    if rows != 1:
        sys.exit(f"Delta does not work here: wrote 1 row, read {rows}")
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
    print("Spark and Delta work; the jars are in the cache")


if __name__ == "__main__":
    main()
