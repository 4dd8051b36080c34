"""The class by which Spark commits into S3 with a condition: compiled when a session starts.

Lives here: from its source (`conf/ConditionalLogStore.java`) to a jar. Does not live here: how the
jar comes into the session (`jars`), and that Delta uses it (`sparksettings`).

Invariant: neither a compiler nor a network is needed. Spark brings Janino, which compiles its own
generated code, and it compiles this class as well.
"""

from __future__ import annotations

import subprocess
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ratchet.core.errors import OperatorError
from ratchet.jobs.engine.classcache import find_java
from ratchet.jobs.engine.jars import spark_jars
from ratchet.resources import CONF

SOURCE: Final = CONF / "ConditionalLogStore.java"
_COMPILER: Final = "org.codehaus.commons.compiler.samples.CompilerDemo"
# What the class is made of: Delta's stores, and Hadoop's file systems.
_DELTA: Final = "io.delta_delta-storage-"
_WITHIN: Final = 120.0  # seconds; it takes 1.4 on a small machine


def build_log_store(folder: Path, delta: Sequence[str]) -> Path:
    """A jar with the class, in a folder that nobody else can write to.

    Args:
        folder: of this session alone.
        delta: Delta's jars.

    Raises:
        OperatorError: Java did not compile it.
    """
    classes = folder / "logstore"
    classes.mkdir()
    compiler = [*_spark_jar("janino-"), *_spark_jar("commons-compiler-")]
    known = [jar for jar in delta if Path(jar).name.startswith(_DELTA)]
    known += _spark_jar("hadoop-client-api-")
    told = ["-encoding", "UTF-8", "-g:lines", "-d", str(classes), "-classpath", ":".join(known)]
    java = [str(find_java()), "-XX:-UsePerfData", f"-Djava.io.tmpdir={folder}"]
    command = [*java, "-cp", ":".join(compiler), _COMPILER, *told, str(SOURCE)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_WITHIN, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _failed(str(error)) from error
    made = sorted(classes.rglob("*.class"))
    if done.returncode or not made:
        raise _failed((done.stderr + done.stdout).strip()[-2000:])
    jar = folder / "ratchet-logstore.jar"
    with zipfile.ZipFile(jar, "w") as packed:
        for one in made:
            packed.write(one, one.relative_to(classes))
    return jar


def _spark_jar(prefix: str) -> list[str]:
    return [str(path) for path in spark_jars().glob(f"{prefix}*.jar")]


def _failed(reason: str) -> OperatorError:
    return OperatorError(
        f"Java did not compile {SOURCE.name}: {reason}",
        operation="start Spark",
        hint="Spark commits into S3 by it; Java 17 or later is needed (JAVA_HOME), and pyspark, "
        "delta-spark and ratchet as they were installed together",
    )
