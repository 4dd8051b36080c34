"""Tables that are not there any more, and of which no statement in the log says so.

Lives here: putting them in doubt, which finds out (`doubts`) and stops them by name. Does not live
here: when it is looked (`unfit`).

Seen: `DROP TABLE` under sql_log_bin=0; a MariaDB whose `ALTER TABLE ... DROP PARTITION` of a MyISAM
table failed, and took the table with it.

Where the log does say so, the table stops by that statement or by the doubt, whichever comes first.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Final

from ratchet.store.stops import Doubt
from ratchet.store.tables import Tables

log: Final = logging.getLogger("ratchet.jobs.run")

_WHY: Final = "its server no longer has it"


def doubt_vanished(
    tables: Tables, present: Mapping[str, Collection[str]], *, last_round: int
) -> None:
    """Put streaming tables in doubt that a look has not found on a server that they have rows of.

    A shard that had no such table at the dump, and has sent no row of it since, is not waited for.
    Only while nobody else writes states.

    Args:
        tables: the states.
        present: ShardId as text -> the tables that its database has.
        last_round: they have gone in this round or before.
    """
    for state in tables.list():
        stands = {*(() if state.dump is None else state.dump.start), *state.logged}
        gone = any(state.table not in present[shard] for shard in stands & present.keys())
        if gone and state.phase == "streaming" and not state.is_doubtful:
            log.warning("%s is compared with its source: %s", state.name, _WHY)
            tables.save(state.in_doubt(Doubt(message=_WHY, statement="", round=last_round)))
