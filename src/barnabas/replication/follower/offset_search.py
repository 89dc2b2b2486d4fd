"""ListOffsets search for the start and end of leaders' logs, for followers whose offset is out of range."""

from __future__ import annotations

from barnabas.core.ids import BrokerId, TopicPartition
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from barnabas.protocol.offset_numbers import EARLIEST, LATEST
from barnabas.replication.follower.connection import Connection
from barnabas.replication.follower.followed_partition import FollowedPartition
from barnabas.replication.follower.steps import Send


class OffsetSearch:
    """Two ListOffsets requests, one after the other."""

    def __init__(self, broker_id: BrokerId, partitions: list[FollowedPartition]) -> None:
        self.partitions = partitions
        self.ends: dict[TopicPartition, int] | None = None
        self.starts: dict[TopicPartition, int] = {}
        self._broker_id = broker_id

    def ask(self, connection: Connection) -> Send:
        topics: dict[str, ListOffsetsTopic] = {}
        for followed in self.partitions:
            name, index = followed.key
            topic = topics.setdefault(name, ListOffsetsTopic(name=name, partitions=[]))
            topic.partitions.append(
                ListOffsetsPartition(
                    partition_index=index,
                    current_leader_epoch=followed.leader_epoch,
                    timestamp=LATEST if self.ends is None else EARLIEST,
                )
            )
        request = ListOffsetsRequest(replica_id=self._broker_id, topics=list(topics.values()))
        return Send(request, ListOffsetsResponse, connection.version_for(ListOffsetsRequest))

    def take(self, answer: ListOffsetsResponse) -> bool:
        """True once both requests are answered."""
        offsets = {
            TopicPartition(topic.name, part.partition_index): part.offset
            for topic in answer.topics
            for part in topic.partitions
            if not part.error_code
        }
        if self.ends is None:
            self.ends = offsets
            return False
        self.starts = offsets
        return True
