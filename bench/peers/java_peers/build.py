"""Makes a Java peer runnable: its jars fetched by Ivy, its program compiled, its JVM started.

Lives here: what every Java peer shares. Does not live here: which jars they are, their settings
(`bench.peers.debezium`, `bench.peers.flink`), the programs (`*.java` beside this file).

Invariant: jars and classes lie in the cache, in folders named by all that they were made of.
Only the first run needs a network.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lab.cache import prepared
from lab.places import cache

_IVY: Final = """<ivy-module version="2.0"><info organisation="bench" module="{name}"/>
<configurations><conf name="default"/></configurations><dependencies>
{dependencies}
</dependencies></ivy-module>"""


@dataclass(frozen=True, slots=True)
class Program:
    """A Java program with what it needs.

    Attributes:
        name: of its class; `NAME.java` beside this file.
        jars: Maven coordinates, all pinned; Ivy finds what those need.
        alone: the same, of jars that hold all they need and whose own lists are not asked.
        options: of the JVM.
    """

    name: str
    jars: Sequence[str]
    alone: Sequence[str] = ()
    options: Sequence[str] = ()

    def run(self, job: Mapping[str, object], folder: Path) -> dict[str, str]:
        """Run it with a job, as a child of this process, to its end; what it found out.

        Args:
            job: what it gets as lines on its standard input: passwords stand in no list of
                processes.
            folder: an existing one, for its answer.
        """
        outcome = folder / "outcome"
        outcome.unlink(missing_ok=True)
        text = "".join(f"{name}={value}\n" for name, value in {**job, "outcome": outcome}.items())
        jars, classes = self.prepare()
        path = os.pathsep.join([str(classes), f"{jars}/*"])
        log = ["-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
        command = [_tool("java"), *self.options, *log, "-cp", path, self.name]
        with subprocess.Popen(command, stdin=subprocess.PIPE, text=True) as process:
            signal.signal(signal.SIGTERM, lambda *_: process.terminate())
            assert process.stdin is not None
            # It stays open: its end tells the program that this process is gone, however it went.
            process.stdin.write(text + "\n")
            process.stdin.flush()
            process.wait()
        if process.returncode:
            sys.exit(f"the Java program {self.name} ended with {process.returncode}")
        pairs = (line.partition("=") for line in outcome.read_text().splitlines())
        return {name: value for name, _, value in pairs}

    def prepare(self) -> tuple[Path, Path]:
        """Its jars and its classes, fetched and compiled if they are not there yet."""
        jars = self._jars()
        return jars, self._classes(jars)

    def _jars(self) -> Path:
        return prepared(
            _folder() / f"{self.name}-{_digest(*self.jars, 'alone', *self.alone)}", self._fetch
        )

    def _fetch(self, folder: Path) -> None:
        rows = []
        for jar in (*self.jars, *self.alone):
            organisation, module, revision = jar.split(":")
            also = "false" if jar in self.alone else "true"
            rows.append(
                f'<dependency org="{organisation}" name="{module}" rev="{revision}" '
                f'conf="default->default" transitive="{also}"/>'
            )
        wanted = folder / "ivy.xml"
        wanted.write_text(_IVY.format(name=self.name, dependencies="\n".join(rows)))
        command = [_tool("java"), "-jar", str(_ivy_jar()), "-m2compatible", "-ivy", str(wanted)]
        command += ["-cache", str(_folder() / "ivy"), "-types", "jar", "bundle", "maven-plugin"]
        command += ["-retrieve", f"{folder}/[artifact]-[revision](-[classifier]).[ext]"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"Ivy cannot fetch the jars of {self.name}:\n{done.stdout[-3000:]}")
        print(f"{self.name}: fetched {len(list(folder.glob('*.jar')))} jars", file=sys.stderr)

    def _classes(self, jars: Path) -> Path:
        sources = [Path(__file__).with_name(f"{name}.java") for name in (self.name, "JobLines")]

        def build(folder: Path) -> None:
            command = [
                _tool("javac"),
                "--release",
                "17",
                "-cp",
                f"{jars}/*",
                "-d",
                str(folder),
                *map(str, sources),
            ]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                sys.exit(f"{self.name} does not compile:\n{done.stderr[-3000:]}")

        digest = _digest(*(source.read_text() for source in sources), jars.name)
        return prepared(_folder() / f"{self.name}-classes-{digest}", build)


def _folder() -> Path:
    folder = cache() / "peers" / "java"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _digest(*texts: str) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:12]


def _ivy_jar() -> Path:
    """Ivy itself: Spark brings it."""
    import pyspark

    (found,) = (Path(str(pyspark.__file__)).parent / "jars").glob("ivy-*.jar")
    return found


def _tool(name: str) -> str:
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(name, path=f"{home}/bin" if home else None) or shutil.which(name)
    if found is None:
        sys.exit(f"there is no {name}: the Java peers need a JDK of 17 or newer, not a JRE alone")
    return found
