"""How long a lake is waited for, and what is not waited for."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from ratchet.core.errors import LakeAwayError, LakeError, RetryableError
from ratchet.jobs.capture.loops import Control
from ratchet.jobs.run.lakewait import LakeWait
from ratchet.store.failures import storage_error


class Rests(Control):
    """A control whose rests take no time, but are added up."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.rested: list[float] = []

    def rest(self, seconds: float, until: Callable[[], bool] = lambda: False) -> None:
        assert not until()
        assert not self.draining
        self.rested.append(seconds)
        self.now += seconds


def made(patience: float) -> tuple[LakeWait, Rests]:
    control = Rests()
    return LakeWait(patience, clock=lambda: control.now), control


FULL = LakeAwayError("full", operation="write")


def test_nothing_to_wait_for() -> None:
    waits, control = made(300)
    for error in (
        LakeError("not ours"),
        RetryableError("gone"),
        storage_error(OSError(5, "x"), "", ""),
    ):
        assert not waits.take(error)
    waits.wait(control, lambda: pytest.fail("asked"))
    assert control.rested == []


def test_it_is_asked_until_it_answers() -> None:
    waits, control = made(300)
    answers = [FULL] * 5
    assert waits.take(FULL)
    assert waits.take(LakeAwayError("another loop's", operation="read"))
    control.turn()

    def ask() -> None:
        if answers:
            control.turn()  # as the lease does that cannot be renewed
            raise answers.pop()

    waits.wait(control, ask)
    assert control.rested == [1, 2, 4, 8, 15, 15]
    assert not control.draining
    waits.wait(control, ask)
    assert len(control.rested) == 6


def test_patience_ends() -> None:
    waits, control = made(20)
    assert waits.take(FULL)

    def ask() -> None:
        raise FULL

    with pytest.raises(LakeAwayError):
        waits.wait(control, ask)
    assert sum(control.rested) == 1 + 2 + 4 + 8 + 15
    assert not waits.take(FULL)


def test_one_that_fails_again_at_once_has_no_new_patience() -> None:
    waits, control = made(20)
    for _ in range(4):
        assert waits.take(FULL)
        waits.wait(control, lambda: None)
    control.now += 30
    assert not waits.take(FULL)
    control.now += 100
    assert waits.take(FULL)
    waits.wait(control, lambda: None)
    assert control.rested == [1, 2, 4, 8, 1]


def test_another_run_that_took_it_is_not_waited_for() -> None:
    waits, control = made(300)
    assert waits.take(FULL)

    def ask() -> None:
        raise LakeError("this run lost its lease", operation="keep the lease")

    with pytest.raises(LakeError, match="lost its lease"):
        waits.wait(control, ask)


def test_told_to_stop() -> None:
    waits, control = made(300)
    assert waits.take(FULL)

    def ask() -> None:
        control.stop()
        raise FULL

    waits.wait(control, ask)
    assert control.rested == [1]


PASSES = (
    (
        "Generic S3 error: Error performing PUT http://127.0.0.1:1/b/k in 1.2s, after 3 retries, "
        "max_retries: 3, retry_timeout: 180s  - HTTP error: error sending request"
    ),
    (
        "When reading information for key 'k' in bucket 'b': AWS Error NETWORK_CONNECTION during "
        "HeadObject operation: curlCode: 7, Couldn't connect to server"
    ),
    "AWS Error SLOW_DOWN during PutObject operation: Please reduce your request rate.",
    "Server returned non-2xx status code: 503 Service Unavailable",
)
STAYS = (
    "AWS Error ACCESS_DENIED during HeadObject operation: No response body.",
    "Generic S3 error: The bucket 5030 does not exist",
)


@pytest.mark.parametrize("text", PASSES)
def test_what_may_pass_of_an_object_store(text: str) -> None:
    assert isinstance(storage_error(OSError(text), "write", "x"), LakeAwayError)


@pytest.mark.parametrize("text", STAYS)
def test_what_stays_so_in_an_object_store(text: str) -> None:
    assert not isinstance(storage_error(OSError(text), "write", "x"), LakeAwayError)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.ESTALE, errno.ETIMEDOUT])
def test_what_may_pass_of_a_folder(number: int) -> None:
    assert isinstance(storage_error(OSError(number, "x"), "write", "x"), LakeAwayError)


@pytest.mark.parametrize("number", [errno.EIO, errno.EROFS, errno.EACCES, errno.ENOENT])
def test_what_a_person_has_to_mend(number: int) -> None:
    assert not isinstance(storage_error(OSError(number, "x"), "write", "x"), LakeAwayError)
