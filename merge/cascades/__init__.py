"""Rows that a server changes by foreign keys without a word in its log: derived and merged.

`follow` is what InnoDB does, as a pure function; `rows` reads what it needs from the lake and the
change files; `step` does both for a merge step (docs/decisions/0029-foreign-keys.md).
"""
