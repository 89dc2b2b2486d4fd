"""Partition of an internal topic that coordinates a key."""

from __future__ import annotations

from barnabas.core.ids import java_hash

_INT_MIN = -(1 << 31)


def partition_of(key: str, partition_count: int) -> int:
    """Partition that coordinates a group or a transactional id.

    Kafka's own rule: the smallest int has no positive counterpart and counts as 0.
    """
    value = java_hash(key)
    return (0 if value == _INT_MIN else abs(value)) % partition_count
