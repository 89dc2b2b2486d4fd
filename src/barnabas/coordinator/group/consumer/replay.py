"""Replay of consumer group records. Nothing else changes consumer groups."""

from __future__ import annotations

from typing import Any

from barnabas.coordinator.group.state import record_schemas as schemas
from barnabas.coordinator.group.state.registry import GroupRegistry
from barnabas.coordinator.group.state.timer_keys import member_keys
from barnabas.core.bounds.kept_memory import Reservation
from barnabas.protocol.schema.message import Message


def replay_consumer_record(
    registry: GroupRegistry, key: Message, value: Any, memory: Reservation | None
) -> None:
    """`value` is of the class that belongs to the key, or None. A tombstone may name a group that does not
    exist: compaction removed its other records."""
    group_id: str = key.group_id  # type: ignore[attr-defined]
    if value is None and registry.find_consumer(group_id) is None:
        return
    group = registry.consumer_or_new(group_id)
    match key:
        case schemas.ConsumerGroupMetadataKey():
            if value is None:
                registry.remove(group_id)
            else:
                group.group_epoch = value.epoch
        case schemas.ConsumerGroupPartitionMetadataKey():
            group.replay_topics(value)
        case schemas.ConsumerGroupMemberMetadataKey():
            group.replay_member(key.member_id, value, memory, registry.memory.loaded_consumer)
            _forget_timers(registry, group_id, key.member_id, value)
        case schemas.ConsumerGroupTargetAssignmentMetadataKey():
            group.assignment_epoch = -1 if value is None else value.assignment_epoch
        case schemas.ConsumerGroupTargetAssignmentMemberKey():
            group.replay_target(key.member_id, value)
        case schemas.ConsumerGroupCurrentMemberAssignmentKey():
            group.replay_current_assignment(key.member_id, value)
        case schemas.ConsumerGroupRegularExpressionKey():
            group.replay_regex(key.regular_expression, value)


def _forget_timers(registry: GroupRegistry, group_id: str, member_id: str, value: Any) -> None:
    """Cancel the timers of a removed member."""
    for key in member_keys(group_id, member_id) if value is None else ():
        registry.timers.cancel(key)
