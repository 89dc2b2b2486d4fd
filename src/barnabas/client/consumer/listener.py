"""Rebalance listener: the application's part in a rebalance.

Methods may be coroutines. They run inside the call in which the application asks for its next record.
"""

from __future__ import annotations

from collections.abc import Awaitable

from barnabas.core.ids import TopicPartition


class RebalanceListener:
    """Base class; override what is needed."""

    def on_assigned(self, partitions: frozenset[TopicPartition]) -> Awaitable[None] | None:
        """New partitions. `seek` works here."""

    def on_revoked(self, partitions: frozenset[TopicPartition]) -> Awaitable[None] | None:
        """Partitions that this consumer gives up now. `commit` works here."""

    def on_lost(self, partitions: frozenset[TopicPartition]) -> Awaitable[None] | None:
        """Partitions that another member may own already. By default as `on_revoked`."""
        return self.on_revoked(partitions)
