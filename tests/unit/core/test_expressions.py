"""What a VIRTUAL column's value depends on besides its row."""

from __future__ import annotations

import pytest

from ratchet.core.sql.expressions import outside_of_row
from ratchet.core.sql.sessionrules import Operand

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
OPERANDS = {name: Operand(kind) for name, kind in TYPES.items()} | {
    "f": Operand("double"),
    "c": Operand("char"),
    "d6": Operand("datetime", 6),
}
OWN = Operand("varchar")
READ = "sql_mode (ALLOW_INVALID_DATES and others), by a date or time that is read from text"
BY_ROW = [
    "`n` / `f`",
    "`n` DIV 3",
    "`n` * 0.01",
    "trim(`c`)",
    "`c` is null",
    "`a` like 'x%'",
    "lpad(`a`,10,'0')",
    "year(`d`)",
    "concat(`d`,`a`)",
    "`d` > '2024-01-01'",
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
    "`n` / 3": "div_precision_increment, by /",
    "`n` / 3 * `f`": "div_precision_increment, by /",
    "concat(`c`,'|')": "sql_mode PAD_CHAR_TO_FULL_LENGTH, by the CHAR c",
    "`a` like `a`": "sql_mode NO_BACKSLASH_ESCAPES, by LIKE",
    "`a` regexp 'a.b'": "default_regex_flags, by REGEXP",
    "repeat(`a`,`n`)": "max_allowed_packet, by REPEAT()",
    "day(`a`)": READ,
    "cast(`a` as date)": READ,
    "`d` > '2024-02-31'": "sql_mode (NO_ZERO_DATE and others), by a date or time that is none",
    "timestamp(`d6`)": "sql_mode (TIME_TRUNCATE_FRACTIONAL), by fractions of seconds",
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
    assert outside_of_row(expression, own=OWN, types=OPERANDS, mariadb=True) == ""


@pytest.mark.parametrize(("expression", "reason"), OUTSIDE.items())
def test_by_more(expression: str, reason: str) -> None:
    assert outside_of_row(expression, own=OWN, types=OPERANDS, mariadb=True) == reason


def test_mysql_escapes_the_text() -> None:
    text = r"json_unquote(json_extract(`j`,_utf8mb4\'$.a\'))"
    assert outside_of_row(text, own=OWN, types=OPERANDS, mariadb=False) == ""
    text = r"date_format(`d`,_utf8mb4\'%M\')"
    assert (
        outside_of_row(text, own=OWN, types=OPERANDS, mariadb=False)
        == "lc_time_names, by DATE_FORMAT()"
    )


COLLATION = "default_collation_for_utf8mb4, by texts that are compared"


@pytest.mark.parametrize(
    ("expression", "reason"),
    {
        r"(_utf8mb4\'x\' = \'ss\')": COLLATION,
        r"(concat(`n`,_utf8mb4\'x\') = concat(`n`,_utf8mb4\'ss\'))": COLLATION,
        r"(concat(`n`) = _utf8mb4\'3 \')": COLLATION,
        r"(convert(`b` using utf8mb4) = _utf8mb4\'AB\')": COLLATION,
        r"(cast(`a` as char charset utf8mb4) like _utf8mb4\'A%\')": COLLATION,
        r"(hex(`n`) = _utf8mb4\'3\')": COLLATION,
        r"locate(_utf8mb4\'x\',convert(`b` using utf8mb4))": COLLATION,
        r"field(_utf8mb4\'x\',hex(`n`))": COLLATION,
        r"(case hex(`n`) when _utf8mb4\'a\' then 1 else 2 end)": COLLATION,
        r"(`a` = _utf8mb4\'ss\')": "",
        r"(_utf8mb4\'ss\' <> `a`)": "",
        r"if((`n` > 3),_utf8mb4\'yes\',_utf8mb4\'no\')": "",
        r"(case when (`n` = 1) then _utf8mb4\'a\' else _utf8mb4\'b\' end)": "",
        r"(case `a` when _utf8mb4\'a\' then 1 else 2 end)": "",
        r"(`a` in (_utf8mb4\'x\',_utf8mb4\'y\'))": "",
        r"(json_unquote(json_extract(`j`,_utf8mb4\'$.a\')) = _utf8mb4\'A\')": "",
        r"replace(`a`,_utf8mb4\'x\',_utf8mb4\'y\')": "",
        r"(`d` > _utf8mb4\'2024-01-01\')": "",
        r"(cast(`a` as signed) = 3)": "",
        r"st_astext(`g`)": "spatial reference systems, by ST_ASTEXT()",
        r"mbrcontains(`g`,`g`)": "spatial reference systems, by MBRCONTAINS()",
        r"st_srid(`g`)": "",
        r"length(concat(`long`,`long`))": "max_allowed_packet, by CONCAT(), as it may be long",
    }.items(),
)
def test_what_mysql_leaves_to_others(expression: str, reason: str) -> None:
    more = {"b": "varbinary", "g": "geometry", "long": "mediumtext"}
    types = OPERANDS | {name: Operand(kind) for name, kind in more.items()}
    assert outside_of_row(expression, own=Operand("int"), types=types, mariadb=False) == reason


def test_two_columns_that_look_alike() -> None:
    """The servers tell ss from \u00df, and so may an expression."""
    types = {"ss": Operand("timestamp"), "\u00df": Operand("int")}
    assert outside_of_row("`ss`", own=OWN, types=types, mariadb=False)
