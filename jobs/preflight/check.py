"""`ratchet check`: is everything there that a run needs?

Lives here: the order of the questions, the lines and the exit code. Does not live here: the
questions (`facts`) and the rules (`fitness`, `tablefitness`).

Invariant: nothing is changed, neither on a server nor in the lake, and no password is printed.
"""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from ratchet.core.errors import ConfigError, LakeError, LockedError, OperatorError, RatchetError
from ratchet.core.shard import ShardId
from ratchet.jobs.config.config import Config
from ratchet.jobs.config.sources import server_ids, source_config
from ratchet.jobs.config.spelling import ask_spelling, with_noted_spelling
from ratchet.jobs.preflight.encryption import weak_gates, weak_replicas
from ratchet.jobs.preflight.facts import ServerFacts, gather
from ratchet.jobs.preflight.fileguard import guarded
from ratchet.jobs.preflight.finding import Finding
from ratchet.jobs.preflight.fitness import judge
from ratchet.jobs.preflight.mirrorfitness import judge_mirror, judge_position
from ratchet.jobs.preflight.tablefitness import judge_shards, judge_tables
from ratchet.jobs.preflight.vitessfitness import gather_vitess, judge_name, judge_vitess
from ratchet.jobs.reporting import logs
from ratchet.jobs.reporting.terminal import terminal, visible
from ratchet.jobs.reporting.text import counted
from ratchet.jobs.topology.vitess import try_vstream, with_serving_shards
from ratchet.store import layout
from ratchet.store.files import Lake
from ratchet.store.formats import is_unused, open_lake
from ratchet.store.lease import is_alive, read_holder
from ratchet.store.rounds import RoundLog, StreamState
from ratchet.store.takeover import refuse_older_rounds
from ratchet.wire.session import Session, SourceConfig

EXIT_UNFIT: Final = 3
_MARKS: Final = {"ok": "ok  ", "info": "info", "warn": "WARN", "fail": "FAIL"}
_STYLES: Final = {"ok": "green", "info": "cyan", "warn": "yellow", "fail": "bold red"}


def run_check(config: Config, *, as_json: bool) -> int:
    """Check everything and print it. Gives the exit code."""
    printer = _Printer(as_json=as_json)
    printer.add(
        [Finding(place="config", check="read", status="ok", text=f"{config.path}: no errors")]
    )
    printer.add(list(guarded(config)))
    lake = list(check_lake(config.lake))
    streams: Mapping[str, StreamState] = {}
    if all(finding.status != "fail" for finding in lake):
        found, streams = _check_mirror(config)
        lake += found
    printer.add(lake)
    printer.add([*weak_gates(config), *weak_replicas(config)])
    for keyspace, source in config.sources.items():
        if source.kind == "vitess":
            printer.add(_check_vitess(config, keyspace, streams, printer.add))
        else:
            printer.add(_check_source(config, keyspace, streams, printer.add))
    printer.finish()
    if any(finding.status == "fail" for finding in lake):
        return ConfigError.exit_code
    failed = [finding for finding in printer.findings if finding.status == "fail"]
    return EXIT_UNFIT if failed else 0


def check_lake(root: str, now: Callable[[], float] = time.time) -> Iterable[Finding]:
    """Whether the lake can be written and is ours, and who is running on it."""
    lake = Lake.at(root)
    try:
        text = (
            f"{root} is a Ratchet lake"
            if _is_there(lake, int(now() * 1e6))
            else f"{root} will become one"
        )
        if lake.is_local:
            _try_writing(Path(lake.root))
        holder = read_holder(lake)
    except (LakeError, OSError) as error:
        hint = error.hint if isinstance(error, RatchetError) else "let this user write there"
        yield Finding(place="lake", check="usable", status="fail", text=str(error), mend=hint)
        return
    yield Finding(place="lake", check="usable", status="ok", text=text)
    if holder is not None and (alive := is_alive(holder)) is not False:
        text = f"runs: {holder.describe()}" + ("" if alive else f"; {holder.last_sign}")
        yield Finding(place="lake", check="lease", status="info", text=text)


def _check_mirror(config: Config) -> tuple[list[Finding], Mapping[str, StreamState]]:
    """Whether the config fits what the lake holds, and the streams there."""
    lake = Lake.at(config.lake)
    if not lake.exists(layout.FORMAT_FILE):
        return [], {}
    try:
        refuse_older_rounds(lake)
        streams = RoundLog(lake).streams()
        return judge_mirror(with_noted_spelling(config, lake), lake, streams), streams
    except LakeError as error:
        text, mend = error.message, error.hint
        return [Finding(place="lake", check="mirror", status="fail", text=text, mend=mend)], {}


def _is_there(lake: Lake, now: int) -> bool:
    """False for an empty place, which becomes a lake."""
    if not lake.exists(layout.FORMAT_FILE) and is_unused(lake):
        return False
    open_lake(lake.root, now=now, create=False)
    return True


def _try_writing(folder: Path) -> None:
    while not folder.exists():
        folder = folder.parent
    if not os.access(folder, os.W_OK | os.X_OK) or not folder.is_dir():
        raise LakeError(
            f"{folder} cannot be written",
            operation="look at the lake",
            hint="let this user write there, or point `lake` elsewhere",
        )


# Whatever else is wrong with a server, a run goes there and refuses it.
_PASSED_OVER: Final = frozenset({"connection", "position"})
_LINGERS: Final = 5  # seconds that a server may count a stream which has just ended


def _check_source(
    config: Config,
    keyspace: str,
    streams: Mapping[str, StreamState],
    show: Callable[[Iterable[Finding]], None],
) -> list[Finding]:
    """Show the findings of each shard as they come; give those about all of them together."""
    gathered = []
    for name, shard in config.sources[keyspace].shards.items():
        identity = ShardId(keyspace, name)
        answers = []
        for server in source_config(identity, shard).servers():
            standby = server.address != f"{shard.host}:{shard.port}"
            place = f"{identity} standby {server.address}" if standby else str(identity)
            answers.append(_check_server(config, place, server, streams))
        taken = server_taken([findings for _, findings in answers])
        for number, (_, findings) in enumerate(answers):
            show(findings if taken in {number, None} else _lesser(findings))
        gathered += [facts for facts, _ in answers if facts is not None][:1]
        if not config.sources[keyspace].vitess:
            show(judge_name(identity, shard.database))
    return judge_shards(gathered)


def _check_server(
    config: Config, place: str, server: SourceConfig, streams: Mapping[str, StreamState]
) -> tuple[ServerFacts | None, list[Finding]]:
    """What was found out about one of a shard's servers, if it answered, and the findings."""
    number, ours = server_ids(config)[server.shard], _is_running(config.lake)
    try:
        facts = _ask(config, server)
        for _ in range(_LINGERS):
            if ours or number not in (facts.replicas or ()):
                break
            time.sleep(1.0)
            facts = _ask(config, server)
    except RatchetError as error:
        return None, [_failed(place, f"{server.address} as {server.user}", error)]
    where = f"{server.address}, database {server.database}, as {server.user}"
    findings = [
        Finding(place=place, check="connection", status="ok", text=where),
        *judge(
            facts,
            server_id=number,
            ours=ours,
            clock_bound=config.merge.clock_bound_ms / 1000,
        ),
        *judge_position(server, server.shard, streams),
        *judge_tables(facts),
    ]
    return facts, [dataclasses.replace(one, place=place) for one in findings]


def server_taken(answers: Sequence[Sequence[Finding]]) -> int | None:
    """Which of a shard's servers a run goes to, by their findings; None if to none.

    To the first one that answers and has what the mirror needs, whatever else is wrong there.
    """
    for number, findings in enumerate(answers):
        if not any(one.status == "fail" and one.check in _PASSED_OVER for one in findings):
            return number
    return None


def _lesser(findings: Iterable[Finding]) -> Iterator[Finding]:
    """As warnings: another server of the shard will do, and a run goes on there."""
    for one in findings:
        if one.status == "fail":
            text = f"{one.text} (another server of this shard can be used)"
            yield dataclasses.replace(one, status="warn", text=text)
        else:
            yield one


def _check_vitess(
    config: Config,
    keyspace: str,
    streams: Mapping[str, StreamState],
    show: Callable[[Iterable[Finding]], None],
) -> list[Finding]:
    """The same for a keyspace behind a vtgate, whose shards are asked for first."""
    gate = config.sources[keyspace].vtgate
    assert gate is not None  # noqa: S101 - a Vitess keyspace has one
    try:
        located = with_serving_shards(config, only=keyspace)
    except RatchetError as error:
        show([_failed(keyspace, f"{gate.host}:{gate.mysql_port} as {gate.user}", error)])
        return []
    gathered = []
    for name, shard in located.sources[keyspace].shards.items():
        identity = ShardId(keyspace, name)
        where = f"{shard.host}:{shard.port}, {shard.target}, as {shard.user}"
        try:
            facts, behind = gather_vitess(
                source_config(identity, shard), config.sources[keyspace].tables
            )
            try_vstream(located.sources[keyspace], identity)
        except RatchetError as error:
            show([_failed(str(identity), where, error)])
            continue
        show([Finding(place=str(identity), check="connection", status="ok", text=where)])
        show(judge_vitess(facts, behind, clock_bound=config.merge.clock_bound_ms / 1000))
        show(judge_position(source_config(identity, shard), identity, streams))
        gathered.append(facts)
    return judge_shards(gathered)


def _ask(config: Config, server: SourceConfig) -> ServerFacts:
    spelling = ask_spelling(server)
    server = dataclasses.replace(server, database=spelling.database)
    patterns = config.sources[server.shard.keyspace].tables
    with Session.connect(server) as session:
        return gather(
            session,
            shard=server.shard,
            host=server.host,
            user=server.user,
            database=server.database,
            patterns=dataclasses.replace(patterns, folded=spelling.folded),
            trusts_virtual=server.trusts_virtual,
        )


def _failed(place: str, where: str, error: RatchetError) -> Finding:
    # A server that is away is not fit now, whatever it will be in a minute.
    hint = error.hint if isinstance(error, OperatorError | LockedError) else ""
    hint = hint or "is the server running, and can it be reached from here?"
    text = f"{where}: {error}"
    return Finding(place=place, check="connection", status="fail", text=text, mend=hint)


def _is_running(root: str) -> bool:
    try:
        holder = read_holder(Lake.at(root))
    except LakeError:
        return False  # is a finding of its own
    return holder is not None and is_alive(holder) is not False


class _Printer:
    """Prints findings as they come: some servers are slow to answer."""

    def __init__(self, *, as_json: bool) -> None:
        self._json = as_json
        self._console = terminal(soft_wrap=True)
        self.findings: list[Finding] = []

    def add(self, findings: Iterable[Finding]) -> None:
        """Print these."""
        from rich.text import Text

        for finding in findings:
            self.findings.append(finding)
            if self._json:
                continue
            line = Text(f"{_MARKS[finding.status]}", style=_STYLES[finding.status])
            line.append(f"  {visible(finding.place):<12} ", style="default")
            told = visible(logs.clean(finding.text))
            line.append(f"{visible(finding.check):<26} {told}", style="not bold default")
            self._console.print(line)
            if finding.mend and finding.status in {"warn", "fail"}:
                self._console.print(f"      -> {visible(finding.mend)}")

    def finish(self) -> None:
        """Print the last line, or all of it as JSON."""
        counts = dict.fromkeys(_MARKS, 0)
        for finding in self.findings:
            counts[finding.status] += 1
        fit = counts["fail"] == 0
        if self._json:
            found = [dataclasses.asdict(finding) for finding in self.findings]
            print(logs.clean(json.dumps({"fit": fit, "findings": found}, indent=1)))
            return
        verdict = "fit" if fit else f"not fit: {counts['fail']} to fix"
        warnings = counted(counts["warn"], "warning")
        self._console.print(f"{verdict} ({counts['ok']} ok, {warnings})")
