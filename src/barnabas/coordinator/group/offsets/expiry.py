"""Expiry of offsets: by their age, with their group, with their topic.

An offset expires when its group has been without members for the retention time. The time starts when the
group became empty or, for offsets without a group, at the commit. While a group has members, only offsets of
topics that it no longer reads expire. A group with nothing left is removed too.

An offset that was committed for an earlier topic of the same name is removed at the next expiry. The
coordinator may have ended before it could remove it at the deletion. If no topic has the name, the metadata
cannot tell; `LostTopics` asks the store.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping

from barnabas.coordinator.group.offsets.records import (
    NO_EXPIRY,
    OffsetAndMetadata,
    OffsetRecord,
    Packed,
    is_of_another_topic,
    topic_id_of,
    unpack,
)
from barnabas.coordinator.group.offsets.store import OffsetStore
from barnabas.coordinator.group.state.classic_group import EMPTY, NO_TIMESTAMP, STABLE
from barnabas.coordinator.group.state.consumer_group import ConsumerGroup
from barnabas.coordinator.group.state.registry import Group, GroupRegistry
from barnabas.coordinator.runtime.decision import CoordinatorRecord, Decision
from barnabas.core.ids import ZERO_UUID, Uuid
from barnabas.core.reporting.error_isolation import sweeping

StoredIds = Mapping[str, Uuid | None]
"""Topic ids in the coordination store, by name: ZERO_UUID for a topic without an id, None for a deleted one.
A missing topic is unknown. Metadata without a topic do not prove its deletion; only the store does."""

OFFSETS_PER_TURN = 5_000
"""Offsets that one turn of expiry looks at (a group is not divided), or that one turn of a topic's deletion
removes."""


class OffsetRemoval:
    def __init__(self, registry: GroupRegistry, offsets: OffsetStore) -> None:
        self._registry = registry
        self._offsets = offsets

    def tombstones(self, group_id: str) -> list[OffsetRecord]:
        """Tombstones for every offset of a group."""
        return [
            OffsetRecord(group_id, topic, partition, None)
            for topic, partition in self._offsets.partitions_of(group_id)
        ]

    def topic_deleted(self, topic: str, topic_id: Uuid, end_offset: int) -> Decision[bool]:
        """Remove the offsets of a deleted topic: they mean nothing to a new topic of the same name. Offsets
        at `end_offset` or behind it were committed since. True when none is left."""
        known = self._offsets.partitions_of_topic(topic, topic_id, end_offset)
        found = itertools.islice(known, OFFSETS_PER_TURN)
        records = [OffsetRecord(group, topic, partition, None) for group, partition in found]
        return Decision(len(records) < OFFSETS_PER_TURN, records, is_atomic=False)

    def topics_lost(self, stored: StoredIds) -> Decision[bool]:
        """Remove the offsets of topics that neither the store nor the metadata have. True when none is
        left."""
        lost = self._offsets.where({topic: self._is_lost(topic, each) for topic, each in stored.items()})
        records = [OffsetRecord(*each, None) for each in itertools.islice(lost, OFFSETS_PER_TURN)]
        return Decision(len(records) < OFFSETS_PER_TURN, records, is_atomic=False)

    def _is_lost(self, topic: str, stored_id: Uuid | None) -> Callable[[Packed], bool]:
        """The metadata may have received a topic that was created after the store was asked."""
        known_id = self._registry.topic_id(topic)
        is_gone = stored_id is None and self._registry.topics.topic(topic) is None
        is_certain = stored_id != ZERO_UUID

        def is_lost(packed: Packed) -> bool:
            committed = topic_id_of(packed)
            if committed == ZERO_UUID:
                return is_gone
            return is_certain and committed not in (stored_id, known_id)

        return is_lost

    # --- expiry ---

    def expire(self, group_ids: Iterator[str]) -> Decision[None]:
        """Expire the offsets of some of the groups left in `group_ids`."""
        records: list[CoordinatorRecord] = []
        left = OFFSETS_PER_TURN
        for group_id in group_ids:
            group = self._registry.groups.get(group_id)
            if group is None:
                continue
            with sweeping("the expiry of group", group_id):
                expired: list[CoordinatorRecord] = []
                if self._expire_group(group, expired) and group.is_empty:
                    expired.extend(group.tombstones())
                records.extend(expired)
            left -= 1 + sum(map(len, self._offsets.topics(group_id).values()))
            if left <= 0:
                break
        return Decision(records=records, is_atomic=False)

    def _expire_group(self, group: Group, records: list[CoordinatorRecord]) -> bool:
        """Add tombstones for what has expired; True if no offset of the group will be left."""
        group_id = group.group_id
        topics = self._offsets.topics(group_id)
        if not topics:
            return not self._offsets.has_open_transaction(group_id)
        since_ms = expiry_base_ms(group)
        now_ms = self._registry.clock.now_ms()
        is_all = True
        for topic, partitions in topics.items():
            topic_id = self._registry.topic_id(topic)
            is_read = group.is_subscribed_to(topic)
            for partition, packed in partitions.items():
                is_over = is_of_another_topic(packed, topic_id) or (
                    not is_read and self._is_expired(unpack(packed), since_ms, now_ms)
                )
                if is_over and not self._offsets.is_pending(group_id, topic, partition):
                    records.append(OffsetRecord(group_id, topic, partition, None))
                else:
                    is_all = False
        return is_all and not self._offsets.has_open_transaction(group_id)

    def _is_expired(self, value: OffsetAndMetadata, since_ms: int | None, now_ms: int) -> bool:
        if since_ms is None:
            return False
        if value.expire_timestamp_ms != NO_EXPIRY:
            return now_ms >= value.expire_timestamp_ms
        base_ms = value.commit_timestamp_ms if since_ms == NO_TIMESTAMP else since_ms
        return now_ms - base_ms >= self._registry.settings.offsets_retention_ms


def expiry_base_ms(group: Group) -> int | None:
    """Time from which a group's offsets age; NO_TIMESTAMP for the time of each commit, None: never."""
    if isinstance(group, ConsumerGroup) or group.protocol_type is None:
        return NO_TIMESTAMP
    if group.state is EMPTY:
        return group.state_timestamp_ms
    if group.is_for_consumers and group.subscribed_topics is not None and group.state is STABLE:
        return NO_TIMESTAMP
    return None
