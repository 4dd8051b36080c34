"""What an ALTER does to columns: which ones come with NULL in every row, and what must stop."""

from __future__ import annotations

import pytest

from merge.alter import Altered, altered
from merge.ddl import CUT_AT, altered_by


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("ADD COLUMN x INT", {"x"}),
        ("add x int", {"x"}),
        ("ADD x VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL AFTER y", {"x"}),
        ("ADD `a b` DECIMAL(10,2) DEFAULT NULL FIRST, ADD COLUMN `c``d` TEXT", {"a b", "c`d"}),
        ("ADD x ENUM('a,b','DEFAULT 1','NOT') COMMENT 'it''s NOT NULL', ALGORITHM=INSTANT", {"x"}),
        ("ADD COLUMN IF NOT EXISTS x BIGINT UNSIGNED, ADD INDEX i (x), ADD KEY (y)", {"x"}),
        ("ADD x TIMESTAMP NULL, ADD y TIMESTAMP NULL DEFAULT NULL", {"x", "y"}),
        ("ADD x TIMESTAMP DEFAULT NULL", {"x"}),
        ("WAIT 5 ADD x INT", {"x"}),
        ("NOWAIT ADD COLUMN x INT", {"x"}),
        ("ADD `index` INT", {"index"}),
        # Values in rows that were there, or who knows.
        ("ADD x INT NOT NULL", set()),
        ("ADD x INT DEFAULT 0", set()),
        ("ADD x DECIMAL(10,2) NOT NULL", set()),
        ("ADD x INT DEFAULT (NULL)", set()),
        ("ADD x TIMESTAMP", set()),
        ("ADD IF NOT EXISTS x TIMESTAMP", set()),
        ("ADD x TIMESTAMP COMMENT 'a'", set()),
        ("ADD x INT AS (y + 1) STORED, ADD z INT GENERATED ALWAYS AS (1)", set()),
        ("ADD x BIGINT AUTO_INCREMENT UNIQUE", set()),
        ("ADD x DATETIME ON UPDATE CURRENT_TIMESTAMP", set()),
        ("ADD x SERIAL", set()),
        ("ADD x INT PRIMARY KEY", set()),
        ("ADD (x INT, y INT)", set()),
        ("ADD COLUMN (x INT)", set()),
        ("ADD INDEX x (y), ADD UNIQUE KEY z (y), ADD CONSTRAINT c CHECK (x > 1)", set()),
        ("ADD FULLTEXT KEY x (y), ADD SPATIAL INDEX (z), ADD VECTOR INDEX (v)", set()),
        ("ADD PARTITION (PARTITION p VALUES LESS THAN (5))", set()),
        ("ADD x INT /* NOT NULL */", set()),
        ("ADD x INT -- DEFAULT 5\n DEFAULT 7", set()),
        ("ADD x INT COMMENT '#'", set()),
        ("ADD", set()),
        ("ADD x", set()),
        ("ADD IF NOT EXISTS x", set()),
        ("NOWAIT", set()),
        ("", set()),
        # Commas that separate nothing.
        (", ADD x INT,, ADD y INT,", {"x", "y"}),
    ],
)
def test_columns_that_are_null_in_every_row(text: str, names: set[str]) -> None:
    assert altered(text, whole=True).nulls == names
    assert altered(text, whole=False).nulls == frozenset()  # who knows how it goes on


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("DROP COLUMN x", "a column goes"),
        ("DROP x, ADD x INT", "a column goes"),
        ("WAIT 5 DROP x", "a column goes"),
        ("DROP COLUMN IF EXISTS x", "a column goes"),
        ("DROP `index`", "a column goes"),
        ("RENAME COLUMN a TO b, RENAME COLUMN b TO a", "a column changes its name"),
        ("CHANGE a b INT", "a column changes its name"),
        ("CHANGE COLUMN `a` `b` INT", "a column changes its name"),
        ("CHANGE a A INT", ""),
        ("CHANGE `column` b INT", "a column changes its name"),
        ("DROP x, RENAME COLUMN a TO b, CHANGE c d INT", "a column goes"),
        ("RENAME COLUMN a TO b, DROP x", "a column changes its name"),
        ("CHANGE a b INT, DROP x", "a column changes its name"),
        ("ADD x INT CHECK ((x > 1) AND (x < 5)), DROP y", "a column goes"),
        ("RENAME INDEX column TO b", ""),
        ("DROP", ""),
        ("DROP INDEX x, DROP KEY y, DROP PRIMARY KEY, DROP FOREIGN KEY z", ""),
        ("DROP CONSTRAINT x, DROP CHECK y", ""),
        ("RENAME INDEX a TO b, RENAME KEY c TO d", ""),
        ("ADD x INT COMMENT 'then, DROP COLUMN y'", ""),
        ("MODIFY x VARCHAR(3), ENGINE=InnoDB", ""),
        ("ALTER COLUMN x SET DEFAULT 5, COMMENT = 'DROP COLUMN x'", ""),
    ],
)
def test_what_hides_behind_an_unchanged_shape(text: str, found: str) -> None:
    for whole in (True, False):
        assert altered(text, whole=whole).breaks == found


@pytest.mark.parametrize(
    ("text", "retyped"),
    [
        ("MODIFY x INT", True),
        ("MODIFY COLUMN x INT, ADD y INT", True),
        ("CHANGE x x BIGINT", True),
        ("CONVERT TO CHARACTER SET latin1", True),
        ("ADD x INT", False),
        ("ALTER COLUMN x DROP DEFAULT", False),
        ("ENGINE = InnoDB", False),
    ],
)
def test_types_that_may_change(text: str, retyped: bool) -> None:  # noqa: FBT001 - a table's row
    assert altered(text, whole=True).retyped is retyped


def test_a_statement_that_may_be_cut_tells_no_column() -> None:
    start = "ALTER TABLE t ADD x INT COMMENT '"
    for length, names in ((CUT_AT - 1, {"x"}), (CUT_AT, set())):
        statement = start + "y" * (length - len(start) - 1) + "'"
        assert altered_by(statement, "t").nulls == names


def test_only_of_this_table() -> None:
    assert altered_by("ALTER TABLE d.t ADD x INT", "t").nulls == {"x"}
    assert altered_by("/* gone */ ALTER TABLE t DROP x", "t").breaks
    assert not altered_by("/* who knows */ ALTER TABLE t ADD x INT", "t").nulls
    assert altered_by("ALTER TABLE other DROP x", "t") == Altered()
    assert altered_by("CREATE INDEX i ON t (x)", "t") == Altered()
    assert not altered_by("CREATE INDEX i ON t (x)", "t").retyped
    assert altered_by("alter online table if exists `d`.`t` add x int", "t").nulls == {"x"}
    assert altered_by(f"ALTER TABLE t ADD x INT COMMENT '{'y' * 2000}", "t") == Altered()
