"""Batches sent to leaders: no answer makes the sender forget one."""

from __future__ import annotations

from collections import deque
from typing import Any, cast

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")

from barnabas.core.ids import TopicPartition
from barnabas.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from pyspark_barnabas.produce.producer import BatchSender, Outgoing

TOPIC_PARTITIONS = [TopicPartition("out", number) for number in range(2)]


class Leader:
    """Answers for the given partitions first, and then for all."""

    def __init__(self, *answered: list[int]) -> None:
        self.answered = deque(answered)
        self.asked: list[list[int]] = []
        self._open: deque[ProduceResponse] = deque()

    def post(self, request: ProduceRequest, *_: Any, **__: Any) -> None:
        partitions = [row.index for row in request.topic_data[0].partition_data]
        self.asked.append(partitions)
        told = self.answered.popleft() if self.answered else partitions
        rows = [PartitionProduceResponse(index=each, base_offset=10 + each) for each in told]
        self._open.append(
            ProduceResponse(responses=[TopicProduceResponse(name="out", partition_responses=rows)])
        )

    def take(self) -> ProduceResponse:
        return self._open.popleft()

    def ask(self, request: ProduceRequest, *_: Any, **__: Any) -> ProduceResponse:
        self.post(request)
        return self.take()


class OneLeader:
    """A cluster that is one broker."""

    def __init__(self, leader: Leader) -> None:
        self._leader = leader
        self.state = self

    def leader(self, _: TopicPartition) -> Leader:
        return self._leader

    def forget(self) -> None: ...

    def retries(self, _: float) -> None: ...


def test_a_partition_that_the_answer_leaves_out_is_sent_again() -> None:
    leader = Leader([0])
    acknowledged: list[tuple[int, int]] = []
    sender = BatchSender(
        cast("Any", OneLeader(leader)),
        acknowledged=lambda batch, offset: acknowledged.append((batch.topic_partition.partition, offset)),
    )
    sender.send(
        Outgoing(topic_partition, 0, bytearray(b"records"), 1) for topic_partition in TOPIC_PARTITIONS
    )
    sender.flush()
    assert leader.asked == [[0, 1], [1]]
    assert acknowledged == [(0, 10), (1, 11)]
