"""What Java remembers of files for its end does not grow while a run lives."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
RUN = """
import sys
from pathlib import Path
from ratchet.jobs.config.config import load_config
from ratchet.jobs.engine.spark import spark_session

with spark_session(load_config(Path(sys.argv[1]), {}), "run") as spark:
    context = spark.sparkContext
    for _ in range(20):
        context.parallelize([1], 1).map(abs).collect()
    hook = context._jvm.java.lang.Class.forName("java.io.DeleteOnExitHook")
    noted = hook.getDeclaredField("files")
    noted.setAccessible(True)
    print(noted.get(None).size(), context.getConf().get("spark.python.unix.domain.socket.enabled"))
"""


@pytest.mark.long
@pytest.mark.spark
def test_no_file_is_noted_and_none_is_left(tmp_path: Path) -> None:
    config = {
        "lake": "./lake",
        "sources": {"none": {"kind": "binlog", "shards": {"-": {"host": "h", "user": "u"}}}},
        "spark": {"log_dir": "./log"},
    }
    path = tmp_path / "ratchet.yaml"
    path.write_text(yaml.safe_dump(config))
    with tempfile.TemporaryDirectory(prefix="r-") as short:  # the sockets' names have a bound
        done = subprocess.run(
            [sys.executable, "-c", RUN, str(path)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": short},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.stdout.split() == ["0", "true"], done.stderr
        assert list(Path(short).iterdir()) == []
