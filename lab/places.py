"""Folders of the lab's own: nobody else may have laid anything there, or can.

Lives here: the cache folder, servers' homes, and the refusal of what others share. Does not live
here: the look at owner and mode (`ratchet.owned`), what the cache holds (`cache`).

Invariant: programs of these folders are run as us, and passwords in them are believed.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from ratchet.core.errors import ConfigError
from ratchet.owned import distrust, opening
from ratchet.resources import cache_folder


def cache() -> Path:
    """The cache folder.

    Raises:
        ConfigError: another user made it, or could change what is in it.
    """
    folder = cache_folder()
    refuse_shared(
        folder, hint="set RATCHET_CACHE to a folder of your own that nobody else writes to"
    )
    return folder


def new_home(prefix: str) -> Path:
    """A new folder of mode 0700 below $TMPDIR.

    Raises:
        ConfigError: another user could put one of his in its place.
    """
    base = Path(tempfile.gettempdir()).resolve()
    if found := opening(base / prefix):
        raise _shared(base, str(found), "set TMPDIR to a folder of your own, or to /tmp")
    return Path(tempfile.mkdtemp(prefix=prefix, dir=base))


def refuse_shared(folder: Path, *, hint: str) -> None:
    """Refuse a folder, made or still to be made, that is not ours (or root's) alone.

    Args:
        folder: which.
        hint: what to do instead.

    Raises:
        ConfigError: another user made it, can write to it, or can exchange it.
    """
    if reason := distrust(folder) or opening(folder / "inside"):
        raise _shared(folder, str(reason), hint)


def _shared(folder: Path, reason: str, hint: str) -> ConfigError:
    return ConfigError(
        f"{folder} is not used: {reason}, so another user decides what is run from there",
        operation="choose a folder",
        hint=hint,
    )
