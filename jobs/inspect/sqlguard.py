"""What a query may be made of: what reads the mirror's tables and nothing else.

Lives here: the look at a query before anything of it is executed. Does not live here: statements
that are no query (`sql.refuse_changes`), the lists (`sqlclasses`), the walk over a plan
(`sqlwalk`).

Invariant: what is not on a list is refused, so what a later Spark brings is, too, until somebody
has looked at it. A query that was let through starts no program, loads no code, reads no file but
those of the views that were made for it, and nothing of the environment or the settings.

It is looked at twice. When it was parsed, since analyzing it does things: Spark opens files for
their columns, evaluates inline tables, and runs what EXECUTE IMMEDIATE says. And when it was
analyzed, since only then each name has become what it stands for.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

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
    WHY,
)
from ratchet.jobs.inspect.sqlwalk import Node, walk
from ratchet.jobs.reporting.text import one_line

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

View = tuple[str, str]  # database and name

_CATALOG: Final = "spark_catalog"
_OWN: Final = {"default", "global_temp"}  # databases that each session has
_BUILT_IN: Final = ((), ("builtin",), ("system", "builtin"))  # how Spark's functions may be named
_NOT_LISTED: Final = "it is not on the list of what is known only to read"
# A type as JSON may name any class of Java's and any module of Python's, which is loaded as soon as
# Spark reads it, and have expressions that are evaluated unseen.
_SCHEMA: Final = "its type must be a text in SQL's notation, such as 'a INT, b STRING'"
_IN_SQL: Final = re.compile(r"\s*[A-Za-z_`]")
_TEXT: Final = 80


class Guard:
    """Looks at queries of one session.

    From here on `${env:NAME}` in its queries is text: Spark would put the environment there.

    Args:
        spark: the session.
        views: all that a query may read.
        tables: the names that a user knows them by.
    """

    def __init__(
        self, spark: SparkSession, views: Collection[View], tables: Iterable[str] = ()
    ) -> None:
        spark.conf.set("spark.sql.variable.substitute", "false")
        self._spark = spark
        self._views = {(database.lower(), name.lower()) for database, name in views}
        # Spark keeps names in lower case, unless it is told that case matters.
        self._kept = self._views.union(views)
        self._state: Any = spark._jsparkSession.sessionState()  # noqa: SLF001 - the parser has no public door in PySpark
        self._jvm: Any = spark.sparkContext._jvm  # noqa: SLF001
        self._tables = ", ".join(map(one_line, sorted(tables))) or "none yet"

    def frame(self, query: str) -> DataFrame:
        """The query's rows, if it does nothing but read.

        Args:
            query: was let through by `sql.refuse_changes`.

        Raises:
            ConfigError: it does more; nothing of it was executed.
            AnalysisException: Spark does not understand it.
            ParseException: it is no SQL.
        """
        root, plan = self.parsed(query)
        if root.short in REPORTS:
            return self._spark.sql(query)
        if root.short in HOLDING:
            # It is executed as soon as Spark is told of it: its query is analyzed by itself before.
            mode = self._jvm.org.apache.spark.sql.execution.CommandExecutionMode.SKIP()
            inner = getattr(plan, HOLDING[root.short])()
            self._refuse_analyzed(self._state.executePlan(inner, mode))
            return self._spark.sql(query)
        frame = self._spark.sql(query)
        self._refuse_analyzed(frame._jdf.queryExecution())  # noqa: SLF001 - as above
        return frame

    def parsed(self, query: str) -> tuple[Node, Any]:
        """The first look: at what the text names, before Spark makes anything of it.

        Returns:
            The statement's root, and its plan.

        Raises:
            ConfigError: there is something in it that is not listed.
            ParseException: it is no SQL.
        """
        plan = self._state.sqlParser().parsePlan(query)
        root, *inner = walk(self._spark, plan)
        if root.short in REPORTS:
            _refuse_unlisted(inner, (REPORTED,))
        else:
            nodes = inner if root.short in HOLDING else [root, *inner]
            _refuse_unlisted(nodes, (PARSED, PLANS, EXPRESSIONS))
        self._refuse_names([root, *inner])
        return root, plan

    def _refuse_analyzed(self, execution: Any) -> None:
        nodes = walk(self._spark, execution.analyzed(), self._kept)
        _refuse_unlisted(nodes, (PLANS, EXPRESSIONS))

    def _refuse_names(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            names = tuple(name.lower() for name in node.names)
            if node.last in {"UnresolvedRelation", "UnresolvedTableOrView"}:
                self._refuse_table(node, names)
            elif node.last == "UnresolvedNamespace":
                self._refuse_database(node, names)
            elif node.last in {"UnresolvedFunction", "UnresolvedGenerator"}:
                self._refuse_function(node, names)
            elif node.last == "UnresolvedTableValuedFunction":
                _refuse_table_function(node, names)

    def _refuse_table(self, node: Node, names: tuple[str, ...]) -> None:
        # One part is a common table expression, or a table of the database `default`, which the
        # analyzed plan would show: it is no view of ours.
        inside = _without_catalog(names)
        if len(inside) > 1 and inside not in self._views:
            raise _refusal(
                node,
                ".".join(node.names),
                "it is none of the mirror's tables",
                hint=f"the tables are: {self._tables}; ",
            )

    def _refuse_database(self, node: Node, names: tuple[str, ...]) -> None:
        inside = _without_catalog(names)
        known = _OWN | {database for database, _ in self._views}
        if len(inside) > 1 or not known.issuperset(inside):
            raise _refusal(node, ".".join(node.names), "it is none of the mirror's databases")

    def _refuse_function(self, node: Node, names: tuple[str, ...]) -> None:
        """By the class that makes it: Spark evaluates some while it analyzes a query."""
        *where, name = names
        built = tuple(where) in _BUILT_IN
        kind = self._class_of(name) if built else None
        if kind is None:
            raise _refusal(node, ".".join(node.names), "Spark has no function of that name")
        if not _is_listed(kind, (EXPRESSIONS, BUILDERS)):
            raise _refusal(node, name, LEFT_OUT.get(name, _NOT_LISTED))
        if node.schema and not _IN_SQL.match(node.schema):
            raise _refusal(node, name, _SCHEMA)

    def _class_of(self, name: str) -> str | None:
        some = self._jvm.scala.Option.apply
        identifier = self._jvm.org.apache.spark.sql.catalyst.FunctionIdentifier(
            name, some("builtin"), some("system")
        )
        found = self._state.functionRegistry().lookupFunction(identifier)
        return None if found.isEmpty() else str(found.get().getClassName())


def _refuse_table_function(node: Node, names: tuple[str, ...]) -> None:
    *where, name = names
    if tuple(where) not in _BUILT_IN or name not in TABLE_FUNCTIONS:
        raise _refusal(node, ".".join(node.names), LEFT_OUT.get(name, _NOT_LISTED))


def _refuse_unlisted(nodes: Iterable[Node], lists: Sequence[Collection[str]]) -> None:
    for node in nodes:
        if not _is_listed(node.kind, lists):
            what, why = WHY.get(node.last, (node.last, _NOT_LISTED))
            raise _refusal(node, what, why)


def _is_listed(kind: str, lists: Sequence[Collection[str]]) -> bool:
    return kind.startswith(CATALYST) and any(kind[len(CATALYST) :] in one for one in lists)


def _without_catalog(names: tuple[str, ...]) -> tuple[str, ...]:
    return names[1:] if len(names) > 1 and names[0] == _CATALOG else names


def _refusal(node: Node, what: str, why: str, *, hint: str = "") -> ConfigError:
    text = " ".join(node.text.split())
    at = f" (line {node.line}: {text[:_TEXT]}{'...' if text[_TEXT:] else ''})" if text else ""
    return ConfigError(
        f"the query is refused: {what}: {why}{at}",
        operation="sql",
        hint=(
            f"{hint}`ratchet sql` reads the mirror's tables and nothing else; if you trust the "
            "query as you trust a program, --unsafe lets it do all that Spark can do, in your "
            "name"
        ),
    )
