"""The Spark session: starting the JVM quietly, finding Delta's jars, stopping.

Lives here: the JVM process, its files and its errors. Does not live here: which settings
(`sparksettings`), which jars (`jars`).

Invariant: nothing of Spark's is on the terminal, nothing but the loopback address is listened on,
and a start needs no network once the jars are in Ivy's cache.
"""

from __future__ import annotations

import errno
import logging
import os
import secrets
import signal
import stat
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, cast

from ratchet.core.errors import ConfigError, EngineGoneError, OperatorError
from ratchet.jobs.config.config import Config
from ratchet.jobs.engine.childenv import child_environment
from ratchet.jobs.engine.classcache import archive_options, find_java
from ratchet.jobs.engine.exitfiles import forget_files_at_exit
from ratchet.jobs.engine.jars import delta_jars, jars_of, missing_packages, with_own
from ratchet.jobs.engine.logstore import build_log_store
from ratchet.jobs.engine.ownpeers import refuse_other_users
from ratchet.jobs.engine.sparksettings import (
    is_delayable,
    is_in_s3,
    is_local,
    is_open,
    launch_settings,
    pools,
    settings,
    stays_here,
)
from ratchet.jobs.engine.tempfolder import HeldFolder, held_folder
from ratchet.owned import distrust, openings
from ratchet.resources import CONF, IMPORTED_FROM, make_folder
from ratchet.store import crashpoints, layout
from ratchet.store.files import Lake
from ratchet.store.lazyspark import LazySession
from ratchet.wire.secrets import Ways, set_ways

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log: Final = logging.getLogger(__name__)

LOG4J: Final = CONF / "log4j2.properties"
_MAX_OUT: Final = 10 << 20
_TAIL: Final = 100_000  # characters of its output; what Ivy lacks stands before a long trace
_JAVA_HINT: Final = "Java 17 is needed (apt-get install openjdk-17-jre-headless, or set JAVA_HOME)"


@contextmanager
def spark_session(config: Config, command: str) -> Iterator[SparkSession]:
    """A session for one command, started when it is used, stopped at the end.

    Args:
        config: the whole config.
        command: names the log file.

    Raises:
        OperatorError: Java or Delta's jars are missing.
        EngineGoneError: the JVM has ended by itself.
    """
    # Now, not in the middle of a night.
    if stays_here(config) and not os.access(find_java(), os.X_OK):
        raise OperatorError(
            f"there is no Java: {find_java()}", operation="start Spark", hint=_JAVA_HINT
        )
    # Where it lies cannot be asked of a lake that has failed.
    folder = log_folder(config)
    with held_folder() as home:
        lazy = LazySession(lambda: _start(config, command, home, folder))
        try:
            yield cast("SparkSession", lazy)
        except Exception as error:
            if not lazy.is_started:
                raise
            # Its text can only be had while the JVM lives.
            from ratchet.merge.failures import engine_has_ended, spark_failure

            log_file = folder / f"{command}.log"
            if engine_has_ended(lazy.session):  # then whatever failed behind it tells nothing
                raise EngineGoneError(
                    "Spark's JVM has ended",
                    operation=command,
                    hint=f"the end of {log_file} says why (it ran out of something, or was "
                    "killed); start again: nothing was lost",
                ) from error
            known = spark_failure(error, command, log=str(log_file))
            if known is None:
                raise
            raise known from None
        finally:
            if lazy.is_started:
                _stop(lazy.session)


def log_folder(config: Config) -> Path:
    """Where Spark's log of this config goes; made if it is missing.

    `spark.log_dir` of the config; else in the lake, if that is a folder of ours that we may write;
    else below ~/.local/state.

    Raises:
        ConfigError: others could make our log go to a file of their choice.
        OperatorError: it cannot be made.
    """
    in_lake = False
    if config.spark.log_dir is not None:
        folder = config.path.resolve().parent / Path(config.spark.log_dir).expanduser()
    else:
        lake = Lake.at(config.lake)
        folder = Path(lake.root) / layout.PRIVATE / "logs"
        ours = lake.is_local and (Path(lake.root) / layout.FORMAT_FILE).exists()
        writable = os.access(folder if folder.exists() else folder.parent, os.W_OK)
        in_lake = ours and writable and not distrust(folder)
        if not in_lake:
            state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
            folder = Path(state) / "ratchet"
    try:
        # Ours alone, where it lies outside the lake; in it, as readable as the lake is.
        make_folder(folder, 0o755 if in_lake else 0o700)
    except OSError as error:
        raise OperatorError(
            f"the folder for Spark's log cannot be made: {folder}",
            operation="start Spark",
            hint="set spark.log_dir in the config to a folder that can be written",
        ) from error
    if not in_lake:  # whoever may write to the lake is trusted
        _refuse_shared(folder)
    return folder


def _refuse_shared(folder: Path) -> None:
    """Others could put links to our own files there, and our log would be written into those.

    Groups that may write to a folder above are let be: a system's /var/log has one.

    Raises:
        ConfigError: they can, or could when they made it.
    """
    own = folder.resolve()
    for found in openings(folder / "log"):
        if found.by == "group" and found.place != own:
            continue
        raise ConfigError(
            f"Spark's log cannot go to {folder}: {found}, so another user decides where it is "
            "written to",
            operation="start Spark",
            hint="set spark.log_dir in the config to a folder of this user that nobody else may "
            "write to (mode 0700)",
        )


def _start(config: Config, command: str, home: HeldFolder, folder: Path) -> SparkSession:
    log.info("starting Spark")
    log.debug("what needs it", stack_info=True)
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    _hush()
    (home.path / "pools.xml").write_text(pools(config), encoding="utf-8")
    given = settings(
        config,
        home=home.path,
        log_file=folder / f"{command}.log",
        log4j=LOG4J,
        java=archive_options(delta_jars(config)) if is_local(config) else [],
        secret=secrets.token_hex(32),
    )
    _warn(config, given)
    set_ways(_ways(config, given))
    # For good: whatever is started from now on gets none of them.
    for name in os.environ.keys() - child_environment(os.environ, config.variables).keys():
        del os.environ[name]
    out = folder / f"{command}.out"
    _begin_anew(out)
    _private(folder / f"{command}.log").close()  # Java would follow a link, and now there is none
    if packages := missing_packages(config):
        _end(_launch({**given, **packages}, out, home))
    jars = jars_of(config)
    if is_in_s3(config):
        jars = with_own(jars, config, str(build_log_store(home.path, delta_jars(config))))
    given.update(jars.settings)
    _set_environment(local=stays_here(config), class_path=jars.last)
    gateway = _launch(given, out, home)
    if not refuse_other_users(gateway):
        log.warning(
            "the kernel does not tell whose a connection is (/proc/net/tcp), so other users of "
            "this machine may fill Java's memory: run it in a container of its own"
        )
    full = SparkConf(loadDefaults=False)
    full.setAll(list(given.items()))
    interrupted = signal.getsignal(signal.SIGINT)
    context = SparkContext(conf=full, gateway=gateway)
    if not is_delayable(given):
        forget_files_at_exit(gateway.jvm, gateway)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, interrupted)  # PySpark's own handler cancels all jobs
    return SparkSession(context)


def _warn(config: Config, given: Mapping[str, str]) -> None:
    if is_open(given):
        log.warning(
            "Spark's ports answer anybody who reaches them: set spark.authenticate.secret in "
            "spark.conf (docs/operations.md, 'On a Spark cluster')"
        )
    if stays_here(config) and is_delayable(given):
        log.warning(
            "the temporary directory's name is too long for sockets in it, so other users of this "
            "machine may hold up Spark's work: set TMPDIR to a folder with a shorter name"
        )


def _launch(given: Mapping[str, str], out: Path, home: HeldFolder) -> Any:
    """Start a JVM, and fetch what its settings want fetched.

    Args:
        given: the session's settings.
        out: takes its own output and the Python workers'; what log4j writes goes to the log file.
        home: the folder for its temporary files, which it holds for as long as it lives.

    Raises:
        OperatorError: it did not start.
    """
    from pyspark import SparkConf
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    launch = SparkConf(loadDefaults=False)
    launch.setAll(list(launch_settings(given).items()))
    with _private(out) as stream:
        try:
            return launch_gateway(  # type: ignore[no-untyped-call]
                # Signals to our process group (Ctrl-C, `timeout`) are for us: we end the JVM when
                # a step is done, and it ends by itself when we are gone (its stdin closes).
                launch,
                # Others may make files in the current folder, and Spark and Python look there.
                {
                    "stdout": stream,
                    "stderr": stream,
                    "start_new_session": True,
                    "cwd": "/",
                    "pass_fds": (home.lock,),
                },
            )
        except PySparkRuntimeError as error:
            raise _no_jvm(out) from error


def _end(gateway: Any) -> None:
    """End a JVM."""
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


def _begin_anew(out: Path) -> None:
    """Put a long one aside."""
    try:
        if out.lstat().st_size > _MAX_OUT:
            out.replace(f"{out}.1")
    except FileNotFoundError:
        return
    except OSError as error:
        raise _no_log(out, f"{error.strerror}") from error


def _private(path: Path) -> IO[bytes]:
    """A file of ours to be written on at its end, that nobody else can read.

    Raises:
        OperatorError: there is a link, or what is somebody else's, or it cannot be written.
    """
    # Somebody else's pipe would hold us up.
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        opened = os.open(path, flags, 0o600)
    except OSError as error:
        is_link = error.errno == errno.ELOOP
        raise _no_log(path, "it is a link" if is_link else f"{error.strerror}") from error
    stream = os.fdopen(opened, "ab")
    found = os.fstat(opened)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
        stream.close()
        raise _no_log(path, "it is no file of this user's")
    if stat.S_IMODE(found.st_mode) & 0o077:
        os.fchmod(opened, 0o600)  # made before by a version that left it open
    return stream


def _no_log(path: Path, reason: str) -> OperatorError:
    return OperatorError(
        f"Spark's log {path} cannot be written: {reason}",
        operation="start Spark",
        hint="remove it, or set spark.log_dir in the config to a folder of this user",
    )


def _ways(config: Config, given: Mapping[str, str]) -> Ways:
    """How executors on other machines come by the sources' passwords."""
    if stays_here(config):
        return Ways()
    named = {
        os.environ[name]: name
        for name in config.variables
        if os.environ.get(name) in config.secrets
    }
    encrypts = given.get("spark.network.crypto.enabled", "false").lower() == "true"
    return Ways(variables=named, sends=encrypts and not is_open(given))


def _hush() -> None:
    """PySpark prints every error of a query as JSON besides raising it."""
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True


def _stop(session: SparkSession) -> None:
    from py4j.protocol import Py4JError
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway  # noqa: SLF001 - PySpark has no public way to end its JVM
    try:
        session.stop()
    except (Py4JError, OSError):
        return  # the JVM has gone already: nothing is left to stop
    if gateway is not None:
        _end(gateway)
        SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001 - as above


def _set_environment(*, local: bool, class_path: Sequence[str]) -> None:
    """For the JVM and the Python workers that it starts."""
    from ratchet.jobs.engine.sparkhome import use_own_spark

    use_own_spark()
    _extend("SPARK_DIST_CLASSPATH", class_path)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if local:
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    if os.environ.get(crashpoints.VARIABLE):
        os.environ[crashpoints.PROCESS] = str(os.getpid())
    # The workers import our packages wherever this process found them.
    _extend("PYTHONPATH", [str(IMPORTED_FROM)])


def _extend(variable: str, paths: Sequence[str]) -> None:
    """Put paths at the head of a search path, those that it has not got yet."""
    have = list(filter(None, os.environ.get(variable, "").split(os.pathsep)))
    new = [path for path in paths if path not in have]
    if new:
        os.environ[variable] = os.pathsep.join([*new, *have])


def _no_jvm(out: Path) -> OperatorError:
    tail = out.read_text(encoding="utf-8", errors="replace")[-_TAIL:].strip()
    last = tail.splitlines()[-1] if tail else "no output"
    if "unresolved dependenc" in tail.lower() or ("not found" in last and "io.delta" in tail):
        return OperatorError(
            "jars that Spark needs are not in Ivy's cache, and cannot be fetched",
            operation="start Spark",
            hint="once with a network: `make setup` for Delta's, a run for the client of an "
            f"S3 lake; the log is {out}",
        )
    return OperatorError(
        f"the JVM did not start: {last}",
        operation="start Spark",
        hint=f"{_JAVA_HINT}; its output is in {out}",
    )
