"""Ratchet beside what people would pick instead, on the same data and in the same run.

    python -m bench.peers [--rows N] [--changes C] [--each T] [--mix U I D]
                          [--then C T U I D ...] [--only NAME ...] [--markdown FILE] [--plot FILE]

A private MariaDB holds N rows of six columns. Each peer, one after the other and each a process of
its own, loads them into a copy; then C changes are made at once, in transactions of T rows (10), of
which of ten U are updates and D deletes of random keys and I inserts past the end (7, 1 and 2), and
behind them the same once more with the figures of each `--then`; then each peer brings its copy up
to date. What a copy holds is compared with the source, row by row, after each race.

The rate is the peer's own: from the first byte asked of the source to the last row safe in its
copy, without imports and the start of a JVM. Beside it stands the whole process, with both, and
what it and all below it used: a job that runs once pays that, one that stays does not. CPU is of
the whole process too. A peer that fails is a line that says why.

Exit code 1 if Ratchet fails, or has a row wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from bench.peers import check, source
from bench.peers.contract import Result
from bench.peers.known import PEERS, Peer, peers_python
from bench.peers.race import ROOT, measure
from bench.peers.report import Line, Outcome, good, markdown, shortfall
from lab.servers import MariadbServer

LIMIT: Final = 1800.0  # seconds that a race may take


def main() -> int:
    """Run the races; 0 if Ratchet came through them."""
    names = [peer.name for peer in PEERS]
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=_first_line())
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--changes", type=int, default=200_000)
    parser.add_argument("--each", type=int, default=10, help="changes in a transaction")
    parser.add_argument(
        "--mix", type=int, nargs=3, default=source.MIX, help="updates, inserts, deletes of ten"
    )
    parser.add_argument(
        "--then",
        type=int,
        nargs=5,
        action="append",
        default=[],
        metavar=("C", "T", "U", "I", "D"),
        help="more changes behind these; only the last ones may delete",
    )
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME")
    parser.add_argument("--markdown", type=Path, metavar="FILE")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="PNG or SVG")
    given = parser.parse_args()
    stretches = [_Stretch(given.changes, given.each, tuple(given.mix))]
    stretches += [_Stretch(count, each, tuple(mix)) for count, each, *mix in given.then]
    if any(one.mix[2] for one in stretches[:-1]):
        parser.error("keys that are gone are known to the stretch that deletes them only")
    folder = Path(tempfile.mkdtemp(prefix="ratchet-bench-"))
    load = os.getloadavg()[0]
    try:
        with source.new_server() as server:
            peers = [peer for peer in PEERS if peer.name in given.only]
            lines = _races(server, peers, given.rows, stretches, folder)
            title = (
                f"MariaDB {server.version}, {given.rows:,} rows, then "
                f"{', then '.join(map(str, stretches))}; {os.cpu_count()} cores, the "
                f"server on the same; {load:.1f} processes ran on them when it began."
            )
        text = markdown(lines, title=title)
        print(f"\n{text}")
        if given.markdown:
            given.markdown.write_text(text)
        if given.plot:
            _plot(lines, title, folder / "figures.json", given.plot)
    finally:
        shutil.rmtree(folder)
    return 0 if good(lines) else 1


@dataclass(frozen=True)
class _Stretch:
    """Changes of one kind behind each other; see `source.change` for what the numbers mean."""

    count: int
    each: int
    mix: tuple[int, ...]

    def __str__(self) -> str:
        kinds = zip(("updates", "inserts", "deletes"), self.mix, strict=True)
        parts = ", ".join(f"{part * 10} % {kind}" for kind, part in kinds if part)
        return f"{self.count:,} changes in transactions of {self.each} ({parts})"


def _first_line() -> str:
    return (__doc__ or "").splitlines()[0]


def _races(
    server: MariadbServer, peers: list[Peer], rows: int, stretches: list[_Stretch], folder: Path
) -> list[Line]:
    """All loads, the changes, all follows."""
    changes = sum(one.count for one in stretches)
    source.fill(server, rows)
    start = source.position(server)
    races = _Races(server=server, folder=folder, changes=changes, start=start)
    lines = {peer.name: Line(name=peer.name, remark=peer.remark) for peer in peers}
    for peer in peers:
        if "load" not in peer.races:
            continue
        outcome = races.run(peer, "load", rows, end=start)
        lines[peer.name] = replace(lines[peer.name], load=outcome)
    print(f"making {changes:,} changes", flush=True)
    after = rows
    for one in stretches:
        after = source.change(server, after, one.count, each=one.each, mix=one.mix)
    races.forget_contents()
    end = source.position(server)
    for peer in peers:
        if "follow" not in peer.races:
            continue
        loaded = lines[peer.name].load
        if "load" in peer.races and (loaded is None or loaded.result is None):
            outcome = Outcome(failure="there is no load to follow")
        else:
            outcome = races.run(peer, "follow", after, end=end)
        lines[peer.name] = replace(lines[peer.name], follow=outcome)
    return list(lines.values())


@dataclass(kw_only=True)
class _Races:
    """What the races of a run have in common.

    Attributes:
        server: the source.
        folder: holds each peer's own.
        changes: how many there are, behind the load.
        start: of the log, before the changes.
    """

    server: MariadbServer
    folder: Path
    changes: int
    start: dict[str, Any]
    _contents: pa.Table | None = None

    def forget_contents(self) -> None:
        """The source has changed."""
        self._contents = None

    def run(self, peer: Peer, what: str, rows: int, *, end: dict[str, Any]) -> Outcome:
        """One race, told on the way."""
        print(f"{peer.name}: {what} ...", end=" ", flush=True)
        outcome = self._run(peer, what, rows, end)
        if outcome.failure is not None:
            print(f"failed: {outcome.failure}", flush=True)
        elif outcome.result is not None and outcome.usage is not None:
            rate, wall = outcome.rate or 0, outcome.usage.wall
            print(f"{rate:,.0f}/s, {wall:.1f} s in all, wrong: {outcome.wrong}", flush=True)
        return outcome

    def _run(self, peer: Peer, what: str, rows: int, end: dict[str, Any]) -> Outcome:
        if not (ROOT / "bench" / "peers" / f"{peer.module}.py").exists():
            return Outcome(failure="it is not here")
        if not peer.python.exists():
            return Outcome(failure="the peers' environment is missing: make bench-peers")
        home = self.folder / peer.name
        home.mkdir(exist_ok=True)
        job, answer, log = (home / f"{what}.{kind}" for kind in ("job", "result", "log"))
        job.write_text(json.dumps(self._job(what, rows, home, answer, end)))
        usage = measure(
            [str(peer.python), "-m", f"bench.peers.{peer.module}", str(job)],
            log=log,
            server=self.server.daemon.pid,
            limit=LIMIT,
        )
        if usage.code or not answer.exists():
            return Outcome(failure=_last_words(log, usage.code), usage=usage)
        result = Result.read(answer)
        return self._checked(Outcome(result=result, usage=usage), result)

    def _job(
        self, what: str, rows: int, home: Path, answer: Path, end: dict[str, Any]
    ) -> dict[str, Any]:
        return {
            "what": what,
            "host": self.server.host,
            "port": self.server.port,
            "user": source.USER,
            "password": source.PASSWORD,
            "database": source.DATABASE,
            "table": source.TABLE,
            "rows": rows,
            "changes": self.changes,
            "folder": str(home),
            "start": self.start,
            "end": end,
            "result": str(answer),
        }

    def _checked(self, outcome: Outcome, result: Result) -> Outcome:
        """With what its target holds; a target that cannot be read is a failure like any other."""
        try:
            found = check.read(result.target)
        except Exception as error:  # noqa: BLE001 - whatever a peer has written, the others go on
            return replace(outcome, result=None, failure=f"its copy cannot be read: {error}"[:200])
        if found is not None:
            if self._contents is None:
                self._contents = source.contents(self.server, self.server.home / "contents.tsv")
            return replace(outcome, wrong=check.wrong_rows(self._contents, found))
        if result.check is not None:
            agree = dict(result.check) == dict(source.sums(self.server))
            return replace(outcome, sums_agree=agree)
        return outcome


def _last_words(log: Path, code: int) -> str:
    """The end of what a peer printed; all of that end is shown, its last line kept."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    print("\n  " + "\n  ".join(lines[-30:]), file=sys.stderr)
    last = lines[-1].strip() if lines else "it said nothing"
    for path, name in ((str(ROOT), "."), (str(Path.home()), "~")):
        last = last.replace(path, name)
    return f"exit code {code}: {last[:200]}".replace("|", "/")


def _plot(lines: list[Line], note: str, figures: Path, file: Path) -> None:
    """Have the picture drawn by the peers' Python."""
    figures.write_text(
        json.dumps({"load": _rates(lines, "load"), "follow": _rates(lines, "follow"), "note": note})
    )
    command = [str(peers_python()), "-m", "bench.peers.plot", str(figures), str(file.resolve())]
    subprocess.run(command, cwd=ROOT, check=True)


def _rates(lines: list[Line], what: str) -> list[tuple[str, float, str]]:
    """Name, rate, and what must be said beside a bar: that a copy is wrong, or not there."""
    found = []
    for line in lines:
        outcome = line.load if what == "load" else line.follow
        if outcome is not None and outcome.rate:
            found.append((line.name, outcome.rate, shortfall(outcome)))
    return found


if __name__ == "__main__":
    raise SystemExit(main())
