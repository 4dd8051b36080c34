"""Faults, tried one by one against the real thing: `python -m bench.faults [options]`.

    --only TEXT     faults, or scenes, whose names contain it; may be given several times
    --times N       how often each is tried in each scene (1)
    --limit S       seconds after which a change that is not seen never is (each fault's own)
    --outcomes FILE what came out is added to it; what it has already is not tried again
                    (but for what was not tried)
    --report FILE   where the table goes, beside the output; of all outcomes
    --list          only tell which there are

A scene is set up once for all its faults, and anew behind one that comes out badly. Where a
supervisor would start the run again, this does. Exit code 1: a change was never seen, or rows
differ.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from bench.faults import scenes
from bench.faults.alone import ALONE
from bench.faults.machine import MACHINE
from bench.faults.processes import PROCESSES
from bench.faults.report import as_markdown
from bench.faults.spark import SPARK
from bench.faults.trial import NOT_TRIED, Fault, Outcome, tried
from bench.lib.following import ROOT

FAULTS: Final[tuple[Fault, ...]] = (*ALONE, *PROCESSES, *SPARK, *MACHINE)
SCENES: Final[Mapping[str, scenes.Make]] = {
    "mariadb": scenes.one("mariadb"),
    "mysql": scenes.one("mysql"),
    "both servers": scenes.both,
    "lake on a small disk": scenes.with_small_disk,
    "small temporary folder": scenes.with_small_temp,
    "a clock of its own": scenes.with_clock,
    "cluster, S3": scenes.cluster(remembers=False),
    "cluster with a memory, S3": scenes.cluster(remembers=True),
    "heap of 1 GB": scenes.heap("1g"),
    "heap of 2 GB": scenes.heap("2g"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Try the faults that are asked for."""
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--limit", type=float)
    parser.add_argument("--outcomes", type=Path)
    parser.add_argument("--report", type=Path)
    parser.add_argument("--list", action="store_true")
    given = parser.parse_args(arguments)
    kept = _read(given.outcomes)
    done = {(one.name, one.scene) for one in kept}
    asked = [
        (fault, scene)
        for scene in SCENES
        for fault in FAULTS
        if scene in fault.scenes
        and (not given.only or any(text in f"{fault.name}, {scene}" for text in given.only))
        and (fault.name, scene) not in done
    ]
    if given.list:
        print("\n".join(f"{fault.name} ({scene})" for fault, scene in asked))
        return 0
    if given.limit:
        asked = [(replace(fault, limit=given.limit), scene) for fault, scene in asked]
    for outcome in _outcomes([one for one in asked for _ in range(given.times)]):
        kept.append(outcome)
        print(f"{datetime.now(UTC):%H:%M:%S} {json.dumps(asdict(outcome))}", flush=True)
        if given.outcomes:
            with given.outcomes.open("a") as file:
                file.write(json.dumps(asdict(outcome)) + "\n")
    order = {fault.name: number for number, fault in enumerate(FAULTS)}
    places = {name: number for number, name in enumerate(SCENES)}
    kept.sort(key=lambda one: (order.get(one.name, -1), places.get(one.scene, -1)))
    known = {(one.name, one.scene) for one in kept}
    pairs = [(fault.name, scene) for fault in FAULTS for scene in fault.scenes]
    missing = [f"{name} ({scene})" for name, scene in pairs if (name, scene) not in known]
    text = as_markdown(kept, _where(), missing)
    print(text)
    if given.report:
        given.report.write_text(text)
    return 0 if all(one.is_good for one in kept) else 1


def _outcomes(asked: Sequence[tuple[Fault, str]]) -> Iterator[Outcome]:
    """Each fault in its scene, which stays for as long as all comes out well."""
    current = ""
    with ExitStack() as ends:
        for number, (fault, name) in enumerate(asked):
            if name != current:
                ends.close()
                home = Path(tempfile.mkdtemp(prefix="ratchet-faults-"))
                scene, current = ends.enter_context(SCENES[name](home)), name
            outcome = tried(fault, name, scene, seed=number)
            yield outcome
            if not outcome.is_good:
                print(f"the run's config and logs stay in {home}", flush=True)
                ends.close()
                current = ""
            elif number + 1 == len(asked) or asked[number + 1][1] != name:
                ends.close()
                current = ""
                shutil.rmtree(home, ignore_errors=True)


def _read(path: Path | None) -> list[Outcome]:
    if path is None or not path.exists():
        return []
    found = [json.loads(line) for line in path.read_text().splitlines()]
    outcomes = [Outcome(**{**one, "notes": tuple(one["notes"])}) for one in found]
    return [one for one in outcomes if one.did != NOT_TRIED]


def _where() -> str:
    command = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, at {commit.strip() or 'no commit'}; "
        f"{os.cpu_count()} cores, {memory:.0f} GB; load {os.getloadavg()[2]:.1f} at the end "
        "(15 minutes' mean)."
    )


if __name__ == "__main__":
    sys.exit(main())
