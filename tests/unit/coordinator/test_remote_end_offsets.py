"""End offsets of partitions that other brokers lead, and the times at which they grew."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, cast

from barnabas.cluster.metadata.cache import MetadataCache, PartitionMetadata, TopicMetadata
from barnabas.coordinator.group.offsets.remote_end_offsets import SAMPLES_MAX, RemoteEndOffsets
from barnabas.core.errors import BrokerNotAvailable
from barnabas.core.ids import TopicPartition, Uuid
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tests.support.manual_time import ManualClock

ORDERS = TopicPartition("orders", 0)


class OneLeader:
    """Answers ListOffsets with `end_offset`, or not at all."""

    def __init__(self) -> None:
        self.end_offset: int | None = 0
        self.asked = 0

    async def send(self, broker_id: int, request: ListOffsetsRequest, _: object) -> ListOffsetsResponse:
        self.asked += 1
        assert broker_id == 7
        assert [each.name for each in request.topics] == ["orders"]
        if self.end_offset is None:
            raise BrokerNotAvailable("broker 7 is not in the cluster now")
        row = ListOffsetsPartitionResponse(partition_index=0, offset=self.end_offset)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="orders", partitions=[row])])


class Fixture:
    def __init__(self) -> None:
        metadata = MetadataCache("cluster")
        partition = PartitionMetadata(0, (7,), leader=7)
        metadata._topics["orders"] = TopicMetadata("orders", Uuid(bytes(15) + b"\1"), (partition,))
        self.clock = ManualClock()
        self.leader = OneLeader()
        self.ends = RemoteEndOffsets(metadata, cast("Any", self.leader), self.clock, self._run)

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run(work)

    def answered(self, end_offset: int | None, *, after_ms: int = 0) -> int:
        self.clock.advance(ms=after_ms)
        self.leader.end_offset = end_offset
        self.ends.refresh([ORDERS])
        return self.clock.now_ms()


def test_the_time_of_an_offset_is_that_of_the_first_answer_beyond_it() -> None:
    seen = Fixture()
    assert seen.ends.end_offset(ORDERS) is None
    first_ms = seen.answered(10)
    seen.answered(10, after_ms=100)
    second_ms = seen.answered(20, after_ms=100)
    assert seen.ends.end_offset(ORDERS) == 20
    assert seen.ends.passed_ms(ORDERS, 3) == first_ms, "it was there before the first answer"
    assert seen.ends.passed_ms(ORDERS, 10) == second_ms
    assert seen.ends.passed_ms(ORDERS, 20) is None


def test_a_leader_that_does_not_answer_is_asked_again() -> None:
    seen = Fixture()
    seen.answered(10)
    seen.answered(None)
    assert seen.ends.end_offset(ORDERS) == 10
    seen.answered(30)
    assert seen.ends.end_offset(ORDERS) == 30
    assert seen.leader.asked == 3


def test_partitions_without_commits_are_forgotten() -> None:
    seen = Fixture()
    seen.answered(10)
    seen.ends.refresh([])
    assert seen.ends.end_offset(ORDERS) is None


def test_the_past_is_bounded_and_keeps_its_beginning() -> None:
    seen = Fixture()
    first_ms = seen.answered(1)
    for end_offset in range(2, 10 * SAMPLES_MAX):
        last_ms = seen.answered(end_offset, after_ms=10)
    assert len(seen.ends._samples[ORDERS]) <= SAMPLES_MAX
    assert seen.ends.passed_ms(ORDERS, 0) == first_ms
    assert seen.ends.passed_ms(ORDERS, 10 * SAMPLES_MAX - 2) == last_ms
