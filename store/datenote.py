"""The note of how dates stand in a lake's tables: as dates, or as text (`types.zero_dates`)."""

from __future__ import annotations

from ratchet.store import layout
from ratchet.store.fields import flag_of
from ratchet.store.files import Lake
from ratchet.store.notes import Notes


def dates_are_text(lake: Lake) -> bool | None:
    """Whether the tables' dates are text, by the last run's note; None: none has noted it."""
    return Notes(lake).read(layout.DATES_FILE, lambda note: flag_of(note, "text"), None)


def note_dates(lake: Lake, *, text: bool) -> None:
    """Write down how dates stand in the tables from now on.

    Args:
        lake: the lake, which must be held.
        text: whether they are text.
    """
    lake.write_json(Notes(lake).own(layout.DATES_FILE), {"text": text})
