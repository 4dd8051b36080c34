"""How tables are read follows from the config in one place, for all who read them."""

from __future__ import annotations

import ast
from pathlib import Path

from ratchet.jobs.config.config import load_config
from ratchet.jobs.inspect.reading import reading_of

JOBS = Path(__file__).parents[3] / "jobs"
TEXT = """\
lake: ./lake
sources:
  shop:
    kind: binlog
    shards:
      "-":
        {host: db.example, user: r, password: x, replicas: [one.example, "two.example:3307"]}
snapshot: {max_rows_per_second: 200, max_threads_running: 7, max_replica_lag: 3s, chunk_rows: 50}
types: {zero_dates: text}
"""


def test_the_config_says_how_tables_are_read(tmp_path: Path) -> None:
    path = tmp_path / "ratchet.yaml"
    path.write_text(TEXT)
    found = reading_of(load_config(path), {"shop/-": 3})
    (shard,) = found.shards.values()
    assert shard.generation == 3
    assert [(one.host, one.port) for one in shard.replicas] == [
        ("one.example", 3306),
        ("two.example", 3307),
    ]
    limits = found.settings.throttle.limits
    assert (limits.rows_per_second, limits.threads_running, limits.replica_lag) == (200, 7, 3)
    assert found.settings.chunk_rows == 50
    assert found.settings.policy.zero_dates == "text"
    assert found.settings.throttle.most_rows(1_000_000) == 400


def test_nobody_else_says_it_again() -> None:
    """A second composition would drift from the first one: verify had lost the throttle so."""
    made = {"ShardSource", "DumpSettings", "ThrottleLimits", "Throttle", "InvalidValuePolicy"}
    found = {
        path.name: name
        for path in sorted(JOBS.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and (name := getattr(node.func, "id", "")) in made
    }
    assert found == {"config.py": "InvalidValuePolicy", "reading.py": found["reading.py"]}
