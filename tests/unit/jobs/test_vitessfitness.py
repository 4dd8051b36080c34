"""The rules of `ratchet check` for shards behind a vtgate."""

from __future__ import annotations

from dataclasses import replace

from ratchet.jobs.preflight.facts import ServerFacts, TableFacts
from ratchet.jobs.preflight.finding import Finding
from ratchet.jobs.preflight.vitessfitness import GatewayFacts, judge_vitess
from ratchet.wire.vitess import ServingTablet
from tests.unit.jobs.test_fitness import MYSQL, with_variables

BEHIND = GatewayFacts(
    version="Version: 24.0.0 (Git revision abc)",
    tablets=(
        ServingTablet("shop", "-", "PRIMARY", serving=True, alias="zone1-1"),
        ServingTablet("shop", "-", "REPLICA", serving=True, alias="zone1-2"),
    ),
)


def judged(facts: ServerFacts, behind: GatewayFacts = BEHIND) -> dict[str, Finding]:
    return {f.check: f for f in judge_vitess(facts, behind, clock_bound=0.5)}


def test_a_fit_shard() -> None:
    """Without grants, replicas and a server id of ours: nothing is asked of the account."""
    found = judged(replace(MYSQL, grants=(), replicas=None))
    assert {f.status for f in found.values()} == {"ok"}
    assert found["vtgate"].text == "24.0.0"
    assert found["tablets"].text == "serving: zone1-1 (primary), zone1-2 (replica)"
    assert not {"select", "server_id", "binlog_row_metadata"} & found.keys()


def test_another_vtgate() -> None:
    found = judged(MYSQL, replace(BEHIND, version="Version: 21.0.3 (Git"))
    assert found["vtgate"].text == "21.0.3 (tests run on 24.0)"


def test_a_log_that_lacks_something() -> None:
    found = judged(with_variables(MYSQL, binlog_row_image="NOBLOB", max_execution_time="5000"))
    assert found["binlog_row_image"].status == "fail"
    assert found["max_execution_time"].status == "warn"
    assert "5 s" in found["max_execution_time"].text


def test_a_set_of_64_members() -> None:
    def table(count: int) -> TableFacts:
        members = ",".join(f"'m''{n}'" for n in range(count))
        columns = (("id", "int"), ("s", f"set({members})"))
        return replace(MYSQL.tables[0], name=f"t{count}", columns=columns)

    found = judged(replace(MYSQL, tables=(table(63), table(64))))
    assert "columns of t63" not in found
    assert found["columns of t64"].status == "fail"
    assert '"!t64"' in found["columns of t64"].mend


def test_json_is_told_of() -> None:
    columns = (("id", "int"), ("doc", "json"), ("more", "json"))
    found = judged(replace(MYSQL, tables=(replace(MYSQL.tables[0], columns=columns),)))
    told = found[f"columns of {MYSQL.tables[0].name}"]
    assert told.status == "info"
    assert "doc, more" in told.text
