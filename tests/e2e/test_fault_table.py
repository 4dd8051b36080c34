"""Two faults of the table of faults, on both servers: its runner sees that they are overcome."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.faults.__main__ import main


@pytest.mark.long
def test_two_faults(tmp_path: Path) -> None:
    report = tmp_path / "report.md"
    only = ["--only", "server killed", "--only", "(RST)"]
    assert main([*only, "--report", str(report)]) == 0, report.read_text()
    assert "4 tries" in report.read_text()
    assert report.read_text().count(" equal |") == 4
