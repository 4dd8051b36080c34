"""Judging a server: which settings and privileges Ratchet needs, and the statements that mend them.

Lives here: the rules, as pure functions over `facts.ServerFacts`. Does not live here: asking
(`facts`), printing (`check`), privileges (`privileges`), and rules about tables and several shards
(`tablefitness`).

Invariant: a finding that failed has a mend that an administrator can paste.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from ratchet.jobs.preflight.encryption import MEND, WEAKER
from ratchet.jobs.preflight.facts import LogFacts, ServerFacts
from ratchet.jobs.preflight.finding import Finding, finding
from ratchet.jobs.preflight.privileges import privileges
from ratchet.jobs.reporting.text import duration, size
from ratchet.wire.connect import TlsMode
from ratchet.wire.connected import Verified
from ratchet.wire.peer import is_local

HOUR: Final = 3600.0
DAY: Final = 24 * HOUR
# What a dump of one shard reads at the least, bytes/s: a slow disk behind a busy server.
_SLOW_DUMP: Final = 20e6
_START: Final = 30.0  # seconds until Spark and its workers read the first rows
_OLDEST: Final = {"mysql": (8, 0, 14), "mariadb": (10, 5, 0)}
_TESTED: Final = {"mysql": (9, 7), "mariadb": (10, 11)}
_SMALL_PACKET: Final = 1 << 20
# With these values a commit is on disk, in InnoDB and in the log, before anybody hears of it.
# MariaDB's 3 flushes at least as often as 1.
_DURABLE: Final = {
    "innodb_flush_log_at_trx_commit": frozenset({"1", "3"}),
    "sync_binlog": frozenset({"1"}),
}
_UNLOGGED: Final = frozenset(
    {"log_bin", "binlog filters", "replica filters", "log_replica_updates", "log_slave_updates"}
    | {"slave_run_triggers_for_rbr"}
)


def judge(facts: ServerFacts, *, server_id: int, ours: bool, clock_bound: float) -> list[Finding]:
    """All findings about one server.

    Args:
        facts: its answers.
        server_id: the replication id that capture uses for this shard.
        ours: whether a run of this lake is alive, so that this id is in use by ourselves.
        clock_bound: how far clocks may be apart, seconds.
    """
    rules = (
        _version,
        _encryption,
        privileges,
        judge_log,
        _gtids,
        _durability,
        _retention,
        _compression,
        _packet,
    )
    found = [finding for rule in rules for finding in rule(facts)]
    found.append(_server_id(facts, server_id, ours=ours))
    found.append(_clock(facts, clock_bound))
    return found


def judge_log(facts: LogFacts) -> list[Finding]:
    """Whether a server's log has what the mirror needs; what fails stops its tables in a run."""
    rules = (
        _log_bin,
        _log_errors,
        _format,
        _row_image,
        _row_metadata,
        _partial_json,
        _filters,
        _replica_filters,
        _replica_triggers,
        _replica,
    )
    return [finding for rule in rules for finding in rule(facts)]


def unlogged(found: Finding) -> bool:
    """Whether changes get lost without a trace in the log while a finding of `judge_log` holds.

    What else fails can be seen in the log where it did harm.
    """
    return found.status == "fail" and found.check in _UNLOGGED


def not_durable(settings: Mapping[str, str]) -> str:
    """The settings with which a crash may part rows and log, as `name=value, ...`; or nothing.

    Args:
        settings: the server's variables, names in lower case.
    """
    return ", ".join(f"{name}={settings[name]}" for name in _loose(settings))


def _loose(settings: Mapping[str, str]) -> list[str]:
    return [
        name
        for name, values in _DURABLE.items()
        if name in settings and settings[name] not in values
    ]


def judge_tablet(facts: ServerFacts, *, clock_bound: float) -> list[Finding]:
    """The findings that hold for the MySQL of a Vitess tablet, of which vtgate reads the log.

    Args:
        facts: its answers.
        clock_bound: how far clocks may be apart, seconds.
    """
    rules = (_version, _encryption, _log_bin, _format, _row_image, _partial_json, _gtids)
    found = [finding for rule in (*rules, _retention) for finding in rule(facts)]
    return [*found, _clock(facts, clock_bound)]


def _set(facts: LogFacts, name: str, value: str) -> str:
    """A change that a running server takes, and keeps."""
    if facts.mariadb:
        return (
            f"SET GLOBAL {name} = {value};  -- and in my.cnf under [mysqld]: {name} = "
            f"{value.strip(chr(39))}; then let the applications reconnect"
        )
    return f"SET PERSIST {name} = {value};  -- then let the applications reconnect"


def _restart(setting: str) -> str:
    return f"in my.cnf under [mysqld]: {setting}   (then restart the server)"


def _version(facts: ServerFacts) -> Iterator[Finding]:
    flavor = "mariadb" if facts.mariadb else "mysql"
    name = "MariaDB" if facts.mariadb else "MySQL"
    if "vitess" in facts.version.lower():
        yield finding(
            facts,
            "version",
            "fail",
            f"{facts.version}: this is a Vitess gateway, which has no binlog",
            "set `kind: vitess` for this source, or give the shards' own MySQL servers",
        )
    elif facts.numbers < _OLDEST[flavor]:
        oldest = ".".join(map(str, _OLDEST[flavor]))
        yield finding(
            facts,
            "version",
            "fail",
            f"{name} {facts.version} is too old: it does not log what Ratchet needs",
            f"upgrade to {name} {oldest} or later",
        )
    else:
        tested = ".".join(map(str, _TESTED[flavor]))
        note = "" if facts.numbers[:2] == _TESTED[flavor] else f" (tests run on {tested})"
        yield finding(facts, "version", "ok", f"{name} {facts.version}{note}")


_VERIFIED: Final[dict[Verified, str]] = {
    "identity": "verified",
    "authority": "the host's name not verified",
    "password": "verified by the password",
    "": "not verified",
}


_MODES: Final[dict[Verified, TlsMode]] = {
    "authority": "verify_ca",
    "password": "verify_password",
    "": "required",
}


def _encryption(facts: ServerFacts) -> Iterator[Finding]:
    text = f"TLS, {_VERIFIED[facts.verified]}, {facts.cipher}" if facts.cipher else "none"
    if facts.cipher and facts.verified == "identity":
        yield finding(facts, "encryption", "ok", text)
    elif is_local(facts.host):
        yield finding(facts, "encryption", "info", f"{text}, on this machine")
    else:
        mode = _MODES[facts.verified] if facts.cipher else "disabled"
        why = WEAKER[mode].partition(": ")[2]
        yield finding(facts, "encryption", "warn", f"{text}: {why}", MEND)


def _log_bin(facts: LogFacts) -> Iterator[Finding]:
    if not facts.on("log_bin"):
        mend = _restart("log_bin = bin")
        yield finding(facts, "log_bin", "fail", "off: there is no log to read", mend)
    elif facts.writes_log is False:
        # Seen: a new file could not be opened (MySQL with binlog_error_action=IGNORE_ERROR, and
        # each MariaDB). The variable stays as it was.
        yield finding(
            facts,
            "log_bin",
            "fail",
            "on, but after an error the server has given up its log, and continues without one",
            "see its error log (a full disk, too many open files), then restart the server",
        )
    else:
        yield finding(facts, "log_bin", "ok", "on")


def _log_errors(facts: LogFacts) -> Iterator[Finding]:
    if facts.value("binlog_error_action") == "IGNORE_ERROR":
        yield finding(
            facts,
            "binlog_error_action",
            "warn",
            "IGNORE_ERROR: a server that cannot write its log continues without one, and what it "
            "changes then is not logged",
            _set(facts, "binlog_error_action", "'ABORT_SERVER'"),
        )


def _needs(facts: LogFacts, name: str, wanted: str, why: str) -> Finding:
    value = facts.value(name)
    if value == wanted:
        return finding(facts, name, "ok", value)
    shown = value or "missing"
    return finding(facts, name, "fail", f"{shown}: {why}", _set(facts, name, f"'{wanted}'"))


def _format(facts: LogFacts) -> Iterator[Finding]:
    yield _needs(facts, "binlog_format", "ROW", "changes would be logged as statements")


def _row_image(facts: LogFacts) -> Iterator[Finding]:
    yield _needs(facts, "binlog_row_image", "FULL", "the log would contain only parts of rows")


def _row_metadata(facts: LogFacts) -> Iterator[Finding]:
    yield _needs(
        facts, "binlog_row_metadata", "FULL", "the log would not contain the columns' names"
    )


def _partial_json(facts: LogFacts) -> Iterator[Finding]:
    if "binlog_row_value_options" not in facts.variables:
        return
    if "PARTIAL_JSON" in facts.value("binlog_row_value_options"):
        yield finding(
            facts,
            "binlog_row_value_options",
            "fail",
            "PARTIAL_JSON: the log would contain only parts of JSON values",
            _set(facts, "binlog_row_value_options", "''"),
        )
    else:
        yield finding(facts, "binlog_row_value_options", "ok", "full JSON values")


def _gtids(facts: ServerFacts) -> Iterator[Finding]:
    if facts.mariadb:
        if facts.on("gtid_strict_mode"):
            yield finding(facts, "gtid_strict_mode", "ok", "on")
        else:
            yield finding(
                facts,
                "gtid_strict_mode",
                "warn",
                "off: the server accepts GTIDs out of order, as from writes on a replica; the "
                "mirror cannot follow a failover to such a server",
                _set(facts, "gtid_strict_mode", "ON"),
            )
        return
    mode = facts.value("gtid_mode")
    if mode == "ON":
        yield finding(facts, "gtid_mode", "ok", "ON")
        return
    yield finding(
        facts,
        "gtid_mode",
        "warn",
        f"{mode or 'OFF'}: works by file and position; no failover to another server, and a dump "
        "repeats more of the log",
        "SET PERSIST enforce_gtid_consistency = ON; SET PERSIST gtid_mode = OFF_PERMISSIVE; "
        "SET PERSIST gtid_mode = ON_PERMISSIVE; SET PERSIST gtid_mode = ON;  -- in this order",
    )


def _durability(facts: ServerFacts) -> Iterator[Finding]:
    """After a crash, rows and log may differ; see jobs.restarts, which goes by the same rule."""
    if loose := _loose(facts.variables):
        yield finding(
            facts,
            "durability",
            "warn",
            f"{not_durable(facts.variables)}: in a crash the server may lose rows that its log "
            "keeps, or the other way round, so after each crash a run compares all tables with the "
            "source",
            f"{', '.join(loose)} = 1 makes each commit durable, but slower",
        )


def _retention(facts: ServerFacts) -> Iterator[Finding]:
    if "rdsdbbin" in facts.variables.get("basedir", ""):
        yield finding(
            facts,
            "retention",
            "warn",
            "on Amazon RDS it is not a server variable, so it is not known here",
            "CALL mysql.rds_set_configuration('binlog retention hours', 72);",
        )
        return
    total = sum(table.bytes for table in facts.tables)
    estimate = _START + total / _SLOW_DUMP
    needed = f"a dump of {size(total)} may take {duration(estimate)}"
    kept = _kept_for(facts)
    mend = _set(facts, "binlog_expire_logs_seconds", str(int(3 * DAY)))
    if kept is None:
        yield finding(facts, "retention", "ok", f"binlogs are kept permanently; {needed}")
    elif kept <= estimate:
        yield finding(
            facts, "retention", "fail", f"binlogs are kept for {duration(kept)}; {needed}", mend
        )
    elif kept < DAY:
        text = f"binlogs are kept for {duration(kept)}; Ratchet must never be stopped for longer"
        yield finding(facts, "retention", "warn", text, mend)
    else:
        yield finding(facts, "retention", "ok", f"binlogs are kept for {duration(kept)}; {needed}")


def _kept_for(facts: ServerFacts) -> float | None:
    """Seconds until a binlog is purged; None for never."""
    if facts.value("binlog_expire_logs_auto_purge") in {"OFF", "0"}:
        return None
    seconds = float(facts.variables.get("binlog_expire_logs_seconds", 0))
    seconds = seconds or float(facts.variables.get("expire_logs_days", 0)) * DAY
    return seconds or None


def _filters(facts: LogFacts) -> Iterator[Finding]:
    if facts.binlog_filters is None or facts.binlog_filters == ("", ""):
        return
    do, ignore = (set(text.split(",")) - {""} for text in facts.binlog_filters)
    if (do and facts.database not in do) or facts.database in ignore:
        yield finding(
            facts,
            "binlog filters",
            "fail",
            f"changes of {facts.database} are not logged",
            _restart("binlog_do_db, binlog_ignore_db: removed"),
        )
    else:
        yield finding(
            facts,
            "binlog filters",
            "warn",
            "some databases are not logged; statements are filtered by the default database",
            _restart("binlog_do_db, binlog_ignore_db: removed"),
        )


def _replica_filters(facts: LogFacts) -> Iterator[Finding]:
    for filters in facts.replica_filters:
        name = filters.of_database(facts.database)
        if name and facts.follows:
            text = f"this server is a replica, and its {name} leaves {facts.database} out"
            yield finding(facts, "replica filters", "fail", text, _unfiltered(facts, name))
        elif name and facts.follows is None:
            text = f"if this server is a replica, its {name} leaves {facts.database} out"
            yield finding(facts, "replica filters", "warn", text, _unfiltered(facts, name))


def _unfiltered(facts: LogFacts, name: str) -> str:
    if facts.mariadb:
        return (
            f"STOP ALL SLAVES; SET GLOBAL {name} = ''; START ALL SLAVES;  -- and remove {name} "
            "from my.cnf; or read the primary"
        )
    return (
        f"STOP REPLICA SQL_THREAD; CHANGE REPLICATION FILTER {name.upper()} = (); START REPLICA "
        f"SQL_THREAD;  -- and remove {name} from my.cnf; or read the primary"
    )


def _replica_triggers(facts: LogFacts) -> Iterator[Finding]:
    """MariaDB's replicas may run triggers for the rows that they get, and not log what these do."""
    name = "slave_run_triggers_for_rbr"
    if facts.value(name) != "YES" or facts.follows is False:
        return
    if_one = "this server is a replica, and" if facts.follows else "if this server is a replica, it"
    yield finding(
        facts,
        name,
        "fail" if facts.follows else "warn",
        f"YES: {if_one} runs triggers whose changes it does not log",
        f"STOP ALL SLAVES; SET GLOBAL {name} = 'LOGGING'; START ALL SLAVES;  -- and in my.cnf",
    )


def _replica(facts: LogFacts) -> Iterator[Finding]:
    new = "log_replica_updates" in facts.variables
    name = "log_replica_updates" if new else "log_slave_updates"
    # A node of Galera gets the others' changes as a replica does.
    follows = True if facts.on("wsrep_on") else facts.follows
    if facts.on(name):
        if follows:
            yield finding(facts, name, "ok", "on; this server is a replica")
        return
    if follows:
        yield finding(
            facts,
            name,
            "fail",
            "off: this server is a replica, and does not log what it replicates",
            _restart(f"{name} = ON"),
        )
    elif follows is None:
        yield finding(
            facts,
            name,
            "warn",
            "off: if this server is a replica, it does not log what it replicates",
            _restart(f"{name} = ON"),
        )


def _compression(facts: ServerFacts) -> Iterator[Finding]:
    for name in ("binlog_transaction_compression", "log_bin_compress"):
        if facts.on(name):
            yield finding(facts, name, "info", "on: supported")


def _packet(facts: ServerFacts) -> Iterator[Finding]:
    value = int(facts.variables.get("max_allowed_packet", 0))
    if 0 < value < _SMALL_PACKET:
        yield finding(
            facts,
            "max_allowed_packet",
            "warn",
            f"{value:,} bytes: a larger row cannot be read",
            _set(facts, "max_allowed_packet", str(64 << 20)),
        )
    else:
        yield finding(facts, "max_allowed_packet", "ok", size(value))


def _server_id(facts: ServerFacts, server_id: int, *, ours: bool) -> Finding:
    mend = (
        "set capture.server_id_base in the config to a number that is free (a run of this lake "
        "that has just ended may show for some seconds: ask once more)"
    )
    if facts.value("server_id") == str(server_id):
        return finding(
            facts, "server_id", "fail", f"{server_id} is the server's own server_id", mend
        )
    if facts.replicas is not None and server_id in facts.replicas:
        if ours:
            return finding(facts, "server_id", "ok", f"{server_id}, in use by our own run")
        text = f"{server_id} is in use by another replica or client"
        return finding(facts, "server_id", "fail", text, mend)
    if facts.replicas is None:
        text = f"{server_id}; this account cannot see whether it is free"
        return finding(facts, "server_id", "info", text)
    return finding(facts, "server_id", "ok", f"{server_id} is free")


def _clock(facts: ServerFacts, bound: float) -> Finding:
    apart = abs(facts.clock_ahead)
    text = (
        f"{apart * 1000:,.0f} ms {'ahead of' if facts.clock_ahead > 0 else 'behind'} this machine "
        f"(± {facts.clock_error * 1000:,.0f} ms)"
    )
    if apart - facts.clock_error <= bound:
        return finding(facts, "clock", "ok", text)
    return finding(
        facts,
        "clock",
        "warn",
        f"{text}: more than merge.clock_bound_ms; times and lags are wrong by that much",
        "synchronize both machines with a time server (NTP)",
    )
