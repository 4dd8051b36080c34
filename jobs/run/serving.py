"""Doing what `ratchet table` asks, between two merge steps: nothing of it meets a merge.

Lives here: `ConfigFile`, the config as it was read last, and `TableRequestHandler`. Does not live
here: asking (`tablecommands`), the requests' files (`store.requests`), dumping what they bring
(`dumping`).

The config says which tables are mirrored, and goes on saying it: a request makes the run read its
file again, and refuses to do what the file does not say. Of a changed config the tables alone come
into force; the rest waits for the next start.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from ratchet.core.errors import ConfigError, RatchetError, RetryableError
from ratchet.core.patterns import TablePatterns, exclusion
from ratchet.jobs.config.config import Config, load_config
from ratchet.jobs.config.selection import Selection
from ratchet.jobs.reporting import logs
from ratchet.store import layout
from ratchet.store.anew import highest_number, to_be_dumped
from ratchet.store.files import Lake
from ratchet.store.removals import Removals
from ratchet.store.requests import Refusal, Request, Requests
from ratchet.store.tables import Tables, TableState

log: Final = logging.getLogger("ratchet.jobs.run")

EVERY: Final = 2.0  # seconds between two looks for requests


class ConfigFile:
    """A config that may be read again. For one thread at a time.

    What the file names as `${...}` is looked up in the environment as it is now: the variables are
    taken out of it when Spark starts (`jobs.engine.childenv`).

    Attributes:
        config: as in force.

    Args:
        config: as loaded.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self._environment = dict(os.environ)

    def read_again(self) -> tuple[Config, Mapping[str, TablePatterns]]:
        """The config with the patterns of now; and keyspace -> patterns, where they have changed.

        Nothing comes into force by it.

        Raises:
            ConfigError: the file has errors.
        """
        read = load_config(self.config.path, self._environment)
        logs.hide(read.secrets)
        before = self.config.sources
        changed = {
            name: source.tables
            for name, source in read.sources.items()
            if name in before and source.tables != before[name].tables
        }
        sources = {
            name: replace(source, tables=changed.get(name, source.tables))
            for name, source in before.items()
        }
        now = replace(self.config, sources=sources)
        if now != read:
            log.warning(
                "%s has changed in more than `tables`: the rest takes effect when the run is "
                "started again",
                self.config.path,
            )
        return now, changed


class TableRequestHandler:
    """Does what is asked. For one thread, the one that merges.

    Args:
        lake: the lake.
        file: the config.
        selection: what the run mirrors.
        look: makes the dump look for tables at once.
        clock: seconds, rising.
    """

    def __init__(
        self,
        lake: Lake,
        file: ConfigFile,
        selection: Selection,
        *,
        look: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lake = lake
        self._file = file
        self._selection = selection
        self._look = look
        self._clock = clock
        self._requests = Requests(lake)
        self._removals = Removals(lake)
        self._tables = Tables(lake)
        self._next = 0.0

    def serve(self) -> None:
        """Do what is asked, if it is time to look.

        Raises:
            LateError: another run has taken the lake over.
            LakeError: the lake cannot be written.
        """
        if self._clock() < self._next:
            return
        self._next = self._clock() + EVERY
        for request in self._requests.pending():
            try:
                self.do(request)
            except (ConfigError, RetryableError) as error:
                log.warning("table %s %s: %s", request.kind, request.name, error.message)
                self._requests.refuse(request, _refusal(error))
            else:
                log.info("table %s %s: done", request.kind, request.name)
                self._requests.done(request)

    def do(self, request: Request) -> None:
        """Do it now.

        Raises:
            LateError: another run has taken the lake over.
            ConfigError: the config says otherwise, or there is no such table.
            RetryableError: it is being dumped.
            LakeError: the lake cannot be written.
        """
        path = layout.table_path(request.keyspace, request.table)
        staged = self._staged(path) if request.kind == "drop" else set()
        with self._selection.deciding():
            self._decide(request)
        if request.kind == "drop":
            self._remove(path, staged, whole=request.delete)
            if not request.delete:  # it is to stay, whatever was asked before
                self._removals.end(request.keyspace, request.table)
        self._look()

    def _remove(self, path: str, staged: set[str], *, whole: bool) -> None:
        # No fence refuses this: it must not meet what a successor has made there.
        self._requests.check()
        for folder in staged:  # a successor's dump has a name of its own
            self._lake.delete_folder(folder)
        for folder in (path, f"{layout.SIDE}/{path}") if whole else ():
            self._lake.delete_seen(folder, self._requests.check)

    def _staged(self, path: str) -> set[str]:
        """The folders of the dumps that are made behind a table, or were left by killed runs."""
        root = f"{layout.STAGED}/{path}/"
        files = self._lake.list(root.rstrip("/"), unfinished=True)
        return {root + file.path.removeprefix(root).partition("/")[0] for file in files}

    def _decide(self, request: Request) -> None:
        config, changed = self._file.read_again()
        self._change({name: self._folded(name, one) for name, one in changed.items()})
        self._file.config = config
        state = self._tables.load(request.keyspace, request.table)
        source = config.sources.get(request.keyspace)
        mirrored = source is not None and self._folded(request.keyspace, source.tables).matches(
            request.table
        )
        if request.kind == "drop":
            if mirrored:
                raise _says_otherwise(request, config, f"add {exclusion(request.table)} to")
            if state is not None:
                self._refuse_dumping(state)
            if request.delete:
                path = layout.table_path(request.keyspace, request.table)
                last = highest_number(self._lake, path)
                self._removals.begin(request.keyspace, request.table, last=last)
            if state is not None:
                self._tables.remove(state)
        elif not mirrored:
            raise _says_otherwise(request, config, f"let '{request.table}' match")
        elif request.kind == "redump":
            if state is None:
                raise ConfigError(
                    f"{request.name} is not in the mirror",
                    operation="dump a table again",
                    hint="`ratchet status` lists the tables",
                )
            self._begin_anew(state)

    def _folded(self, keyspace: str, patterns: TablePatterns) -> TablePatterns:
        """Patterns of the file, compared as the server does."""
        return replace(patterns, folded=self._selection.patterns(keyspace).folded)

    def _change(self, patterns: Mapping[str, TablePatterns]) -> None:
        """Bring patterns into force; tables that come or go by it have to be dumped anew."""
        turned = [
            state
            for state in self._tables.list()
            if state.keyspace in patterns
            and patterns[state.keyspace].matches(state.table) != self._selection.mirrors(state)
        ]
        for state in turned:
            self._refuse_dumping(state)
        for state in turned:
            self._begin_anew(state)
        self._selection.change(patterns)

    def _begin_anew(self, state: TableState) -> None:
        self._refuse_dumping(state)
        self._tables.save(replace(to_be_dumped(self._lake, state), doubts={}))

    def _refuse_dumping(self, state: TableState) -> None:
        # Its dump has the state in hand, in threads of its own.
        if state.phase == "dumping" or self._selection.is_dumping(state.name):
            raise RetryableError(
                f"{state.name} is being dumped",
                operation="change the tables",
                table=state.name,
                hint="ask again when it streams (`ratchet status`), or stop the run first",
            )


def _refusal(error: RatchetError) -> Refusal:
    passes = isinstance(error, RetryableError)
    return Refusal(message=error.message, hint=error.hint, passes=passes)


def _says_otherwise(request: Request, config: Config, mend: str) -> ConfigError:
    says = "leaves it out" if request.kind != "drop" else "mirrors it"
    return ConfigError(
        f"{request.name}: the config {says}",
        operation=f"table {request.kind}",
        hint=(
            f"{mend} `sources.{request.keyspace}.tables` in {config.path}, then ask again; the "
            "config applies to every later run"
        ),
    )
