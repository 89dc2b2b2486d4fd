"""Garbage collector thresholds of a broker process.

Nearly all objects of a start, from the classes of its modules to its logs, live as long as the process.
Requests leave almost no cycles.
"""

from __future__ import annotations

import gc

GC_THRESHOLDS = (10_000, 2, 2_500)
"""A collection of the young generations stops the loop while it scans at most 30,000 objects: a large request
makes more and keeps them. A full collection runs once per 50 million new objects."""


def collect_seldom() -> None:
    """Collect less often than by default. Call it before the import of a broker's modules, which make most
    objects of a start."""
    gc.set_threshold(*GC_THRESHOLDS)


def settle_memory() -> None:
    """Exempt the objects of the start from collection. The few garbage cycles among them stay: a search would
    take a tenth of the start."""
    gc.freeze()
