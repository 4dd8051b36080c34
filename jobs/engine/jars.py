"""Which jars a session needs besides Spark's own: Delta's, and an object store's client.

Lives here: their names, finding them in Ivy's cache, the settings that bring them in. Does not live
here: starting the JVM (`spark`).

Invariants: what Ivy has in its cache is named by its files, so that a start needs no network; and
what Ivy has fetched is compared with what was released before Java runs it.
"""

from __future__ import annotations

import importlib.metadata
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from ratchet.core.errors import OperatorError
from ratchet.jobs.config.config import Config
from ratchet.jobs.engine.jarhashes import altered
from ratchet.jobs.engine.sparksettings import is_in_s3, is_local
from ratchet.owned import distrust_code

log: Final = logging.getLogger(__name__)

_SCALA: Final = "2.13"
# What Ivy's cache calls the files of Hadoop's client for S3, besides its own: the SDK has 690 MB.
_S3_PARTS: Final = (
    "software.amazon.awssdk_bundle-",
    "software.amazon.s3.analyticsaccelerator_analyticsaccelerator-s3-",
    "org.wildfly.openssl_wildfly-openssl-",
)


@dataclass(frozen=True, slots=True)
class Jars:
    """How the jars of one session come in.

    Attributes:
        settings: of Spark's.
        last: files that stand at the end of the JVM's class path, where they leave the class
            archive valid.
    """

    settings: Mapping[str, str]
    last: Sequence[str] = ()


def delta_packages() -> dict[str, str]:
    """The settings by which Ivy fetches Delta's jars, where there is no config yet."""
    return {"spark.jars.packages": _delta_package(), "spark.jars.ivy": str(ivy_folder())}


def missing_packages(config: Config) -> dict[str, str]:
    """The settings by which Ivy fetches the jars that its cache lacks; {} if it lacks none."""
    packages = [] if delta_jars(config) else [_delta_package()]
    if _wants_s3(config) and s3_jars(config) is None:
        packages.append(_s3_package())
        log.info("fetching Hadoop's client for S3 (690 MB, once)")
    if not packages:
        return {}
    return {"spark.jars.packages": ",".join(packages), "spark.jars.ivy": str(ivy_folder(config))}


def jars_of(config: Config) -> Jars:
    """The jars that a config's session needs: files in Ivy's cache.

    Raises:
        OperatorError: one is missing, or is not what was released, or others may write to it.
    """
    delta = delta_jars(config)
    store = s3_jars(config) if _wants_s3(config) else []
    if not delta or store is None:
        raise OperatorError(
            "jars are missing in Ivy's cache",
            operation="start Spark",
            hint=f"run `make setup` once with a network; they lie in {_cached(config)} then",
        )
    _refuse_foreign([*delta, *store])
    _refuse_altered([*delta, *store])
    if is_local(config):
        # On the class path at once: as spark.jars they would be copied for every session.
        name = "spark.driver.extraClassPath"
        return Jars(_joined(config, name, delta, ":"), last=store)
    return Jars(_joined(config, "spark.jars", [*delta, *store], ","))


def with_own(jars: Jars, config: Config, own: str) -> Jars:
    """A session's jars with one that was made for it.

    Args:
        jars: those of `jars_of`.
        config: the whole config.
        own: its path; nobody else may write to it.
    """
    if is_local(config):
        return replace(jars, last=[*jars.last, own])
    name = "spark.jars"
    return replace(jars, settings={**jars.settings, name: f"{jars.settings[name]},{own}"})


def _refuse_foreign(jars: Sequence[str]) -> None:
    """Java runs what is in them: nobody else may have written it."""
    for jar in map(Path, jars):
        if reason := distrust_code(jar):
            raise OperatorError(
                f"a jar is not safe to run: {reason}",
                operation="start Spark",
                hint=f"give {jar.parent}, what is in it and the folders above it to this user or "
                "to root, writable by nobody else (chmod -R go-w), or fetch the jars into another "
                "folder (spark.jars.ivy in spark.conf)",
            )


def _refuse_altered(jars: Sequence[str]) -> None:
    """Java runs what is in them: it has to be what was released."""
    if wrong := altered(map(Path, jars)):
        folder = wrong[0].parent
        raise OperatorError(
            f"jars are not the ones that were released: {', '.join(jar.name for jar in wrong)}",
            operation="start Spark",
            hint=f"remove them from {folder} and from {folder.parent / 'cache'}, and fetch them "
            "again (`make setup`); if they still differ, the place that they are fetched from has "
            "been changed",
        )


def delta_jars(config: Config | None = None) -> list[str]:
    """Delta's jars in Ivy's cache; empty if they are not all there.

    Args:
        config: may name Ivy's folder; None for the usual one.
    """
    from pyspark import __version__ as spark_version

    version = importlib.metadata.version("delta-spark")
    found = sorted(
        path
        for path in _cached(config).glob("io.*.jar")
        if path.name.startswith(("io.delta_delta-", "io.unitycatalog_"))
        # Other versions may lie there as well.
        and (not path.name.startswith("io.delta_") or path.name.endswith(f"-{version}.jar"))
    )
    artifact = _artifact(spark_version)
    wanted = {f"io.delta_{artifact}-{version}.jar", f"io.delta_delta-storage-{version}.jar"}
    return [str(path) for path in found] if wanted <= {path.name for path in found} else []


def s3_jars(config: Config) -> list[str] | None:
    """The jars of Hadoop's client for S3 in Ivy's cache; None if they are not all there.

    Of several versions of a part the newest file: it came with the newest client.
    """
    ivy = _cached(config)
    client = ivy / f"org.apache.hadoop_hadoop-aws-{_hadoop()}.jar"
    found = [client] if client.exists() else []
    for part in _S3_PARTS:
        files = sorted(ivy.glob(f"{part}*.jar"), key=lambda path: path.stat().st_mtime)
        found += files[-1:]
    return [str(path) for path in found] if len(found) == 1 + len(_S3_PARTS) else None


def _wants_s3(config: Config) -> bool:
    """Whether the client for S3 is ours to bring: neither Spark's own jars nor the config do."""
    if not is_in_s3(config):
        return False
    if any("hadoop-aws" in value for value in config.spark.conf.values()):
        return False
    return not list(spark_jars().glob("hadoop-aws-*.jar"))


def _joined(config: Config, name: str, values: Sequence[str], by: str) -> dict[str, str]:
    return {name: by.join(filter(None, (*values, config.spark.conf.get(name))))}


def ivy_folder(config: Config | None = None) -> Path:
    """Where Ivy keeps what it has fetched: as the config says, or below $HOME.

    Sessions that fetch are told so (`spark.jars.ivy`): Java by itself takes the user's home from
    the list of users, which in a container, or where HOME is set, may be another folder.
    """
    conf = config.spark.conf if config is not None else {}
    return Path(conf.get("spark.jars.ivy", "~/.ivy2.5.2")).expanduser()


def _cached(config: Config | None) -> Path:
    return ivy_folder(config) / "jars"


def _delta_package() -> str:
    from pyspark import __version__ as spark_version

    return f"io.delta:{_artifact(spark_version)}:{importlib.metadata.version('delta-spark')}"


def _s3_package() -> str:
    return f"org.apache.hadoop:hadoop-aws:{_hadoop()}"


def _artifact(spark_version: str) -> str:
    return f"delta-spark_{'.'.join(spark_version.split('.')[:2])}_{_SCALA}"


def _hadoop() -> str:
    """The version of the Hadoop that Spark brings; the client must be of the very same."""
    (found,) = spark_jars().glob("hadoop-client-api-*.jar")
    return found.stem.removeprefix("hadoop-client-api-")


def spark_jars() -> Path:
    """The folder of the jars that PySpark brings."""
    import pyspark

    return Path(str(pyspark.__file__)).parent / "jars"
