"""Spark clusters of the tests' own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.cluster import SparkCluster, local_cluster


@pytest.fixture(params=["standalone", "local-cluster"])
def spark_master(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A master with two workers: processes of ours, or Spark's own in the driver's JVM.

    Processes have the environment of the moment: ask for fixtures that set it before.
    """
    if request.param == "standalone":
        with SparkCluster(tmp_path / "cluster") as cluster:
            yield cluster.url
        return
    with local_cluster() as name:
        yield name
