"""The account that the documentation has an operator create is the one that all tests use."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.servers import Server, create_ratchet_user

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "operations.md"
BLOCK = re.compile(r"^```sql\n(.*?)^```", re.DOTALL | re.MULTILINE)
# What is said behind the block, of MariaDB and its VIRTUAL columns.
TRIGGERS = re.compile(r"MariaDB[^`]*VIRTUAL columns[^`]*``(GRANT TRIGGER ON `shop`\.\*)``")
GRANTED = re.compile(r"\bGRANT ([A-Z, ]+?) ON ")


def documented() -> tuple[list[str], str]:
    """The statements that create the account, and what else MariaDB may need."""
    text = DOCUMENT.read_text()
    (block,) = [one for one in BLOCK.findall(text) if "CREATE USER" in one]
    (triggers,) = TRIGGERS.findall(text)
    return [one.strip() for one in block.split(";") if one.strip()], triggers


def privileges(statement: str) -> set[str]:
    return {
        name.strip() for found in GRANTED.findall(statement) for name in found.split(",") if name
    }


@pytest.fixture
def accounts(server: Server) -> Iterator[tuple[str, str]]:
    """Two names, gone afterwards."""
    names = ("as_documented", "as_tested")
    yield names
    for name in names:
        server.execute(f"DROP USER IF EXISTS '{name}'@'%'")


def grants(server: Server, account: str) -> set[str]:
    """What it holds, whoever it is: the password's hash is not compared."""
    rows = server.execute(f"SHOW GRANTS FOR '{account}'@'%'")
    texts = (re.sub(r" IDENTIFIED BY PASSWORD '\S+'", "", str(one)) for (one,) in rows)
    return {text.replace(account, "ratchet") for text in texts}


@pytest.mark.parametrize("triggers", [False, True])
def test_the_documented_grants_are_those_that_all_tests_use(
    server: Server, database: str, accounts: tuple[str, str], *, triggers: bool
) -> None:
    as_documented, as_tested = accounts
    statements, more = documented()
    assert len(statements) == 3
    if triggers:
        statements = [*statements, f"{more} TO 'ratchet'@'%'"]
    for one in statements:
        named = one.replace("'ratchet'", f"'{as_documented}'").replace("`shop`", f"`{database}`")
        server.execute(named.replace("'...'", "'s3cret-word'"))
    create_ratchet_user(server, "s3cret-word", [database], user=as_tested, triggers=triggers)
    found = grants(server, as_documented)
    assert found == grants(server, as_tested)
    assert len(found) == 2  # of all databases, and of this one


def test_no_end_to_end_test_grants_its_account_more() -> None:
    statements, _ = documented()
    allowed = set().union(*map(privileges, statements))
    assert allowed == {"REPLICATION SLAVE", "REPLICATION CLIENT", "SELECT"}
    given = {
        (path.name, one)
        for path in (ROOT / "tests" / "e2e").glob("*.py")
        for one in privileges(path.read_text())
    }
    assert given, "the oddest names have a GRANT of their own"
    assert {one for one in given if one[1] not in allowed} == set()
