"""Group coordinator as the request handlers see it: routes to the shard of each group's partition."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from barnabas.coordinator.group.shard import GroupShard
from barnabas.coordinator.group.state.settings import GroupSettings
from barnabas.coordinator.producer import NO_PRODUCER, ProducerIdAndEpoch
from barnabas.coordinator.runtime.decision import Decision, Waiter
from barnabas.coordinator.runtime.routing import partition_of
from barnabas.coordinator.runtime.runtime import CoordinatorRuntime
from barnabas.core.errors import InvalidGroupId, KafkaError
from barnabas.core.ids import Uuid

OFFSETS_TOPIC = "__consumer_offsets"

R = TypeVar("R")


class GroupCoordinator:
    def __init__(
        self,
        runtime: CoordinatorRuntime[GroupShard],
        settings: GroupSettings,
        partition_count: Callable[[], int],
    ) -> None:
        self.runtime = runtime
        self.settings = settings
        self._partition_count = partition_count

    def partition_for(self, group_id: str) -> int:
        return partition_of(group_id, self._partition_count())

    def run(
        self,
        group_id: str,
        decide: Callable[[GroupShard], Decision[R]],
        respond: Callable[[R], None],
        refuse: Callable[[KafkaError], None],
        *,
        producer: ProducerIdAndEpoch = NO_PRODUCER,
    ) -> None:
        """Run an operation on the shard of the group (`CoordinatorRuntime.run`)."""
        self.runtime.run(self.partition_for(group_id), decide, respond, refuse, producer=producer)

    def run_waiting(
        self,
        group_id: str,
        decide: Callable[[GroupShard, Waiter[R]], Decision[R]],
        respond: Callable[[R], None],
        refuse: Callable[[KafkaError], None],
    ) -> None:
        """Run an operation whose request may wait in the shard, which keeps its waiter meanwhile."""
        waiter = Waiter(respond, refuse)
        self.run(group_id, lambda shard: decide(shard, waiter), waiter.respond, waiter.refuse)

    def topic_deleted(self, topic: str, topic_id: Uuid) -> None:
        """Remove the offsets of a deleted topic in every shard."""
        self.runtime.carry_through(
            lambda shard, end_offset: shard.offset_removal.topic_deleted(topic, topic_id, end_offset)
        )


def check_group_id(group_id: str) -> None:
    if not group_id:
        raise InvalidGroupId("the group id is empty")
