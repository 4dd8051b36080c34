"""What a vtgate is shown of a password: nothing that anybody on the way could read."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any

import grpc
import pytest

from ratchet.core.errors import RatchetError, SourceUnfitError
from ratchet.wire import vtgate
from ratchet.wire.vtgate import VStream, VtgateConfig, credentials

PASSWORD = "s3cret-word"


@pytest.fixture
def heard() -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """A port without TLS, and what it is told by whoever calls there."""
    told: list[dict[str, Any]] = []

    class Listener(grpc.GenericRpcHandler):
        def service(self, details: Any) -> None:
            told.append(dict(details.invocation_metadata))

    with ThreadPoolExecutor(1) as pool:
        server = grpc.server(pool, handlers=[Listener()])
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        yield port, told
        server.stop(None).wait()


def gate(port: int, **more: Any) -> VtgateConfig:
    given = {"user": "mirror", "password": PASSWORD, "tls": "disabled", **more}
    return VtgateConfig(host="127.0.0.1", port=port, **given)


def test_this_machine_is_shown_it(heard: tuple[int, list[dict[str, Any]]]) -> None:
    port, told = heard
    call(gate(port))
    assert [one["password"] for one in told] == [PASSWORD]


def test_another_machine_is_not_without_tls(
    heard: tuple[int, list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the config says, and whoever answers there."""
    port, told = heard
    monkeypatch.setattr(vtgate, "is_local", lambda _: False)
    with pytest.raises(SourceUnfitError, match="the password is not sent") as caught:
        call(gate(port))
    assert not told
    assert "tls: required" in caught.value.hint
    assert PASSWORD not in str(caught.value)
    call(gate(port, password=""))
    assert [one.get("password") for one in told] == [""]


def test_with_tls_it_may_be_sent_anywhere() -> None:
    remote = replace(gate(1), host="192.0.2.2", tls="required")
    assert credentials(remote)[1] == ("password", PASSWORD)


def call(config: VtgateConfig) -> None:
    """Open a stream; nobody there knows what that is."""
    with VStream(config, [("k", "-", "current")]) as stream, suppress(RatchetError):
        stream.receive()
