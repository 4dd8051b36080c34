"""The workflows of Vitess that change where rows are: a reshard, and moving tables.

Lives here: their steps. Does not live here: the cluster (`vitess`).

Invariant: a step returns when Vitess says that it is done.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lab.vitess import VitessCluster


@dataclass(frozen=True, slots=True)
class Reshard:
    """A reshard under way.

    Attributes:
        cluster: where.
        keyspace: of which keyspace.
        workflow: its name.
        sources: the shards that end.
        targets: the shards that take over.
    """

    cluster: VitessCluster
    keyspace: str
    workflow: str
    sources: tuple[str, ...]
    targets: tuple[str, ...]

    def create(self) -> None:
        """Begin to copy."""
        self._do(
            "create",
            f"--source-shards={','.join(self.sources)}",
            f"--target-shards={','.join(self.targets)}",
            "--tablet-types=primary",
        )

    def wait_until_running(self) -> None:
        """Until all rows are copied, and the targets follow."""
        wanted = max(len(self.sources), len(self.targets))  # streams of VReplication
        self.cluster.wait(
            lambda: self._do("status").count("Status: Running") >= wanted,
            f"{self.workflow} follows on {wanted} shards",
        )

    def switch(self) -> None:
        """Send the traffic to the targets: the journal is written."""
        self._do("switchtraffic")

    def reverse(self) -> None:
        """Send it back to the sources, by a journal on the other side."""
        self._do("reversetraffic")

    def complete(self) -> None:
        """Forget the sources."""
        self._do("complete")

    def _do(self, step: str, *arguments: str) -> str:
        return self.cluster.ctl(
            "Reshard",
            f"--workflow={self.workflow}",
            f"--target-keyspace={self.keyspace}",
            step,
            *arguments,
        )


@dataclass(frozen=True, slots=True)
class MoveTables:
    """Tables on their way from one keyspace to another, of one shard.

    Attributes:
        cluster: where.
        source: the keyspace that they leave.
        target: the keyspace that they go to.
        workflow: its name.
        tables: which tables.
    """

    cluster: VitessCluster
    source: str
    target: str
    workflow: str
    tables: tuple[str, ...]

    def create(self) -> None:
        """Begin to copy."""
        self._do(
            "create",
            f"--source-keyspace={self.source}",
            f"--tables={','.join(self.tables)}",
            "--tablet-types=primary",
        )

    def wait_until_running(self) -> None:
        """Until all rows are copied, and the target follows."""
        self.cluster.wait(
            lambda: "Status: Running" in self._do("status"), f"{self.workflow} follows"
        )

    def switch(self) -> None:
        """Send the traffic to the target; the source follows it from now on."""
        self._do("switchtraffic")

    def complete(self) -> None:
        """Drop the tables in the source."""
        self._do("complete")

    def _do(self, step: str, *arguments: str) -> str:
        return self.cluster.ctl(
            "MoveTables",
            f"--workflow={self.workflow}",
            f"--target-keyspace={self.target}",
            step,
            *arguments,
        )
