"""How often the garbage collector looks at what.

Nearly all that a start makes, from the classes of its modules to its logs, stays as long as the process; and
requests leave almost no cycles behind.
"""

from __future__ import annotations

import gc

GC_THRESHOLDS = (20_000, 5, 500)
"""The collector stops the loop while it looks at what is young, a hundred thousand objects at most: a large
request makes as many and keeps them. At all that there is it looks in every 500th of those passes."""


def collect_seldom() -> None:
    """Less often than by default. To be called before a broker's modules are imported, which is most of what
    a start makes."""
    gc.set_threshold(*GC_THRESHOLDS)


def settle_memory() -> None:
    """What the start made is not looked at again. The few cycles of it that nobody needs stay with the rest:
    to find them would take a tenth of the start."""
    gc.freeze()
