"""The config file as a whole: loading it, and what must agree between its keys.

Lives here: `Config`, `load_config`, the rules about sources and shards. Does not live here: the
keys of the sections (`settings`) and YAML (`yamlfile`).

Invariant: a `Config` is complete and consistent. Each key of the file is a field, and each field is
explained in conf/example.yaml (a test holds both to it).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, cast

from ratchet.core.errors import ConfigError
from ratchet.core.keyrange import KeyRange
from ratchet.core.patterns import TablePatterns
from ratchet.core.shard import ShardId
from ratchet.core.types import InvalidValuePolicy
from ratchet.jobs.config.settings import (
    DAY,
    SECTIONS,
    CaptureSection,
    KeyMode,
    MergeSection,
    ShardConfig,
    SnapshotSection,
    SourceSection,
    SparkSection,
    TypesSection,
    VerifySection,
    VtgateSection,
    is_null,
    keys_of,
    secret_file,
    text,
)
from ratchet.jobs.config.yamlfile import ConfigNode, read_yaml
from ratchet.jobs.reporting.terminal import is_text
from ratchet.wire.vtgate import TabletType

T = TypeVar("T")


LAKE_WAIT: Final = 300.0  # seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """A whole config file.

    Attributes:
        path: the file.
        lake: an absolute path, or a URL.
        sources: keyspace -> source.
        capture: see CaptureSection.
        snapshot: see SnapshotSection.
        merge: see MergeSection.
        verify: see VerifySection.
        types: see TypesSection.
        spark: see SparkSection.
        lake_umask: which modes new files of the lake do not get; None: as the process's umask says.
        lake_wait: how long a run waits for a lake that is full or out of reach, seconds.
        variables: names of the environment variables that the sources' part of the file names.
        secret_files: files that hold passwords; the config itself, if passwords stand in it.
    """

    path: Path
    lake: str
    sources: Mapping[str, SourceSection]
    capture: CaptureSection
    snapshot: SnapshotSection
    merge: MergeSection
    verify: VerifySection
    types: TypesSection
    spark: SparkSection
    lake_umask: int | None = None
    lake_wait: float = LAKE_WAIT
    variables: frozenset[str] = frozenset()
    secret_files: tuple[Path, ...] = ()

    @property
    def shards(self) -> Mapping[ShardId, ShardConfig]:
        """All shards of all sources, in the file's order."""
        return {
            ShardId(keyspace, name): shard
            for keyspace, source in self.sources.items()
            for name, shard in source.shards.items()
        }

    @property
    def policy(self) -> InvalidValuePolicy:
        """What becomes of values that Delta cannot hold."""
        return InvalidValuePolicy(zero_dates=self.types.zero_dates)

    def mirrors(self, keyspace: str, table: str) -> bool:
        """Whether `tables` of that source takes the table in."""
        source = self.sources.get(keyspace)
        return source is not None and source.tables.matches(table)

    @property
    def secrets(self) -> frozenset[str]:
        """What must never be written anywhere."""
        gates = (source.vtgate for source in self.sources.values())
        found = {shard.password for shard in self.shards.values()}
        found |= {gate.password for gate in gates if gate is not None}
        return frozenset(found - {""})


TOP_KEYS: Final = ("lake", "lake_umask", "lake_wait", "sources", *SECTIONS)
SOURCE_KEYS: Final = (
    "kind",
    "shards",
    "vitess",
    "tables",
    "key",
    "schema_changes",
    "virtual_columns",
)
VITESS_KEYS: Final = ("kind", "vtgate", "tablet_type", "tables", "key", "schema_changes")
TABLET_TYPES: Final = ("primary", "replica", "rdonly")


def load_config(
    path: Path, environment: Mapping[str, str] | None = None, *, lake_only: bool = False
) -> Config:
    """Read and check a config file.

    Args:
        path: the file.
        environment: where `${NAME}` is looked up; the process's own environment if not given.
        lake_only: no source is going to be asked, so their variables (passwords) need not be set.

    Raises:
        ConfigError: naming the file, the line, the key and what is wrong.
    """
    folder = path.resolve().parent
    for one in (path, folder):
        _refuse_bytes(one)
    root = read_yaml(
        path,
        os.environ if environment is None else environment,
        unused="sources" if lake_only else "",
    )
    entries = root.mapping(TOP_KEYS)
    return Config(
        path=path,
        lake=_lake(_need(root, "lake"), folder),
        sources=_sources(_need(root, "sources"), folder),
        lake_umask=_umask(entries.get("lake_umask")),
        lake_wait=_wait(entries.get("lake_wait")),
        variables=_need(root, "sources").all_variables(),
        secret_files=_secret_files(_need(root, "sources"), path),
        **{name: _section(kind, entries.get(name)) for name, kind in SECTIONS.items()},
    )


def _refuse_bytes(path: Path) -> None:
    """Arrow, Java and our notes in the lake take names that are text.

    Raises:
        ConfigError: a name on the path is not UTF-8.
    """
    if not is_text(str(path)):
        raise ConfigError(
            f"{path}: the path of the config is not UTF-8",
            operation="read the config",
            hint="give the file and its folders names in UTF-8",
        )


def _umask(item: ConfigNode | None) -> int | None:
    if item is None or is_null(item):
        return None
    if not re.fullmatch("0?[0-7]{3}", item.text or ""):
        item.fail(f'a umask is needed here ("077", "027"), not {item.shown()}')
    found = int(item.text or "", 8)
    if found & 0o700:
        item.fail("this umask would lock Ratchet itself out", hint='"077" locks out all others')
    return found


def _wait(item: ConfigNode | None) -> float:
    return LAKE_WAIT if item is None else item.seconds(0, 30 * DAY)


def _secret_files(item: ConfigNode, path: Path) -> tuple[Path, ...]:
    """Where passwords stand. One of `${NAME}` alone stands nowhere."""
    found: dict[Path, None] = {}
    for one in item.inner():
        if one.path.rpartition(".")[2] != "password":
            continue
        if one.entries is not None and set(one.entries) == {"file"}:
            found[secret_file(one)] = None
        elif one.text and not one.variables and not one.unused:
            found[path] = None
    return tuple(found)


def _need(item: ConfigNode, key: str) -> ConfigNode:
    found = item.mapping().get(key)
    if found is None or is_null(found):
        (found or item).fail(f"the key {key!r} is missing or empty")
    return found


def _section(kind: type[T], item: ConfigNode | None) -> T:
    if item is None or is_null(item):
        return kind()
    return _fill(kind, item)


def _fill(kind: type[T], item: ConfigNode) -> T:
    entries = item.mapping(keys_of(kind))
    known = [f for f in fields(cast("Any", kind)) if "read" in f.metadata]
    for one in known:
        if one.name not in entries and one.default is MISSING and one.default_factory is MISSING:
            item.fail(f"the key {one.name!r} is missing")
    return kind(
        **{
            one.name: one.metadata["read"](entries[one.name])
            for one in known
            if one.name in entries
        }
    )


def _lake(item: ConfigNode, folder: Path) -> str:
    value = text(item)
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", value):
        return value.rstrip("/")
    return _path(item, value, folder)


def _path(item: ConfigNode, value: str, folder: Path) -> str:
    try:
        found = os.path.normpath(folder / Path(value).expanduser())
    except RuntimeError:  # what pathlib says of ~nobody
        item.fail(f"there is no home directory for {item.shown()}")
    if not is_text(found):  # by the home directory
        item.fail("the path is not UTF-8")
    return found


def _sources(item: ConfigNode, folder: Path) -> Mapping[str, SourceSection]:
    entries = item.mapping()
    if not entries:
        item.fail("at least one source is needed")
    seen: dict[str, str] = {}
    servers: dict[tuple[str, int, str], str] = {}
    found = {}
    for name, source in entries.items():
        _check_name(source, name, "a keyspace's name")
        if name.startswith("_"):
            source.fail("a keyspace's name must not begin with '_' (Ratchet's own folder does)")
        if (other := seen.setdefault(name.lower(), name)) != name:
            source.fail(
                f"{name!r} and {other!r} differ in letter case only; Spark cannot tell them apart"
            )
        found[name] = _source(source, name, folder, servers)
    return found


def _source(
    item: ConfigNode, keyspace: str, folder: Path, servers: dict[tuple[str, int, str], str]
) -> SourceSection:
    kind = _need(item, "kind").choice(("binlog", "vitess"))
    entries = item.mapping(SOURCE_KEYS if kind == "binlog" else VITESS_KEYS)
    tables = entries.get("tables")
    key = entries.get("key")
    tablets = entries.get("tablet_type")
    left_stopped = _left_stopped(entries.get("schema_changes"))
    vitess = kind == "binlog" and "vitess" in entries and entries["vitess"].boolean()
    virtual = entries.get("virtual_columns")
    trusts = virtual is not None and virtual.choice(("refuse", "trust")) == "trust"
    patterns = TablePatterns() if tables is None else _patterns(tables)
    shards = (
        _shards(_need(item, "shards"), keyspace, folder, servers, ranges=vitess)
        if kind == "binlog"
        else {}
    )
    # From the log of a copy a table is taken that has one shard; of Vitess no copy is captured.
    follows_some = left_stopped is None or left_stopped.patterns != ("*",)
    copies = follows_some and len(shards) == 1 and not vitess
    return SourceSection(
        kind=cast("Literal['binlog', 'vitess']", kind),
        shards={name: replace(one, trusts_virtual=trusts) for name, one in shards.items()},
        vtgate=None if kind == "binlog" else _vtgate(_need(item, "vtgate"), folder),
        tablet_type=cast(
            "TabletType", "primary" if tablets is None else tablets.choice(TABLET_TYPES)
        ),
        vitess=vitess,
        tables=replace(patterns, copies=copies),
        key=cast("KeyMode", "primary" if key is None else key.choice(("primary", "shard+primary"))),
        left_stopped=left_stopped,
    )


def _shards(
    item: ConfigNode,
    keyspace: str,
    folder: Path,
    servers: dict[tuple[str, int, str], str],
    *,
    ranges: bool,
) -> dict[str, ShardConfig]:
    shards = {}
    for name, shard_item in item.mapping().items():
        _check_name(shard_item, name, "a shard's name")
        if ranges:
            _check_range(shard_item, name)
        shard = _shard(shard_item, keyspace, folder)
        own = ((shard.host, shard.port), *shard.standbys)
        if len(set(own)) < len(own):
            shard_item.fail("the same server is listed twice")
        for host, port in own:
            where = (host.lower(), port, shard.database)
            if (other := servers.setdefault(where, shard_item.path)) != shard_item.path:
                shard_item.fail(f"the same server and database are already listed under {other}")
        shards[name] = shard
    if not shards:
        item.fail("at least one shard is needed", hint='a single server is the shard "-"')
    if ranges and not KeyRange().is_within(map(KeyRange.of, shards)):
        item.fail(
            f"the key ranges of {', '.join(shards)} do not cover all of the keyspace",
            hint="add the other shards that `SHOW VITESS_SHARDS` lists",
        )
    return shards


def _vtgate(item: ConfigNode, folder: Path) -> VtgateSection:
    found = _fill(VtgateSection, item)
    for name in ("user", "password"):
        value = getattr(found, name)
        if not (value.isascii() and (value.isprintable() or not value)):
            item.mapping()[name].fail(
                "gRPC carries printable ASCII only, and this has other characters"
            )
    values = {name: getattr(found, name) for name in keys_of(VtgateSection)}
    values |= _tls_files(item, values, folder, useless={"disabled"})
    return VtgateSection(**values)


def _check_name(item: ConfigNode, name: str, what: str) -> None:
    if not name.strip() or len(name) > 64 or "/" in name or any(ord(c) < ord(" ") for c in name):
        item.fail(f"{what} has 1 to 64 characters, none of them '/' or a control character")


def _check_range(item: ConfigNode, name: str) -> None:
    try:
        KeyRange.of(name)
    except ConfigError as error:
        item.fail(error.message, hint=error.hint)


def _shard(item: ConfigNode, keyspace: str, folder: Path) -> ShardConfig:
    shard = _fill(ShardConfig, item)
    values = {name: getattr(shard, name) for name in keys_of(ShardConfig)}
    values["database"] = shard.database or keyspace
    values |= _tls_files(item, values, folder, useless={"disabled", "preferred"})
    if values["tls"] == "verify_password" and values["tls_ca"]:
        item.mapping()["tls_ca"].fail(
            "has no effect with tls: verify_password",
            hint="set tls to verify_ca or verify_identity",
        )
    return ShardConfig(**values)


def _tls_files(
    item: ConfigNode, values: Mapping[str, Any], folder: Path, *, useless: set[str]
) -> dict[str, str]:
    """The files for TLS as absolute paths; `useless`: values of `tls` that need none."""
    found = {}
    for name in ("tls_ca", "tls_cert", "tls_key"):
        if values[name]:
            found[name] = _path(item.mapping()[name], values[name], folder)
            if not Path(found[name]).is_file():
                item.mapping()[name].fail(f"there is no file {found[name]}")
            if values["tls"] in useless:
                item.mapping()[name].fail(
                    f"has no effect with tls: {values['tls']}",
                    hint="set tls to required"
                    + (", verify_ca or verify_identity" if len(useless) > 1 else ""),
                )
    if bool(values["tls_cert"]) != bool(values["tls_key"]):
        item.fail("give tls_cert and tls_key together, or neither")
    return found


def _left_stopped(item: ConfigNode | None) -> TablePatterns | None:
    """The tables that a schema change leaves stopped; None: there are none."""
    if item is None:
        return None
    if item.entries is None:
        return TablePatterns() if item.choice(("follow", "stop")) == "stop" else None
    return _patterns(_need(item, "stop"), "stops") if item.mapping(("stop",)) else None


def _patterns(item: ConfigNode, does: str = "mirrors") -> TablePatterns:
    found = tuple(text(element) for element in item.sequence())
    if not found:
        item.fail(f"an empty list {does} nothing", hint=f'["*"] {does} every table')
    for element, pattern in zip(item.sequence(), found, strict=True):
        if pattern.removeprefix("!") == "":
            element.fail("there is no pattern after '!'")
        if found.count(pattern) > 1:
            element.fail(f"the pattern {pattern!r} is listed twice")
    return TablePatterns(found)
