"""Lists the fixture families (each its own file) and marks tests by what they start."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# An example that is slow on a busy machine is no fault.
settings.register_profile("ratchet", settings.default, deadline=None)
settings.load_profile("ratchet")

# Every tests/fix_*.py is a plugin: a family of fixtures appears by adding its file.
pytest_plugins = sorted(path.stem for path in Path(__file__).parent.glob("fix_*.py"))

_SERVER_FIXTURES = {"mariadb", "mysql", "server", "make_server"}


# Folders of ours that are packages only within `ratchet`: by their bare names they would be there
# twice, and what a test patches in one of them would leave the other as it is.
_FOLDERS = {
    path.name for path in (Path(__file__).parents[1] / "ratchet").iterdir() if path.is_symlink()
}


@pytest.fixture(autouse=True, scope="session")
def _no_module_is_there_twice() -> Iterator[None]:
    yield
    assert not sorted(name for name in sys.modules if name.split(".")[0] in _FOLDERS)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark by fixture, so `-m "not spark and not servers"` is the quick run without more ado."""
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        if fixtures & _SERVER_FIXTURES:
            item.add_marker(pytest.mark.servers)
        if "spark" in fixtures:
            item.add_marker(pytest.mark.spark)
        quick_on = item.get_closest_marker("quick_on")
        if quick_on and not any(flavor in item.name for flavor in quick_on.args):
            item.add_marker(pytest.mark.long)
