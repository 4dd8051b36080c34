"""A Spark cluster of the tests' own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.cluster import SparkCluster


@pytest.fixture
def spark_cluster(tmp_path: Path) -> Iterator[str]:
    """The master's URL, of two workers.

    Its processes have the environment of the moment: ask for fixtures that set it before.
    """
    with SparkCluster(tmp_path / "cluster") as cluster:
        yield cluster.url
