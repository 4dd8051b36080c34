"""One run for each lake: the lease, who holds it, and noticing that it was taken away.

Lives here: `_ratchet/lease.json`. Does not live here: what a run does when it lost its lease.

Invariant: at most one live process holds the lease. One that sleeps for longer than the expiry in
the middle of a commit is caught by the round log (a round's number is committed once) and by
Delta's transaction versions: the lease keeps runs from disturbing each other; correctness does not
rest on it.

A run that was killed on this machine is recognised by its pid and start time, and its lease taken
over at once. On another machine it is dead when it has not renewed for `EXPIRY_SECONDS`.
"""

from __future__ import annotations

import datetime
import logging
import os
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NoReturn, Self

from core.errors import DAMAGE, LakeError
from store import layout
from store.files import Lake

log: Final = logging.getLogger(__name__)

RENEW_SECONDS: Final = 5.0
EXPIRY_SECONDS: Final = 30.0

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Who holds a lease.

    Attributes:
        owner: random id of the run.
        host: name of its machine.
        machine: what tells whether its pid means something here: boot and pid namespace.
        pid: its process.
        process_start: the kernel's start time of that process (a pid may be used again); 0 unknown.
        command: its command line, shortened.
        started: when it got the lease, microseconds UTC.
        renewed: when it last said that it is there, microseconds UTC.
    """

    owner: str
    host: str
    machine: str
    pid: int
    process_start: int
    command: str
    started: int
    renewed: int

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Holder:
        """Read a lease file's content."""
        return cls(**{field.name: data[field.name] for field in fields(cls)})

    def describe(self) -> str:
        """For messages: command, pid, machine and since when."""
        since = datetime.datetime.fromtimestamp(self.started / 1e6, tz=datetime.UTC)
        return (
            f"`{self.command}`, pid {self.pid} on {self.host}, since {since:%Y-%m-%d %H:%M:%S} UTC"
        )


def read_holder(lake: Lake) -> Holder | None:
    """Who stands in the lease file, dead or alive; None if nobody.

    Raises:
        LakeError: the file is damaged.
    """
    return _holder(lake.read_json(layout.LEASE_FILE))


def _holder(data: Any) -> Holder | None:
    if data is None:
        return None
    try:
        found = Holder.from_json(data)
        found.describe()  # fails where a time is none
    except (*DAMAGE, OSError) as error:
        raise LakeError(
            "the lease file is damaged",
            operation="read the lease",
            hint=f"if no ratchet runs on this lake, remove {layout.LEASE_FILE} in it",
        ) from error
    return found


def is_alive(holder: Holder, now: float) -> bool:
    """Whether that run must be taken to be running at `now` (seconds since the epoch)."""
    if holder.machine and holder.machine == machine_id() and holder.process_start:
        return process_start(holder.pid) == holder.process_start
    return now - holder.renewed / 1e6 < EXPIRY_SECONDS


class Lease:
    """The lease of this process. Use `Lease.acquire`, then as a context.

    Thread-safe: `check` may be called from any thread.
    """

    def __init__(self, lake: Lake, holder: Holder, clock: Clock) -> None:
        """Strictly private: use `acquire`."""
        self._lake, self._holder, self._clock = lake, holder, clock
        self._renewed_at = time.monotonic()
        self._lost = ""
        self._end = threading.Event()
        self._thread: threading.Thread | None = None
        self._on_lost: Callable[[LakeError], None] | None = None

    @classmethod
    def acquire(
        cls,
        lake: Lake,
        command: str,
        *,
        clock: Clock = time.time,
    ) -> Lease:
        """Get the lease or say who has it.

        Args:
            lake: a lake that is ours.
            command: for messages about this run.
            clock: seconds since the epoch.

        Raises:
            LakeError: another run is alive.
        """
        now = int(clock() * 1e6)
        holder = Holder(
            owner=str(uuid.uuid4()),
            host=os.uname().nodename,
            machine=machine_id(),
            pid=os.getpid(),
            process_start=process_start(os.getpid()),
            command=command[:200],
            started=now,
            renewed=now,
        )

        def take(data: Any) -> Any:
            found = _holder(data)
            if found is not None and found.owner != holder.owner and is_alive(found, clock()):
                _refuse(found)
            return asdict(holder)

        lake.change_json(layout.LEASE_FILE, take)
        return cls(lake, holder, clock)

    @property
    def holder(self) -> Holder:
        """This run, as it stands in the file."""
        return self._holder

    def start(self, on_lost: Callable[[LakeError], None], every: float = RENEW_SECONDS) -> Self:
        """Renew in a thread from now on; `on_lost` is called there, once, if it is taken away."""
        self._on_lost = on_lost
        self._thread = threading.Thread(
            target=self._keep, args=(every,), name="ratchet-lease", daemon=True
        )
        self._thread.start()
        return self

    def check(self) -> None:
        """Call before anything is committed.

        Raises:
            LakeError: the lease was taken away, or may have been (this process was stopped or could
                not reach the lake for longer than the expiry).
        """
        if not self._lost and time.monotonic() - self._renewed_at > EXPIRY_SECONDS:
            self._lost = "it could not be renewed in time"
        if self._lost:
            raise self._lost_error()

    def renew(self) -> None:
        """Say that this run is there.

        Raises:
            LakeError: the lease was taken away, or the lake cannot be reached.
        """

        def extend(data: Any) -> Any:
            found = _holder(data)
            if found is None or found.owner != self._holder.owner:
                who = found.describe() if found else "nobody: the lease file was removed"
                self._lost = f"it is now held by {who}"
                raise self._lost_error()
            self._holder = replace(self._holder, renewed=int(self._clock() * 1e6))
            return asdict(self._holder)

        self._lake.change_json(layout.LEASE_FILE, extend)
        self._renewed_at = time.monotonic()

    def release(self) -> None:
        """Stop renewing, and give the lease back if it is still ours."""
        self._end.set()
        if self._thread is not None:
            self._thread.join()

        def give_back(data: Any) -> Any:
            found = _holder(data)
            ours = found is not None and found.owner == self._holder.owner
            # In an object store it might become another's just before it is removed, unless nobody
            # may take it over yet.
            safe = self._lake.is_local or not self._is_lost()
            return None if ours and safe else data

        self._lake.change_json(layout.LEASE_FILE, give_back)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.release()
        except LakeError as failure:
            if error is None:
                raise
            # A lake that fails is why we are here: the first error says what to do about it. Nobody
            # is kept out by a lease of a process that has ended.
            log.warning("the lease stays where it is: %s", failure)

    def _keep(self, every: float) -> None:
        while not self._end.wait(every):
            try:
                self.renew()
            except LakeError as error:
                # A lake out of reach is no loss yet: `check` judges by the time since the last
                # renewal, and so does every other run.
                if self._is_lost():
                    if self._on_lost is not None:
                        self._on_lost(self._lost_error() if self._lost else error)
                    return

    def _is_lost(self) -> bool:
        return bool(self._lost) or time.monotonic() - self._renewed_at > EXPIRY_SECONDS

    def _lost_error(self) -> LakeError:
        return LakeError(
            f"this run lost its lease: {self._lost}",
            operation="keep the lease",
            hint="let one of the two runs end; whatever this one had committed stays valid",
        )


def _refuse(found: Holder) -> NoReturn:
    raise LakeError(
        f"another run holds this lake: {found.describe()}",
        operation="start",
        hint="wait for it to end, or stop it (it stops cleanly on SIGTERM); a run that was killed "
        f"on another machine is given up {EXPIRY_SECONDS:.0f} s after its last sign of life",
    )


def machine_id() -> str:
    """What is the same for two processes exactly if they see each other's pids; "" if unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}:{Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""  # no /proc: then the expiry decides


def process_start(pid: int) -> int:
    """The kernel's start time of a process in clock ticks since boot; 0 if there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    state, *rest = text.rpartition(")")[2].split()
    # A zombie has ended; only its parent has not looked yet.
    return 0 if state in {"Z", "X"} else int(rest[18])
