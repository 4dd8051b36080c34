"""Whose process is at the other end of a connection, by the kernel's table."""

from __future__ import annotations

import os
import pwd
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from ratchet import socketowners
from ratchet.socketowners import Owners, is_trusted, owners, parse, place, read_entries, user_name

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout"
LISTEN, OPEN, FIN_WAIT, TIME_WAIT = 0x0A, 0x01, 0x04, 0x06
PORT = 3306
PEER = ("127.0.0.1", PORT)
OWN = ("127.0.0.1", 50000)


def printed(address: str, port: int) -> str:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    raw = socket.inet_pton(family, address)
    if sys.byteorder == "little":
        raw = b"".join(raw[at : at + 4][::-1] for at in range(0, len(raw), 4))
    return f"{raw.hex().upper()}:{port:04X}"


def line(local: str, remote: str, state: int, user: int, inode: int) -> str:
    """As Linux prints it; a listener that nobody has connected to has inode 7, say."""
    return (
        f"   1: {local} {remote} {state:02X} 00000000:00000000 00:00000000 00000000 "
        f"{user:5}        0 {inode} 1 0000000000000000 100 0 0 10 0"
    )


def listener(address: str, user: int, port: int = PORT) -> str:
    nowhere = printed("::" if ":" in address else "0.0.0.0", 0)
    return line(printed(address, port), nowhere, LISTEN, user, 7)


def accepted(user: int, inode: int, state: int = OPEN, mapped: str = "") -> str:
    """The server's end of our connection."""
    return line(
        printed(mapped + PEER[0], PEER[1]), printed(mapped + OWN[0], OWN[1]), state, user, inode
    )


def found(*lines: str, peer: str = "127.0.0.1", own: str = "127.0.0.1") -> Owners:
    entries = parse("\n".join([HEAD, *lines]), PORT)
    return owners(entries, place(peer, PORT), place(own, OWN[1]))


def test_a_line_of_the_kernel() -> None:
    if sys.byteorder != "little":
        pytest.skip("the lines are of such a machine")
    text = (
        f"{HEAD}\n"
        "   0: 0100007F:0CEA 00000000:0000 0A 00000000:00000000 00:00000000 00000000   999"
        "        0 1594 1 00000000a3d7f04e 100 0 0 10 0\n"
        "   1: 0000000000000000FFFF00000100007F:0CEA 0000000000000000FFFF00000100007F:C350 01"
        " 00000000:00000000 00:00000000 00000000   998        0 77 1 0000000067e57a89\n"
        "   2: 0100007F:0CEB 0100007F:8358 06 00000000:00000000 03:00001760 00000000     0"
        "        0 0 3 00000000683ea86c\n"
        "   3: 00000000000000000000000001000000:0CEA 00000000000000000000000000000000:0000 0A "
        "00000000:00000000 00:00000000 00000000     0        0 9 1 0000000067e57a89 100 0 0 10 0\n"
        "   4: broken 0100007F:0CEA \n"
    )
    first, second, third = parse(text, PORT)
    assert (first.local, first.remote, first.user) == (PEER, ("0.0.0.0", 0), 999)
    assert (first.is_listening, first.inode) == (True, 1594)
    assert (second.local, second.remote, second.user) == (PEER, OWN, 998)
    assert (second.is_listening, second.state) == (False, OPEN)
    assert third.local == ("::1", PORT)


def test_addresses_are_compared_in_one_form() -> None:
    assert place("::ffff:127.0.0.1", 1) == ("127.0.0.1", 1)
    assert place("fe80::1%lo", 1) == ("fe80::1", 1)
    assert place("0:0:0:0:0:0:0:1", 1) == ("::1", 1)


@pytest.mark.parametrize(
    ("listeners", "users"),
    [
        ([("127.0.0.1", 1)], {1}),
        ([("0.0.0.0", 1)], {1}),
        ([("::", 1)], {1}),
        ([("::ffff:127.0.0.1", 1)], {1}),
        ([("::ffff:0.0.0.0", 1)], {1}),
        ([("127.0.0.1", 1), ("0.0.0.0", 2), ("::", 3)], {1}),
        ([("0.0.0.0", 2), ("::", 3)], {2}),
        ([("127.0.0.1", 1), ("::ffff:127.0.0.1", 2)], {1, 2}),
        ([("127.0.0.2", 1), ("::1", 2)], set()),
    ],
)
def test_the_most_exact_listener_serves(listeners: list[tuple[str, int]], users: set[int]) -> None:
    for order in (listeners, listeners[::-1]):
        assert found(*(listener(*one) for one in order)).users == users


def test_ipv6_is_served_by_ipv6() -> None:
    both = [listener("::1", 1), listener("::", 2), listener("0.0.0.0", 3)]
    assert found(*both, peer="::1", own="::1").users == {1}
    assert found(*both[1:], peer="::1", own="::1").users == {2}
    assert found(*both[2:], peer="::1", own="::1").users == set()


def test_another_ports_listener_is_nobody() -> None:
    assert found(listener("127.0.0.1", 1, port=OWN[1])).users == set()
    assert found(listener("127.0.0.1", 1, port=0xCEA0)).users == set()


@pytest.mark.parametrize("mapped", ["", "::ffff:"])
def test_whoever_has_accepted_counts_as_well(mapped: str) -> None:
    one = accepted(2, 11, mapped=mapped)
    assert found(listener("127.0.0.1", 1), one).users == {1, 2}
    assert found(one, own="::ffff:127.0.0.1", peer="::ffff:127.0.0.1").users == {2}


def test_the_queue_says_nothing_but_its_listener_does() -> None:
    """Nobody has accepted yet: it would be root's."""
    queued = accepted(0, 0)
    assert found(listener("127.0.0.1", 4711), queued) == Owners(users=frozenset({4711}))
    assert found(queued) == Owners(users=frozenset(), is_orphan=True)
    assert found(accepted(0, 0, FIN_WAIT)).is_orphan


def test_what_was_is_not_what_is() -> None:
    """The end of an earlier connection between the same ports."""
    assert found(accepted(0, 0, TIME_WAIT)) == Owners(users=frozenset())


def test_our_own_end_is_not_the_other() -> None:
    ours = line(printed(*OWN), printed(*PEER), OPEN, 5, 12)
    assert found(ours) == Owners(users=frozenset())
    itself = line(printed(*PEER), printed(*PEER), OPEN, 5, 12)  # a socket connected to itself
    entries = parse(f"{HEAD}\n{itself}", PORT)
    assert owners(entries, PEER, PEER) == Owners(users=frozenset())


def accounts(patch: pytest.MonkeyPatch, **known: int) -> None:
    def look_up(name: str) -> Any:
        if name not in known:
            raise KeyError(name)
        return pwd.struct_passwd((name, "x", known[name], known[name], "", "/", ""))

    patch.setattr(pwd, "getpwnam", look_up)


def test_whom_we_trust(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    accounts(monkeypatch, mysql=111)
    assert [user for user in (0, 4711, 111, 112, 999, 1000, 65534) if is_trusted(user)] == [
        0, 4711, 111,
    ]  # fmt: skip
    accounts(monkeypatch, mysql=111, mariadb=3000)
    assert [user for user in (111, 999, 3000) if is_trusted(user)] == [111, 3000]
    accounts(monkeypatch)
    assert [user for user in (1, 999, 1000, 3000, 65534) if is_trusted(user)] == [1, 999]


def test_nobody_is_never_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even if it is us, or the server's: many may be it."""
    monkeypatch.setattr(os, "geteuid", lambda: 65534)
    accounts(monkeypatch, mysql=65534)
    assert not is_trusted(65534)


def test_a_user_for_messages() -> None:
    assert user_name(0) == "uid 0 (root)"
    assert user_name(2_000_000_001) == "uid 2000000001"


def test_the_kernel_knows_us() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        name = server.getsockname()
        with socket.create_connection(name) as near:
            entries = read_entries(name[1])
            if entries is None:
                pytest.skip("the kernel does not tell")
            assert {one.user for one in entries if one.is_listening} == {os.geteuid()}
            assert owners(entries, name, near.getsockname()).users == {os.geteuid()}


def test_where_the_kernel_does_not_tell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(socketowners, "TABLES", (str(tmp_path / "none"),))
    assert read_entries(1) is None


def test_a_table_that_cannot_be_read_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Another user could use up what it takes to read it."""
    monkeypatch.setattr(socketowners, "TABLES", (str(tmp_path),))
    with pytest.raises(IsADirectoryError):
        read_entries(1)
