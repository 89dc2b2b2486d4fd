"""Memory account of transactional ids: estimates, and reservations per client.

An id stays for days after its last transaction, and each transaction has partitions. The client that first
initializes an id is charged for it. Ids read back from the log count for the broker alone.
"""

from __future__ import annotations

from barnabas.coordinator.transaction.state.metadata import TransactionMetadata
from barnabas.core.bounds.kept_memory import MemoryAccount, MemoryLimits, MemoryOwner, Reservation
from barnabas.core.errors import PolicyViolation
from barnabas.core.limits import (
    TRANSACTION_MEMORY_BYTES_MAX,
    TRANSACTION_MEMORY_PER_CONNECTION_BYTES_MAX,
    TRANSACTION_MEMORY_PER_PRINCIPAL_BYTES_MAX,
)
from barnabas.core.reporting.log_text import cut
from barnabas.core.reporting.metrics import Metrics
from barnabas.core.reporting.rate_limited_log import RateLimitedLogger

TRANSACTION_MEMORY_LIMITS = MemoryLimits(
    TRANSACTION_MEMORY_PER_CONNECTION_BYTES_MAX,
    TRANSACTION_MEMORY_PER_PRINCIPAL_BYTES_MAX,
    TRANSACTION_MEMORY_BYTES_MAX,
)

ID_BYTES = 1_000
"""Transactional id without its characters, which are stored twice."""
PARTITION_BYTES = 150
"""Partition of a transaction."""


class TransactionMemory:
    """Transactional ids of one shard, charged to the account of all shards."""

    def __init__(self, account: MemoryAccount, limited_log: RateLimitedLogger) -> None:
        self._account = account
        self._limited_log = limited_log
        self._kept: dict[str, Reservation] = {}

    def reserve(self, transactional_id: str, owner: MemoryOwner) -> Reservation | None:
        """Reserve memory for a new id; None for a known one. POLICY_VIOLATION if there is no room."""
        if transactional_id in self._kept:
            return None
        made = self._account.reserve(owner, _size_bytes(transactional_id, 0))
        if made is None:
            raise self._full(transactional_id)
        return made

    def check_partitions(self, transactional_id: str, count: int) -> None:
        """Check that the transaction of a known id may have this many partitions."""
        kept = self._kept.get(transactional_id)
        if kept is not None and not self._account.grow(kept, _size_bytes(transactional_id, count)):
            raise self._full(transactional_id)

    def replayed(
        self, transactional_id: str, metadata: TransactionMetadata | None, reserved: Reservation | None
    ) -> None:
        """Adjust the reservation of an id after its record is replayed."""
        if metadata is None:
            self._kept.pop(transactional_id, None)
            return
        size_bytes = _size_bytes(transactional_id, len(metadata.partitions))
        kept = self._kept.get(transactional_id)
        if kept is None:
            self._kept[transactional_id] = reserved or self._account.claim(size_bytes)
        elif not metadata.partitions:
            self._account.shrink(kept, size_bytes)

    def clear(self) -> None:
        self._kept.clear()

    def _full(self, transactional_id: str) -> PolicyViolation:
        self._limited_log.warn(
            "memory",
            "transactional id %s is refused: its connection, its principal or the broker keeps as many as it "
            "may; ids that are not used end after transactional.id.expiration.ms",
            cut(transactional_id),
        )
        return PolicyViolation(
            f"no more memory is kept for transactional ids such as {cut(transactional_id)}"
        )


def transaction_memory_account(metrics: Metrics) -> MemoryAccount:
    """The one transaction account of a broker."""
    return MemoryAccount("transactional_ids", TRANSACTION_MEMORY_LIMITS, metrics)


def _size_bytes(transactional_id: str, partitions: int) -> int:
    return ID_BYTES + 2 * len(transactional_id) + PARTITION_BYTES * partitions
