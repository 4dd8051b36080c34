"""What a query may be made of: what reads the mirror's tables and nothing else.

Lives here: the look at a query before anything of it is executed. Does not live here: statements
that are no query (`sql.refuse_changes`), the list of classes (`sqlclasses`).

Invariant: what is not on the list is refused, so what a later Spark brings is, too, until somebody
has looked at it. A query that was let through starts no program, loads no code, reads no file but
those of the views that were made for it, and nothing of the environment or the settings.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any, Final

from core.errors import ConfigError
from jobs.sqlclasses import CATALYST, EXPRESSIONS, LEFT_OUT, PLANS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_VIEW: Final = f"{CATALYST}plans.logical.View"
_CATALOG: Final = "spark_catalog"
# Why a name is refused that somebody may well have typed in good faith.
_WHY: Final = {
    "CallMethodViaReflection": "it calls a method of Java's",
    "TryReflect": "it calls a method of Java's",
    "ScriptTransformation": "it starts a program",
    "LogicalRelation": "it reads files",
    "DataSourceV2Relation": "it reads files",
}


def without_substitution(spark: SparkSession) -> None:
    """From here on `${env:NAME}` in a query is text: Spark would put the environment there."""
    spark.conf.set("spark.sql.variable.substitute", "false")


def refuse_names(spark: SparkSession, query: str, views: Collection[tuple[str, str]]) -> None:
    """Refuse a query that names relations other than views; to be called before it is analyzed.

    Analyzing it opens them: ``csv.`/etc/passwd` `` is read for its columns.

    Args:
        spark: the session.
        query: a query, SHOW, DESCRIBE or EXPLAIN.
        views: database and name of each view, in lower case.

    Raises:
        ConfigError: it names another one.
        ParseException: it is no SQL.
    """
    session: Any = spark._jsparkSession  # noqa: SLF001 - the parser has no public door in PySpark
    for plan in _parsed(session.sessionState().sqlParser().parsePlan(query)):
        kind = str(plan.getClass().getSimpleName())
        if kind == "UnresolvedFunction":
            _refuse_function(plan)
        if "WithUnresolvedIdentifier" in kind:
            raise _refusal("IDENTIFIER(...)", "it names what only its evaluation tells")
        if kind.startswith("Unresolved"):
            _refuse_foreign(kind, plan, views)


def is_report(spark: SparkSession, query: str) -> bool:
    """Whether it is no query but SHOW, DESCRIBE or EXPLAIN, whose rows tell of tables.

    Args:
        spark: the session.
        query: was let through by `sql.refuse_changes` and `refuse_names`.
    """
    session: Any = spark._jsparkSession  # noqa: SLF001 - as above
    plan = session.sessionState().sqlParser().parsePlan(query)
    return str(plan.getClass().getSimpleName()).startswith(("Show", "Describe", "Explain"))


def refuse_plan(frame: DataFrame) -> None:
    """Refuse a query of which the analyzed plan has anything that is not on the list.

    Args:
        frame: the query; nothing of it has been executed yet.

    Raises:
        ConfigError: it has.
    """
    execution: Any = frame._jdf.queryExecution()  # noqa: SLF001 - no public door in PySpark
    for name in _classes(json.loads(str(execution.analyzed().toJSON()))):
        short = name.removeprefix(CATALYST)
        if short not in EXPRESSIONS and short not in PLANS:
            last = name.rsplit(".", 1)[-1].rstrip("$")
            raise _refusal(last, _WHY.get(last, "it is not on the list of what only reads"))


def _refusal(what: str, why: str) -> ConfigError:
    return ConfigError(
        f"the query is refused: {what}: {why}",
        operation="sql",
        hint="`ratchet sql` reads the mirror's tables and nothing else; if you trust the text, "
        "--unsafe gives it all that Spark can do, in your name",
    )


def _refuse_foreign(kind: str, plan: Any, views: Collection[tuple[str, str]]) -> None:
    parts = _asked(plan, "multipartIdentifier")
    if parts is None or "Namespace" in kind or "Function" in kind:
        return  # SHOW TABLES IN, DESCRIBE FUNCTION: there is nothing but views and Spark's own
    names = [str(parts.apply(n)) for n in range(parts.size())]
    # One part is a common table expression, or a table of the database `default`, which has none.
    inside = names[1:] if len(names) == 3 and names[0].lower() == _CATALOG else names
    if len(inside) == 1 or (len(inside) == 2 and (inside[0].lower(), inside[1].lower()) in views):
        return
    raise _refusal(".".join(names), "it is none of the mirror's tables")


def _refuse_function(plan: Any) -> None:
    """Of an inline table Spark evaluates functions while it analyzes the query."""
    parts = plan.nameParts()
    name = str(parts.apply(parts.size() - 1)).lower()
    if name in LEFT_OUT or name.startswith("xpath"):
        raise _refusal(name, "it is not on the list of what only reads")


def _parsed(plan: Any) -> Iterator[Any]:
    """All plans and expressions of a parsed statement: in its subqueries and its WITH as well."""
    waiting = [plan]
    while waiting:
        one = waiting.pop()
        yield one
        for name in ("children", "innerChildren", "expressions"):
            found = _asked(one, name)
            if found is not None:
                waiting += [found.apply(n) for n in range(found.size())]
        kind = str(one.getClass().getSimpleName())
        if "Explain" in kind:
            waiting.append(one.logicalPlan())
        elif "Subquery" in kind or kind in {"ListQuery", "Exists"}:
            waiting += [inner for inner in (_asked(one, "plan"),) if inner is not None]


def _asked(one: Any, name: str) -> Any:
    """What a method of a Java object gives; None if it has none of that name."""
    from py4j.protocol import Py4JError, Py4JJavaError

    try:
        return getattr(one, name)()
    except Py4JJavaError:
        raise
    except Py4JError:
        return None


def _classes(value: Any) -> Iterator[str]:
    """The class of each plan and expression in a plan's JSON, but for what views are made of."""
    if isinstance(value, dict):
        if "class" in value:
            yield str(value["class"])
        for inner in value.values():
            yield from _classes(inner)
    elif isinstance(value, list):
        yield from (
            _tree(value)
            if _is_tree(value)
            else (name for inner in value for name in _classes(inner))
        )


def _is_tree(value: list[Any]) -> bool:
    return bool(value) and isinstance(value[0], dict) and "num-children" in value[0]


def _tree(nodes: list[Any]) -> Iterator[str]:
    """A tree is a list of its nodes, each before its children."""
    at = 0
    while at < len(nodes):
        if nodes[at].get("class") == _VIEW:
            at = _behind(nodes, at)
        else:
            yield from _classes(nodes[at])
            at += 1


def _behind(nodes: list[Any], at: int) -> int:
    """Where the node behind a node's last descendant stands."""
    left = 1
    while left:
        left += int(nodes[at]["num-children"]) - 1
        at += 1
    return at
