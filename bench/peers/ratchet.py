"""Peer: Ratchet itself, by its own command and with its defaults.

The command runs in this process, so that the end of Spark's start can be noted: no line of its log
says it. The seconds begin there, as those of the other peers that are Spark jobs do; they end with
the log's "dumped" (load) or "caught up" (follow). Python workers that Spark starts are counted.
"""

from __future__ import annotations

import logging
import time
from typing import Any, Final

import yaml

from bench.peers.contract import Job, Result, serve

_ENDS: Final = {"load": "dumped ", "follow": "caught up: "}


class _Clock(logging.Handler):
    """When Spark had started, and when the log had a message of each beginning."""

    def __init__(self) -> None:
        super().__init__()
        self.started = 0.0
        self.ends: dict[str, float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        for what, begin in _ENDS.items():
            if message.startswith(begin):
                self.ends[what] = time.perf_counter()


def race(job: Job) -> Result:
    """`ratchet run --until-caught-up`: a dump the first time, the log the next."""
    from ratchet.jobs import cli
    from ratchet.jobs.engine import spark

    shard = {
        "host": job.host,
        "port": job.port,
        "user": job.user,
        "password": job.password,
        "database": job.database,
    }
    sources = {"bench": {"kind": "binlog", "shards": {"-": shard}}}
    config = job.home / "ratchet.yaml"
    config.write_text(yaml.safe_dump({"lake": "./lake", "sources": sources}))
    clock, start = _Clock(), spark._start  # noqa: SLF001 - its end is what is to be noted

    def noted(*given: Any) -> Any:
        session = start(*given)
        clock.started = time.perf_counter()
        return session

    setattr(spark, "_start", noted)  # noqa: B010 - mypy forbids to assign a function
    for name in ("progress", "run"):  # below "ratchet", whose handlers the command sets
        logging.getLogger(f"ratchet.jobs.{name}").addHandler(clock)
    code = cli.invoke(["run", str(config), "--until-caught-up"])
    if code:
        raise SystemExit(code)
    return Result(
        seconds=clock.ends[job.what] - clock.started,
        rows=job.rows if job.what == "load" else job.changes,
        version=f"ratchet {cli.own_version()}",
        settings="defaults: `ratchet run --until-caught-up`",
        target={"format": "delta", "path": str(job.home / "lake" / "bench" / job.table)},
    )


if __name__ == "__main__":
    raise SystemExit(serve({"load": race, "follow": race}))
