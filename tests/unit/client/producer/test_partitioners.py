"""Partitioners: keys, sticky partitions, turns, functions."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pytest

from barnabas.client.core.partitioner import partition_for_key
from barnabas.client.producer.core.partitioners import (
    KEYS_CACHED_MAX,
    KeyPartitioner,
    RoundRobin,
    StickyPartition,
    check_partition,
    check_partitioner,
)
from barnabas.core.errors import InvalidConfig, InvalidPartitions


class Load:
    def __init__(self, queued: Sequence[int], available: Sequence[int] | None = None) -> None:
        self._queued = queued
        self._available = range(len(queued)) if available is None else available

    @property
    def partition_count(self) -> int:
        return len(self._queued)

    def available(self) -> Sequence[int]:
        return self._available

    def queued(self, partition: int) -> int:
        return self._queued[partition]


def test_keys_go_where_java_sends_them() -> None:
    keys = KeyPartitioner()
    for count in (1, 7, 12):
        for key in (b"", b"a", b"kafka", b"x" * 100):
            assert keys.partition(key, count) == keys.partition(key, count) == partition_for_key(key, count)


def test_the_memory_of_keys_is_bounded() -> None:
    keys = KeyPartitioner()
    for number in range(KEYS_CACHED_MAX + 10):
        keys.partition(b"%d" % number, 7)
    assert len(keys._known) <= KEYS_CACHED_MAX


def test_a_partition_sticks_for_the_size_of_a_batch() -> None:
    sticky = StickyPartition(Load([0] * 50), 1_000, random.Random(1))
    first = sticky.partition
    for _ in range(9):
        sticky.produced(100, batch_is_full=False)
    assert sticky.partition == first
    sticky.produced(100, batch_is_full=True)
    assert sticky.partition != first
    second = sticky.partition
    for _ in range(19):
        sticky.produced(100, batch_is_full=False)
    assert sticky.partition == second
    sticky.produced(100, batch_is_full=False)
    assert sticky.produced_bytes == 0


def test_partitions_with_long_queues_are_drawn_less_often() -> None:
    sticky = StickyPartition(Load([9, 0, 9, 9]), 1, random.Random(1))
    drawn: Counter[int] = Counter()
    for _ in range(1_300):
        sticky.move()
        drawn[sticky.partition] += 1
    assert drawn[1] > 800
    assert all(drawn[partition] > 20 for partition in (0, 2, 3))


def test_without_adaptation_all_partitions_are_equal() -> None:
    sticky = StickyPartition(Load([9, 0]), 1, random.Random(1), adaptive=False)
    drawn: Counter[int] = Counter()
    for _ in range(1_000):
        sticky.move()
        drawn[sticky.partition] += 1
    assert abs(drawn[0] - drawn[1]) < 150


@pytest.mark.parametrize(("available", "wanted"), [((2,), {2}), ((), {0, 1, 2})])
def test_partitions_without_a_leader_are_left_out(available: Sequence[int], wanted: set[int]) -> None:
    sticky = StickyPartition(Load([0, 0, 0], available), 1, random.Random(1))
    drawn = set()
    for _ in range(100):
        sticky.move()
        drawn.add(sticky.partition)
    assert drawn == wanted


def test_turns_are_by_topic() -> None:
    turns, load = RoundRobin(), Load([0, 0, 0], (0, 2))
    assert [turns.partition("a", load) for _ in range(3)] == [0, 2, 0]
    assert turns.partition("b", load) == 0


def test_a_partitioner_is_known_or_a_function() -> None:
    for setting in (None, "murmur2", "round-robin", lambda _topic, _key, _count: 0):
        check_partitioner(setting)
    with pytest.raises(InvalidConfig, match=r"partitioner\.class"):
        check_partitioner("random")


def test_a_partition_that_does_not_exist_is_named() -> None:
    assert check_partition("orders", 2, 3) == 2
    with pytest.raises(InvalidPartitions, match="0 to 2, not 3"):
        check_partition("orders", 3, 3)
