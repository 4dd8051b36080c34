"""Each function of Spark's passes the guard, or is left out on purpose and says why."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from ratchet.core.errors import ConfigError
from ratchet.jobs.inspect.sqlclasses import (
    BUILDERS,
    CATALYST,
    EXPRESSIONS,
    HOLDING,
    LEFT_OUT,
    PARSED,
    PLANS,
    REPORTED,
    REPORTS,
    TABLE_FUNCTIONS,
)
from ratchet.jobs.inspect.sqlwalk import SPARK

if TYPE_CHECKING:
    from fix_sqlguard import Guarded

# Operators that are no functions of Spark's registry, and what stands for them.
OPERATORS = {
    "!=": "1 != 2",
    "<>": "1 <> 2",
    "case": "CASE WHEN true THEN 1 END",
    "||": "'a' || 'b'",
}
# Their examples need settings, or tables that are not there.
UNPLAYED = re.compile(r"^SET |TIME ?'|time '|to_time\(|time_from_|make_time\(|measure\(")


def functions(guarded: Guarded) -> list[str]:
    return [row[0] for row in guarded.session.sql("SHOW SYSTEM FUNCTIONS").collect()]


def refusal(guarded: Guarded, query: str) -> str:
    """Why the first look refuses it, at its names alone; empty if it does not."""
    try:
        guarded.guard.parsed(query)
    except ConfigError as error:
        return error.message
    return ""


def test_each_function_passes_or_is_left_out(guarded: Guarded) -> None:
    """What a later Spark brings is refused, and fails here until somebody has looked at it."""
    names = functions(guarded)
    assert len(names) > 500
    refused = {}
    for name in names:
        call = OPERATORS.get(name, f"`{name}`()")
        scalar = refusal(guarded, f"SELECT {call}")
        table = refusal(guarded, f"SELECT * FROM `{name}`()") if name not in OPERATORS else ""
        if scalar and not (name in TABLE_FUNCTIONS and not table):
            refused[name] = scalar
    assert set(refused) == set(LEFT_OUT)
    for name, said in refused.items():
        if name != "python_worker_logs":  # stands for a table alone
            assert LEFT_OUT[name] in said, name


def test_functions_that_stand_for_a_table(guarded: Guarded) -> None:
    """A list of their own: Spark's registry of them has no others that are harmless."""
    names = [name for name in functions(guarded) if name not in OPERATORS]
    passed = {name for name in names if not refusal(guarded, f"SELECT * FROM `{name}`()")}
    assert passed == TABLE_FUNCTIONS


def test_each_example_of_an_allowed_function_passes(guarded: Guarded) -> None:
    """Their analyzed plans hold nothing that is not listed: no ordinary call is refused."""
    played, refused = 0, {}
    for name in functions(guarded):
        if name in LEFT_OUT or name in OPERATORS:
            continue
        for query in examples(guarded, name):
            if UNPLAYED.search(query) or any(f"{one}(" in query for one in LEFT_OUT):
                continue
            played += 1
            try:
                guarded.ask(query)
            except ConfigError as error:
                refused[query] = error.message
    assert refused == {}
    assert played > 1000


def examples(guarded: Guarded, name: str) -> list[str]:
    session: Any = guarded.session
    jvm = session.sparkContext._jvm
    identifier = jvm.org.apache.spark.sql.catalyst.FunctionIdentifier(name)
    info = session._jsparkSession.sessionState().catalog().lookupFunctionInfo(identifier)
    found = (re.match(r"\s*> (.*?);?\s*$", line) for line in info.getExamples().splitlines())
    return [match[1] for match in found if match]


@pytest.mark.parametrize("allowed", [PARSED, PLANS, EXPRESSIONS, BUILDERS, REPORTED])
def test_what_is_listed_is_a_class_of_sparks(guarded: Guarded, allowed: frozenset[str]) -> None:
    """A name with a slip in it would refuse what should pass, and nobody would know why."""
    assert [name for name in sorted(allowed) if not exists(guarded, CATALYST + name)] == []


def test_reports_are_classes_of_sparks(guarded: Guarded) -> None:
    names = {*REPORTS, *HOLDING}
    assert [name for name in sorted(names) if not exists(guarded, SPARK + name)] == []


def exists(guarded: Guarded, name: str) -> bool:
    from py4j.protocol import Py4JJavaError

    jvm: Any = guarded.session.sparkContext._jvm
    try:
        jvm.java.lang.Class.forName(
            name, False, jvm.java.lang.Thread.currentThread().getContextClassLoader()
        )
    except Py4JJavaError:
        return False
    return True
