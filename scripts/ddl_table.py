"""Puts what `tests/e2e/test_ddl_matrix.py` measured into docs/schema-changes.md.

That test leaves its figures in the folder that RATCHET_MATRIX names; its part `-k streams` is
enough. Then: `python -m scripts.ddl_table FOLDER`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

DOCUMENT: Final = Path(__file__).parents[1] / "docs" / "schema-changes.md"
BEGIN: Final = "<!-- measured: scripts/ddl_table.py -->"
END: Final = "<!-- end -->"
_SERVERS: Final = (("mysql", "MySQL"), ("mariadb", "MariaDB"))


def main() -> None:
    """Replace the table in the document."""
    folder = Path(sys.argv[1])
    found = {
        flavor: {one["name"]: one for one in json.loads((folder / f"{flavor}.json").read_text())}
        for flavor, _ in _SERVERS
    }
    before, _, rest = DOCUMENT.read_text().partition(BEGIN)
    _, _, behind = rest.partition(END)
    DOCUMENT.write_text(f"{before}{BEGIN}\n{table(found)}{END}{behind}")


def table(found: dict[str, dict[str, dict[str, Any]]]) -> str:
    """One line for each kind of statement.

    Args:
        found: flavour -> kind -> what came of it.
    """
    names = list(dict.fromkeys(name for kinds in found.values() for name in kinds))
    lines = [
        "| statement | what is done | rows read | tables behind, MySQL | MariaDB |",
        "|---|---|---|---|---|",
    ]
    for name in names:
        both = [found[flavor].get(name) for flavor, _ in _SERVERS]
        told = next(one for one in both if one is not None)
        says = told["says"].replace("|", "\\|")
        lines.append(
            f"| `{says}` | {_each(both, 'done')} | {_each(both, 'read')} | "
            + " | ".join("-" if one is None else f"{one['behind']:.0f} s" for one in both)
            + " |"
        )
    return "\n".join(lines) + "\n"


def _each(both: list[dict[str, Any] | None], what: str) -> str:
    """One value where the servers do not differ."""
    values = list(dict.fromkeys(str(one[what]) for one in both if one is not None))
    return " / ".join(values)


if __name__ == "__main__":
    main()
