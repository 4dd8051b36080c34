"""Fuzzes Ratchet's parsers.

    python -m tests.fuzz TARGET ... [--seconds N]     coverage-guided, by atheris; `all` for all
    python -m tests.fuzz TARGET ... --mutations N     N mutations, the same in each run

What is found is written to .cache/fuzz and named; put it among the target's seeds and mend the
parser. Kernels run with numba's bounds checks under atheris, and where NUMBA_BOUNDSCHECK asks for
it. An input may take 10 seconds and 1.5 GiB.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import json
import mmap
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.fuzz.target import Target

ROOT = Path(__file__).parents[2]
FOUND = ROOT / ".cache" / "fuzz"
MODULES = ("streams", "rows", "texts", "sessions")
LONGEST = 1 << 13  # bytes of an input that atheris makes
SECONDS = 10
TO_COMPILE = 300
LARGEST = 4 << 20
ROOM = 3 << 29
# What atheris watches, but for modules with kernels: numba compiles from the bytecode as it is.
WATCHED = ("core", "ingest", "jobs", "store", "wire")


def targets() -> dict[str, Target]:
    """All targets by name."""
    import importlib

    found: dict[str, Target] = {}
    for name in MODULES:
        found |= importlib.import_module(f"tests.fuzz.{name}").TARGETS
    return found


# --- the same mutations in each run ---------------------------------------------------------------


def mutate(names: list[str], count: int | None) -> int:
    """Run seeds and mutations; a line of JSON for each target. A hang or a crash ends the process.

    Args:
        names: of targets.
        count: mutations of each; None: as many as the target says.
    """
    from tests.fuzz.target import mutations

    every = targets()
    # In C, so that it comes also while a kernel runs: the stack, and the end of the process.
    faulthandler.register(signal.SIGALRM, chain=True)
    FOUND.mkdir(parents=True, exist_ok=True)
    last = FOUND / f"last-{os.getpid()}"  # what a process that dies was at
    with last.open("wb+") as file:
        file.truncate(LARGEST)
        current = mmap.mmap(file.fileno(), LARGEST)
    for target in (every[name] for name in names):  # compiles, and takes the memory that it needs
        for data in target.seeds():
            _note(current, data, TO_COMPILE)
            with contextlib.suppress(Exception):
                target.accepts(data)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * mmap.PAGESIZE + ROOM
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    bad = 0
    for number, name in enumerate(names):
        target = every[name]
        seeds = list(target.seeds())
        inputs = target.inputs if count is None else count
        began, tried, accepted, findings = time.process_time(), 0, 0, []
        for data in (*seeds, *mutations(seeds, inputs, number)):
            _note(current, data, SECONDS)
            tried += 1
            try:
                accepted += target.accepts(data)
            except Exception as error:  # noqa: BLE001 - any is a finding
                if len(findings) < 3:
                    findings.append(_keep(name, data, "".join(traceback.format_exception(error))))
        signal.setitimer(signal.ITIMER_REAL, 0)
        bad += bool(findings)
        line: dict[str, Any] = {
            "target": name,
            "tried": tried,
            "accepted": accepted,
            "seconds": round(time.process_time() - began, 2),
            "findings": findings,
        }
        print(json.dumps(line), flush=True)
    last.unlink()
    return 1 if bad else 0


def _note(current: mmap.mmap, data: bytes, seconds: int) -> None:
    """Keep the input, and end the process if it takes so long."""
    current[:4] = len(data).to_bytes(4, "little")
    current[4 : 4 + len(data)] = data
    signal.setitimer(signal.ITIMER_REAL, seconds)


def _keep(name: str, data: bytes, what: str) -> str:
    path = FOUND / f"{name}-{os.getpid()}-{time.monotonic_ns()}"
    path.write_bytes(data)
    return f"{path.relative_to(ROOT)}\n{what}"


# --- by coverage ----------------------------------------------------------------------------------


def explore(names: list[str], seconds: int) -> int:
    """One process with atheris for each target; prints how many inputs each tried."""
    bad = 0
    for name in names:
        done = subprocess.run(
            [sys.executable, "-m", "tests.fuzz", "--inside", name, "--seconds", str(seconds)],
            cwd=ROOT,
            env={
                **os.environ,
                "NUMBA_BOUNDSCHECK": "1",
                "NUMBA_CACHE_DIR": str(ROOT / ".cache" / "fuzz-numba"),
            },
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        runs = re.findall(r"^Done (\d+) runs|^#(\d+)", done.stderr, re.MULTILINE)
        tried = max((int(a or b) for a, b in runs), default=0)
        edges = re.findall(r" ft: (\d+)", done.stderr)
        found = "" if done.returncode == 0 else f"  FOUND (exit {done.returncode}):"
        print(f"{name}: {tried} inputs, {edges[-1] if edges else '?'} features{found}", flush=True)
        if found:
            bad += 1
            print(done.stdout[-500:] + done.stderr[-4000:], flush=True)
    return 1 if bad else 0


def inside(name: str, seconds: int) -> None:
    """Fuzz one target in this process; does not return."""
    import atheris

    watched = [f"ratchet.{package}" for package in WATCHED]
    compiled = [
        ".".join(("ratchet", *path.relative_to(ROOT).with_suffix("").parts))
        for package in WATCHED
        for path in (ROOT / package).rglob("*.py")
        if "@kernel" in path.read_text()
    ]
    with atheris.instrument_imports(include=watched, exclude=compiled):
        target = targets()[name]
        from ratchet.wire.decode.engine import engine

        engine("plain")  # which imports its modules when it is first asked for
    from ratchet.wire import framing

    # Twins beside their kernels. (Not `stream.scan_rows_plain`: instrumented, it crashes Python.)
    for twin in (framing.frame_plain, framing._plain_payload):
        atheris.instrument_func(twin)
    FOUND.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="ratchet-fuzz-") as corpus:
        for number, data in enumerate(target.seeds()):
            if len(data) <= LONGEST:
                Path(corpus, str(number)).write_bytes(data)
                target.accepts(data)  # compiles
        options = {
            "max_total_time": seconds,
            "max_len": LONGEST,
            "timeout": SECONDS,
            "rss_limit_mb": 4096,
            "artifact_prefix": f"{FOUND}/{name}-",
            "print_final_stats": 0,
        }
        given = [f"-{key}={value}" for key, value in options.items()]
        atheris.Setup([sys.argv[0], *given, corpus], target.accepts)
        atheris.Fuzz()


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="+")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--mutations", type=int)
    parser.add_argument("--short", action="store_true", help="as many mutations as `make test`")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    if given.inside:
        inside(given.targets[0], given.seconds)
    names = list(targets()) if given.targets == ["all"] else given.targets
    if given.mutations is not None or given.short:
        return mutate(names, given.mutations)
    return explore(names, given.seconds)


if __name__ == "__main__":
    sys.exit(main())
