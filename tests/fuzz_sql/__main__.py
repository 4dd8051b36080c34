"""Statements from a grammar on a real server, and its mirror beside it.

    python -m tests.fuzz_sql --server mariadb --seed 1 --statements 500 --every 25
    python -m tests.fuzz_sql --server mysql --seed 1 --epoch 3      one epoch of that seed alone
    python -m tests.fuzz_sql --replay FILE                          a kept finding once more
    python -m tests.fuzz_sql --shrink FILE                          and as small as it gets

What is found is kept in .cache/fuzz_sql. Exit 1: something was found.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / ".cache" / "fuzz_sql"


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz_sql",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--server", choices=("mariadb", "mysql"), default="mariadb")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--statements", type=int, default=500)
    parser.add_argument("--every", type=int, default=25, help="statements between two looks")
    parser.add_argument("--epoch", type=int, help="this epoch alone")
    parser.add_argument("--findings", type=int, default=10**9, help="stop after so many")
    parser.add_argument("--without", default="", help="kinds and modes left out, with commas")
    parser.add_argument("--replay", type=Path)
    parser.add_argument("--shrink", type=Path)
    given = parser.parse_args()
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    os.environ["PYTHONPATH"] = str(ROOT)
    from tests.fuzz_sql.commands import Wish, campaign, replay
    from tests.fuzz_sql.driver import EPOCH

    with tempfile.TemporaryDirectory(prefix="ratchet-fuzz-sql-") as folder:
        if given.replay or given.shrink:
            data = json.loads((given.replay or given.shrink).read_text())
            return replay(data, Path(folder), smaller=bool(given.shrink))
        wish = Wish(
            flavor=given.server,
            seed=given.seed,
            statements=given.statements if given.epoch is None else EPOCH,
            every=given.every,
            epoch=given.epoch or 0,
            most_findings=given.findings,
            without=tuple(filter(None, given.without.split(","))),
        )
        return 1 if campaign(wish, Path(folder), KEPT).found else 0


if __name__ == "__main__":
    sys.exit(main())
