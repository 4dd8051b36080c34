"""One run for each lake: the lease, who holds it, and noticing that it was taken away.

Lives here: `_ratchet/lease.json`. Does not live here: what a run does when it lost its lease, what
is done when one is taken away (`takeover`).

The lease keeps runs from disturbing each other; correctness does not rest on it. A process may
stand still for longer than the expiry between a look at the lease and a write: what it writes then
is refused by its epoch, which is too low (`commits`, `notes`).

A run that ends without an error leaves its epoch in the lease file, and the next one goes on with
it. Behind everything else (a run that was killed, or ended by an error, a file that is gone) the
next one takes the lake over, with a new epoch.

A run that was killed on this machine is recognised by its pid and start time. On another machine it
is dead when its renewals stand still for `EXPIRY_SECONDS` of the watcher's own time: no clocks of
two machines are ever compared.

Invariant: at most one process that is not late holds the lease.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NoReturn, Self

from ratchet.core.committimes import moment
from ratchet.core.errors import DamagedFileError, LakeAwayError, LakeError
from ratchet.store import layout
from ratchet.store.crashpoints import reach
from ratchet.store.failures import damage_hint, sound
from ratchet.store.fields import flag_of, number_of, text_of
from ratchet.store.filelock import StuckLockError
from ratchet.store.files import Lake
from ratchet.store.takeover import claim, go_on, newest_epoch, refuse_older_rounds, take_over

log: Final = logging.getLogger(__name__)

RENEW_SECONDS: Final = 5.0
EXPIRY_SECONDS: Final = 30.0
_LEAP: Final = 1_000_000  # epochs: a take-over every half minute for a year
_LOOK_SECONDS: Final = 1.0  # between two looks at the renewals of another machine's run
MACHINE: Final = "RATCHET_TEST_MACHINE"  # lets a test be on another machine

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
        renewed: when it last said that it is there, microseconds UTC, by its clock.
        epoch: the lake's; 0: not known yet, or written by a version without epochs.
        released: whether it has ended, without an error: then it is there no more.
    """

    owner: str
    host: str
    machine: str
    pid: int
    process_start: int
    command: str
    started: int
    renewed: int
    epoch: int = 0
    released: bool = False

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Holder:
        """Read a lease file's content; earlier versions wrote no epoch.

        Raises what `core.errors.DAMAGE` names if a field is not what we write.
        """
        whole = {"epoch": 0, "released": False, **data}
        return cls(
            owner=text_of(whole, "owner"),
            host=text_of(whole, "host"),
            machine=text_of(whole, "machine"),
            pid=number_of(whole, "pid"),
            process_start=number_of(whole, "process_start"),
            command=text_of(whole, "command"),
            started=number_of(whole, "started"),
            renewed=number_of(whole, "renewed"),
            epoch=number_of(whole, "epoch"),
            released=flag_of(whole, "released"),
        )

    def describe(self) -> str:
        """For messages: command, pid, machine and since when."""
        since = moment(self.started)
        return f"`{self.command}`, pid {self.pid} on {self.host}, since {since} UTC"

    @property
    def last_sign(self) -> str:
        """For messages: when it last said that it is there, which only its own clock tells."""
        return f"last sign of life at {moment(self.renewed)} UTC by its clock"


def read_holder(lake: Lake) -> Holder | None:
    """Who holds the lease, dead or alive; None if nobody.

    Raises:
        LakeError: the file is damaged.
    """
    found = _holder(lake.read_json(layout.LEASE_FILE))
    return None if found is None or found.released else found


def _holder(data: Any) -> Holder | None:
    if data is None:
        return None
    with sound(layout.LEASE_FILE):
        return Holder.from_json(data)


def _refuse_leap(lake: Lake, found: Holder) -> None:
    """Let no epoch into the lake that no holder can have had.

    An epoch is claimed in the log of rounds before it stands in the lease. It is higher here only
    if that log was put back from a backup: by one for each take-over since, far fewer than `_LEAP`.

    Raises:
        LakeError: it is too high.
    """
    if found.epoch <= _LEAP:
        return
    newest = newest_epoch(lake)
    if found.epoch > newest + _LEAP:
        raise LakeError(
            f"{layout.LEASE_FILE} is damaged: it has epoch {found.epoch}, the lake's is {newest}",
            operation="read the lease",
            hint=damage_hint(layout.LEASE_FILE),
        )


def is_alive(holder: Holder) -> bool | None:
    """Whether that run is there; None if that cannot be told at a glance (another machine's)."""
    if holder.machine and holder.machine == machine_id() and holder.process_start:
        return process_start(holder.pid) == holder.process_start
    return None


@dataclass(frozen=True, slots=True)
class Time:
    """How time passes, for whoever waits for a lease; tests have another.

    Attributes:
        clock: seconds since the epoch.
        monotonic: seconds, which never go back.
        sleep: lets so many pass.
    """

    clock: Clock = time.time
    monotonic: Clock = time.monotonic
    sleep: Callable[[float], None] = time.sleep


REAL_TIME: Final = Time()


class Lease:
    """The lease of this process. Use `Lease.acquire`, then as a context.

    Thread-safe: `check` may be called from any thread.
    """

    def __init__(self, lake: Lake, holder: Holder, clock: Clock) -> None:
        """Strictly private: use `acquire`."""
        self._lake, self._holder, self._clock = lake, holder, clock
        self._renewed_at = time.monotonic()
        self._lost = ""
        self._unclean = False
        self._continues = False
        self._overtaken = ""  # owner from whom the lake was taken over
        self._end = threading.Event()
        self._thread: threading.Thread | None = None
        self._on_lost: Callable[[LakeError], None] | None = None

    @classmethod
    def acquire(cls, lake: Lake, command: str, *, passing: Time = REAL_TIME) -> Lease:
        """Get the lease or say who has it; from here on `lake` is the one to work with.

        A run of another machine is watched for a while before it is given up. Then, and behind
        every end that was not clean, the lake is taken over.

        Args:
            lake: a lake that is ours.
            command: for messages about this run.
            passing: how time passes.

        Raises:
            LakeError: another run is alive, or was faster.
        """
        now = int(passing.clock() * 1e6)
        mine = Holder(
            owner=str(uuid.uuid4()),
            host=os.uname().nodename,
            machine=machine_id(),
            pid=os.getpid(),
            process_start=process_start(os.getpid()),
            command=command[:200],
            started=now,
            renewed=now,
        )
        _give_up_damaged(lake, passing)
        while True:
            found = _holder(lake.read_json(layout.LEASE_FILE))
            if found is not None:
                _refuse_leap(lake, found)
            gone = found if found is not None and not found.released else None
            if gone is not None:
                _see_gone(lake, gone, passing)
            try:
                if _take(lake, found, mine):
                    break
            except StuckLockError as error:
                # It stood still in the very moment in which it changed the lease. What it writes
                # there when it is awake, the next holder takes back (`renew`).
                if gone is None or not error.is_held_by(gone.pid, gone.host):
                    raise
                log.warning("%s; the lock is taken away from it", error)
                error.remove()
        lease = cls(lake, mine, passing.clock)
        lease._overtaken = "" if gone is None else gone.owner
        try:
            lease._begin(found)
        except BaseException:
            lease.give_up()
            raise
        return lease

    def _begin(self, before: Holder | None) -> None:
        """Go on with the epoch of who was there before, or take the lake over."""
        refuse_older_rounds(self._lake)  # before anything is changed
        if before is not None and before.released:
            held = go_on(self._lake, before.epoch)
            if held is not None:
                self._lake = held
                self._holder = replace(self._holder, epoch=held.epoch)
                self._continues = True
                return
        owner = self._holder.owner
        self._lake = claim(self._lake, 0 if before is None else before.epoch, owner)
        self._holder = replace(self._holder, epoch=self._lake.epoch)
        self.renew()
        take_over(self._lake, owner, self._renew_if_due, now=self._holder.started)

    @property
    def continues(self) -> bool:
        """Whether the holder before ended cleanly: it has left nothing half made."""
        return self._continues

    @property
    def lake(self) -> Lake:
        """The lake with its epoch: whatever is committed must be committed by it."""
        return self._lake

    @property
    def holder(self) -> Holder:
        """This run, as it stands in the file."""
        return self._holder

    def start(self, on_lost: Callable[[LakeError], None], every: float = RENEW_SECONDS) -> Self:
        """Renew in a thread from now on; `on_lost` is called there if it is taken away.

        It is told as well, once for each time, that the lease cannot be renewed for too long.
        """
        self._on_lost = on_lost
        self._thread = threading.Thread(
            target=self._keep, args=(every,), name="ratchet-lease", daemon=True
        )
        self._thread.start()
        return self

    def check(self) -> None:
        """Call before anything is committed.

        Raises:
            LakeError: the lease was taken away.
            LakeAwayError: it may have been: this process was stopped, or could not reach the lake,
                for longer than the expiry. `renew` tells whether it is still ours.
        """
        if self._lost:
            raise self._lost_error()
        if self._is_overdue():
            raise LakeAwayError(
                f"the lease could not be renewed for {EXPIRY_SECONDS:.0f} s",
                operation="keep the lease",
                hint="the lake was out of reach, or this process stood still; start again",
            )

    def renew(self) -> None:
        """Say that this run is there.

        Raises:
            LakeError: the lease was taken away, or the lake cannot be reached.
        """

        def extend(data: Any) -> Any:
            found = _holder(data)
            reach("lease.renewing")
            if found is not None and self._is_late(found):
                log.warning(
                    "%s runs again, but too late: the lease is taken back", found.describe()
                )
            elif found is None or found.owner != self._holder.owner:
                who = found.describe() if found else "nobody: the lease file was removed"
                self._lost = f"it is now held by {who}"
                raise self._lost_error()
            self._holder = replace(self._holder, renewed=int(self._clock() * 1e6))
            return asdict(self._holder)

        self._lake.change_json(layout.LEASE_FILE, extend)
        self._renewed_at = time.monotonic()

    def _is_late(self, found: Holder) -> bool:
        """Whether that is one from whom the lake was taken over, by us or before us."""
        if found.owner == self._holder.owner:
            return False  # it stands there with the epoch of before until it is renewed
        return found.owner == self._overtaken or 0 < found.epoch < self._holder.epoch

    def spoil(self) -> None:
        """Something of this run may still be at work when it ends: the next one takes over."""
        self._unclean = True

    def release(self) -> None:
        """Stop renewing, and give the lease back if it is still ours: nothing is at work any more.

        The next holder goes on with our epoch, unless `spoil` was called.
        """
        self._end.set()
        if self._thread is not None:
            self._thread.join()

        def give_back(data: Any) -> Any:
            found = _holder(data)
            if found is None or found.owner != self._holder.owner:
                if found is not None and not self._is_late(found):
                    self._lost = f"it is now held by {found.describe()}"
                return data
            return asdict(replace(self._holder, released=True, epoch=self._left))

        self._lake.change_json(layout.LEASE_FILE, give_back)

    @property
    def _left(self) -> int:
        """The epoch that the next holder may go on with; 0: none."""
        return 0 if self._unclean or self._lost else self._holder.epoch

    def give_up(self) -> None:
        """As `release`, where something has failed: the next holder takes the lake over."""
        self.spoil()
        self.release()

    def _renew_if_due(self) -> None:
        if time.monotonic() - self._renewed_at > RENEW_SECONDS:
            self.renew()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self.release()
                if self._lost:  # what was noted last may not be in the notes of the new holder
                    raise self._lost_error()
            else:
                self.give_up()
        except LakeError as failure:
            if error is None:
                raise
            # A lake that fails is why we are here: the first error says what to do about it. Nobody
            # is kept out by a lease of a process that has ended.
            log.warning("the lease stays where it is: %s", failure)

    def _keep(self, every: float) -> None:
        told = False
        while not self._end.wait(every):
            try:
                self.renew()
                told = False
            except LakeError as error:
                # A lake out of reach is no loss yet: `check` judges by the time since the last
                # renewal, and so does every other run.
                if self._on_lost is not None and (self._lost or self._is_overdue()) and not told:
                    told = True
                    self._on_lost(self._lost_error() if self._lost else error)
                if self._lost:
                    return

    def _is_overdue(self) -> bool:
        return time.monotonic() - self._renewed_at > EXPIRY_SECONDS

    def _lost_error(self) -> LakeError:
        return LakeError(
            f"this run lost its lease: {self._lost}",
            operation="keep the lease",
            hint="let only one of the two run; what this one had committed stays valid. A command "
            "that ends by itself: give it again",
        )


def _take(lake: Lake, found: Holder | None, mine: Holder) -> bool:
    """Put ourselves into the lease file; False if it is not as it was found any more."""
    taken = False

    def take(data: Any) -> Any:
        nonlocal taken
        taken = _holder(data) in {found, mine}  # ours: the answer to our write was lost
        if not taken:
            return data
        # The epoch stays, for whoever comes if we are killed before we have one of our own.
        return asdict(replace(mine, epoch=found.epoch if found else 0))

    lake.change_json(layout.LEASE_FILE, take)
    return taken


def _give_up_damaged(lake: Lake, passing: Time) -> None:
    """Remove a lease that nobody can read, unless somebody writes another one for a while."""
    end = passing.monotonic() + EXPIRY_SECONDS
    told = False
    while True:
        try:
            read_holder(lake)
        except DamagedFileError as error:
            if not told:
                log.warning("%s; waiting %.0f s for a sign of life", error.message, EXPIRY_SECONDS)
                told = True
        else:
            return
        if passing.monotonic() >= end:
            # Its epoch stands in the log of rounds as well.
            lake.delete(layout.LEASE_FILE)
            return
        passing.sleep(_LOOK_SECONDS)


def _see_gone(lake: Lake, found: Holder, passing: Time) -> None:
    """Come back when a run that stands in the file is gone.

    Raises:
        LakeError: it is alive.
    """
    alive = is_alive(found)
    if alive:
        _refuse(found)
    if alive is False:
        return
    log.info(
        "%s holds this lake according to its lease; waiting up to %.0f s for a sign of life",
        found.describe(),
        EXPIRY_SECONDS,
    )
    end = passing.monotonic() + EXPIRY_SECONDS
    while passing.monotonic() < end:
        passing.sleep(_LOOK_SECONDS)
        after = read_holder(lake)
        if after is None or after.owner != found.owner:
            return  # somebody is faster, or it has ended: seen when the lease is taken
        if after.renewed != found.renewed:
            _refuse(after)
    log.info("%s gave no sign of life: taking the lake over", found.describe())


def _refuse(found: Holder) -> NoReturn:
    raise LakeError(
        f"another run holds this lake: {found.describe()}",
        operation="start",
        hint="wait for it to end, or stop it (it stops cleanly on SIGTERM); a run that was killed "
        f"on another machine is given up when it gives no sign of life for {EXPIRY_SECONDS:.0f} s",
    )


def machine_id() -> str:
    """What is the same for two processes exactly if they see each other's pids; "" if unknown."""
    if MACHINE in os.environ:
        return os.environ[MACHINE]
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
