"""Disks of a test's own: one that gets full, and one that fails (`lab.disks`).

Where we are not root, tests that ask for one that fails are left out of the run, and the header
says so.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from lab.disks import FailingDisk, Failure, SmallDisk, failing_disk, small_disk

__all__ = ["FailingDisk", "Failure", "SmallDisk", "make_disk", "make_failing_disk"]

_NEEDS_ROOT: Final = "make_failing_disk"


def pytest_report_header() -> str:
    """Say whether the tests with a failing disk run."""
    return f"failing disk: {'ext4' if os.geteuid() == 0 else 'not root: its tests are left out'}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what cannot run here."""
    wanted = [item for item in items if _NEEDS_ROOT in getattr(item, "fixturenames", ())]
    if wanted and os.geteuid() != 0:
        config.hook.pytest_deselected(items=wanted)
        items[:] = [item for item in items if item not in wanted]


@pytest.fixture
def make_disk() -> Iterator[Callable[[Path, str], SmallDisk]]:
    """A factory: the folder to mount on, and the size as `mount` takes it."""
    with ExitStack() as ends:
        yield lambda folder, size: ends.enter_context(small_disk(folder, size))


@pytest.fixture
def make_failing_disk() -> Iterator[Callable[[Path, int], FailingDisk]]:
    """A factory: the folder to mount on, and the size in bytes."""
    with ExitStack() as ends:
        yield lambda folder, size: ends.enter_context(failing_disk(folder, size))
