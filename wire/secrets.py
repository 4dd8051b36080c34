"""Passwords that stay where they are: what is sent to a task names one, and does not hold it.

Lives here: the names, and how a process that has only the name gets the password. Does not live
here: which passwords there are (jobs), what they open (`connect`, `vtgate`).

Invariant: a connection's settings pickle without the password (`state_without`). Spark keeps what
it sends to tasks in the JVM's memory, and hands it out to whoever it takes for one of its own.
The passwords lie in a file without a name, in memory, that only processes of our own user can open
by way of /proc: nothing of them is on a disk, and nothing is left when we are killed.
"""

from __future__ import annotations

import base64
import os
import secrets
import stat
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from ratchet.core.errors import OperatorError

_LARGEST: Final = 1 << 24


@dataclass(frozen=True, slots=True)
class SecretName:
    """The name of a password.

    Attributes:
        name: drawn at random.
        path: where processes of our user find it, on the machine that gave the name.
        variable: the environment variable that has it on another machine; empty for none.
        sent: the password itself, where nothing else is left; see `Ways`.
    """

    name: str
    path: str
    variable: str = field(default="", compare=False)
    sent: str = field(default="", compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """How workers on other machines come by passwords; with the defaults they do not.

    Attributes:
        variables: password -> the environment variable that holds it, there as here.
        sends: whether Spark's network knows its members and is encrypted, so that passwords may
            go over it.
    """

    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    sends: bool = False


class _Vault:
    """This process's passwords, and the file that has them."""

    def __init__(self) -> None:
        self.ways = Ways()
        self._names: dict[str, str] = {}
        self._lock = threading.Lock()
        self._owner = self._file = -1

    def seal(self, password: str) -> SecretName:
        with self._lock:
            if self._owner != os.getpid():  # another process's, if we are a fork of it
                self._file = os.memfd_create("ratchet")
                os.fchmod(self._file, 0o600)
                self._owner = os.getpid()
                self._names.clear()
            if password not in self._names:
                name = secrets.token_hex(16)
                value = base64.b64encode(password.encode()).decode()
                os.write(self._file, f"{name} {value}\n".encode())
                self._names[password] = name
        return SecretName(
            name=self._names[password],
            path=f"/proc/{self._owner}/fd/{self._file}",
            variable=self.ways.variables.get(password, ""),
            sent=password if self.ways.sends else "",
        )


_vault: Final = _Vault()


def set_ways(ways: Ways) -> None:
    """What is sealed from now on can be opened in these ways, besides that of this machine."""
    _vault.ways = ways


def state_without(config: Any) -> list[Any]:
    """The state of a frozen dataclass with a `password`, for pickling."""
    return [
        sealed(getattr(config, one.name)) if one.name == "password" else getattr(config, one.name)
        for one in fields(config)
    ]


def sealed(password: str | SecretName) -> str | SecretName:
    """The name of a password; an empty one has none."""
    return _vault.seal(password) if isinstance(password, str) and password else password


def reveal(password: str | SecretName) -> str:
    """The password, where a connection is opened.

    Raises:
        OperatorError: this process cannot come by it.
    """
    if isinstance(password, str):
        return password
    found = _from_file(password)
    if found is None:
        found = os.environ.get(password.variable) if password.variable else None
    found = password.sent or None if found is None else found
    if found is None:
        variable = password.variable or "a variable that the config names as ${...}"
        raise OperatorError(
            "this worker has no password for the source",
            operation="log in",
            hint=f"set {variable} in the environment of Spark's workers, or set "
            "spark.authenticate.secret in spark.conf (docs/operations.md, 'On a Spark cluster')",
        )
    return found


def _from_file(password: SecretName) -> str | None:
    """What the giver's file says; None if there is none, as on another machine."""
    try:
        # On another machine there may be anything of that name: a pipe would make us wait.
        file = os.open(password.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode) or found.st_size > _LARGEST:
            return None
        text = os.pread(file, _LARGEST, 0)
    finally:
        os.close(file)
    for line in text.splitlines():
        name, _, value = line.partition(b" ")
        if name == password.name.encode():
            return base64.b64decode(value).decode()
    return None
