"""Rows of benchmarks' tables as text, for LOAD DATA."""

from __future__ import annotations


def order(n: int) -> str:
    """Row number n: key, VARCHAR(40), CHAR(8), INT, TIMESTAMP(6), DECIMAL(18,2)."""
    return (
        f"{n}\tcustomer number {n:09d}\tST{n % 7:06d}\t{n * 7919 % 1000003}"
        f"\t2024-01-01 00:{n // 60 % 60:02d}:{n % 60:02d}.{n % 1000000:06d}"
        f"\t{n * 31 % 1000000}.{n % 100:02d}\n"
    )
