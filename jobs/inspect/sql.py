"""`ratchet sql`: Spark SQL over the mirrored tables at one cut.

Lives here: views named keyspace.table, refusing what is no query, and printing rows. Does not live
here: which versions make a cut (`asof`).

Invariant: without `--as-of` the newest cut is shown, with `--fresh` the newest committed round (and
with `--changes` what the rounds hold, instead of rows); so
a query over several tables sees one moment of each shard. Tables that are in no cut yet (their dump
has not ended) are shown as they are.
"""

from __future__ import annotations

import datetime
import decimal
import json
import logging
import math
import os
import re
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final

from ratchet.core.errors import ConfigError
from ratchet.core.types import InvalidValuePolicy
from ratchet.jobs.config.config import Config
from ratchet.jobs.engine.spark import spark_session
from ratchet.jobs.inspect.asof import find_cut, parse_moment, tables_of
from ratchet.jobs.inspect.sqlguard import Guard
from ratchet.jobs.inspect.sqlwalk import walk
from ratchet.jobs.inspect.viewnames import Name, free, quoted, rename, view_names
from ratchet.jobs.reporting.observe import tell_doubtful
from ratchet.jobs.reporting.terminal import in_json, visible
from ratchet.jobs.reporting.text import age, counted, one_line
from ratchet.merge.fresh import read_fresh
from ratchet.merge.history import read_history
from ratchet.merge.lostparts import refuse_lost
from ratchet.store.cuts import Cuts
from ratchet.store.files import Lake
from ratchet.store.formats import open_lake
from ratchet.store.tables import Tables, TableState

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

log: Final = logging.getLogger(__name__)

# What is none of Spark's commands by its class, and acts all the same.
_ACTING: Final = re.compile(r"Statement$|^Call|Compound")
# Commands that change nothing, by how their classes' names begin.
_READING: Final = ("Show", "Describe", "Explain")
_QUOTED: Final = re.compile(r"[\",\r\n]")  # what a field of CSV cannot hold as it is
# How Spark names an error that values lead to (SQLSTATE classes 21 and 22, and raise_error).
# A value in its text may have line ends.
_REASON: Final = re.compile(r"\[[A-Z][A-Z0-9_.]+\] .*?SQLSTATE: (?:P0001|2[12]\w{3})", re.DOTALL)
_GLOBAL: Final = "global_temp"  # Spark's database of global temporary views
MAX_TABLE_ROWS: Final = 1000


def run_sql(
    config: Config,
    query: str,
    *,
    moment: str | None,
    form: str,
    fresh: bool = False,
    changes: bool = False,
    unsafe: bool = False,
) -> int:
    """Run the query and print its rows.

    Args:
        config: says where the lake is.
        query: of the user's.
        moment: which cut; None is the newest.
        form: "table", "json" or "csv".
        fresh: whether what is captured and not merged yet is shown, too.
        changes: whether the tables' names stand for their changes, as the change log has them.
        unsafe: whether the query may use all that Spark can do but change the lake.
    """
    in_utc()
    lake = open_lake(config.lake, now=0, create=False)
    versions = versions_at(lake, moment, fresh=fresh or changes)
    names = view_names((state.keyspace, state.table) for state, _ in versions)
    named = mentioned(versions, query)
    tell_doubtful(state for state, _ in named)
    with spark_session(config, "sql") as spark:
        text = rename(query, names)
        made: dict[Name, Name] = {}
        if fresh or changes:
            make = make_change_views if changes else make_fresh_views
            made = make(spark, lake, [state for state, _ in named], names, config.policy)
            named = [one for one in named if (one[0].keyspace, one[0].table) not in made]
            text = rename(text, _in_any_case(made, names), any_case=True)
        make_views(spark, lake, named, names)
        views = None if unsafe else {*names.values(), *made.values()}
        with _told_of_the_query():
            print_rows(_run(spark, text, names, views), form)
    return 0


@contextmanager
def _told_of_the_query() -> Iterator[None]:
    """What goes wrong by the rows that a query meets is the query's fault, not Spark's."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (Py4JError, PySparkException) as error:
        reason = next(filter(None, map(_REASON.match, _told_by(error))), None)
        reason = reason or _REASON.search(str(error))
        if reason is None:
            raise
        raise ConfigError(
            f"the query ended in an error: {visible(reason[0])}",
            operation="sql",
            hint="change the query: Spark's try_ functions (try_divide, try_cast, try_add) give "
            "NULL where a value does not fit",
        ) from None


def _told_by(error: Any) -> Iterator[str]:
    """What an error of Spark's and those behind it say, each by itself.

    The text of the whole has only a stack trace where Java wraps one that has line ends.
    """
    found = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    while found is not None:
        yield found.getMessage() or ""
        found = found.getCause()


def in_utc() -> None:
    """Let this process live in UTC: PySpark makes instants into times of its zone."""
    os.environ["TZ"] = "UTC"
    time.tzset()


def versions_at(
    lake: Lake, moment: str | None, *, fresh: bool = False
) -> list[tuple[TableState, int | None]]:
    """The tables to show and their versions; None stands for the newest.

    Args:
        lake: the lake.
        moment: which cut; None is the newest.
        fresh: whether more is laid over them, so that their own moment is of no interest.

    Raises:
        LakeError: no cut shows that moment.
    """
    if moment is not None:
        return list(tables_of(lake, find_cut(lake, parse_moment(moment))))
    last = Cuts(lake).last()
    if last is not None and not fresh:
        merged = age(last.merged_at, time.time())
        log.info("the tables as of round %d, merged %s", last.round, merged)
    versions: Mapping[str, int] = {} if last is None else last.tables
    return [
        (state, versions.get(state.name))
        for state in Tables(lake).list()
        if state.name in versions or lake.exists(f"{state.shown_path}/_delta_log")
    ]


def mentioned(
    tables: Sequence[tuple[TableState, int | None]], query: str
) -> list[tuple[TableState, int | None]]:
    """Those whose names stand in the query: a view costs a look at its table's log.

    All of them if none does, for SHOW TABLES and the like.
    """
    text = query.lower().replace("``", "`")
    return [pair for pair in tables if pair[0].table.lower() in text] or list(tables)


def make_views(
    spark: SparkSession,
    lake: Lake,
    tables: Sequence[tuple[TableState, int | None]],
    names: Mapping[Name, Name],
) -> None:
    """Make a view of each table at its version; views live as long as the session."""
    for state, version in tables:
        refuse_lost(lake, state, "sql", side=False)
        keyspace, table = names[state.keyspace, state.table]
        source = f"delta.{quoted(lake.hadoop_uri(state.shown_path))}"
        at = "" if version is None else f" VERSION AS OF {version}"
        view = f"{quoted(keyspace)}.{quoted(table)}"
        spark.sql(f"CREATE DATABASE IF NOT EXISTS {quoted(keyspace)}")
        spark.sql(f"CREATE OR REPLACE VIEW {view} AS SELECT * FROM {source}{at}")


def make_fresh_views(
    spark: SparkSession,
    lake: Lake,
    states: Sequence[TableState],
    names: Mapping[Name, Name],
    policy: InvalidValuePolicy,
) -> dict[Name, Name]:
    """Make a view of each table with what is captured and not merged yet.

    Returns:
        For each table that can be shown so its view's database and name; others are in no cut.
    """
    wanted = {state.name for state in states}
    found = read_fresh(spark, lake, lambda state: state.name in wanted, policy)
    if found is None:
        return {}
    log.info("the tables as of round %d; merged is round %d", found.round, found.cut.round)
    if found.reason:
        log.info("left out: %s; the next merge step applies it", found.reason)
    return _views_of_frames(states, found.frames, names)


def make_change_views(
    spark: SparkSession,
    lake: Lake,
    states: Sequence[TableState],
    names: Mapping[Name, Name],
    policy: InvalidValuePolicy,
) -> dict[Name, Name]:
    """Make a view of each table's changes, as far as the change log is kept.

    Returns:
        For each table its view's database and name.
    """
    frames = {state.name: read_history(spark, lake, state, policy) for state in states}
    return _views_of_frames(states, frames, names)


def _views_of_frames(
    states: Sequence[TableState], frames: Mapping[str, DataFrame], names: Mapping[Name, Name]
) -> dict[Name, Name]:
    views: dict[Name, Name] = {}
    for state in states:
        if state.name in frames:
            name = (state.keyspace, state.table)
            # Only a temporary view can be made of a frame, and of those only global ones have a
            # database, which the query's names have as well.
            view = free(names[name][1], {view.lower() for _, view in views.values()})
            frames[state.name].createOrReplaceGlobalTempView(view)
            views[name] = (_GLOBAL, view)
    return views


def _in_any_case(views: Mapping[Name, Name], names: Mapping[Name, Name]) -> dict[Name, Name]:
    plain = {names[name]: view for name, view in views.items()}
    return {(db.lower(), table.lower()): view for (db, table), view in plain.items()}


def _run(
    spark: SparkSession, query: str, names: Mapping[Name, Name], views: Collection[Name] | None
) -> DataFrame:
    """The query's rows; `views` are all that it may read, None lets it do what Spark can."""
    from pyspark.errors import AnalysisException, ParseException

    tables = [f"{quoted(keyspace)}.{quoted(table)}" for keyspace, table in names]
    # First of all: what Spark says of a text that it cannot parse has the environment's values in
    # the place of `${env:NAME}`, unless it was told to leave that.
    guard = None if views is None else Guard(spark, views, tables)
    try:
        refuse_changes(spark, query)
        return spark.sql(query) if guard is None else guard.frame(query)
    except (AnalysisException, ParseException) as error:
        first = visible(str(error).strip().splitlines()[0])
        raise ConfigError(
            f"Spark does not accept the query: {first}",
            operation="sql",
            hint=f"the tables are: {', '.join(map(one_line, sorted(tables))) or 'none yet'}",
        ) from None


def refuse_changes(spark: SparkSession, query: str) -> None:
    """Let only what reads pass: a lake is changed by its run alone.

    Raises:
        ConfigError: the statement is no query, SHOW, DESCRIBE or EXPLAIN.
        ParseException: it is no SQL.
    """
    session: Any = spark._jsparkSession  # noqa: SLF001 - the parser has no public door in PySpark
    nodes = walk(spark, session.sessionState().sqlParser().parsePlan(query))
    reads = nodes[0].last.startswith(_READING)
    for node in nodes:
        # Inside EXPLAIN nothing is executed, but for this: its text is, to be analyzed.
        always = "ExecuteImmediate" in node.last
        if always or (not reads and (node.acts or _ACTING.search(node.last))):
            raise ConfigError(
                f"`ratchet sql` only reads, and this is a statement of another kind ({node.last})",
                operation="sql",
                hint="only `ratchet run` changes the mirror; change rows at the source",
            )


def print_rows(frame: DataFrame, form: str) -> None:
    """Print all rows as a table, a JSON array or CSV; rows are fetched as they are printed."""
    names, kinds = frame.columns, [field.dataType for field in frame.schema.fields]
    rows = (
        tuple(plain(value, kind) for value, kind in zip(row, kinds, strict=True))
        for row in frame.toLocalIterator()
    )
    if form == "csv":
        _print_csv(names, rows)
    elif form == "json":
        _print_json(names, rows)
    else:
        _print_table(names, rows)


def plain(value: Any, kind: DataType) -> Any:
    """A value of Spark's as JSON has it: decimals and times as text, bytes as hex digits.

    An instant (TIMESTAMP) ends in Z; a time without a zone (DATETIME) does not.
    """
    if value is None:
        return None
    nested = _NESTED.get(kind.typeName())
    if nested is not None:
        return nested(value, kind)
    for type_, convert in _PLAIN:
        if isinstance(value, type_):
            return convert(value)
    return value


def _struct(value: Any, kind: Any) -> dict[str, Any]:
    pairs = zip(kind.fields, value, strict=True)
    return {field.name: plain(inner, field.dataType) for field, inner in pairs}


def _map(value: Any, kind: Any) -> dict[str, Any]:
    return {str(plain(k, kind.keyType)): plain(v, kind.valueType) for k, v in value.items()}


_NESTED: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "struct": _struct,
    "map": _map,
    "array": lambda value, kind: [plain(inner, kind.elementType) for inner in value],
    "timestamp": lambda value, _: f"{value.isoformat()}Z",
}
_PLAIN: Final[tuple[tuple[type | tuple[type, ...], Callable[[Any], Any]], ...]] = (
    ((bytes, bytearray), lambda value: value.hex()),
    (decimal.Decimal, lambda value: f"{value:f}"),
    ((datetime.date, datetime.datetime), lambda value: value.isoformat()),
    (datetime.timedelta, str),
    (float, lambda value: value if math.isfinite(value) else str(value)),
)


def _print_csv(names: Sequence[str], rows: Iterator[tuple[Any, ...]]) -> None:
    # A program gets values as they are; a terminal would obey what stands in some.
    shown: Callable[[str], str] = visible if sys.stdout.isatty() else str
    for row in chain([names], rows):
        print(shown(_csv_line(row)))


def _csv_line(row: Sequence[Any]) -> str:
    """A line of CSV (RFC 4180): NULL is an empty field, and an empty text is quoted."""
    return ",".join("" if value is None else _quoted(_cell(value)) for value in row)


def _quoted(text: str) -> str:
    if text and not _QUOTED.search(text):
        return text
    doubled = text.replace('"', '""')
    return f'"{doubled}"'


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else str(value)


def _print_json(names: Sequence[str], rows: Iterator[tuple[Any, ...]]) -> None:
    print("[", end="")
    for number, row in enumerate(rows):
        text = in_json(json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False))
        print(",\n" if number else "", text, sep="", end="")
    print("]")


def _print_table(names: Sequence[str], rows: Iterator[tuple[Any, ...]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    shown = list(islice(rows, MAX_TABLE_ROWS))
    for number, name in enumerate(names):
        is_number = any(isinstance(row[number], int | float) for row in shown)
        table.add_column(
            Text(visible(name)), justify="right" if is_number else "left", overflow="fold"
        )
    for row in shown:
        table.add_row(*(_rich_cell(value) for value in row))
    console = Console(highlight=False)
    # To a file or a pipe the whole width is printed, whatever it takes.
    if not console.is_terminal:
        console = Console(highlight=False, width=10_000)
    console.print(table)
    more = next(rows, None) is not None
    console.print(
        counted(len(shown), "row") + (", and more (--format csv has all)" if more else "")
    )


def _rich_cell(value: Any) -> Any:
    from rich.text import Text

    return Text("NULL", style="dim") if value is None else Text(visible(_cell(value)))
