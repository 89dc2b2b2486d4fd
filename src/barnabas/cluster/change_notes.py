"""Notes that tell brokers to look: whoever changes something leaves a sequential node that names it.

A note says only where to look, so heeding it twice does no harm. It is left for the others, and every broker
removes those that are old.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from barnabas.cluster.coordination import Coordination, NoNode, NotEmpty, Stat
from barnabas.core.clock import Clock

NOTE_LIFETIME_MS: Final = 15 * 60 * 1_000


async def remove_old_notes(
    znodes: Coordination, notes: Mapping[str, tuple[bytes, Stat] | None], clock: Clock
) -> None:
    """Of these nodes, by path. What has nodes of its own is no note."""
    oldest_ms = clock.now_ms() - NOTE_LIFETIME_MS
    for path, node in notes.items():
        if node is not None and node[1].ctime_ms < oldest_ms:
            with suppress(NoNode, NotEmpty):
                await znodes.delete(path)
