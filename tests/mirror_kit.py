"""A mirror that is made, corrupted and verified by the real commands, in this process.

The commands run on the tests' one Spark session, so each costs seconds and not the start of a JVM.
Its two slots are left to the merges: logs and chunks are read in this process.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from lab.servers import Server
from lab.template import root_password
from ratchet.ingest.capture import close_streams
from ratchet.ingest.rounds import local_runner
from ratchet.jobs.cli import invoke
from ratchet.snapshot.reader import read_chunk
from ratchet.snapshot.sessions import close_sessions
from ratchet.store.files import Lake
from ratchet.store.tables import Tables, TableState

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass
class Said:
    """What a command said."""

    code: int
    out: str
    err: str


class Mirror:
    """One config on one server, whose databases are the shards.

    Args:
        folder: where config and lake go.
        server: the server.
        spark: the session that the commands get.
        sources: keyspace -> shard -> database.
        more: keyspace -> more keys of its section.
    """

    def __init__(
        self,
        folder: Path,
        server: Server,
        spark: SparkSession,
        sources: Mapping[str, Mapping[str, str]],
        more: Mapping[str, Mapping[str, Any]],
    ) -> None:
        self.config = folder / "ratchet.yaml"
        self.lake = Lake.at(folder / "lake")
        self.server, self.spark = server, spark
        self.config.write_text(
            yaml.safe_dump(
                {
                    "lake": "./lake",
                    "capture": {"round_seconds": "200ms", "max_skew_seconds": None},
                    "sources": {
                        keyspace: {
                            "kind": "binlog",
                            "shards": {
                                shard: {
                                    "host": server.host,
                                    "port": server.port,
                                    "user": "root",
                                    "password": root_password(),
                                    "database": database,
                                    "tls": "disabled",
                                }
                                for shard, database in shards.items()
                            },
                            "tables": ["*"],
                            **more.get(keyspace, {}),
                        }
                        for keyspace, shards in sources.items()
                    },
                }
            )
        )

    def ratchet(self, command: str, *args: str, expect: int | None = 0) -> Said:
        """Run a command and check its exit code (None: any)."""
        out, err = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patched:
            for module in ("engine.spark", "inspect.verify", "recovery.repair"):
                patched.setattr(f"ratchet.jobs.{module}.spark_session", self._session)
            for module in ("run.wiring", "inspect.verify"):
                patched.setattr(
                    f"ratchet.jobs.{module}.spark_runner", lambda *_, **__: local_runner
                )
                patched.setattr(f"ratchet.jobs.{module}.spark_reader", lambda _: read_chunk)
            with redirect_stdout(out), redirect_stderr(err):
                code = invoke([command, str(self.config), *args])
        close_streams()
        close_sessions()
        said = Said(code, out.getvalue(), err.getvalue())
        assert expect is None or code == expect, f"{command}: exit {code}\n{said.out}\n{said.err}"
        return said

    def follow(self) -> None:
        """`ratchet run`, until all is merged."""
        self.ratchet("run", "--until-caught-up")

    def differences(self, *args: str) -> dict[str, set[tuple[Any, ...]]]:
        """keyspace.table -> (key, kind, columns, shard) of each difference that verify lists."""
        report = json.loads(self.ratchet("verify", "--json", *args, expect=None).out)
        return {
            table["table"]: {
                (tuple(d["key"].values()), d["kind"], tuple(d["columns"]), d["shard"])
                for d in table["examples"]
            }
            for table in report["tables"]
        }

    def state(self, keyspace: str, table: str) -> TableState:
        found = Tables(self.lake).load(keyspace, table)
        assert found is not None
        return found

    def path(self, keyspace: str, table: str) -> str:
        """The Delta table as Spark SQL names it."""
        return f"delta.`{self.lake.hadoop_uri(self.state(keyspace, table).path)}`"

    @contextmanager
    def _session(self, *_: object) -> Iterator[SparkSession]:
        yield self.spark
