"""Replica states of the controller.

A replica is *new* when it was just assigned, *online* once it leads or follows, and *offline* when its broker
or log directory is down. A deletion is *started* when the StopReplica was sent, and *successful* when the
broker confirmed it. It is *ineligible* when the broker is down or failed to delete. The replica then goes
back to offline, and the deletion is tried again later.
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
