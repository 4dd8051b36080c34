"""Says in pytest's header which decoder the run uses (RATCHET_DECODE)."""

from __future__ import annotations

from ratchet.wire.decode.engine import engine


def pytest_report_header() -> str:
    return f"decoder: {engine().name}"
