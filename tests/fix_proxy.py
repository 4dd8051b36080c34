"""A TCP proxy that fails on command, and a listener that never answers.

`make_proxy`: a factory; `make_proxy(host, port)` gives a running `Proxy` to that address.
`deaf_port`: a port on which connections are made but nobody ever speaks.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import pytest

from lab.proxy import Proxy

__all__ = ["Proxy", "deaf_port", "make_proxy"]


@pytest.fixture
def make_proxy() -> Iterator[Callable[[str, int], Proxy]]:
    """Makes proxies to an address: `make_proxy(server.host, server.port)`."""
    made: list[Proxy] = []

    def make(host: str, port: int) -> Proxy:
        made.append(Proxy(host, port))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def deaf_port() -> Iterator[int]:
    """A port that takes connections (the system does) and never says a word."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(8)
        yield listener.getsockname()[1]
