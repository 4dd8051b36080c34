"""Lists the fixture families (each its own file) and marks tests by what they start."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

# An example that is slow on a busy machine is no fault.
settings.register_profile("ratchet", settings.default, deadline=None)
settings.load_profile("ratchet")

# Every tests/fix_*.py is a plugin: a family of fixtures appears by adding its file.
pytest_plugins = sorted(path.stem for path in Path(__file__).parent.glob("fix_*.py"))

_SERVER_FIXTURES = {"mariadb", "mysql", "server", "make_server"}


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
