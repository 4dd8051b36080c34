"""The rules of `ratchet check`: what fails, what warns, and the statement that mends it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ratchet.core.columnrules import unfit_name
from ratchet.core.shard import ShardId
from ratchet.jobs.preflight.facts import ServerFacts, TableFacts
from ratchet.jobs.preflight.finding import Finding
from ratchet.jobs.preflight.fitness import judge, judge_log, unlogged
from ratchet.jobs.preflight.replicafilters import ReplicaFilters, read_filters
from ratchet.jobs.preflight.tablefitness import judge_shards, judge_tables
from ratchet.jobs.reporting.text import duration
from ratchet.wire.connected import Verified

GOOD = {
    "log_bin": "ON",
    "binlog_format": "ROW",
    "binlog_row_image": "FULL",
    "binlog_row_metadata": "FULL",
    "binlog_row_value_options": "",
    "binlog_expire_logs_seconds": "2592000",
    "gtid_mode": "ON",
    "log_replica_updates": "ON",
    "max_allowed_packet": "67108864",
    "server_id": "1",
}
GRANTS = (
    "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO `ratchet`@`%`",
    "GRANT SELECT ON `shop`.* TO `ratchet`@`%`",
)
ORDERS = TableFacts(
    name="orders", engine="InnoDB", rows=10, bytes=1000, has_key=True, columns=(("id", "int"),)
)
MYSQL = ServerFacts(
    shard=ShardId("shop", "-"),
    host="db.example",
    user="ratchet",
    database="shop",
    mariadb=False,
    version="9.7.4",
    numbers=(9, 7, 4),
    cipher="TLS_AES_256_GCM_SHA384",
    verified="identity",
    variables=GOOD,
    grants=GRANTS,
    binlog_filters=("", ""),
    writes_log=True,
    replicas=frozenset({7}),
    follows=False,
    clock_ahead=0.01,
    clock_error=0.001,
    tables=(ORDERS,),
)
MARIADB = replace(
    MYSQL,
    mariadb=True,
    version="10.11.14-MariaDB",
    numbers=(10, 11, 14),
    variables={
        **{k: v for k, v in GOOD.items() if k not in {"gtid_mode", "binlog_row_value_options"}},
        "gtid_strict_mode": "ON",
        "log_slave_updates": "ON",
    },
)


def judged(facts: ServerFacts, **arguments: Any) -> dict[str, Finding]:
    given = {"server_id": 1000, "ours": False, "clock_bound": 0.5, **arguments}
    return {finding.check: finding for finding in judge(facts, **given)}


def with_variables(facts: ServerFacts, **changes: str) -> ServerFacts:
    return replace(facts, variables={**facts.variables, **changes})


@pytest.mark.parametrize("facts", [MYSQL, MARIADB], ids=["mysql", "mariadb"])
def test_a_fit_server(facts: ServerFacts) -> None:
    assert {f.status for f in judged(facts).values()} == {"ok"}
    assert {f.status for f in judge_tables(facts)} == {"ok"}


@pytest.mark.parametrize(
    ("variable", "value", "check", "status", "mend"),
    [
        ("log_bin", "OFF", "log_bin", "fail", "log_bin = bin"),
        ("binlog_format", "MIXED", "binlog_format", "fail", "SET PERSIST binlog_format = 'ROW'"),
        ("binlog_row_image", "MINIMAL", "binlog_row_image", "fail", "binlog_row_image = 'FULL'"),
        ("binlog_row_image", "FULL_NODUP", "binlog_row_image", "fail", "= 'FULL'"),
        ("binlog_row_metadata", "MINIMAL", "binlog_row_metadata", "fail", "= 'FULL'"),
        (
            "binlog_row_value_options",
            "PARTIAL_JSON",
            "binlog_row_value_options",
            "fail",
            "SET PERSIST binlog_row_value_options = ''",
        ),
        (
            "binlog_error_action",
            "IGNORE_ERROR",
            "binlog_error_action",
            "warn",
            "SET PERSIST binlog_error_action = 'ABORT_SERVER'",
        ),
        ("gtid_mode", "OFF", "gtid_mode", "warn", "gtid_mode = OFF_PERMISSIVE"),
        ("gtid_mode", "ON_PERMISSIVE", "gtid_mode", "warn", "gtid_mode = ON;"),
        ("binlog_expire_logs_seconds", "3600", "retention", "warn", "= 259200"),
        ("binlog_expire_logs_seconds", "0", "retention", "ok", ""),
        ("basedir", "/rdsdbbin/mysql/", "retention", "warn", "rds_set_configuration"),
        ("max_allowed_packet", "65536", "max_allowed_packet", "warn", "67108864"),
        ("binlog_transaction_compression", "ON", "binlog_transaction_compression", "info", ""),
        ("server_id", "1000", "server_id", "fail", "server_id_base"),
    ],
)
def test_settings(variable: str, value: str, check: str, status: str, mend: str) -> None:
    finding = judged(with_variables(MYSQL, **{variable: value}))[check]
    assert finding.status == status
    assert mend in finding.mend


def test_mariadb_gets_statements_that_it_knows() -> None:
    found = judged(with_variables(MARIADB, binlog_format="MIXED", gtid_strict_mode="OFF"))
    assert found["binlog_format"].mend.startswith("SET GLOBAL binlog_format = 'ROW';")
    assert "my.cnf" in found["binlog_format"].mend
    assert found["gtid_strict_mode"].status == "warn"
    days = with_variables(MARIADB, binlog_expire_logs_seconds="0", expire_logs_days="0.5")
    assert judged(days)["retention"].status == "warn"


def test_retention_is_held_against_the_dump() -> None:
    """20 TB take longer than 10 days."""
    large = replace(MYSQL, tables=(replace(ORDERS, bytes=20 * 10**12),))
    finding = judged(with_variables(large, binlog_expire_logs_seconds="864000"))["retention"]
    assert finding.status == "fail"
    assert "12 d" in finding.text
    never = with_variables(large, binlog_expire_logs_auto_purge="OFF")
    assert judged(never)["retention"].status == "ok"


@pytest.mark.parametrize(
    ("grants", "missing"),
    [
        (GRANTS, set()),
        (("GRANT ALL PRIVILEGES ON *.* TO `root`@`%` WITH GRANT OPTION",), set()),
        (("GRANT USAGE ON *.* TO `r`@`%`",), {"replication slave", "replication client", "select"}),
        (GRANTS[:1], {"select"}),
        ((GRANTS[0], "GRANT SELECT ON `other`.* TO `r`@`%`"), {"select"}),
        ((GRANTS[0], "GRANT SELECT ON `shop`.`orders` TO `r`@`%`"), {"select"}),
        ((GRANTS[0], r"GRANT SELECT, INSERT ON `sh%`.* TO `r`@`%`"), set()),
        ((GRANTS[0], r"GRANT SELECT ON `sh\_p`.* TO `r`@`%`"), {"select"}),
        ((GRANTS[0], r"GRANT SELECT ON `sh_p`.* TO `r`@`%`"), set()),
        # The server heeds the most specific one alone.
        (
            (
                GRANTS[0],
                "GRANT SELECT ON `sh%`.* TO `r`@`%`",
                "GRANT TRIGGER ON `shop`.* TO `r`@`%`",
            ),
            {"select"},
        ),
        (
            (GRANTS[0], "GRANT SELECT ON `sh%`.* TO `r`@`%`", "GRANT INSERT ON `s%`.* TO `r`@`%`"),
            {"select"},
        ),
        (
            (
                GRANTS[0],
                "GRANT TRIGGER ON `sh%`.* TO `r`@`%`",
                "GRANT SELECT ON `shop`.* TO `r`@`%`",
            ),
            set(),
        ),
        (
            ("GRANT SELECT, REPLICATION SLAVE, BINLOG MONITOR ON *.* TO `r`@`%`",),
            set(),
        ),
        (
            ("GRANT `reader`@`%` TO `r`@`%`", *GRANTS[1:]),
            {"replication slave", "replication client"},
        ),
    ],
)
def test_privileges(grants: tuple[str, ...], missing: set[str]) -> None:
    found = judged(replace(MYSQL, grants=grants))
    assert {name for name, finding in found.items() if finding.status == "fail"} == missing
    for name in missing:
        assert found[name].mend.startswith("GRANT ")
        assert found[name].mend.endswith("TO 'ratchet'@'%';")


@pytest.mark.parametrize(
    ("grants", "needless"),
    [
        ((), ""),
        (("GRANT SELECT, TRIGGER ON `percona`.* TO `r`@`%`",), ""),
        (("GRANT SLAVE MONITOR ON *.* TO `r`@`%`",), ""),
        (("GRANT SELECT (`a`, `b`) ON `shop`.`t` TO `r`@`%`",), ""),
        (("GRANT SELECT ON *.* TO `r`@`%`",), "SELECT ON *.*"),
        (("GRANT SELECT, INSERT ON `shop`.* TO `r`@`%`",), "INSERT ON `shop`.*"),
        (("GRANT INSERT (`a`) ON `shop`.`t` TO `r`@`%`",), "INSERT ON `shop`.`t`"),
        (("GRANT ALL PRIVILEGES ON *.* TO `r`@`%`",), "ALL PRIVILEGES ON *.*"),
        (("GRANT A, B, C, D, E, F ON *.* TO `r`@`%`",), "A, B, C, D, ... ON *.*"),
        (
            ("GRANT SELECT ON `shop`.* TO `r`@`%` WITH GRANT OPTION",),
            "GRANT OPTION ON `shop`.*",
        ),
        (("GRANT SELECT ON `mysql`.* TO `r`@`%`",), "SELECT ON `mysql`.*"),
        (("GRANT PROXY ON `root`@`%` TO `r`@`%`",), "PROXY ON `root`@`%`"),
        (
            ("GRANT EXECUTE ON PROCEDURE `shop`.`p` TO `r`@`%`",),
            "EXECUTE ON PROCEDURE `shop`.`p`",
        ),
        (("GRANT `admin`@`%` TO `r`@`%`",), "`admin`@`%`"),
        (("SET DEFAULT ROLE `a` FOR `r`@`%`",), ""),
    ],
)
def test_more_privileges_than_are_needed(grants: tuple[str, ...], needless: str) -> None:
    found = judged(replace(MYSQL, grants=(*GRANTS, *grants)))
    told = found.get("least privilege")
    assert (told.text.partition("needs: ")[2] if told else "") == needless
    assert told is None or "CREATE USER" in told.mend


@pytest.mark.parametrize("database", ["a b", "a`b ON *.* TO", "it's", "x.*", "`", "größe; --"])
def test_privileges_on_odd_names(database: str) -> None:
    """A blank in the name once hid the GRANT."""
    quoted = database.replace("`", "``")
    for name, granted in ((quoted, True), ("other one", False)):
        grants = (GRANTS[0], f"GRANT SELECT ON `{name}`.* TO `r`@`%`")
        found = judged(replace(MYSQL, database=database, grants=grants))["select"]
        assert (found.status == "ok") == granted
    assert f"`{quoted}`.*" in found.mend


def test_server_id() -> None:
    assert judged(MYSQL, server_id=7)["server_id"].status == "fail"
    assert judged(MYSQL, server_id=7, ours=True)["server_id"].status == "ok"
    assert judged(replace(MYSQL, replicas=None))["server_id"].status == "info"


def test_replicas_must_log_what_they_replicate() -> None:
    off = with_variables(MYSQL, log_replica_updates="OFF")
    assert "log_replica_updates" not in judged(off)
    assert judged(replace(off, follows=True))["log_replica_updates"].status == "fail"
    assert judged(replace(off, follows=None))["log_replica_updates"].status == "warn"
    assert judged(replace(MYSQL, follows=True))["log_replica_updates"].status == "ok"


def test_clocks() -> None:
    assert judged(replace(MYSQL, clock_ahead=-3.0))["clock"].status == "warn"
    assert judged(replace(MYSQL, clock_ahead=3.0, clock_error=2.8))["clock"].status == "ok"


def test_filters() -> None:
    assert judged(replace(MYSQL, writes_log=False))["log_bin"].status == "fail"
    assert judged(replace(MYSQL, writes_log=None))["log_bin"].status == "ok"
    assert judged(replace(MYSQL, binlog_filters=("", "shop")))["binlog filters"].status == "fail"
    assert judged(replace(MYSQL, binlog_filters=("a,b", "")))["binlog filters"].status == "fail"
    assert judged(replace(MYSQL, binlog_filters=("shop", "")))["binlog filters"].status == "warn"
    assert "binlog filters" not in judged(replace(MYSQL, binlog_filters=None))


def test_encryption() -> None:
    bare = replace(MYSQL, cipher="")
    assert judged(bare)["encryption"].status == "warn"
    assert judged(replace(bare, host="127.0.0.1"))["encryption"].status == "info"
    assert judged(MYSQL)["encryption"].status == "ok"


@pytest.mark.parametrize(
    ("verified", "said"), [("", "TLS, not verified"), ("authority", "TLS, the host's name not")]
)
def test_encryption_that_anybody_may_be_behind(verified: Verified, said: str) -> None:
    found = judged(replace(MYSQL, verified=verified))["encryption"]
    assert (found.status, said in found.text) == ("warn", True)
    assert "verify_identity" in found.mend
    here = judged(replace(MYSQL, verified=verified, host="localhost"))["encryption"]
    assert (here.status, said in here.text) == ("info", True)


@pytest.mark.parametrize(
    ("version", "numbers", "mariadb", "status"),
    [
        ("5.7.44", (5, 7, 44), False, "fail"),
        ("10.4.1-MariaDB", (10, 4, 1), True, "fail"),
        ("8.0.36-Vitess", (8, 0, 36), False, "fail"),
        ("8.4.0", (8, 4, 0), False, "ok"),
        ("11.4.2-MariaDB", (11, 4, 2), True, "ok"),
    ],
)
def test_versions(version: str, numbers: tuple[int, ...], *, mariadb: bool, status: str) -> None:
    facts = replace(
        MARIADB if mariadb else MYSQL, version=version, numbers=numbers, mariadb=mariadb
    )
    assert judged(facts)["version"].status == status


@pytest.mark.parametrize("facts", [MYSQL, MARIADB], ids=["mysql", "mariadb"])
def test_filters_of_a_replica(facts: ServerFacts) -> None:
    """All of the database: not fit; one table: that one is left out, by name."""
    do = replace(facts, replica_filters=(ReplicaFilters(), ReplicaFilters(do_db=("other",))))
    assert "replica filters" not in judged(do)  # it is no replica
    found = judged(replace(do, follows=True))["replica filters"]
    assert (found.status, unlogged(found)) == ("fail", True)
    assert "replicate_do_db leaves shop out" in found.text
    assert ("CHANGE REPLICATION FILTER REPLICATE_DO_DB = ()" in found.mend) != facts.mariadb
    assert judged(replace(do, follows=None))["replica filters"].status == "warn"
    shown = {"Replicate_Wild_Ignore_Table": "shop.log%,shop.x\\_", "Replicate_Do_DB": ""}
    some = replace(facts, follows=True, replica_filters=(read_filters(shown),))
    assert "replica filters" not in judged(some)
    assert "replicate_wild_ignore_table" in some.left_out("logins")
    assert [t for t in ("orders", "x1", "x_") if some.left_out(t)] == ["x_"]
    assert not replace(some, follows=False).left_out("logins")


def test_a_filter_that_names_what_to_replicate_leaves_the_rest_out() -> None:
    filters = ReplicaFilters(do_table=("shop.a",), wild_do=("shop.b%",), wild_ignore=("shop.%",))
    assert [t for t in ("a", "b1", "c") if filters.of_table("shop", t)] == ["c"]
    assert ReplicaFilters(ignore_db=("shop",)).of_table("shop", "a") == "replicate_ignore_db"
    assert ReplicaFilters(ignore_table=("shop.a",)).of_table("shop", "b") == ""


def test_what_the_log_shows_is_told_from_what_is_lost() -> None:
    """Only what leaves no trace makes rows doubtful that were mirrored meanwhile."""
    seen = with_variables(MYSQL, binlog_row_image="MINIMAL", binlog_format="MIXED")
    failed = [one for one in judge_log(seen) if one.status == "fail"]
    assert len(failed) == 2
    assert not any(map(unlogged, failed))
    gone = replace(with_variables(MYSQL, log_replica_updates="OFF"), follows=True)
    assert [unlogged(one) for one in judge_log(gone) if one.status == "fail"] == [True]
    node = with_variables(MARIADB, log_replica_updates="OFF", wsrep_on="ON")
    assert [one.check for one in judge_log(node) if unlogged(one)] == ["log_replica_updates"]


def test_triggers_that_a_replica_runs_and_does_not_log() -> None:
    name = "slave_run_triggers_for_rbr"
    replica = replace(with_variables(MARIADB, **{name: "YES"}), follows=True)
    found = judged(replica)[name]
    assert (found.status, unlogged(found)) == ("fail", True)
    assert "'LOGGING'" in found.mend
    assert judged(replace(replica, follows=None))[name].status == "warn"
    assert name not in judged(replace(replica, follows=False))
    assert name not in judged(with_variables(replica, **{name: "LOGGING"}))


def test_tables() -> None:
    odd = (
        replace(ORDERS, name="nokey", has_key=False),
        replace(ORDERS, name="odd`", odd=unfit_name(("a b", "_Token", "fine-$"), table="odd`")),
        replace(ORDERS, name="Orders"),
        ORDERS,
    )
    found = {f.check: f for f in judge_tables(replace(MYSQL, tables=odd))}
    assert found["key of nokey"].status == "fail"
    assert "ALTER TABLE `nokey` ADD PRIMARY KEY" in found["key of nokey"].mend
    odd_one = found["columns of odd`"]
    assert "a b" not in odd_one.text  # any name will do but those that are taken
    assert "ALTER TABLE `odd``` RENAME COLUMN `_Token` TO `token_`" in odd_one.mend
    assert found["table names"].status == "warn"
    (_, versioned) = judge_tables(replace(MYSQL, unfit={"h": "it is system-versioned"}))
    assert (versioned.check, versioned.status) == ("kind of h", "warn")
    assert '"!h"' in versioned.mend
    (empty,) = judge_tables(replace(MYSQL, tables=()))
    assert empty.status == "warn"


def test_shards_must_agree() -> None:
    other = replace(MYSQL, shard=ShardId("shop", "80-"))
    assert judge_shards([MYSQL]) == []
    assert [f.status for f in judge_shards([MYSQL, other])] == ["ok"]
    wider = replace(other, tables=(replace(ORDERS, columns=(("id", "bigint"),)),))
    (finding,) = judge_shards([MYSQL, wider])
    assert finding.status == "fail"
    assert "'orders'" in finding.text
    (finding,) = judge_shards([MYSQL, replace(other, tables=())])
    assert finding.status == "warn"  # a run mirrors it from the shard that has it
    assert "only one of them has 'orders'" in finding.text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "less than 1 s"), (59, "59 s"), (94, "94 s"), (5400, "90 min"), (86400, "24 h")],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text
