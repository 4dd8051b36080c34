"""Where Ratchet's own files are: what comes with the package, and what it keeps for later.

Lives here: folders. Does not live here: what is read from them.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

PACKAGE: Final = Path(__file__).parent
CONF: Final = PACKAGE / "conf"
PROTO: Final = PACKAGE / "proto"
# What has to be on a search path for `import ratchet`: site-packages, or a checkout.
IMPORTED_FROM: Final = PACKAGE.parent


def cache_folder() -> Path:
    """`$RATCHET_CACHE`, or `~/.cache/ratchet`; created if it is missing."""
    given = os.environ.get("RATCHET_CACHE")
    folder = Path(given) if given else Path.home() / ".cache" / "ratchet"
    make_folder(folder)
    return folder.resolve()


def make_folder(folder: Path, mode: int = 0o755) -> None:
    """Make a folder and those above it that are missing, writable by nobody else.

    Whatever the umask says: from a folder that others can write to, nothing is taken that is run.

    Args:
        folder: which; left as it is if it is there.
        mode: of the folder itself; those above it get 0755.

    Raises:
        OSError: it cannot be made.
    """
    if folder.is_dir():
        return
    if folder.parent != folder:
        make_folder(folder.parent)
    folder.mkdir(mode=mode, exist_ok=True)
