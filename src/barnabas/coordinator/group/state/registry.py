"""Groups of one shard, of both protocols, and the services that every part of the shard needs."""

from __future__ import annotations

import uuid

from barnabas.cluster.metadata.cache import MetadataCache
from barnabas.coordinator.group.state.classic_group import DEAD, ClassicGroup
from barnabas.coordinator.group.state.consumer_group import ConsumerGroup
from barnabas.coordinator.group.state.group_memory import GroupMemory
from barnabas.coordinator.group.state.settings import GroupSettings
from barnabas.coordinator.runtime.timers import ShardTimers
from barnabas.core.bounds.kept_memory import MemoryAccount
from barnabas.core.clock import Clock
from barnabas.core.errors import GroupIdNotFound
from barnabas.core.ids import ZERO_UUID, Randomness, Uuid
from barnabas.core.limits import NAME_CHARS_REMEMBERED_MAX
from barnabas.core.reporting.rate_limited_log import RateLimitedLogger

Group = ClassicGroup | ConsumerGroup


class GroupRegistry:
    def __init__(
        self,
        settings: GroupSettings,
        timers: ShardTimers,
        clock: Clock,
        randomness: Randomness,
        topics: MetadataCache,
        limited_log: RateLimitedLogger,
        account: MemoryAccount,
    ) -> None:
        self.settings = settings
        self.timers = timers
        self.clock = clock
        self.topics = topics
        self.limited_log = limited_log
        """Rate-limited log of all shards: clients can cause these lines at will."""
        self.memory = GroupMemory(account, limited_log)
        self.groups: dict[str, Group] = {}
        self._randomness = randomness

    def group(self, group_id: str) -> Group:
        found = self.groups.get(group_id)
        if found is None:
            raise GroupIdNotFound(f"group {group_id} does not exist")
        return found

    def find_classic(self, group_id: str) -> ClassicGroup | None:
        found = self.groups.get(group_id)
        return found if isinstance(found, ClassicGroup) else None

    def find_consumer(self, group_id: str) -> ConsumerGroup | None:
        found = self.groups.get(group_id)
        return found if isinstance(found, ConsumerGroup) else None

    def consumer_or_new(self, group_id: str) -> ConsumerGroup:
        """Replay only: the group of a consumer protocol record."""
        found = self.find_consumer(group_id)
        if found is None:
            found = self.groups[group_id] = ConsumerGroup(group_id)
        return found

    def ensure(self, group_id: str) -> None:
        """Replay only: create a group with its first offset."""
        if group_id not in self.groups:
            group = self.groups[group_id] = ClassicGroup(group_id)
            group.exists_by_offsets = True

    def remove(self, group_id: str) -> None:
        group = self.groups.pop(group_id, None)
        if isinstance(group, ClassicGroup):
            group.move_to(DEAD, self.clock.now_ms())

    def topic_id(self, name: str) -> Uuid:
        """Topic id of the name in the metadata; ZERO_UUID does not mean that the topic is deleted."""
        topic = self.topics.topic(name)
        return ZERO_UUID if topic is None else topic.topic_id

    def new_member_id(self, prefix: str) -> str:
        """`prefix` is a label that the client chose. Only its beginning is kept, so that every id can be
        written, read back and repeated in responses."""
        unique = uuid.UUID(bytes=self._randomness.randbytes(16), version=4)
        return f"{prefix[:NAME_CHARS_REMEMBERED_MAX]}-{unique}"

    def new_uuid(self) -> str:
        return str(Uuid.generate(self._randomness))
