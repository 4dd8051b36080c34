"""Who else may read or change what a run trusts: its config, passwords, TLS's files, its lake.

Lives here: findings for `ratchet check`, and for the log of a run. Does not live here: the look at
owner and mode (`ratchet.owned`).
"""

from __future__ import annotations

import logging
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ratchet.core.shell import shell_word
from ratchet.jobs.config.config import Config
from ratchet.jobs.preflight.finding import Finding
from ratchet.owned import Opening, distrust, openings
from ratchet.store.files import Lake

log: Final = logging.getLogger("ratchet.jobs.run")


def guarded(config: Config) -> Iterator[Finding]:
    """A warning for each file that others can change or exchange, or whose password they read.

    Also for a config that holds a password as it is, whoever may read it.
    """
    yield from _changeable(config)
    if config.path in config.secret_files:
        yield _warning(
            f"{config.path} holds a password as it is: so do its copies, and the history of a "
            "repository",
            'name a variable or a file instead: password: "${NAME}", password: {file: '
            "/run/secrets/name}",
        )
    for path in config.secret_files:
        if _is_read_by_all(path):
            yield _warning(
                f"{path} holds a password and can be read by everybody",
                f"chmod o-r {shell_word(str(path))}",
            )


def _changeable(config: Config) -> Iterator[Finding]:
    """What others can change, or exchange by the folder that it lies in."""
    trusted = dict.fromkeys((config.path, *config.secret_files, *_tls_files(config)))
    for path in trusted:
        if reason := distrust(path):
            yield _warning(
                f"{reason}: whoever changes it decides what is read, and with which account",
                f"chown it to this user or to root, and chmod go-w {shell_word(str(path))}",
            )
    lakes = _lake_folder(config)
    for path in lakes:
        if reason := distrust(path):
            yield _warning(
                f"{reason}: whoever changes the lake decides what the mirror shows",
                f"chown it to this user, and chmod go-w {shell_word(str(path))}",
            )
    found: dict[Opening, dict[str, None]] = {}  # most lie in one folder: that is told once
    for path in (*trusted, *lakes):
        for one in openings(path):
            found.setdefault(one, {})[str(path)] = None
    for one, paths in found.items():
        yield _warning(
            f"{one}: whoever exchanges {' or '.join(paths)} there decides what is read, with which "
            "account, and what the mirror shows",
            _mend(one),
        )


def _lake_folder(config: Config) -> list[Path]:
    """Whoever may write there is believed."""
    lake = Lake.at(config.lake)
    return [Path(lake.root)] if lake.is_local else []


def _tls_files(config: Config) -> Iterator[Path]:
    """What says which server is the right one, and who we are."""
    for source in config.sources.values():
        gates = () if source.vtgate is None else (source.vtgate,)
        for one in (*source.shards.values(), *gates):
            yield from map(Path, filter(None, (one.tls_ca, one.tls_cert, one.tls_key)))


def warn_of_exposed_files(config: Config) -> None:
    """Log each, at the start of a run."""
    for one in guarded(config):
        log.warning("%s; %s", one.text, one.mend)


def _mend(found: Opening) -> str:
    place = str(found.place)
    if found.by == "owner":
        return f"chown -h it to this user or to root: {shell_word(place)}"
    return f"chmod go-w {shell_word(place)}, or chmod +t {shell_word(place)}"


def _is_read_by_all(path: Path) -> bool:
    return bool(path.stat().st_mode & stat.S_IROTH)


def _warning(text: str, mend: str) -> Finding:
    return Finding(place="config", check="files", status="warn", text=text, mend=mend)
