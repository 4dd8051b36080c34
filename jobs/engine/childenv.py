"""The environment that processes get which Ratchet starts.

Invariant: what the config names as `${...}` for a source is not in it. Whoever may look into a
child (a dump of its memory, its environment in /proc, a query that asks Java for it) finds none.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping


def child_environment(environment: Mapping[str, str], named: Collection[str]) -> dict[str, str]:
    """The environment without the variables that the config names.

    Args:
        environment: our own.
        named: variables' names (`jobs.config.config.Config.variables`).
    """
    return {name: value for name, value in environment.items() if name not in named}
