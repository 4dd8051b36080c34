"""Ten minutes of a soak: two servers, a kill a minute, all rows equal at the end."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.soak.__main__ import main


@pytest.mark.long
def test_ten_minutes(tmp_path: Path) -> None:
    report = tmp_path / "report.md"
    load = ["--hours", "0.16", "--tables", "10", "--rate", "200", "--kill-every", "60"]
    assert main([*load, "--report", str(report)]) == 0, report.read_text()
    assert ", 0 tables differ." in report.read_text()
