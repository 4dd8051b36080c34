"""Who else may read or change what a run trusts: the config, and the files with passwords.

Lives here: findings for `ratchet check`. Does not live here: the look at owner and mode
(`ratchet.owned`).
"""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

from ratchet.core.shell import shell_word
from ratchet.jobs.config.config import Config
from ratchet.jobs.preflight.finding import Finding
from ratchet.owned import distrust


def guarded(config: Config) -> Iterator[Finding]:
    """A warning for each file that others can change, or whose password they can read."""
    for path in dict.fromkeys((config.path, *config.secret_files)):
        if reason := distrust(path):
            yield _warning(
                f"{reason}: whoever changes it decides what is read, and with which account",
                f"chown it to this user or to root, and chmod go-w {shell_word(str(path))}",
            )
    for path in config.secret_files:
        if _is_read_by_all(path):
            yield _warning(
                f"{path} holds a password and can be read by everybody",
                f"chmod o-r {shell_word(str(path))}; or name a variable or another file instead: "
                'password: "${NAME}", password: {file: /run/secrets/name}',
            )


def _is_read_by_all(path: Path) -> bool:
    return bool(path.stat().st_mode & stat.S_IROTH)


def _warning(text: str, mend: str) -> Finding:
    return Finding(place="config", check="files", status="warn", text=text, mend=mend)
