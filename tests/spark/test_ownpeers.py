"""py4j's port: other users of the machine are refused before a byte of theirs is read."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark import SparkConf
from pyspark.java_gateway import launch_gateway

from ratchet import socketowners
from ratchet.jobs.engine import ownpeers

# Sends what never ends a line, and tells how much of it was taken: up to 50 MB.
FLOOD = """
import encodings.idna, os, socket, sys

if os.geteuid() == 0:  # only root can become somebody else
    os.setgroups([])
    os.setgid(int(sys.argv[2]))
    os.setuid(int(sys.argv[2]))
with socket.create_connection(("127.0.0.1", int(sys.argv[1])), 10) as peer:
    sent = 0
    try:
        for _ in range(50):
            peer.sendall(bytes(1 << 20))
            sent += 1
    except OSError:
        pass
    print(sent)
"""


@pytest.fixture
def gateway() -> Iterator[Any]:
    """A JVM behind py4j, without Spark in it."""
    conf = SparkConf(loadDefaults=False).set("spark.driver.memory", "512m")
    found: Any = launch_gateway(conf)  # type: ignore[no-untyped-call]
    try:
        yield found
    finally:
        found.shutdown()
        found.proc.stdin.close()
        found.proc.wait()


def port_of(gateway: Any) -> int:
    return int(gateway.java_gateway_server.getListeningPort())


def is_refused(port: int) -> bool:
    with socket.create_connection(("127.0.0.1", port), 10) as peer:
        peer.settimeout(3)
        try:
            return peer.recv(1) == b""
        except TimeoutError:
            return False  # it waits for our first line
        except ConnectionResetError:
            return True


def from_another_thread(gateway: Any) -> int:
    """What needs a connection of its own."""
    seen: list[int] = []
    thread = threading.Thread(target=lambda: seen.append(gateway.jvm.java.lang.Math.abs(-7)))
    thread.start()
    thread.join(60)
    return seen[0]


@pytest.mark.spark
def test_only_our_own_user_is_answered(gateway: Any) -> None:
    assert ownpeers.refuse_other_users(gateway)
    port = port_of(gateway)
    assert not is_refused(port)
    assert from_another_thread(gateway) == 7
    others = (65534,) if os.geteuid() == 0 else ()
    for user in (os.geteuid(), *others):
        flood = [sys.executable, "-c", FLOOD, str(port), str(user)]
        taken = int(subprocess.run(flood, check=True, stdout=subprocess.PIPE).stdout)
        # All of it; or what fits into the buffers.
        assert taken == 50 if user == os.geteuid() else taken < 20
    assert from_another_thread(gateway) == 7


@pytest.mark.spark
def test_another_users_connection_is_closed(gateway: Any) -> None:
    """As if we were the others; ours that was there before stays."""
    ownpeers.take_only(gateway, os.getuid() + 1)
    assert is_refused(port_of(gateway))
    assert is_refused(port_of(gateway))
    assert gateway.jvm.java.lang.Math.abs(-7) == 7


@pytest.mark.spark
def test_where_the_kernel_does_not_tell_nobody_is_refused(
    gateway: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ours would be refused too."""
    monkeypatch.setattr(socketowners, "TABLES", ("/proc/self/net/none",))
    assert not ownpeers.refuse_other_users(gateway)
    assert not is_refused(port_of(gateway))
