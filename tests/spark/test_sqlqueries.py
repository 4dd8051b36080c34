"""What analysts ask passes the guard, in all forms that Spark's SQL has."""

# ruff: noqa: E501 - queries

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from fix_sqlguard import Guarded

ORDINARY = [
    "SELECT count(*), count(DISTINCT s), sum(n), avg(n), min(d), max(d), stddev(n) FROM guarded.t",
    "SELECT s, count(*) FILTER (WHERE n > 1) FROM guarded.t GROUP BY s HAVING sum(n) > 0 ORDER BY 2 DESC NULLS LAST",
    "SELECT *, row_number() OVER (PARTITION BY s ORDER BY n DESC) AS r FROM guarded.t QUALIFY r = 1",
    "SELECT sum(n) OVER (ORDER BY d ROWS BETWEEN 2 PRECEDING AND CURRENT ROW), lag(n, 1, 0) OVER w, ntile(4) OVER w FROM guarded.t WINDOW w AS (ORDER BY id)",
    "SELECT t.id, u.v FROM guarded.t t LEFT JOIN guarded.u u ON t.id = u.id AND u.v <> 'x'",
    "SELECT * FROM guarded.t t JOIN guarded.u USING (id) CROSS JOIN (VALUES (1), (2)) AS x(a)",
    "SELECT * FROM guarded.t NATURAL FULL OUTER JOIN guarded.u",
    "SELECT * FROM guarded.t t LEFT SEMI JOIN guarded.u u ON t.id = u.id",
    "SELECT * FROM guarded.t t LEFT ANTI JOIN guarded.u u ON t.id = u.id",
    "WITH a AS (SELECT id, n FROM guarded.t), b AS (SELECT max(n) m FROM a) SELECT a.* FROM a, b WHERE a.n = b.m",
    "WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r WHERE x < 5) SELECT * FROM r",
    "SELECT id FROM guarded.t UNION SELECT id FROM guarded.u",
    "SELECT id FROM guarded.t INTERSECT ALL SELECT id FROM guarded.u",
    "SELECT id FROM guarded.t EXCEPT SELECT id FROM guarded.u",
    "SELECT id FROM guarded.t WHERE id IN (SELECT id FROM guarded.u) AND EXISTS (SELECT 1 FROM guarded.u WHERE u.id = t.id)",
    "SELECT id FROM guarded.t WHERE n > (SELECT avg(n) FROM guarded.t) OR id NOT IN (1, 2)",
    "SELECT id FROM guarded.t WHERE n BETWEEN 1 AND 3 OR s IS DISTINCT FROM 'x'",
    "SELECT (SELECT v FROM guarded.u WHERE u.id = t.id LIMIT 1) FROM guarded.t",
    "SELECT * FROM guarded.t, LATERAL (SELECT v FROM guarded.u WHERE u.id = t.id)",
    "SELECT id, x FROM guarded.t LATERAL VIEW explode(split(s, '')) e AS x",
    "SELECT id, p, x FROM guarded.t LATERAL VIEW OUTER posexplode(a) e AS p, x",
    "SELECT * FROM explode(array(1, 2)), range(3), inline(array(struct(1, 2)))",
    "SELECT s, n, sum(n) FROM guarded.t GROUP BY GROUPING SETS ((s), (n), ())",
    "SELECT s, n, sum(n), grouping(s), grouping_id() FROM guarded.t GROUP BY CUBE (s, n)",
    "SELECT s, sum(n) FROM guarded.t GROUP BY ROLLUP (s)",
    "SELECT * FROM (SELECT s, n FROM guarded.t) PIVOT (sum(n) AS m, count(*) AS c FOR s IN ('a', 'b'))",
    "SELECT * FROM (SELECT id, n FROM guarded.t) UNPIVOT (v FOR k IN (n))",
    "SELECT * FROM guarded.t TABLESAMPLE (50 PERCENT) REPEATABLE (1)",
    "SELECT * FROM guarded.t TABLESAMPLE (5 ROWS)",
    "SELECT DISTINCT s FROM guarded.t ORDER BY s LIMIT 3 OFFSET 1",
    "SELECT /*+ BROADCAST(u) */ * FROM guarded.t t JOIN guarded.u u ON t.id = u.id",
    "SELECT /*+ REPARTITION(2) */ * FROM guarded.t",
    "SELECT upper(s), lower(s), trim(s), substr(s, 1, 2), s || 'x', concat_ws('-', s, s), lpad(s, 5, ' '), s LIKE '%a', s RLIKE 'a.*', s ILIKE ANY ('a%', 'b%'), regexp_replace(s, 'a', 'b'), split_part(s, 'a', 1), initcap(s), length(s), md5(s), sha2(s, 256), base64(cast(s AS BINARY)) FROM guarded.t",
    "SELECT year(d), month(d), date_trunc('month', d), d + INTERVAL 1 DAY, d - INTERVAL '2' HOUR, date_add(d, 1), datediff(d, d), months_between(d, d), to_date('2026-01-01'), to_timestamp('2026-01-01 00:00:00'), date_format(d, 'yyyy'), EXTRACT(DOW FROM d), unix_timestamp(d), from_unixtime(0), current_date(), now(), last_day(d), make_date(2026, 1, 1), timestampdiff(DAY, d, d), window(d, '1 hour').start FROM guarded.t",
    "SELECT n + 1, n - 1, n * 2, n / 2, n % 2, n div 2, -n, abs(n), round(n / 3.0, 2), floor(n), ceil(n), sqrt(n), pow(n, 2), log(2, n), greatest(n, 1), least(n, 1), n & 1, n | 1, n ^ 1, ~n, shiftleft(n, 1), rand(1), pmod(n, 3), sign(n), width_bucket(n, 0, 10, 5), try_divide(n, 0), bround(n) FROM guarded.t WHERE n <> 0",
    "SELECT CASE WHEN n > 1 THEN 'a' ELSE 'b' END, if(n > 1, 1, 2), coalesce(n, 0), nullif(n, 1), nvl(n, 1), nvl2(n, 1, 2), ifnull(n, 1), isnull(n), n IS NOT NULL, decode(n, 1, 'x', 'y'), CAST(n AS STRING), n::DECIMAL(10, 2), try_cast(s AS INT), typeof(n) FROM guarded.t",
    "SELECT size(a), a[0], array_contains(a, 1), array_sort(a), transform(a, x -> x + 1), filter(a, x -> x > 1), aggregate(a, 0L, (x, y) -> x + y), exists(a, x -> x = 1), forall(a, x -> x > 0), zip_with(a, a, (x, y) -> x * y), array_join(transform(a, x -> string(x)), ','), slice(a, 1, 1), flatten(array(a)), sequence(1, 3), element_at(a, 1), array_agg(id), collect_set(s) FROM guarded.t GROUP BY a, id, s",
    "SELECT map(1, 2), map_keys(m), map_values(m), m['k'], map_filter(m, (k, v) -> v > 0), transform_values(m, (k, v) -> v + 1), map_from_entries(array(struct(1, 2))), element_at(m, 'k'), map_concat(m, map('j', 2)), str_to_map('a:1') FROM (SELECT map('k', 1) AS m)",
    "SELECT struct(id, s).id, named_struct('a', 1).a, (1, 2).col1, st.* FROM (SELECT id, s, struct(n AS x) AS st FROM guarded.t)",
    "SELECT get_json_object(j, '$.a'), from_json(j, 'a INT').a, to_json(struct(1)), json_tuple(j, 'a'), schema_of_json('{}'), parse_json(j):a::int, json_array_length('[1]') FROM (SELECT '{\"a\": 1}' AS j)",
    "SELECT percentile(n, 0.5), approx_percentile(n, 0.9), median(n), mode(n), corr(n, id), approx_count_distinct(s), count_if(n > 1), bool_and(n > 0), max_by(s, n), first(s), listagg(s, ',') WITHIN GROUP (ORDER BY s), percentile_cont(0.5) WITHIN GROUP (ORDER BY n), histogram_numeric(n, 3), hll_sketch_estimate(hll_sketch_agg(n)) FROM guarded.t",
    "SELECT rank() OVER w, dense_rank() OVER w, percent_rank() OVER w, cume_dist() OVER w, lead(s) OVER w, first_value(s) IGNORE NULLS OVER w, nth_value(n, 2) OVER w FROM guarded.t WINDOW w AS (PARTITION BY s ORDER BY n)",
    "SELECT sum(n) OVER (ORDER BY n RANGE BETWEEN UNBOUNDED PRECEDING AND 1 FOLLOWING) FROM guarded.t",
    "FROM guarded.t |> WHERE n > 1 |> AGGREGATE sum(n) AS m GROUP BY s |> ORDER BY m |> LIMIT 2",
    "SELECT * EXCEPT (s) FROM guarded.t",
    "VALUES (1, 'a'), (2, 'b')",
    "TABLE guarded.t",
    "SELECT * FROM spark_catalog.guarded.t",
    "SELECT * FROM global_temp.f",
    "SELECT t1.s, COUNT(*) FROM guarded.t AS t1 GROUP BY ALL SORT BY 1",
    "SELECT stack(2, 1, 'a', 2, 'b'), monotonically_increasing_id(), uuid(), hash(1), crc32('a')",
    "SELECT _token.ts, _token.shard, _token FROM guarded.u",
    "SELECT s COLLATE UTF8_LCASE = 'A' FROM guarded.t",
    "SELECT count(*) FROM guarded.t WHERE s IN ('a') GROUP BY date_trunc('day', d) HAVING count(*) > 0",
    "SELECT * FROM guarded.t WHERE s LIKE ALL ('a%', '%') AND s NOT LIKE ANY ('b', 'c')",
    "SELECT a.x, _token.ts FROM (SELECT array(struct(1 AS x)) AS a, _token FROM guarded.u)",
    "SELECT /*+ REBALANCE */ s FROM guarded.t DISTRIBUTE BY s",
    "SELECT timestampadd(DAY, 1, d) FROM guarded.t",

]  # fmt: skip

# Rarer forms, each for a kind of plan or expression of its own.
RARER = [
    "SELECT t.* FROM guarded.t AS t(a,b,c,d2,e)",
    "SELECT grouping(s), count(*) FROM guarded.t GROUP BY s WITH ROLLUP",
    "SELECT s, count(*) FROM guarded.t GROUP BY s GROUPING SETS ((s),())",
    "SELECT window(d,'1 hour'), count(*) FROM guarded.t GROUP BY window(d,'1 hour')",
    "SELECT session_window(d,'1 hour'), count(*) FROM guarded.t GROUP BY session_window(d,'1 hour')",
    "SELECT window_time(window) FROM (SELECT window(d,'1 hour') AS window, count(*) FROM guarded.t GROUP BY 1)",
    "SELECT * FROM guarded.t t JOIN LATERAL explode(t.a) AS e(x) ON true",
    "SELECT * FROM guarded.t t LEFT JOIN LATERAL (SELECT t.id + 1 AS y) ON true",
    "SELECT * FROM guarded.t ORDER BY ALL",
    "SELECT * FROM guarded.t CLUSTER BY id",
    "SELECT * FROM guarded.t SORT BY id",
    "SELECT id FROM guarded.t MINUS SELECT 1",
    "SELECT * FROM (SELECT id, n, s FROM guarded.t) UNPIVOT INCLUDE NULLS ((v1, v2) FOR k IN ((id, n) AS x))",
    "SELECT * FROM (SELECT s, id, n FROM guarded.t) PIVOT (sum(n) FOR (s, id) IN (('a', 1) AS x))",
    "SELECT CAST(NULL AS STRING), X'1F', DATE'2020-01-01', TIMESTAMP_NTZ'2020-01-01 00:00:00', INTERVAL '1-2' YEAR TO MONTH, INTERVAL 3 DAYS, 1.5BD, 1e3, true, r'\\\\d'",
    "SELECT a.b['x'].c[0] FROM (SELECT struct(map('x', struct(array(1) AS c)) AS b) AS a)",
    "SELECT position('a' IN s), substring(s FROM 1 FOR 2), trim(BOTH 'a' FROM s), overlay(s PLACING 'x' FROM 1), extract(year FROM d), ceil(1.5), timestampdiff(HOUR, d, d) FROM guarded.t",
    "SELECT CASE s WHEN 'a' THEN 1 END, n0 IS FALSE, n0 IS UNKNOWN, s IS NOT DISTINCT FROM 'x' FROM (SELECT s, n = 1 AS n0, n FROM guarded.t)",
    "SELECT first(n IGNORE NULLS) FROM guarded.t",
    "SELECT any_value(n) FROM guarded.t",
    "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY n) OVER (PARTITION BY s) FROM guarded.t",
    "SELECT string_agg(s, ',') WITHIN GROUP (ORDER BY n DESC) FROM guarded.t",
    "SELECT count(*) FROM guarded.t HAVING count(*) > 1",
    "SELECT (id, n) IN (SELECT id, n FROM guarded.t) FROM guarded.t",
    "SELECT s LIKE 'a!%' ESCAPE '!', s NOT LIKE ALL ('a','b'), s NOT RLIKE 'x', s NOT IN ('a'), n NOT BETWEEN 1 AND 2, s NOT ILIKE 'x' FROM guarded.t",
    "SELECT struct(*) FROM guarded.t",
    "SELECT coalesce(*) FROM (SELECT 1, 2)",
    "SELECT * FROM guarded.t TABLESAMPLE (BUCKET 1 OUT OF 2)",
    "SELECT * FROM (TABLE guarded.t)",
    "SELECT * FROM (guarded.t CROSS JOIN guarded.u)",
    "(SELECT 1) UNION ALL (SELECT 2) ORDER BY 1 LIMIT 1",
    "WITH a(x) AS (SELECT 1), b AS (SELECT * FROM a) SELECT (SELECT max(x) FROM b) FROM a",
    "WITH RECURSIVE r(x) MAX RECURSION LEVEL 10 AS (VALUES (1) UNION ALL SELECT x + 1 FROM r WHERE x < 5) SELECT * FROM r",
    "SELECT * FROM range(0, 10, 2, 1) AS r(i)",
    "SELECT * FROM stack(2, 1, 2) AS (a), sql_keywords() LIMIT 3",
    "SELECT * FROM variant_explode(parse_json('{\"a\":1}'))",
    "SELECT * FROM json_tuple('{\"a\":1}', 'a')",
    "SELECT posexplode_outer(a) FROM guarded.t",
    "SELECT v:a.b[0]::string, v:['x'] FROM (SELECT parse_json('{}') AS v)",
    "SELECT mask(s, upperChar => 'X') FROM guarded.t",
    "SELECT try_add(1, 2), 1 <=> NULL, 5 % 2, -n, +n, ~1, 1 << 2, 8 >> 1, 8 >>> 1, 'a' || 'b' FROM guarded.t",
    "SELECT id AS x, x + 1 AS y FROM guarded.t",
    "FROM guarded.t |> SELECT id, n |> SET n = n + 1 |> DROP id |> AS x |> WHERE x.n > 1",
    "FROM guarded.t |> EXTEND n * 2 AS m |> AGGREGATE sum(m) GROUP BY s |> JOIN guarded.u ON true",
    "FROM guarded.t |> SELECT id |> UNION ALL (SELECT 1) |> ORDER BY id |> LIMIT 1 OFFSET 1",
    "FROM guarded.t |> SELECT s, n |> PIVOT (sum(n) FOR s IN ('a'))",
    "FROM guarded.t |> SELECT id, n |> UNPIVOT (v FOR k IN (n))",
    "FROM guarded.t SELECT id WHERE n > 1",
    "SELECT /*+ SHUFFLE_HASH(u), COALESCE(1) */ * FROM guarded.t t JOIN guarded.u u ON t.id = u.id",
    "SELECT /*+ REPARTITION_BY_RANGE(3, id) */ * FROM guarded.t",
    "SELECT t.id FROM guarded.t t LEFT OUTER JOIN guarded.u u USING (id) WHERE u.id IS NULL",
    "SELECT * FROM guarded.t NATURAL JOIN guarded.u",
    "SELECT collect_list(struct(id, s)), map_from_entries(collect_list(struct(s, n))), array_agg(DISTINCT s), max(struct(n, id)).id FROM guarded.t",
    "SELECT count_if(n > 1), every(n > 0), some(n > 0), kurtosis(n), skewness(n), var_samp(n), regr_slope(n, id), covar_pop(n, id), bit_xor(n), try_sum(n), try_avg(n), grouping_id() FROM guarded.t GROUP BY CUBE(s)",
    "SELECT schema_of_csv('1,a'), from_csv('1,a', 'a INT, b STRING'), to_csv(struct(1)), to_json(map('a', 1)), json_object_keys('{\"a\":1}')",
    "SELECT array_sort(a, (x, y) -> CASE WHEN x < y THEN -1 ELSE 1 END), reduce(a, 0L, (x, y) -> x + y, z -> z * 2), map_zip_with(map(1,1), map(1,2), (k, v, w) -> v + w) FROM guarded.t",
    "SELECT date_format(d, 'EEE'), next_day(d, 'MON'), make_interval(1), date_diff(d, d), weekofyear(d), dayofyear(d), hour(d), to_unix_timestamp(d), date_part('week', d), trunc(d, 'MM'), timestamp_seconds(1), to_timestamp_ntz('2020-01-01'), make_timestamp(2020,1,1,0,0,0), date'2020-01-01' - date'2019-01-01', d - d, d + make_interval(1) FROM guarded.t",
    "SELECT * FROM guarded.t LIMIT ALL",
    "SELECT * FROM guarded.t OFFSET 1",
    "SELECT cast(n AS DECIMAL(10,2)), n::int, double(n), string(n), int(s), try_cast(s AS INT) FROM guarded.t",
    "SELECT \"quoted\", 'it''s', 'a' 'b'",
    "SELECT approx_top_k(n), hll_sketch_estimate(hll_sketch_agg(n)) FROM guarded.t GROUP BY s",
    "SELECT sum(n) OVER w1, avg(n) OVER w2 FROM guarded.t WINDOW w1 AS (PARTITION BY s), w2 AS (ORDER BY id)",
    "SELECT uuid(), rand(), randn(1), shuffle(array(1)), monotonically_increasing_id(), spark_partition_id() FROM guarded.t",
    "SELECT d - INTERVAL 1 MONTH, date'2026-01-31' + INTERVAL '1' MONTH, INTERVAL 1 DAY * 2, INTERVAL '1' MONTH / 2, d - d > INTERVAL 1 HOUR, extract(HOUR FROM d - d), extract(YEAR FROM make_interval(1)), date_part('YEAROFWEEK', d) FROM guarded.t",
    "SELECT current_user(), session_user(), version(), current_database(), current_timezone()",
]  # fmt: skip
REPORTS = [
    "SHOW TABLES",
    "SHOW TABLES IN guarded LIKE 't*'",
    "SHOW DATABASES",
    "SHOW VIEWS IN guarded",
    "SHOW COLUMNS IN guarded.t",
    "SHOW CREATE TABLE guarded.t",
    "SHOW TBLPROPERTIES guarded.t",
    "SHOW TABLE EXTENDED IN guarded LIKE 't'",
    "SHOW FUNCTIONS LIKE 'up*'",
    "SHOW CURRENT DATABASE",
    "SHOW CATALOGS",
    "SHOW COLLATIONS LIKE 'UNI*'",
    "DESCRIBE guarded.t",
    "DESCRIBE EXTENDED spark_catalog.guarded.t",
    "DESCRIBE EXTENDED guarded.t AS JSON",
    "DESCRIBE guarded.t id",
    "DESCRIBE FUNCTION EXTENDED upper",
    "DESCRIBE DATABASE guarded",
    "DESCRIBE QUERY SELECT id, upper(s) FROM guarded.t",
    "DESCRIBE WITH x AS (SELECT 1) SELECT * FROM x",
    "EXPLAIN SELECT s, count(*) FROM guarded.t GROUP BY s",
    "EXPLAIN FORMATTED SELECT * FROM guarded.t JOIN guarded.u USING (id)",
    "EXPLAIN CODEGEN SELECT sum(id) FROM guarded.u",
    "EXPLAIN COST SELECT * FROM global_temp.f",
]


@pytest.mark.parametrize("query", ORDINARY)
def test_what_analysts_ask_is_answered(guarded: Guarded, query: str) -> None:
    assert len(guarded.ask(query).collect()) < 1000


@pytest.mark.parametrize("query", RARER)
def test_rarer_forms_pass(guarded: Guarded, query: str) -> None:
    assert guarded.ask(query).columns


@pytest.mark.parametrize("query", REPORTS)
def test_reports_are_given(guarded: Guarded, query: str) -> None:
    rows = guarded.ask(query).collect()
    assert rows or query in {"SHOW TABLES", "SHOW TBLPROPERTIES guarded.t"}
