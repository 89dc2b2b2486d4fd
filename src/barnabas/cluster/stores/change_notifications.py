"""Seen change notifications: sequential nodes that name a changed entity, and their expiry.

A notification says only where to look, so processing it twice does no harm. It stays for the other brokers,
and every broker removes those that are old.

A broker that removes a notification too early hides a change from the others. So no clock of a broker counts.
The age of a notification is its distance to the newest one, both stamped by the store. The store's time may
jump when ZooKeeper elects another leader. So this broker must also have seen the notification for a session
timeout. A broker that is slower than that has a new session, and reads everything again.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from barnabas.cluster.coordination.contract import Coordination, NoNode, NotEmpty, Stat
from barnabas.core.clock import Clock

NOTIFICATION_LIFETIME_MS: Final = 15 * 60 * 1_000


class SeenNotifications:
    """Paths of notifications that this broker has processed and that still exist."""

    def __init__(self, znodes: Coordination, clock: Clock) -> None:
        self._znodes = znodes
        self._clock = clock
        self._first_seen_ms: dict[str, float] = {}

    def __contains__(self, path: str) -> bool:
        return path in self._first_seen_ms

    async def processed(self, notes: Mapping[str, tuple[bytes, Stat] | None]) -> None:
        """Note that all present notifications, by path, are processed; delete the expired ones.

        A node with children is not a notification."""
        now_ms, before = self._clock.monotonic_ms(), self._first_seen_ms
        self._first_seen_ms = {path: before.get(path, now_ms) for path in notes}
        created_ms = {path: node[1].ctime_ms for path, node in notes.items() if node is not None}
        oldest_ms = max(created_ms.values(), default=0) - NOTIFICATION_LIFETIME_MS
        settled_ms = now_ms - self._znodes.session_timeout_ms
        for path, ctime_ms in created_ms.items():
            if ctime_ms < oldest_ms and self._first_seen_ms[path] <= settled_ms:
                with suppress(NoNode, NotEmpty):
                    await self._znodes.delete(path)
