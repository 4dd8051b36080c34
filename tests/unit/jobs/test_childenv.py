"""What children get of our environment."""

from __future__ import annotations

from pathlib import Path

from ratchet.jobs.config.config import load_config
from ratchet.jobs.engine.childenv import child_environment

CONFIG = """\
lake: "s3://${BUCKET}/lake"
sources:
  shop:
    kind: binlog
    shards: {"-": {host: "${HOST}", standbys: ["${OTHER}"], user: u, password: "a${PW}b"}}
spark: {conf: {spark.hadoop.fs.s3a.secret.key: "${AWS_SECRET_ACCESS_KEY}"}}
"""


def test_what_the_sources_name_is_not_in_it(tmp_path: Path) -> None:
    """The lake's keys stay: workers write there."""
    path = tmp_path / "ratchet.yaml"
    path.write_text(CONFIG)
    kept = {"BUCKET": "b", "AWS_SECRET_ACCESS_KEY": "k", "HOME": "/h"}
    own = {**kept, "HOST": "one", "OTHER": "two", "PW": "x"}
    config = load_config(path, own)
    assert config.variables == {"HOST", "OTHER", "PW"}
    assert child_environment(own, config.variables) == kept
    assert child_environment(own, ()) == own
    assert child_environment({}, config.variables) == {}
