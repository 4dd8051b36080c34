"""`ratchet demo`: the first command that a newcomer types comes to its end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_the_demo_tells_its_whole_story(tmp_path: Path) -> None:
    """Each of its commands is run as a user types it; one that fails ends it."""
    home = tmp_path / "demo"
    done = subprocess.run(
        [sys.executable, "-m", "ratchet.jobs.cli", "demo", "--home", str(home), "--rows", "20000"],
        capture_output=True,
        text=True,
        check=False,
        timeout=580,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert "6. The proof" in done.stdout
    assert "identical" in done.stdout
    assert "Done in" in done.stdout
