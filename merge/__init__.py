"""Brings the captured changes into the mirrored tables, in the order that docs/ordering.md proves.

Lives here: newest change per key, side tables, MERGE, cuts, upkeep. May use `core` and `store`;
never `ingest`, `snapshot`, `wire` or `jobs`.
"""
