"""The JVM's class archive: what halves the start of every command (application class-data sharing).

Spark and Delta load some 20,000 classes before the first row moves, most of a short command's time.
`python -m ratchet.jobs.engine.classcache` (part of `make setup` and of the image) runs what
commands run once, and lets the JVM write those classes down in a form that is mapped into memory
instead of parsed.

Lives here: where the archive lies, and making it. Does not live here: starting the JVM (`spark`).

Invariant: an archive can only save time. The JVM compares it with its own version and with the jars
of its class path, and without a word does without one that does not fit.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ratchet.owned import distrust_code
from ratchet.resources import cache_folder, make_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log: Final = logging.getLogger(__name__)

_UNUSED: Final = 14 * 86_400  # seconds
_CONFIG: Final = """\
lake: ./lake
sources:
  none: {kind: binlog, shards: {"-": {host: 127.0.0.1, user: none}}}
spark: {log_dir: ./log, conf: {spark.driver.extraJavaOptions: "-XX:ArchiveClassesAtExit=%s"}}
"""
_MERGE: Final = """
MERGE INTO delta.`{table}` t USING changes s ON t.id = s.id AND t.id BETWEEN 0 AND 9
WHEN MATCHED AND NOT s.dead AND s.token.seq > t._token.seq
  THEN UPDATE SET t.v = s.v, t._token = s.token
WHEN MATCHED AND s.dead THEN DELETE
WHEN NOT MATCHED AND NOT s.dead THEN INSERT (id, v, _token) VALUES (s.id, s.v, s.token)
"""


def archive_options(jars: Sequence[str]) -> list[str]:
    """The JVM's options for using the archive; none if it has not been made.

    Args:
        jars: what stands on the class path before PySpark's own jars.
    """
    try:
        archive = _archive(jars)
    except OSError:
        return []  # no home that can be written, as services have it: then there is no archive
    if not archive.exists():
        return []
    import pyspark

    # Java runs what is in it: without one that somebody else may have written a start takes longer.
    program = Path(str(pyspark.__file__))
    reason = distrust_code(archive, program=program)
    if reason:
        log.warning("Java's class archive is not used: %s; remove it, and make it again", reason)
        return []
    with suppress(OSError):
        archive.touch()  # it is in use: see remove_old
    # Where it does not fit (any more), nobody needs a line about it.
    return [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off"]


def _archive(jars: Sequence[str]) -> Path:
    """Its place; another one for each Java, PySpark and Delta."""
    import pyspark

    java = find_java().resolve()
    changed = java.stat().st_mtime_ns if java.exists() else 0
    parts = (str(java), str(changed), str(pyspark.__file__), pyspark.__version__, *jars)
    name = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
    return cache_folder() / "jvm" / f"classes-{name}.jsa"


def find_java() -> Path:
    """The program that Spark starts, whether it is there or not."""
    home = os.environ.get("JAVA_HOME")
    return Path(home, "bin", "java") if home else Path(shutil.which("java") or "java")


def main() -> None:
    """Make the archive, unless it is there."""
    from ratchet.jobs.config.config import load_config
    from ratchet.jobs.engine.jars import delta_jars
    from ratchet.jobs.engine.spark import spark_session

    jars = delta_jars()
    if not jars:
        sys.exit("Delta's jars are not there yet: run scripts/fetch_jars.py first")
    archive = _archive(jars)
    if archive.exists():
        return
    make_folder(archive.parent)
    with tempfile.TemporaryDirectory(prefix="ratchet-classes-") as folder:
        fresh = archive.with_suffix(f".{os.getpid()}")
        path = Path(folder, "ratchet.yaml")
        path.write_text(_CONFIG % fresh, encoding="utf-8")
        try:
            with spark_session(load_config(path, {}), "classes") as spark:
                _rehearse(spark, Path(folder, "table"))
            if not fresh.exists():  # the JVM writes it when it ends
                log = Path(folder, "log", "classes.out").read_text(encoding="utf-8")
                sys.exit(f"Java has not written a class archive; its last output:\n{log[-2000:]}")
            fresh.replace(archive)
        finally:
            fresh.unlink(missing_ok=True)
    archive.chmod(0o644)
    remove_old(archive.parent)
    print(f"Java's class archive is made ({archive.stat().st_size >> 20} MB)")


def remove_old(folder: Path) -> None:
    """Remove archives that nobody has used for long: each checkout has one, of 200 MB."""
    for archive in folder.glob("classes-*.jsa"):
        with suppress(FileNotFoundError):
            if archive.stat().st_mtime < time.time() - _UNUSED:
                archive.unlink()


def _rehearse(spark: SparkSession, table: Path) -> None:
    """Use what commands use: tasks in Python, Delta tables, MERGE, old versions, Parquet."""
    spark.sparkContext.parallelize([1, 2], 2).mapPartitions(list).collect()
    newest = "named_struct('ts', now(), 'seq', id)"
    rows = spark.sql(f"SELECT id, CAST(id AS string) AS v, {newest} AS _token FROM range(20)")
    rows.write.format("delta").option("delta.enableDeletionVectors", "true").save(str(table))
    files = f"{table}-changes"
    spark.sql(
        f"SELECT id + 5 AS id, 'x' AS v, {newest} AS token, id % 3 = 0 AS dead FROM range(20)"
    ).write.parquet(files)
    session = spark.newSession()
    session.read.parquet(files).createTempView("files")
    changes = session.sql(
        "SELECT id, v, token, dead FROM (SELECT *, row_number() OVER "
        "(PARTITION BY id ORDER BY token.seq DESC) AS nth FROM files) WHERE nth = 1"
    ).localCheckpoint()
    changes.createTempView("changes")
    for _ in range(2):
        session.sql(_MERGE.format(table=table)).collect()
    changes.selectExpr("id", "v", "token AS _token").write.format("delta").mode("append").save(
        str(table)
    )
    spark.sql("CREATE DATABASE IF NOT EXISTS shop")
    spark.sql(f"CREATE VIEW shop.t AS SELECT * FROM delta.`{table}` VERSION AS OF 1")
    query = (
        "SELECT a.v, count(*) AS n, max(a._token.ts) AS ts FROM shop.t a JOIN shop.t b USING (id) "
        "WHERE a.id > 3 GROUP BY a.v ORDER BY n DESC LIMIT 5"
    )
    list(spark.sql(query).toLocalIterator())
    spark.sql(f"SELECT count(*) FROM delta.`{table}`").collect()


if __name__ == "__main__":
    main()
