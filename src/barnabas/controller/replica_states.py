"""The life of a replica, as the controller sees it.

A replica is *new* when it was just assigned, *online* once it leads or follows, *offline* when its
broker or its disk is gone. A deletion is *started* when the broker was told, *successful* when the
broker said so, and *ineligible* when it cannot go on (the broker is not there, or failed): then it
goes back to offline and is tried again later.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from barnabas.core.ids import TopicPartition
from barnabas.core.transitions import Transitions


class ReplicaStatus(Enum):
    NON_EXISTENT = "NonExistentReplica"
    NEW = "NewReplica"
    ONLINE = "OnlineReplica"
    OFFLINE = "OfflineReplica"
    DELETION_STARTED = "ReplicaDeletionStarted"
    DELETION_SUCCESSFUL = "ReplicaDeletionSuccessful"
    DELETION_INELIGIBLE = "ReplicaDeletionIneligible"


class PartitionReplica(NamedTuple):
    topic_partition: TopicPartition
    broker_id: int

    @property
    def topic(self) -> str:
        return self.topic_partition.topic

    def __str__(self) -> str:
        return f"replica {self.broker_id} of {self.topic_partition}"


_ALIVE = frozenset(
    {
        ReplicaStatus.NEW,
        ReplicaStatus.ONLINE,
        ReplicaStatus.OFFLINE,
        ReplicaStatus.DELETION_INELIGIBLE,
    }
)

REPLICA_TRANSITIONS = Transitions(
    {
        ReplicaStatus.NEW: frozenset({ReplicaStatus.NON_EXISTENT}),
        ReplicaStatus.ONLINE: _ALIVE,
        ReplicaStatus.OFFLINE: _ALIVE,
        ReplicaStatus.DELETION_STARTED: frozenset({ReplicaStatus.OFFLINE}),
        ReplicaStatus.DELETION_SUCCESSFUL: frozenset({ReplicaStatus.DELETION_STARTED}),
        ReplicaStatus.DELETION_INELIGIBLE: frozenset({ReplicaStatus.OFFLINE, ReplicaStatus.DELETION_STARTED}),
        ReplicaStatus.NON_EXISTENT: frozenset({ReplicaStatus.DELETION_SUCCESSFUL}),
    }
)
