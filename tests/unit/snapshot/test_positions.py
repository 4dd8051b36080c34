"""What MySQL prints of transactions that are about to be committed."""

from __future__ import annotations

import pytest

from ratchet.core.errors import DecodeError
from ratchet.core.gtid import GtidSet
from ratchet.snapshot.positions import parse_owned

A = "00000001-1111-2222-3333-444444444444"
B = "aaaaaaaa-1111-2222-3333-444444444444"


@pytest.mark.parametrize(
    ("printed", "owned"),
    [
        ("", ""),
        (f"{A}:2605#11", f"{A}:2605"),
        (f"{A}:2606#13:2605#11", f"{A}:2605-2606"),
        (f"{A}:2605#12{A[:-1]}5:7#9", f"{A}:2605,{A[:-1]}5:7"),  # the thread's number runs on
        (f"{A}:2605#11{B}:7#15{B}:tag_one:10#19:9#17", f"{A}:2605,{B}:7:tag_one:9-10"),
        (f"{B}:tag_one:9#17{B}:tag_two:9#21", f"{B}:tag_one:9:tag_two:9"),
    ],
)
def test_all_that_is_owned_is_read(printed: str, owned: str) -> None:
    assert parse_owned(printed) == GtidSet.parse("mysql", owned)


@pytest.mark.parametrize("printed", ["ANONYMOUS#7", f"x{A}:1#2", f"{A}:#2", f"{A}:1#", f"{A}:1,2"])
def test_what_is_not_known_is_refused(printed: str) -> None:
    with pytest.raises(DecodeError):
        parse_owned(printed)
