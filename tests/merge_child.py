"""A process with a Spark session of its own, as a run has it: it merges rows when it is told to.

python -m tests.merge_child CONFIG EPOCH    # a version per line of stdin; how it went, on stdout
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from ratchet.jobs.config.config import load_config
from ratchet.jobs.engine.spark import spark_session
from ratchet.merge.delta import commit_session, view
from ratchet.store.files import Lake

APP = "ratchet.merge/one"


def main(config: Path, epoch: int) -> None:
    """Merge one row for each version that comes in."""
    loaded = load_config(config, {})
    lake = replace(Lake.at(loaded.lake), epoch=epoch)
    with spark_session(loaded, "child") as spark:
        for line in sys.stdin:
            session = commit_session(
                spark, lake=lake, path="t", app_id=APP, version=int(line), metadata={}, now=1
            )
            rows = view(session.sql(f"SELECT {int(line)}L AS id, 'new' AS text"))
            try:
                session.sql(
                    f"MERGE INTO delta.`{lake.hadoop_uri('t')}` t USING {rows} s ON t.id = s.id "
                    "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
                ).collect()
            except (PySparkException, Py4JJavaError) as error:
                went = " ".join(str(error).split())[:300]
            else:
                went = "merged"
            sys.stdout.write(f"{went}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
