"""Spark clusters of the tests' own."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from lab.cluster import SparkCluster


@pytest.fixture(params=["standalone", "local-cluster"])
def spark_master(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A master with two workers: processes of ours, or Spark's own in the driver's JVM.

    Processes have the environment of the moment: ask for fixtures that set it before.
    """
    if request.param == "standalone":
        with SparkCluster(tmp_path / "cluster") as cluster:
            yield cluster.url
        return
    # Where Spark lets those workers work; nothing else is there.
    work = Path(pyspark.__file__).parent / "work"
    before = set(work.glob("*"))
    yield "local-cluster[2,4,2048]"
    for folder in set(work.glob("*")) - before:
        shutil.rmtree(folder)
