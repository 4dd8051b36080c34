"""Whose process is at the other end of a TCP connection that does not leave this machine.

Lives here: the kernel's table of sockets (`/proc/net/tcp`, `/proc/net/tcp6`), read and parsed, who
serves an address by it (`owners`), and which users are trusted (`is_trusted`). Does not live here:
what follows from it (`wire.peer`, `jobs.engine.ownpeers`).

Invariants:
- What can still answer has a name here. A connection that nobody has accepted yet has inode 0 and
  is said to be root's, which tells nothing; but then its listener is in the table. Linux lists
  listeners first, so one who accepts and then closes his listener is seen as well.
- A table that cannot be read for another reason than that there is none is an error: another user
  could bring that about.
"""

from __future__ import annotations

import ipaddress
import os
import pwd
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

Place = tuple[str, int]  # address and port; IPv4 is never written as IPv6 here

TABLES: Final = ("/proc/self/net/tcp", "/proc/self/net/tcp6")
ACCOUNTS: Final = ("mysql", "mariadb", "vitess")
NOBODY: Final = 65534  # daemons share it, and a container shows users so whom it does not know
_FIRST_PERSON: Final = 1000  # below it are the system's accounts
_OVER: Final = frozenset({0x06, 0x07})  # TIME_WAIT and CLOSE: of a connection that was
_LISTEN: Final = 0x0A
_WORDS: Final = 10  # up to the inode
_IPV4: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One socket of the kernel's table.

    Attributes:
        local: where it is bound.
        remote: where it is connected to.
        state: the kernel's number of it.
        user: whose it is, if `inode` is not 0.
        inode: 0 while, or since, no process has it.
    """

    local: Place
    remote: Place
    state: int
    user: int
    inode: int

    @property
    def is_listening(self) -> bool:
        """Whether it takes connections."""
        return self.state == _LISTEN


@dataclass(frozen=True, slots=True, kw_only=True)
class Owners:
    """Who is at the other end of a connection.

    Attributes:
        users: whose processes listen there or have accepted it; empty if the kernel names nobody,
            as where root has made the address lead elsewhere.
        is_orphan: whether the other end is here, and nobody's any more.
    """

    users: frozenset[int]
    is_orphan: bool = False


def place(address: str, port: int) -> Place:
    """An address as it is compared here: without its zone, IPv4 as IPv4."""
    found = ipaddress.ip_address(address.partition("%")[0])
    return str(getattr(found, "ipv4_mapped", None) or found), port


def read_entries(port: int) -> list[Entry] | None:
    """The sockets at either end of which is a port; None where the kernel does not tell.

    Raises:
        OSError: the table is there and cannot be read.
    """
    texts = [text for name in TABLES if (text := _text(name)) is not None]
    return [entry for text in texts for entry in parse(text, port)] if texts else None


def parse(text: str, port: int) -> list[Entry]:
    """The sockets of one table at either end of which is a port."""
    mark = f":{port:04X} "
    found = []
    for line in text.splitlines()[1:]:
        if mark not in line:  # of thousands
            continue
        words = line.split()
        if len(words) < _WORDS:
            continue
        entry = Entry(
            local=_place(words[1]),
            remote=_place(words[2]),
            state=int(words[3], 16),
            user=int(words[7]),
            inode=int(words[9]),
        )
        if port in {entry.local[1], entry.remote[1]}:
            found.append(entry)
    return found


def owners(entries: Iterable[Entry], peer: Place, own: Place) -> Owners:
    """Who is at the other end of a connection.

    Args:
        entries: of the kernel's table.
        peer: the other end.
        own: our end.
    """
    given = tuple(entries)
    users = _listeners(given, peer)
    others = [
        one
        for one in given
        if (one.local, one.remote) == (peer, own) and not one.is_listening and peer != own
    ]
    users |= {one.user for one in others if one.inode}
    alive = any(one.state not in _OVER for one in others)
    return Owners(users=users, is_orphan=alive and not users)


def is_trusted(user: int) -> bool:
    """Whether a server of this machine may run as that user.

    Root, we ourselves, and the accounts of servers. One in a container that shares our network has
    no name here: where there is no such account, any of the system's may be it.
    """
    if user == NOBODY:
        return False
    if user in {0, os.geteuid()}:
        return True
    accounts = _accounts()
    return user in accounts if accounts else user < _FIRST_PERSON


def user_name(user: int) -> str:
    """A user for messages: the number, and the account's name if there is one."""
    try:
        return f"uid {user} ({pwd.getpwuid(user).pw_name})"
    except KeyError:
        return f"uid {user}"


def _listeners(entries: Iterable[Entry], peer: Place) -> frozenset[int]:
    """Whose are the most exact of the listeners that an address can be served by."""
    listening = [one for one in entries if one.is_listening and one.local[1] == peer[1]]
    is_ipv4 = ipaddress.ip_address(peer[0]).version == _IPV4
    # The order is the kernel's. Were they one group, a stranger's `::` that takes IPv6 alone would
    # count beside a server's 0.0.0.0.
    for address in (peer[0], *(("0.0.0.0",) if is_ipv4 else ()), "::"):  # noqa: S104 - not bound
        if found := {one.user for one in listening if one.local[0] == address}:
            return frozenset(found)
    return frozenset()


def _place(word: str) -> Place:
    """What the kernel prints: words of four bytes, each a number in the machine's order."""
    address, _, port = word.partition(":")
    raw = bytes.fromhex(address)
    if sys.byteorder == "little":
        raw = b"".join(raw[at : at + 4][::-1] for at in range(0, len(raw), 4))
    return place(str(ipaddress.ip_address(raw)), int(port, 16))


def _accounts() -> set[int]:
    found = set()
    for name in ACCOUNTS:
        try:
            found.add(pwd.getpwnam(name).pw_uid)
        except KeyError:
            continue
    return found


def _text(name: str) -> str | None:
    try:
        return Path(name).read_text(encoding="ascii")
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return None  # no Linux, no IPv6, or a sandbox
