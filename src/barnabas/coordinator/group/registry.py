"""The groups of one shard, of both protocols, and what every part of the shard needs at hand."""

from __future__ import annotations

import uuid

from barnabas.cluster.metadata_cache import MetadataCache
from barnabas.coordinator.group.classic_group import DEAD, ClassicGroup
from barnabas.coordinator.group.consumer_group import ConsumerGroup
from barnabas.coordinator.group.settings import GroupSettings
from barnabas.coordinator.timers import ShardTimers
from barnabas.core.clock import Clock
from barnabas.core.complaints import Complaints
from barnabas.core.errors import GroupIdNotFound
from barnabas.core.ids import ZERO_UUID, Randomness, Uuid

Group = ClassicGroup | ConsumerGroup


class GroupRegistry:
    def __init__(
        self,
        settings: GroupSettings,
        timers: ShardTimers,
        clock: Clock,
        randomness: Randomness,
        topics: MetadataCache,
        complaints: Complaints,
    ) -> None:
        self.settings = settings
        self.timers = timers
        self.clock = clock
        self.topics = topics
        self.complaints = complaints
        """Of all shards of the broker: what members do at will has so many lines a second."""
        self.groups: dict[str, Group] = {}
        self._randomness = randomness

    def group(self, group_id: str) -> Group:
        found = self.groups.get(group_id)
        if found is None:
            raise GroupIdNotFound(f"there is no group {group_id}")
        return found

    def find_classic(self, group_id: str) -> ClassicGroup | None:
        found = self.groups.get(group_id)
        return found if isinstance(found, ClassicGroup) else None

    def find_consumer(self, group_id: str) -> ConsumerGroup | None:
        found = self.groups.get(group_id)
        return found if isinstance(found, ConsumerGroup) else None

    def consumer_or_new(self, group_id: str) -> ConsumerGroup:
        """For replay: the group that a record of the consumer protocol is about."""
        found = self.find_consumer(group_id)
        if found is None:
            found = self.groups[group_id] = ConsumerGroup(group_id)
        return found

    def ensure(self, group_id: str) -> None:
        """For replay: a group that is not known yet is made by its first offset."""
        if group_id not in self.groups:
            group = self.groups[group_id] = ClassicGroup(group_id)
            group.exists_by_offsets = True

    def remove(self, group_id: str) -> None:
        group = self.groups.pop(group_id, None)
        if isinstance(group, ClassicGroup):
            group.state = DEAD

    def topic_id(self, name: str) -> Uuid:
        """The topic that has this name now, as far as is known: one that is missing is not gone for that."""
        topic = self.topics.topic(name)
        return ZERO_UUID if topic is None else topic.topic_id

    def new_member_id(self, prefix: str) -> str:
        return f"{prefix}-{uuid.UUID(bytes=self._randomness.randbytes(16), version=4)}"

    def new_uuid(self) -> str:
        return str(Uuid.generate(self._randomness))
