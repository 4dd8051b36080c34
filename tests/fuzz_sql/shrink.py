"""A failing list of steps, made as small as it goes while it fails the same way.

Lives here: what may be left out, and in which order it is tried. Does not live here: trying
(a function from outside). Pure, but for that function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from .grammar import Step

T = TypeVar("T")
Fails = Callable[[Sequence[Step]], bool]


def shrunk(steps: Sequence[Step], fails: Fails, *, table: str = "") -> list[Step]:
    """The steps that are needed, each as plain as it goes.

    Args:
        steps: they fail.
        fails: tries some; whether they fail the same way.
        table: whose rows are wrong: steps that do not name it are tried first.
    """
    current = list(steps)
    for guess in _guesses(current, table):
        if len(guess) < len(current) and fails(guess):
            current = guess
            break
    current = without_needless(current, fails)
    for number in range(len(current)):
        current = _plainer(current, number, fails)
    return current


def without_needless(items: Sequence[T], fails: Callable[[Sequence[T]], bool]) -> list[T]:
    """Leave out pieces, large ones first, for as long as it fails."""
    current = list(items)
    size = max(1, len(current) // 2)
    while True:
        at, shorter = len(current), False
        while at > 0:  # from the end: what comes late needs what is before it
            guess = current[: max(0, at - size)] + current[at:]
            if guess and fails(guess):
                current, shorter = guess, True
            at -= size
        if size == 1 and not shorter:
            return current
        size = max(1, size // 2)


def _guesses(steps: list[Step], table: str) -> list[list[Step]]:
    if not table:
        return []
    naming = [s for s in steps if s.kind == "look" or table in str(s)]
    looks = [n for n, step in enumerate(naming) if step.kind == "look"]
    last = looks[-1] if looks else -1
    one_look = [s for n, s in enumerate(naming) if s.kind != "look" or n == last]
    return [one_look, naming]


def _plainer(steps: list[Step], number: int, fails: Fails) -> list[Step]:
    """One step with fewer statements, modes and disguises."""

    def tried(step: Step) -> bool:
        return fails([*steps[:number], step, *steps[number + 1 :]])

    step = steps[number]
    if len(step.body) > 1:
        body = without_needless(step.body, lambda some: tried(replace(step, body=tuple(some))))
        step = replace(step, body=tuple(body))
    if step.setup:
        if tried(replace(step, setup=())):
            step = replace(step, setup=())
        else:
            full = step
            setup = without_needless(
                full.setup, lambda some: tried(replace(full, setup=tuple(some)))
            )
            step = replace(full, setup=tuple(setup))
    for place in range(len(step.body)):
        step = _undisguised(step, place, tried)
    return [*steps[:number], step, *steps[number + 1 :]]


def _undisguised(step: Step, place: int, tried: Callable[[Step], bool]) -> Step:
    """One statement of a step with as few disguises as it takes."""
    sql = step.body[place]

    def shown(numbers: Sequence[int]) -> Step:
        new = sql.without(frozenset(sql.disguises()) - frozenset(numbers))
        return replace(step, body=(*step.body[:place], new, *step.body[place + 1 :]))

    kept = sql.disguises()
    if not kept:
        return step
    if tried(shown(())):
        return shown(())
    return shown(without_needless(kept, lambda some: tried(shown(some))))
