"""Committed offsets by group, topic and partition, and those staged by open transactions.

A transactional commit takes effect with the marker of its transaction. Until then the partition's offset is
unstable, and expiry leaves the group alone. Of a transactional and an ordinary commit, the one later in the
log wins.

Only `replay` and `replay_marker` change anything here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from barnabas.coordinator.group.offsets.records import (
    OffsetAndMetadata,
    OffsetRecord,
    Offsets,
    Packed,
    is_of_another_topic,
    pack,
    record_offset_of,
    unpack,
)
from barnabas.core.ids import Uuid
from barnabas.records.batch import NO_PRODUCER_ID


class OffsetStore:
    __slots__ = ("_groups_of", "committed", "open_transactions", "pending")

    def __init__(self) -> None:
        self.committed: Offsets = {}
        self.pending: dict[int, Offsets] = {}
        """Offsets staged by each producer's open transaction."""
        self.open_transactions: dict[str, set[int]] = {}
        """Producers that have staged offsets, by group."""
        self._groups_of: dict[int, set[str]] = {}
        """Groups with staged offsets, by producer."""

    def clear(self) -> None:
        """Drop everything: the partition is led elsewhere."""
        for each in (self.committed, self.pending, self.open_transactions, self._groups_of):
            each.clear()

    # --- reads ---

    def topics(self, group: str) -> dict[str, dict[int, Packed]]:
        return self.committed.get(group, {})

    def get(self, group: str, topic: str, partition: int) -> OffsetAndMetadata | None:
        packed = self.committed.get(group, {}).get(topic, {}).get(partition)
        return None if packed is None else unpack(packed)

    def is_pending(self, group: str, topic: str, partition: int) -> bool:
        """Whether an open transaction has staged an offset for the partition."""
        return next(self._staged(group, topic, partition), None) is not None

    def has_open_transaction(self, group: str) -> bool:
        return group in self.open_transactions

    def has_any(self, group: str) -> bool:
        return group in self.committed or group in self.open_transactions

    def partitions_of(self, group: str) -> Iterator[tuple[str, int]]:
        """Every partition with a committed or staged offset of the group, once."""
        seen: set[tuple[str, int]] = set()
        staged = [self.pending[producer_id] for producer_id in self.open_transactions.get(group, ())]
        for offsets in (self.committed, *staged):
            for topic, partitions in offsets.get(group, {}).items():
                seen.update((topic, partition) for partition in partitions)
        return iter(sorted(seen))

    def partitions_of_topic(self, topic: str, topic_id: Uuid, end_offset: int) -> Iterator[tuple[str, int]]:
        """(group, partition) of a topic whose offsets all belong to it, not to another topic of the same
        name. None of them is at `end_offset` in the log or behind it."""

        def is_of_it(packed: Packed) -> bool:
            return record_offset_of(packed) < end_offset and not is_of_another_topic(packed, topic_id)

        return ((group, partition) for group, _, partition in self.where({topic: is_of_it}))

    def where(self, wanted: Mapping[str, Callable[[Packed], bool]]) -> Iterator[tuple[str, str, int]]:
        """(group, topic, partition) of these topics where every offset, also staged, is wanted."""
        for group, topics in self.committed.items():
            for topic in topics.keys() & wanted.keys():
                is_wanted = wanted[topic]
                for partition, packed in topics[topic].items():
                    if is_wanted(packed) and all(map(is_wanted, self._staged(group, topic, partition))):
                        yield group, topic, partition
        for group, producers in self.open_transactions.items():
            committed = self.topics(group)
            staged = {
                (topic, partition)
                for producer_id in producers
                for topic, partitions in self.pending[producer_id].get(group, {}).items()
                if topic in wanted
                for partition in partitions.keys() - committed.get(topic, {}).keys()
            }
            for topic, partition in sorted(staged):
                if all(map(wanted[topic], self._staged(group, topic, partition))):
                    yield group, topic, partition

    def groups(self) -> list[str]:
        """Every group with committed or staged offsets."""
        return [*self.committed, *(each for each in self.open_transactions if each not in self.committed)]

    def topic_names(self, group: str) -> set[str]:
        """Every topic with committed or staged offsets of the group."""
        names = set(self.topics(group))
        for producer_id in self.open_transactions.get(group, ()):
            names.update(self.pending[producer_id].get(group, ()))
        return names

    def _staged(self, group: str, topic: str, partition: int) -> Iterator[Packed]:
        for producer_id in self.open_transactions.get(group, ()):
            packed = self.pending[producer_id].get(group, {}).get(topic, {}).get(partition)
            if packed is not None:
                yield packed

    @property
    def count(self) -> int:
        return sum(len(partitions) for topics in self.committed.values() for partitions in topics.values())

    # --- replay ---

    def replay(self, record: OffsetRecord, record_offset: int, producer_id: int) -> None:
        group, topic, partition = record.group, record.topic, record.partition
        encoded = record.encoded_value
        if encoded is None:
            _remove(self.committed, group, topic, partition)
            self.forget_pending(group, topic, partition)
            return
        value = pack(encoded, record_offset)
        if producer_id == NO_PRODUCER_ID:
            self.committed.setdefault(group, {}).setdefault(topic, {})[partition] = value
            return
        staged = self.pending.setdefault(producer_id, {})
        staged.setdefault(group, {}).setdefault(topic, {})[partition] = value
        self.open_transactions.setdefault(group, set()).add(producer_id)
        self._groups_of.setdefault(producer_id, set()).add(group)

    def forget_pending(self, group: str, topic: str, partition: int) -> None:
        """Drop offsets staged by open transactions: a tombstone counts for them too."""
        for producer_id in self.open_transactions.get(group, ()):
            _remove(self.pending[producer_id], group, topic, partition)

    def replay_marker(self, producer_id: int, *, is_commit: bool) -> list[str]:
        """End a producer's transaction; returns the groups of its staged offsets."""
        staged = self.pending.pop(producer_id, None)
        if staged is None:
            return []
        groups = sorted(self._groups_of.pop(producer_id))
        for group in groups:
            producers = self.open_transactions[group]
            producers.discard(producer_id)
            if not producers:
                del self.open_transactions[group]
        if not is_commit:
            return groups
        for group, topics in staged.items():
            for topic, partitions in topics.items():
                target = self.committed.setdefault(group, {}).setdefault(topic, {})
                for partition, value in partitions.items():
                    present = target.get(partition)
                    if present is None or record_offset_of(present) < record_offset_of(value):
                        target[partition] = value
        return groups

    def prune(self) -> None:
        """Drop the empty tables that tombstones left while loading."""
        for group, topics in list(self.committed.items()):
            for topic in [topic for topic, partitions in topics.items() if not partitions]:
                del topics[topic]
            if not topics:
                del self.committed[group]


def _remove(offsets: Offsets, group: str, topic: str, partition: int) -> None:
    topics = offsets.get(group)
    if topics is None:
        return
    partitions = topics.get(topic)
    if partitions is None:
        return
    partitions.pop(partition, None)
    if not partitions:
        del topics[topic]
        if not topics:
            del offsets[group]
