"""Variables of the environment that name a proxy lead no password to it."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from ratchet.wire.vtgate import VtgateConfig, open_channel


@pytest.fixture
def listeners() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Where a vtgate and where a proxy would listen."""
    with (
        socket.create_server(("127.0.0.1", 0)) as one,
        socket.create_server(("127.0.0.1", 0)) as two,
    ):
        for each in (one, two):
            each.settimeout(60)
        yield one, two


def test_no_proxy_is_asked(
    listeners: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    vtgate, proxy = listeners
    for name in ("no_proxy", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name in ("grpc_proxy", "https_proxy", "http_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.getsockname()[1]}")
    config = VtgateConfig(host="127.0.0.1", port=vtgate.getsockname()[1])
    with open_channel(config, 10_000) as channel:
        call = channel.unary_unary("/any/Thing").future(b"", timeout=60)
        vtgate.accept()[0].close()
        call.cancel()
    proxy.settimeout(0.2)
    with pytest.raises(TimeoutError):
        proxy.accept()
