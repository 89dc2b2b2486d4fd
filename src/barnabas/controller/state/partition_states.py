"""Partition states of the controller.

A partition is *new* once it is assigned to brokers, and *online* while a replica leads it. It is *offline*
when its leader failed and no replica could take over, and *non-existent* before and after all that.
"""

from __future__ import annotations

from enum import Enum

from barnabas.core.transitions import Transitions


class PartitionStatus(Enum):
    NON_EXISTENT = "NonExistentPartition"
    NEW = "NewPartition"
    ONLINE = "OnlinePartition"
    OFFLINE = "OfflinePartition"


PARTITION_TRANSITIONS = Transitions(
    {
        PartitionStatus.NEW: frozenset({PartitionStatus.NON_EXISTENT}),
        PartitionStatus.ONLINE: frozenset(
            {PartitionStatus.NEW, PartitionStatus.ONLINE, PartitionStatus.OFFLINE}
        ),
        PartitionStatus.OFFLINE: frozenset(
            {PartitionStatus.NEW, PartitionStatus.ONLINE, PartitionStatus.OFFLINE}
        ),
        PartitionStatus.NON_EXISTENT: frozenset({PartitionStatus.OFFLINE}),
    }
)
