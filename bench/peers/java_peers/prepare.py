"""Fetch and compile all that the Java peers need, before anything is measured.

    python -m bench.peers.java_peers.prepare

The first time it fetches some 300 MB; afterwards it only looks.
"""

from __future__ import annotations

from bench.peers import debezium, flink

if __name__ == "__main__":
    for program in (debezium.PROGRAM, flink.PROGRAM):
        program.prepare()
