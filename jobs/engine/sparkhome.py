"""Where Spark and its workers' modules are taken from: never from the current folder.

Others may make files in the folder where a command is started, or in the one above it (/tmp). Lives
here: what Spark's processes inherit to that end. Does not live here: the rest of their environment
(`spark`, `childenv`).
"""

from __future__ import annotations

import os
from pathlib import Path

import pyspark


def use_own_spark() -> None:
    """Call before a JVM is started.

    PySpark looks for Spark above the current folder first, unless SPARK_HOME says where it is; and
    workers are started by `-m`, which looks for modules in the current folder first.
    """
    os.environ.setdefault("SPARK_HOME", str(Path(pyspark.__file__).resolve().parent))
    os.environ["PYTHONSAFEPATH"] = "1"
