"""Reading whole tables from a source: chunks by key, the dump into Delta tables, and verification.

May use `core`, `wire` and `store`; never `ingest`, `merge` or `jobs`.
"""
