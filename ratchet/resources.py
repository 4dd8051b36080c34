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
    folder.mkdir(parents=True, exist_ok=True)
    return folder.resolve()
