"""The machine's numbers as the kernels know them: an enum's members are no constants to a kernel.

Lives here: `CODES`. Does not live here: what they mean (`machine`).

Invariant: each is the number of the machine's member.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ratchet.ingest.binlog.machine import Action, Kind


class Codes(NamedTuple):
    """The machine's numbers that the kernel needs to know."""

    format: int
    rotate: int
    gtid: int
    group: int
    single: int
    query: int
    begin: int
    commit: int
    xa_prepare: int
    one_phase: int
    table_map: int
    rows: int
    other_rows: int
    payload: int
    partial: int
    incident: int
    garbled: int
    unknown: int
    a_begin: int
    a_take: int
    a_end: int
    a_abandon: int
    a_stop: int
    a_unmapped: int
    a_order: int
    a_length: int
    a_garbled: int


CODES: Final = Codes(
    format=int(Kind.FORMAT),
    rotate=int(Kind.ROTATE),
    gtid=int(Kind.GTID),
    group=int(Kind.GTID_GROUP),
    single=int(Kind.GTID_SINGLE),
    query=int(Kind.QUERY),
    begin=int(Kind.BEGIN),
    commit=int(Kind.COMMIT),
    xa_prepare=int(Kind.XA_PREPARE),
    one_phase=int(Kind.XA_ONE_PHASE),
    table_map=int(Kind.TABLE_MAP),
    rows=int(Kind.ROWS),
    other_rows=int(Kind.OTHER_ROWS),
    payload=int(Kind.PAYLOAD),
    partial=int(Kind.PARTIAL_ROWS),
    incident=int(Kind.INCIDENT),
    garbled=int(Kind.GARBLED),
    unknown=int(Kind.UNKNOWN),
    a_begin=int(Action.BEGIN),
    a_take=int(Action.TAKE),
    a_end=int(Action.END),
    a_abandon=int(Action.ABANDON),
    a_stop=int(Action.STOP),
    a_unmapped=int(Action.UNMAPPED_ROWS),
    a_order=int(Action.GTID_ORDER),
    a_length=int(Action.NO_LENGTH),
    a_garbled=int(Action.TRUNCATED_EVENT),
)
