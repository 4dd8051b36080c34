"""What a VIRTUAL column's value depends on besides its row."""

from __future__ import annotations

import pytest

from core.sql.expressions import outside_of_row

TYPES = {
    "id": "int",
    "n": "int",
    "a": "varchar",
    "d": "datetime",
    "j": "json",
    "ts": "timestamp",
    "at": "time",
    "date": "date",
    "now": "int",
    "number": "auto_increment",
}
BY_ROW = [
    "json_unquote(json_extract(`j`,'$.a'))",
    "concat(`a`,' ',_utf8mb4'x')",
    "if(`n` > 3 and `a` is not null,'x','y')",
    "case when `n` in (1,2) then 1 else 0 end",
    "convert(`a` using utf8mb4)",
    "`a` collate utf8mb4_bin",
    "`d` + interval `n` day",
    "date_format(`d`,'%Y-%m')",
    "trim(both 'x' from `a`)",
    "extract(year_month from `d`)",
    "cast(`a` as char(3) charset latin1)",
    "cast(`a` as date)",
    "`date`",
    "`now` + 1",
    "1.5e3 * `n`",
    "0x41",
    "DATE'2020-01-01'",
    "st_x(`a`)",
    "timediff(`at`,`at`)",
    "concat('now() @@x rand()',`a`)",
]
OUTSIDE = {
    "current_timestamp()": "CURRENT_TIMESTAMP()",
    "curdate() > `d`": "CURDATE()",
    "rand()": "RAND()",
    "uuid()": "UUID()",
    "current_user()": "CURRENT_USER()",
    "current_user": "CURRENT_USER",
    "@@sql_mode": "a variable",
    "`ts`": "time_zone, by the TIMESTAMP ts",
    "hour(`ts`)": "time_zone, by the TIMESTAMP ts",
    "unix_timestamp(`d`)": "UNIX_TIMESTAMP()",
    "from_unixtime(`n`)": "FROM_UNIXTIME()",
    "dayname(`d`)": "DAYNAME()",
    "date_format(`d`,'%Y %M')": "lc_time_names, by DATE_FORMAT()",
    "date_format(`d`,`a`)": "lc_time_names, by DATE_FORMAT()",
    "concat(date_format(`d`,`a`),'x')": "lc_time_names, by DATE_FORMAT()",
    "week(`d`)": "WEEK()",
    "str_to_date(`a`,'%Y')": "STR_TO_DATE()",
    "cast(`at` as datetime)": "the day on which a TIME is read as a date",
    "timestamp(cast(`d` as time))": "the day on which a TIME is read as a date",
    "anything_new(`n`)": "ANYTHING_NEW()",
    "`shop`.`mine`(`n`)": "shop",
    "`number` + 1": "the AUTO_INCREMENT column number, whose number comes later",
    "concat('open": "a quote does not end",
}


@pytest.mark.parametrize("expression", BY_ROW)
def test_by_the_row_alone(expression: str) -> None:
    assert outside_of_row(expression, types=TYPES, mariadb=True) == ""


@pytest.mark.parametrize(("expression", "reason"), OUTSIDE.items())
def test_by_more(expression: str, reason: str) -> None:
    assert outside_of_row(expression, types=TYPES, mariadb=True) == reason


def test_mysql_escapes_the_text() -> None:
    text = r"json_unquote(json_extract(`j`,_utf8mb4\'$.a\'))"
    assert outside_of_row(text, types=TYPES, mariadb=False) == ""
    text = r"date_format(`d`,_utf8mb4\'%M\')"
    assert outside_of_row(text, types=TYPES, mariadb=False) == "lc_time_names, by DATE_FORMAT()"
