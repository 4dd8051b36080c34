"""numba, without the settings of a file in the current folder.

numba reads `.numba_config.yaml` there when it is imported and whenever it compiles, and with it
writes files and takes compiled code from folders that the file names. Others may make files in the
folder where `ratchet` was started. Its settings from the environment count as before.

Lives here: keeping it from that file. To be called before numba is imported.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any


def take_no_settings_file() -> None:
    """Import numba so that it reads no file of settings, now or later."""
    if "numba" not in sys.modules:
        missing: Any = None
        before = sys.modules.get("yaml")
        sys.modules["yaml"] = missing  # without YAML it cannot read the file
        try:
            importlib.import_module("numba")
        finally:
            del sys.modules["yaml"]
            if before is not None:
                sys.modules["yaml"] = before
    config: Any = importlib.import_module("numba.core.config")
    config._config_fname = os.devnull  # noqa: SLF001 - numba has no setting for it
