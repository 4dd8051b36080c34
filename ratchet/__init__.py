"""Ratchet: mirrors MySQL, MariaDB and Vitess keyspaces into Delta Lake tables, never backwards.

    import ratchet

    mirror = ratchet.open_mirror("/data/lake")
    cut = mirror.cut("2026-03-01T12:00:00Z")
    orders = mirror.read(spark, "shop.orders", as_of=cut)

The packages lie at the top of the repository; the links beside this file make them one package,
under one name, in a checkout as in a wheel. Nothing imports them by their bare names: a module
would be there twice (`tests/unit/test_layers.py`).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from ratchet.core.errors import RatchetError
    from ratchet.core.token import EventToken, Order
    from ratchet.mirror import ConsistentCut, Mirror, MirroredTable, compare, open_mirror, token

# Where each public name is.
_PLACES: Final = {
    "ConsistentCut": "ratchet.mirror",
    "EventToken": "ratchet.core.token",
    "Mirror": "ratchet.mirror",
    "MirroredTable": "ratchet.mirror",
    "Order": "ratchet.core.token",
    "RatchetError": "ratchet.core.errors",
    "compare": "ratchet.mirror",
    "open_mirror": "ratchet.mirror",
    "token": "ratchet.mirror",
}
__all__ = [
    "ConsistentCut",
    "EventToken",
    "Mirror",
    "MirroredTable",
    "Order",
    "RatchetError",
    "compare",
    "open_mirror",
    "token",
]


def __getattr__(name: str) -> Any:
    # Read when first asked for: Spark's workers import parts of this package, and start often.
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)
