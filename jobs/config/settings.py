"""The sections of the config file as frozen values: which keys exist, their defaults and limits.

Does not live here: the file as a whole, its sources and what must agree between keys (`config`);
YAML (`yamlfile`).

Invariant: each key of a section is a field here, with the function that reads it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, get_args

from ratchet.core.patterns import TablePatterns
from ratchet.jobs.config.yamlfile import ConfigNode
from ratchet.owned import refuse_foreign_pipe
from ratchet.wire.vtgate import TabletType

Tls = Literal[
    "auto", "disabled", "preferred", "required", "verify_password", "verify_ca", "verify_identity"
]
KeyMode = Literal["primary", "shard+primary"]
ZeroDates = Literal["null", "text", "fail"]

TLS_MODES: Final[tuple[str, ...]] = get_args(Tls)
DAY: Final = 86_400.0
_LONGEST_SECRET: Final = 4096  # bytes

T = TypeVar("T")


def setting(default: T, read: Callable[[ConfigNode], T]) -> T:
    """A field that may stand in the file, and how to read it."""
    return field(default=default, metadata={"read": read})


def required(read: Callable[[ConfigNode], Any]) -> Any:
    """A field that must stand in the file."""
    return field(metadata={"read": read})


def _optional(read: Callable[[ConfigNode], T]) -> Callable[[ConfigNode], T | None]:
    """`null` stands for the default behaviour."""
    return lambda item: None if is_null(item) else read(item)


def is_null(item: ConfigNode) -> bool:
    """Whether the key stands there without a value."""
    return item.text is None and item.entries is None and item.elements is None


def _seconds(low: float, high: float) -> Callable[[ConfigNode], float]:
    return lambda item: item.seconds(low, high)


def _integer(low: int, high: int) -> Callable[[ConfigNode], int]:
    return lambda item: item.integer(low, high)


def _bytes(low: int, high: int) -> Callable[[ConfigNode], int]:
    return lambda item: item.bytes(low, high)


def _choice(*options: str) -> Callable[[ConfigNode], Any]:
    return lambda item: item.choice(options)


def _boolean(item: ConfigNode) -> bool:
    return item.boolean()


def text(item: ConfigNode) -> str:
    """A text that says something: not empty, on one line."""
    value = item.string()
    if not value.strip() or any(ord(c) < ord(" ") for c in value):
        item.fail("the text is empty, or has control characters")
    return value


def _addresses(item: ConfigNode) -> tuple[tuple[str, int], ...]:
    found = []
    for element in item.sequence():
        match = re.fullmatch(r"(\S+?)(?::(\d{1,5}))?", text(element))
        if match is None:
            element.fail(f"host or host:port is needed here, not {element.shown()}")
        found.append((match[1], int(match[2] or 3306)))
    return tuple(found)


def _secret(item: ConfigNode) -> str:
    if item.entries is None:
        return item.string(secret=True)
    return "" if item.unused else read_secret(item, secret_file(item))


def secret_file(item: ConfigNode) -> Path:
    """Where a password stands that is given as `{file: ...}`."""
    entries = item.mapping(("file",))
    if "file" not in entries:
        item.fail("the key 'file' is missing")
    try:
        given = Path(text(entries["file"])).expanduser()
    except RuntimeError:  # what pathlib says of ~nobody
        item.fail(f"there is no home directory for {entries['file'].shown()}")
    return Path(item.file).resolve().parent / given


def read_secret(item: ConfigNode, path: Path) -> str:
    """A password that is all of a file, but for the end of its line."""
    try:
        refuse_foreign_pipe(path)
        with path.open("rb") as file:
            found = file.read(_LONGEST_SECRET + 1)
        value = found.decode()
    except UnicodeDecodeError:
        item.fail(f"{path} is not UTF-8")
    except OSError as error:
        item.fail(
            f"{path} cannot be read: {error.strerror}",
            hint="let this user read it, and nobody else (chmod 0400)",
        )
    value = value.removesuffix("\n").removesuffix("\r")
    if not value or len(found) > _LONGEST_SECRET or "\0" in value:
        item.fail(
            f"{path} is empty, or not a password", hint="only the password may be in the file"
        )
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardConfig:
    """One server of a source.

    Attributes:
        host: name or address.
        port: TCP port.
        standbys: host and port of servers that may stand in for this one, tried in this order.
        user: account to read with.
        password: kept out of every repr, message and log.
        database: name of the database on the server; the keyspace's name if not given.
        tls: as the MySQL clients' --ssl-mode; "auto": see wire.connect.SourceConfig.
        tls_ca: file of the authority's certificate.
        tls_cert: file of our own certificate, if the server asks for one.
        tls_key: file of its key.
        connect_timeout: seconds until a connection counts as failed.
        read_timeout: seconds without an answer until a statement counts as failed.
        replicas: host and port of replicas whose lag holds a dump back; read with this account.
        target: what to ask for at login in place of `database`; only a vtgate's shards have one.
        trusts_virtual: the source's `virtual_columns`; see wire.connect.SourceConfig.
    """

    host: str = required(text)
    port: int = setting(3306, _integer(1, 65_535))
    standbys: tuple[tuple[str, int], ...] = setting((), _addresses)
    user: str = required(text)
    password: str = field(default="", repr=False, metadata={"read": _secret})
    database: str = setting("", text)
    tls: Tls = setting("auto", _choice(*TLS_MODES))  # noqa: RUF009 - a field
    tls_ca: str = setting("", text)
    tls_cert: str = setting("", text)
    tls_key: str = setting("", text)
    connect_timeout: float = setting(10.0, _seconds(0.1, 600))
    read_timeout: float = setting(60.0, _seconds(1, 3600))
    replicas: tuple[tuple[str, int], ...] = setting((), _addresses)
    target: str = ""
    trusts_virtual: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class VtgateSection:
    """The vtgate that a Vitess keyspace is read through.

    Attributes:
        host: name or address.
        grpc_port: TCP port of gRPC, for VStream.
        mysql_port: TCP port of the MySQL protocol, for dumps and questions.
        user: account to read with, at both ports.
        password: kept out of every repr, message and log.
        tls: "required" encrypts both and verifies the certificate and the host's name; "auto" is
            that, but for a vtgate of this machine where no file is given "disabled".
        tls_ca: file of the authority's certificate.
        tls_cert: file of our own certificate, if vtgate asks for one.
        tls_key: file of its key.
        cells: cells to take tablets from, separated by commas; vtgate's own if not given.
        connect_timeout: seconds until a connection counts as failed.
        read_timeout: seconds without an answer until a statement counts as failed.
    """

    host: str = required(text)
    grpc_port: int = setting(15_991, _integer(1, 65_535))
    mysql_port: int = setting(15_306, _integer(1, 65_535))
    user: str = required(text)
    password: str = field(default="", repr=False, metadata={"read": _secret})
    tls: Literal["auto", "disabled", "required"] = setting(
        "auto", _choice("auto", "disabled", "required")
    )
    tls_ca: str = setting("", text)
    tls_cert: str = setting("", text)
    tls_key: str = setting("", text)
    cells: str = setting("", text)
    connect_timeout: float = setting(10.0, _seconds(0.1, 600))
    read_timeout: float = setting(60.0, _seconds(1, 3600))


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSection:
    """One keyspace of the lake and the servers it is read from.

    Attributes:
        kind: "binlog": each shard's server by its binlog; "vitess": a keyspace through a vtgate.
        shards: shard name -> server. Those of a Vitess keyspace are not in the file: they are
            found when a command needs them (jobs.vitess), and are vtgate under the shards' names.
        tables: which tables are mirrored.
        key: whether a row is known by its primary key alone or by shard and primary key.
        vtgate: where a Vitess keyspace is read; None for other kinds.
        tablet_type: which of its tablets are read.
        vitess: whether the servers of kind "binlog" are those of Vitess tablets: reshards are
            followed by the journals in their logs.
        left_stopped: tables that stay stopped at a schema change until somebody has them dumped
            again; all others are computed or dumped again behind what is shown of them.
    """

    kind: Literal["binlog", "vitess"]
    shards: Mapping[str, ShardConfig]
    tables: TablePatterns
    key: KeyMode
    vtgate: VtgateSection | None = None
    tablet_type: TabletType = "primary"
    vitess: bool = False
    left_stopped: TablePatterns | None = None

    def follows(self, table: str) -> bool:
        """Whether a table goes on by itself after a schema change."""
        if self.left_stopped is None:
            return True
        return not replace(self.left_stopped, folded=self.tables.folded).names(table)

    @property
    def is_vitess(self) -> bool:
        """Whether it is a keyspace of Vitess, whichever way it is read."""
        return self.vitess or self.kind == "vitess"


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureSection:
    """Reading the sources' logs.

    Attributes:
        round_seconds: a round ends after this time at the latest, at the end of a transaction.
        round_bytes: and when one shard has read this much.
        max_skew_seconds: how far a round may hold one shard ahead of another of its keyspace, in
            commit time; None: any distance.
        server_id_base: the first shard's replication id, the next ones count up; None derives
            one from the lake's address.
        heartbeat_seconds: how often an idle server says that it is there.
        idle_commit_seconds: how often positions are committed while no mirrored table changes.
        reconnect_seconds: how long a lost server is waited for until the run ends with an error.
        look_seconds: how often a run looks for tables that have come, and at the servers' settings.
        lost_position: what becomes of a shard whose server has lost what the mirror needs, when a
            run begins: stop ends the run, heal begins the shard anew (jobs.heal).
    """

    round_seconds: float = setting(2.0, _seconds(0.1, 3600))
    round_bytes: int = setting(64 << 20, _bytes(64 << 10, 64 << 30))
    max_skew_seconds: float | None = field(
        default=2.0, metadata={"read": _optional(_seconds(0.1, DAY))}
    )
    server_id_base: int | None = setting(None, _optional(_integer(1, 4_294_000_000)))
    heartbeat_seconds: float = setting(5.0, _seconds(0.1, 600))
    idle_commit_seconds: float = setting(10.0, _seconds(0, DAY))
    reconnect_seconds: float = setting(300.0, _seconds(0, 30 * DAY))
    look_seconds: float = setting(30.0, _seconds(1, 3600))
    lost_position: Literal["stop", "heal"] = setting("stop", _choice("stop", "heal"))


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotSection:
    """The full dump of a table.

    Attributes:
        parallel: chunks read at the same time, over all tables and shards; None: see `readers`.
        chunk_seconds: the time a chunk is aimed to take; its rows are adapted to it.
        chunk_rows: a fixed number of rows a chunk; None adapts.
        max_rows_per_second: read no faster, over all sources; None: as fast as it goes.
        max_threads_running: begin no chunk while others run more threads; None: no limit.
        max_replica_lag: begin no chunk while a replica is further behind, seconds; None: no limit.
    """

    parallel: int | None = setting(None, _optional(_integer(1, 256)))
    chunk_seconds: float = setting(2.0, _seconds(0.05, 600))
    chunk_rows: int | None = setting(None, _optional(_integer(1, 100_000_000)))
    max_rows_per_second: int | None = setting(None, _optional(_integer(1, 1_000_000_000)))
    max_threads_running: int | None = setting(None, _optional(_integer(1, 100_000)))
    max_replica_lag: float | None = setting(None, _optional(_seconds(0.1, DAY)))

    @property
    def readers(self) -> int:
        """Chunks read at the same time: as given, or one for each core here, from 2 to 8.

        More readers than cores hold more memory and read no faster (bench/results/dump.md).
        """
        return self.parallel or min(8, max(2, os.cpu_count() or 2))


def _share(item: ConfigNode) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*%", (item.text or "").strip())
    share = float(match[1]) / 100 if match else 0.0
    if not 0.0001 <= share <= 1:
        item.fail(f"a share from 0.01% to 100% is needed here, not {item.shown()}")
    return share


def _pace(item: ConfigNode) -> float | None:
    return None if item.text == "auto" else item.seconds(0, DAY)


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeSection:
    """Bringing the log's changes into the tables, and their upkeep.

    Attributes:
        interval_seconds: seconds from one merge step to the next; 0 merges as soon as there is a
            round; None: at once while steps are rare, else 5 to 60 seconds (jobs.capture.pace).
        parallel: tables merged at the same time.
        deletion_vectors: whether tables use them (faster; some readers do not know them).
        change_log_retention: how long change files are kept, seconds.
        tombstone_retention: how long the token of a deleted row is kept, seconds.
        table_history: how long old versions of the tables can be read, seconds.
        maintenance: the share of the time that removing what is old may take.
        clock_bound_ms: how far the servers' clocks may be apart, milliseconds.
    """

    interval_seconds: float | None = field(default=None, metadata={"read": _pace})
    parallel: int = setting(2, _integer(1, 256))
    deletion_vectors: bool = setting(True, _boolean)
    change_log_retention: float = setting(14 * DAY, _seconds(60, 3650 * DAY))
    tombstone_retention: float = setting(14 * DAY, _seconds(60, 3650 * DAY))
    table_history: float = setting(7 * DAY, _seconds(60, 3650 * DAY))
    maintenance: float = setting(0.05, _share)
    clock_bound_ms: int = setting(500, _integer(0, 3_600_000))


def _interval(item: ConfigNode) -> float | None:
    return None if item.text in {"off", "never"} else item.seconds(60, 3650 * DAY)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifySection:
    """What a run does to find out whether its tables are what their sources are.

    Attributes:
        every: how often each table is compared with its source, seconds; None: only those that a
            statement has put in doubt.
        load: which share of the time such a comparison may read the source, or the lake.
        on_difference: what becomes of a table whose rows differ: stop it, repair the rows, or tell
            of it and go on.
    """

    every: float | None = field(default=DAY, metadata={"read": _interval})
    load: float = setting(0.05, _share)
    on_difference: Literal["stop", "repair", "tell"] = setting(
        "stop",
        _choice("stop", "repair", "tell"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TypesSection:
    """Values that Delta cannot hold as they are.

    Attributes:
        zero_dates: what 0000-00-00 and other invalid dates become.
    """

    zero_dates: ZeroDates = setting("null", _choice("null", "text", "fail"))  # noqa: RUF009 - a field


def _spark_conf(item: ConfigNode) -> Mapping[str, str]:
    found = {}
    for name, value in item.mapping().items():
        if not re.fullmatch(r"spark(\.[A-Za-z0-9_-]+)+", name):
            value.fail("the name of a Spark setting begins with 'spark.'")
        found[name] = value.string()
    return found


def _memory(item: ConfigNode) -> str:
    value = item.string()
    if not re.fullmatch(r"[1-9]\d{0,5}[mg]", value):
        item.fail(f"a size in Java's form is needed here (2g, 1500m), not {item.shown()}")
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSection:
    """The Spark session.

    Attributes:
        master: Spark's master; None is local with enough slots for all shards, chunks and merges.
        driver_memory: heap of the JVM.
        stall_seconds: how long a job may stand still with no task at work until the run ends.
        log_dir: folder for Spark's own log; None is `_ratchet/logs` of a lake that is a folder.
        conf: any other settings; they win over Ratchet's own.
    """

    master: str | None = setting(None, _optional(text))
    driver_memory: str = setting("2g", _memory)
    stall_seconds: float = setting(600.0, _seconds(5, 30 * DAY))
    log_dir: str | None = setting(None, _optional(text))
    conf: Mapping[str, str] = field(default_factory=dict, metadata={"read": _spark_conf})


SECTIONS: Final[Mapping[str, type[Any]]] = {
    "capture": CaptureSection,
    "snapshot": SnapshotSection,
    "merge": MergeSection,
    "verify": VerifySection,
    "types": TypesSection,
    "spark": SparkSection,
}


def keys_of(section: type[Any]) -> tuple[str, ...]:
    """The keys that a section of the file may have."""
    return tuple(f.name for f in fields(section) if "read" in f.metadata)
