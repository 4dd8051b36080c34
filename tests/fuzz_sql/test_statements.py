"""Statements from the grammar on real servers: what the mirror calls right is right.

What fails here is kept in .cache/fuzz_sql; `python -m tests.fuzz_sql --shrink FILE` makes it small.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz_sql.commands import Wish, campaign
from tests.fuzz_sql.driver import Campaign

KEPT = Path(__file__).parents[2] / ".cache" / "fuzz_sql"


def told(ran: Campaign) -> list[str]:
    """What was found, without the hundreds of steps that lead to it: those are kept in a file."""
    return [f"{one.finding.what} {one.finding.table}: {one.finding.detail}" for one in ran.found]


@pytest.mark.quick_on("mariadb")
@pytest.mark.servers
@pytest.mark.parametrize("flavor", ["mariadb", "mysql"])
def test_some_hundred_statements(flavor: str, tmp_path: Path) -> None:
    """One epoch, the same in each run."""
    wish = Wish(flavor=flavor, seed=21, statements=300, every=100)
    ran = campaign(wish, tmp_path, KEPT)
    assert told(ran) == []
    assert ran.figures.statements >= 300
    assert ran.figures.compared > 20
    assert ran.figures.refused < ran.figures.statements / 2


@pytest.mark.servers
@pytest.mark.long
@pytest.mark.parametrize("flavor", ["mariadb", "mysql"])
def test_tens_of_thousands(flavor: str, tmp_path: Path) -> None:
    """Some hours."""
    wish = Wish(flavor=flavor, seed=2100, statements=25_000, every=100)
    ran = campaign(wish, tmp_path, KEPT)
    assert told(ran) == []
