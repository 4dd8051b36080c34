"""What a vtgate is shown of a password: nothing that anybody on the way could read."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any

import grpc
import pytest
from stranger_kit import needs_root, stranger

from ratchet import socketowners
from ratchet.core.errors import RatchetError, RetryableError, SourceUnfitError
from ratchet.wire import greeted, peer, vtgate
from ratchet.wire.vtgate import VStream, VtgateConfig, credentials

PASSWORD = "s3cret-word"


@pytest.fixture
def heard() -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """A port without TLS, and what it is told by whoever calls there."""
    told: list[dict[str, Any]] = []

    class Listener(grpc.GenericRpcHandler):
        def service(self, details: Any) -> None:
            if details.method == "/vtgateservice.Vitess/VStream":
                told.append(dict(details.invocation_metadata))
            else:
                assert PASSWORD not in str(details.invocation_metadata)

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


@needs_root
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_another_user_of_this_machine_is_not(host: str) -> None:
    with stranger("grpc") as (port, told):
        with pytest.raises(RetryableError, match="served by a process of uid 65534") as caught:
            receive(replace(gate(port), host=host))
        assert told() == ""
    assert "tls: required" in caught.value.hint
    assert PASSWORD not in str(caught.value)


def test_whose_process_it_is_is_asked_for_a_password_only(
    heard: tuple[int, list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    port, told = heard
    monkeypatch.setattr(peer, "is_trusted", lambda _: False)
    call(gate(port, password=""))
    assert len(told) == 1
    with pytest.raises(RetryableError, match="the password is not sent"):
        receive(gate(port))
    assert len(told) == 1


def test_where_the_kernel_names_nobody_it_is(
    heard: tuple[int, list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What only root can bring about; and no Linux."""
    port, told = heard
    monkeypatch.setattr(peer, "is_trusted", lambda _: False)

    def without_the_other_end(number: int) -> Any:
        return [one for one in socketowners.read_entries(number) or () if one.local[1] != number]

    for answer in (without_the_other_end, lambda _: None):
        monkeypatch.setattr(peer, "read_entries", answer)
        call(gate(port))
    assert [one["password"] for one in told] == [PASSWORD, PASSWORD]


def test_who_hangs_up_during_the_look_is_not(
    heard: tuple[int, list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """He is in the kernel's table no more, and could take the port again."""
    port, told = heard

    def hang_up(sock: Any) -> str:
        with suppress(OSError):  # it is
            sock.shutdown(socket.SHUT_RDWR)
        return ""

    monkeypatch.setattr(greeted, "distrusted", hang_up)
    with pytest.raises(RetryableError, match="UNAVAILABLE: the connection is gone"):
        receive(gate(port))
    assert not told


def test_another_streams_connection_says_nothing(
    heard: tuple[int, list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be with a vtgate that listens no more, while somebody else does."""
    port, _ = heard
    first, second = greeted.new_mark(), greeted.new_mark()
    with vtgate.open_channel(gate(port), first) as one:
        greeted.refuse_strangers(one, ("127.0.0.1", port, 5.0), first)
        monkeypatch.setattr(greeted, "_knock", lambda *_: None)
        with (
            vtgate.open_channel(gate(port), second) as other,
            pytest.raises(ConnectionError, match="the connection is gone"),
        ):
            greeted.refuse_strangers(other, ("127.0.0.1", port, 5.0), second)


def test_a_vtgate_that_is_down_is_tried_again() -> None:
    with pytest.raises(RetryableError, match="UNAVAILABLE"):
        receive(gate(1))


def test_a_stream_may_be_closed_before_it_is_open() -> None:
    for _ in range(3):
        VStream(gate(1), [("k", "-", "current")]).close()


def test_with_tls_it_may_be_sent_anywhere() -> None:
    remote = replace(gate(1), host="192.0.2.2", tls="required")
    assert credentials(remote)[1] == ("password", PASSWORD)


def call(config: VtgateConfig) -> None:
    """Open a stream; nobody there knows what that is."""
    with VStream(config, [("k", "-", "current")]) as stream, suppress(RatchetError):
        stream.receive()


def receive(config: VtgateConfig) -> None:
    with VStream(config, [("k", "-", "current")]) as stream:
        stream.receive()
