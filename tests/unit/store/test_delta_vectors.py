"""Names of vectors' files are read by many threads of a run at once."""

from __future__ import annotations

import subprocess
import sys

# What a fresh process does, again and again: the module is imported, and many threads begin.
PROGRAM = """
import base64, importlib, sys, threading
from ratchet.store.delta import vectors
from ratchet.store.delta.actions import VectorDescriptor

descriptor = VectorDescriptor(
    storage="u", place="ab^-aqEH.-t@S}K{vb[*", offset=1, size=9, rows=1
)
sys.setswitchinterval(1e-6)
errors = []


def read(go):
    while not go.is_set():
        pass  # a thread that waits would wake too late
    try:
        vectors.vector_path(descriptor)
    except ValueError as error:
        errors.append(error)


for _ in range(200):
    base64._b85dec = None
    importlib.reload(vectors)
    go = threading.Event()
    threads = [threading.Thread(target=read, args=(go,)) for _ in range(4)]
    for one in threads:
        one.start()
    go.set()
    for one in threads:
        one.join()
print(errors)
"""


def test_the_first_threads_of_a_run_read_vectors_at_once() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True
    )
    assert done.stdout.strip() == "[]"
