"""A server that has let us in once, and whose next login goes wrong: it is away, not unfit.

One flipped bit in a login ended a run at once, though only those who are in between can have done
that, and no setting was wrong.
"""

from __future__ import annotations

from typing import Any

import pytest

from ratchet.core.errors import DecodeError, RatchetError, RetryableError, UnverifiedServerError
from ratchet.core.shard import ShardId
from ratchet.wire import session as sessions
from ratchet.wire.session import Session, SourceConfig

SERVER = SourceConfig(
    shard=ShardId("shop", "-"), host="there", port=3306, user="u", password="p", database="d"
)


@pytest.mark.parametrize("kind", [UnverifiedServerError, DecodeError])
@pytest.mark.parametrize("entered", [False, True])
def test_a_login_that_makes_no_sense(
    monkeypatch: pytest.MonkeyPatch, kind: type[RatchetError], *, entered: bool
) -> None:
    def refuse(_: Any) -> Any:
        raise kind("bad record mac", operation="connect to there", source="shop/-", hint="look")

    monkeypatch.setattr(sessions, "open_connection", refuse)
    monkeypatch.setattr(sessions, "_entered", {SERVER} if entered else set())
    with pytest.raises(RetryableError if entered else kind, match="bad record mac") as caught:
        Session.connect(SERVER)
    assert caught.value.hint.startswith("look")
    assert ("a run waits for it for a while" in caught.value.hint) == entered
