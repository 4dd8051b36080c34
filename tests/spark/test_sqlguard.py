"""A query reads the mirror's tables: what else Spark's SQL can do is refused before it is done."""

# ruff: noqa: E501 - queries

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from ratchet.core.errors import ConfigError
from ratchet.jobs.inspect.sql import refuse_changes
from ratchet.jobs.inspect.sqlguard import Guard
from ratchet.jobs.inspect.sqlwalk import walk

if TYPE_CHECKING:
    from fix_sqlguard import Guarded, Outside

# One that Spark lets stand anywhere, as it does not for those that are not deterministic.
HOSTILE = "xpath_string('<a>b</a>', 'a')"
# Where an expression may stand. The look goes over all of the plan.
PLACES = [
    "SELECT {0}",
    "SELECT upper(lower({0}))",
    "SELECT id FROM guarded.t WHERE s = {0}",
    "SELECT s, count(*) FROM guarded.t GROUP BY s HAVING max(s) > {0}",
    "SELECT s FROM guarded.t GROUP BY s, {0}",
    "SELECT s FROM guarded.t ORDER BY {0}",
    "SELECT max(s) FILTER (WHERE s = {0}) FROM guarded.t",
    "SELECT sum(n) OVER (PARTITION BY {0}) FROM guarded.t",
    "SELECT first_value({0}) OVER (ORDER BY id) FROM guarded.t",
    "SELECT t.id FROM guarded.t t JOIN guarded.u u ON u.v = {0}",
    "SELECT (SELECT {0})",
    "SELECT (SELECT max(v) FROM guarded.u WHERE v = {0})",
    "SELECT id FROM guarded.t WHERE id IN (SELECT id FROM guarded.u WHERE v = {0})",
    "SELECT id FROM guarded.t WHERE EXISTS (SELECT {0} FROM guarded.u WHERE v = {0})",
    "SELECT id FROM guarded.t WHERE s IN ('a', {0})",
    "WITH x AS (SELECT {0} AS a) SELECT a FROM x",
    "WITH x AS (SELECT {0} AS a), y AS (SELECT * FROM x) SELECT 1 FROM y CROSS JOIN x",
    "SELECT * FROM (SELECT {0} AS a) WHERE a = 'x'",
    "SELECT 1 UNION ALL SELECT length({0})",
    "SELECT * FROM guarded.t, LATERAL (SELECT {0})",
    "SELECT id FROM guarded.t LATERAL VIEW explode(array({0})) e AS x",
    "SELECT * FROM explode(array({0}))",
    "SELECT transform(array(1), x -> {0})",
    "SELECT aggregate(array('a'), '', (x, y) -> concat(x, y, {0}))",
    "SELECT CASE WHEN s = {0} THEN 1 ELSE 2 END FROM guarded.t",
    "SELECT nvl({0}, 'x'), coalesce(NULL, {0}), nullif({0}, 'x')",
    "SELECT map('a', {0})['a'], struct({0}).col1, array({0})[0]",
    "SELECT * FROM (SELECT s, n FROM guarded.t) PIVOT (max(concat(n, {0})) FOR s IN ('a'))",
    "SELECT sum(n) FROM guarded.t GROUP BY GROUPING SETS ((s), ({0}))",
    "FROM guarded.t |> EXTEND {0} AS x |> SELECT x",
    "SELECT * FROM VALUES ({0}) AS t(a)",
    "WITH RECURSIVE r(x) AS (SELECT {0} UNION ALL SELECT x FROM r WHERE x < '5') SELECT * FROM r",
    "SELECT get_json_object({0}, '$.a'), from_json({0}, 'a INT')",
    "SELECT id FROM guarded.t LIMIT length({0})",
    "SELECT sum(n) OVER w FROM guarded.t WINDOW w AS (PARTITION BY {0})",
    "SELECT sum(n) OVER w FROM VALUES (1) AS t(n) WINDOW w AS (ORDER BY {0})",
    "SELECT id FROM guarded.t LATERAL VIEW stack(1, {0}) e AS x",
    "SELECT * FROM guarded.t t JOIN LATERAL (SELECT {0} AS x) ON true",
    "SELECT * FROM guarded.t t, LATERAL explode(array({0}, t.s))",
    "SELECT max(s) FROM guarded.t HAVING max(s) <> {0}",
    "SELECT id FROM guarded.t QUALIFY row_number() OVER (ORDER BY {0}) = 1",
    "SELECT listagg(s, ',') WITHIN GROUP (ORDER BY {0}) FROM guarded.t",
    "SELECT array_sort(array('a'), (x, y) -> length({0}))",
    "SELECT map_filter(map('a', 1), (k, v) -> k = {0})",
    "SELECT * FROM guarded.t DISTRIBUTE BY {0} SORT BY {0}",
    "SELECT s || {0}, s LIKE {0}, s IS DISTINCT FROM {0}, s BETWEEN {0} AND 'z' FROM guarded.t",
    "SELECT CAST({0} AS BINARY), {0}::binary, try_cast({0} AS INT)",
    "SELECT parse_json({0}):a",
    "FROM guarded.t |> WHERE s = {0} |> AGGREGATE count(*) GROUP BY s",
    "FROM guarded.t |> SELECT s |> SET s = {0}",
    "FROM guarded.t |> JOIN guarded.u ON v = {0}",
    "FROM guarded.t |> ORDER BY {0} |> LIMIT 1",
    "(SELECT 1) UNION ALL (SELECT length({0})) ORDER BY 1",
    "WITH x AS (SELECT 1 AS b), y AS (WITH z AS (SELECT {0} AS a) SELECT a FROM z) SELECT b FROM x",
    "SELECT * FROM (SELECT id, s FROM guarded.t WHERE s = {0}) UNPIVOT (v FOR k IN (s))",
    "SELECT * FROM guarded.t TABLESAMPLE (5 ROWS) WHERE s = {0}",
    "SELECT mask(s, upperChar => {0}) FROM guarded.t",
]  # fmt: skip
FOREIGN = [
    "SELECT * FROM text.`/etc/passwd`",
    "SELECT * FROM csv.`/etc/passwd`",
    "SELECT * FROM json.`/etc`",
    "SELECT * FROM parquet.`/x`",
    "SELECT * FROM orc.`/x`",
    "SELECT * FROM binaryFile.`/etc/passwd`",
    "SELECT * FROM delta.`/x`",
    "SELECT * FROM xml.`/x`",
    "SELECT * FROM spark_catalog.text.`/etc/passwd`",
    "SELECT (SELECT count(*) FROM text.`/etc/passwd`)",
    "SELECT 1 WHERE EXISTS (SELECT 1 FROM text.`/etc/passwd`)",
    "SELECT id FROM guarded.t WHERE s IN (SELECT value FROM text.`/etc/passwd`)",
    "WITH x AS (SELECT * FROM text.`/etc/passwd`) SELECT * FROM x",
    "WITH x AS (WITH y AS (SELECT * FROM text.`/etc/passwd`) SELECT * FROM y) SELECT * FROM x",
    "SELECT * FROM guarded.t JOIN text.`/etc/passwd` ON true",
    "SELECT * FROM guarded.t, LATERAL (SELECT * FROM text.`/etc/passwd`)",
    "SELECT 1 UNION ALL SELECT value FROM text.`/etc/passwd`",
    "TABLE text.`/etc/passwd`",
    "FROM text.`/etc/passwd` |> SELECT *",
    "SELECT * FROM IDENTIFIER('text.`/etc/passwd`')",
    "SELECT * FROM IDENTIFIER(concat('te', 'xt.`/etc/passwd`'))",
    "EXPLAIN SELECT * FROM text.`/etc/passwd`",
    "DESCRIBE text.`/etc/passwd`",
    "SHOW CREATE TABLE other.t",
    "SELECT * FROM other.t",
    "SELECT * FROM guarded.t.x.y",
    "SELECT * FROM text.`/etc/passwd` VERSION AS OF 0",
    "SELECT * FROM guarded.t JOIN delta.`/x` TIMESTAMP AS OF '2026-01-01'",
    "EXPLAIN EXTENDED SELECT * FROM delta.`/x` VERSION AS OF 0",
    "DESCRIBE QUERY SELECT * FROM text.`/etc/passwd`",
    "DESCRIBE WITH x AS (SELECT * FROM text.`/etc/passwd`) SELECT * FROM x",
    "DESCRIBE EXTENDED json.`/x` AS JSON",
    "SHOW COLUMNS IN delta.`/x`",
    "SHOW TBLPROPERTIES delta.`/x`",
    "SHOW COLUMNS IN IDENTIFIER('te' || 'xt.`/etc/passwd`')",
    "DESCRIBE IDENTIFIER('te' || 'xt.`/etc/passwd`')",
    "SHOW TABLES IN IDENTIFIER('ot' || 'her')",
    "SHOW TABLES IN other",
    "SHOW TABLES IN catalog.guarded",
    "SHOW TABLE EXTENDED IN other LIKE '*'",
    "DESCRIBE DATABASE other",
    "SELECT * FROM STREAM text.`/etc/passwd`",
    "SELECT * FROM STREAM guarded.t",
    "FROM guarded.t |> UNION ALL (SELECT value FROM text.`/etc/passwd`)",
    "FROM guarded.t |> JOIN text.`/etc/passwd` ON true",
    "SELECT (SELECT max(value) FROM text.`/etc/passwd`) FROM guarded.t GROUP BY s HAVING count(*) > (SELECT count(*) FROM guarded.u)",
    "WITH RECURSIVE r AS (SELECT value FROM text.`/etc/passwd` UNION ALL SELECT * FROM r) SELECT * FROM r",
    "SELECT * FROM `text`.`/etc/passwd`",
    "SELECT * FROM TEXT.`file:/etc/passwd`",
    "SELECT * FROM `com.evil.Source`.`/x`",
    "SELECT * FROM system.session.v",
    "SELECT * FROM information_schema.tables",
]

CALLS = [
    "java_method('java.lang.System', 'getenv', 'HOME')",
    "reflect('java.util.UUID', 'randomUUID')",
    "try_reflect('java.util.UUID', 'randomUUID')",
    "`java_method`('java.lang.System', 'load', '/x.so')",
    "JAVA_METHOD('java.lang.System', 'load', '/x.so')",
    "system.builtin.java_method('java.lang.System', 'load', '/x.so')",
    "builtin.reflect('java.lang.System', 'load', '/x.so')",
    "xpath_string('<a>b</a>', 'a')",
    "input_file_name()",
    "from_avro(X'00', '{}')",
    "from_protobuf(X'00', 'M', '/x.desc')",
    "schema_of_avro('{}')",
    "from_xml('<a>1</a>', 'a INT', map('rowValidationXSDPath', 'http://127.0.0.1:1/x.xsd'))",
    "schema_of_xml('<a/>', map('rowValidationXSDPath', '/etc/passwd'))",
    # A type in JSON: Spark loads what it names.
    """from_json('{}', '{"type":"udt","pyClass":"antigravity.X","serializedClass":"AA==","sqlType":"integer"}')""",
    """from_csv('1', '{"type":"struct","fields":[{"name":"a","type":{"type":"udt","class":"java.util.ArrayList"},"nullable":true,"metadata":{}}]}')""",
    """from_json('{"b":1}', ' {"type":"struct","fields":[{"name":"a","type":"string","nullable":true,"metadata":{"EXISTS_DEFAULT":"current_user()"}}]}')""",
    """from_json('{}', concat('{"type":"udt","class":"java.util', '.ArrayList"}'))""",
    """from_json('{}', upper('a INT'))""",
    """`FROM_JSON`('{}', '"integer"')""",
    """system.builtin.from_json('{}', '{}')""",
    """variant_get(parse_json('1'), '$', '{"type":"udt","class":"java.util.ArrayList"}')""",
    """try_variant_get(parse_json('1'), '$', concat('i', 'nt'))""",
    "from_json('{}', schema => 'a INT')",
    "some_function_of_the_future()",
    "default.f(1)",
    "spark_catalog.default.f(1)",
    "catalog.db.f(1)",
    "ai_query('model', 'text')",
    "http_request('http://127.0.0.1:1')",
    "IDENTIFIER('java_method')('java.lang.System', 'getenv', 'HOME')",
    "IDENTIFIER('java' || '_method')('java.lang.System', 'getenv', 'HOME')",
    ":name",
    "?",
]
TABLE_CALLS = [
    "python_worker_logs()",
    "table_changes('guarded.t', 0)",
    "table_changes_by_path('{outside}', 0)",
    "read_files('/etc/passwd')",
    "java_method('java.lang.System', 'getenv', 'HOME')",
    "default.f()",
    "some_function_of_the_future(TABLE(guarded.t))",
    "explode(array(reflect('java.util.UUID', 'randomUUID')))",
    "range(length(reflect('java.util.UUID', 'randomUUID')))",
]
# Statements that act, or let one of these act. `{outside}` is a Delta table, `{mark}` a free path.
ACTING = [
    "EXPLAIN EXECUTE IMMEDIATE 'DELETE FROM delta.`{outside}`'",
    "EXPLAIN EXTENDED EXECUTE IMMEDIATE 'INSERT OVERWRITE DIRECTORY \"{mark}\" USING parquet SELECT 1 AS a'",
    "EXPLAIN EXECUTE IMMEDIATE 'CREATE TEMP VIEW hack AS SELECT 1'",
    "EXPLAIN EXPLAIN EXECUTE IMMEDIATE 'DELETE FROM delta.`{outside}`'",
    "EXPLAIN EXECUTE IMMEDIATE 'SELECT 1'",
    "EXECUTE IMMEDIATE 'DELETE FROM delta.`{outside}`'",
    "EXECUTE IMMEDIATE 'SELECT ?' USING 1",
    "BEGIN DELETE FROM delta.`{outside}`; END",
    "BEGIN SELECT 1; END",
    "DELETE FROM delta.`{outside}`",
    "EXPLAIN DELETE FROM delta.`{outside}`",
    "EXPLAIN CREATE TABLE hack AS SELECT 1",
    "EXPLAIN SET spark.sql.ansi.enabled = false",
    "EXPLAIN SHOW TABLES",
    "INSERT OVERWRITE DIRECTORY '{mark}' USING parquet SELECT 1 AS a",
    "EXPLAIN INSERT OVERWRITE DIRECTORY '{mark}' USING parquet SELECT 1 AS a",
    "FROM guarded.t INSERT OVERWRITE DIRECTORY '{mark}' USING parquet SELECT id",
    "CREATE TEMP VIEW hack AS SELECT 1",
    "CREATE TEMP VIEW hack USING csv OPTIONS (path '/etc/passwd')",
    "CREATE TEMPORARY FUNCTION hack AS 'x.Y' USING JAR '/x.jar'",
    "CREATE TEMPORARY FUNCTION hack() RETURNS INT RETURN 1",
    "DECLARE VARIABLE hack STRING DEFAULT 'x'",
    "SET spark.sql.variable.substitute = true",
    "SET",
    "RESET",
    "USE guarded",
    "ADD JAR '/x.jar'",
    "LIST JARS",
    "CACHE TABLE x AS SELECT 1",
    "REFRESH '/x'",
    "DESCRIBE HISTORY '{outside}'",
    "DESCRIBE DETAIL '{outside}'",
    "DESCRIBE HISTORY delta.`{outside}`",
    "VACUUM delta.`{outside}` RETAIN 0 HOURS",
    "SELECT TRANSFORM(id) USING 'sh -c \"touch {mark}\"' AS (a STRING) FROM guarded.t",
    "SELECT * FROM (SELECT TRANSFORM(id) USING 'touch {mark}' AS (a STRING) FROM guarded.t) WHERE a = 'x'",
    "WITH x AS (SELECT TRANSFORM(id) USING 'touch {mark}' AS (a STRING) FROM guarded.t) SELECT 1 FROM x",
    "SELECT (SELECT max(a) FROM (SELECT TRANSFORM(id) USING 'touch {mark}' AS (a STRING) FROM guarded.t))",
    "FROM guarded.t MAP id USING 'touch {mark}' AS a",
    "FROM guarded.t REDUCE id USING 'touch {mark}' AS a",
    "EXPLAIN SELECT TRANSFORM(id) USING 'touch {mark}' AS (a STRING) FROM guarded.t",
    "DESCRIBE QUERY SELECT TRANSFORM(id) USING 'touch {mark}' AS (a STRING) FROM guarded.t",
]


@pytest.mark.parametrize("place", PLACES)
def test_no_place_hides_a_call(guarded: Guarded, place: str) -> None:
    """Not from the first look, nor from the second, which knows classes alone."""
    query = place.format(HOSTILE)
    for text in (query, f"EXPLAIN {query}", f"DESCRIBE QUERY {query}"):
        with pytest.raises(ConfigError, match="xpath_string"):
            guarded.guard.parsed(text)
    if "VALUES (xpath" not in query:  # evaluated by then
        analyzed = guarded.session.sql(query)._jdf.queryExecution().analyzed()
        found = walk(guarded.session, analyzed, [("guarded", "t"), ("guarded", "u")])
        assert [node for node in found if node.last == "XPathString"]
    guarded.ask(place.format("upper('x')"))


@pytest.mark.parametrize("call", CALLS)
def test_what_acts_is_refused_with_its_name_place_and_remedy(guarded: Guarded, call: str) -> None:
    for query in (f"SELECT 1,\n{call}", f"SELECT * FROM VALUES (1,\n{call})"):
        with pytest.raises(ConfigError, match="the query is refused") as caught:
            guarded.ask(query)
        assert call[:20] in caught.value.message
        assert "line 2" in caught.value.message
        assert "--unsafe" in caught.value.hint
        assert caught.value.exit_code == 2


def test_types_in_the_words_of_sql(guarded: Guarded) -> None:
    """A default is none of them, as Spark itself says."""
    (row,) = guarded.ask(
        """SELECT from_json('{"a":1}', 'a INT').a, from_json('{"a":2}', ' `a` INT').a,
        from_json('{"a":3}', schema_of_json('{"a":1}')).a, from_csv('4', 'a INT').a,
        from_csv('5', schema_of_csv('1'))._c0, variant_get(parse_json('6'), '$', 'int')"""
    ).collect()
    assert list(row) == [1, 2, 3, 4, 5, 6]
    with pytest.raises(PySparkException, match=r"(?i)parse|syntax|schema"):
        guarded.ask("SELECT from_json('{}', 'a STRING DEFAULT current_user()')").collect()


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        (
            '{"type":"udt","pyClass":"a.B","serializedClass":"AA==","sqlType":"integer"}',
            "UserDefinedType",
        ),
        ('{"type":"string","nullable":true,"metadata":{"EXISTS_DEFAULT":"1"}}', "StructField"),
    ],
)
def test_the_second_look_sees_types(guarded: Guarded, schema: str, kind: str) -> None:
    """However Spark came by them."""
    plain = '"nullable":true,"metadata":{}'
    inner = (
        f'{schema[:-1]},"name":"a"}}'
        if kind == "StructField"
        else (f'{{"name":"a","type":{schema},{plain}}}')
    )
    whole = f'{{"type":"struct","fields":[{inner}]}}'
    frame = guarded.session.sql(f"SELECT array(from_json('{{}}', '{whole}')) AS x")
    analyzed = frame._jdf.queryExecution().analyzed()
    assert kind in {node.last for node in walk(guarded.session, analyzed)}
    with pytest.raises(ConfigError, match="the query is refused"):
        guarded.guard._refuse_analyzed(frame._jdf.queryExecution())


@pytest.mark.parametrize("call", TABLE_CALLS)
def test_what_stands_for_a_table_and_acts_is_refused(
    guarded: Guarded, outside: Outside, call: str
) -> None:
    call = call.format(outside=outside.table)
    for query in (f"SELECT * FROM {call}", f"EXPLAIN SELECT * FROM guarded.t, LATERAL {call}"):
        with pytest.raises(ConfigError, match="the query is refused"):
            guarded.ask(query)


@pytest.mark.parametrize("query", FOREIGN)
def test_what_is_no_view_is_refused_before_it_is_opened(guarded: Guarded, query: str) -> None:
    with pytest.raises(ConfigError, match="the query is refused"):
        guarded.guard.parsed(query)


@pytest.mark.parametrize("query", ACTING)
def test_what_acts_is_not_done(guarded: Guarded, outside: Outside, query: str) -> None:
    """`outside` looks at its end whether anything was."""
    query = query.format(outside=outside.table, mark=outside.mark)
    with pytest.raises(ConfigError, match=r"refused|only reads"):
        guarded.ask(query).collect()


@pytest.mark.parametrize("query", ACTING[:6])
def test_no_explain_executes_even_where_all_is_allowed(
    guarded: Guarded, outside: Outside, query: str
) -> None:
    """With --unsafe, too, no statement of SQL changes the lake."""
    with pytest.raises(ConfigError, match="only reads"):
        refuse_changes(guarded.session, query.format(outside=outside.table, mark=outside.mark))


def test_a_wrong_name_is_told_the_tables(guarded: Guarded) -> None:
    with pytest.raises(ConfigError, match=r"guarded\.typo: it is none of the mirror's") as caught:
        guarded.ask("SELECT * FROM guarded.typo")
    assert "the tables are: `guarded`.`t`, `guarded`.`u`" in caught.value.hint


def test_the_environment_is_not_put_in(guarded: Guarded) -> None:
    query = "SELECT '${env:HOME}' AS a, '${spark.app.id}' AS b, '${system:user.home}' AS c"
    (row,) = guarded.ask(query).collect()
    assert list(row) == ["${env:HOME}", "${spark.app.id}", "${system:user.home}"]


def test_a_view_that_is_none_of_ours_is_looked_into(guarded: Guarded, outside: Outside) -> None:
    """One that somebody else left in the session; names with one part are looked at only then."""
    session = guarded.session
    session.read.format("delta").load(str(outside.table)).createOrReplaceTempView("strange")
    try:
        for what in ("", "EXPLAIN ", "DESCRIBE QUERY "):
            with pytest.raises(ConfigError, match="the query is refused"):
                guarded.ask(f"{what}SELECT * FROM strange")
    finally:
        session.catalog.dropTempView("strange")


def test_options_do_not_reach_the_files_of_a_view(guarded: Guarded) -> None:
    plain = guarded.ask("SELECT * FROM guarded.t ORDER BY id")
    given = guarded.ask(
        "SELECT * FROM guarded.t WITH ('path' = '/etc', 'readChangeFeed' = 'true', "
        "'startingVersion' = '0') ORDER BY id"
    )
    assert given.columns == plain.columns
    assert given.collect() == plain.collect()


def test_names_are_told_apart_whatever_is_in_them(guarded: Guarded) -> None:
    """A walk that joined a name's parts would take this one for a view of ours."""
    for name in ("`guarded.t`.x", "guarded.`t\nx`", '`guarded`.`t","u`', "`a`.`\u2028é`"):
        with pytest.raises(ConfigError, match="none of the mirror's tables"):
            guarded.guard.parsed(f"SELECT * FROM {name}")


def test_a_large_query_is_looked_at_in_a_few_calls(guarded: Guarded) -> None:
    """As much in the plan as there may be: no call to the JVM for each of its parts."""
    from py4j.java_gateway import GatewayClient

    asked = 0
    send = GatewayClient.send_command

    def counting(client: object, command: str, *args: object, **given: object) -> object:
        nonlocal asked
        asked += command[0] != "m"  # Python's collector lets go of objects when it likes
        return send(client, command, *args, **given)

    wide = " OR ".join(f"(n = {n} AND s <> 'x{n}')" for n in range(500))
    query = f"SELECT count(*) FROM guarded.t WHERE {wide}"
    guarded.ask(query)
    counts = []
    for text in ("SELECT count(*) FROM guarded.t", query):
        asked = 0
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("py4j.clientserver.JavaClient.send_command", counting, raising=True)
            guarded.ask(text)
        counts.append(asked)
    assert counts[0] > 0
    assert counts[1] < counts[0] + 20


def test_two_guards_of_one_session_agree(guarded: Guarded) -> None:
    other = Guard(guarded.session, {("guarded", "u")}, [])
    assert other.frame("SELECT count(*) FROM guarded.u").collect()[0][0] == 3
    with pytest.raises(ConfigError, match=r"guarded\.t"):
        other.frame("SELECT count(*) FROM guarded.t")
