"""Expiry of change notifications: sequential nodes that name a changed entity.

A notification says only where to look, so processing it twice does no harm. It stays for the other brokers,
and every broker removes those that are old.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from barnabas.cluster.coordination.contract import Coordination, NoNode, NotEmpty, Stat
from barnabas.core.clock import Clock

NOTIFICATION_LIFETIME_MS: Final = 15 * 60 * 1_000


async def remove_expired_notifications(
    znodes: Coordination, notes: Mapping[str, tuple[bytes, Stat] | None], clock: Clock
) -> None:
    """Delete the expired ones of these nodes, by path. A node with children is not a notification."""
    oldest_ms = clock.now_ms() - NOTIFICATION_LIFETIME_MS
    for path, node in notes.items():
        if node is not None and node[1].ctime_ms < oldest_ms:
            with suppress(NoNode, NotEmpty):
                await znodes.delete(path)
