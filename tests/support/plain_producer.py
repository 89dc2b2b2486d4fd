"""Plain producer, which owes nothing to the library: a batch per partition, one request per leader.

With acks=all, and where the broker supplies producer ids, the producer is idempotent: every batch carries a
sequence number, so that a batch sent twice is written once. One batch of a partition is in flight at a time,
which keeps the order through retries. A batch that is given up leaves a gap in the sequence, and the broker
would reject all later ones. So the next `send` takes a new producer id.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.core.cluster_state import Topic
from barnabas.client.core.partitioner import partition_for_key
from barnabas.client.core.retries import RETRY_TIMEOUT_MS
from barnabas.client.core.transaction_steps import idempotent_producer
from barnabas.core.errors import (
    DuplicateSequenceNumber,
    InvalidPartitions,
    KafkaError,
    LeaderNotAvailable,
    UnknownTopicOrPartition,
    error_for,
)
from barnabas.core.ids import ACKS_ALL, ZERO_UUID
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from barnabas.records.builder import BatchBuilder
from barnabas.records.compression import Codec
from barnabas.records.record import Header

BATCH_BYTES = 256 * 1024
VERSION_WITHOUT_TOPIC_IDS = 12

_SEQUENCE_MASK = 0x7FFFFFFF


class OutgoingRecord(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header] = ()
    partition: int | None = None
    timestamp_ms: int | None = None
    """None means the time of sending."""


@dataclass(slots=True)
class Batch:
    partition: int
    records: bytearray
    record_count: int


class Producer:
    def __init__(
        self,
        cluster: ClusterClient,
        *,
        acks: int = ACKS_ALL,
        codec: Codec = Codec.NONE,
        batch_bytes: int = BATCH_BYTES,
    ) -> None:
        self._cluster = cluster
        self._acks = acks
        self._codec = codec
        self._batch_bytes = batch_bytes
        self._producer_id = NO_PRODUCER_ID
        self._producer_epoch = NO_PRODUCER_EPOCH
        self._identified = acks != ACKS_ALL
        self._sequences: dict[tuple[str, int], int] = {}
        self._turn = 0

    async def send(self, topic: str, records: Iterable[OutgoingRecord]) -> int:
        """Write the records; returns their number once they are acknowledged."""
        found = await self._cluster.topic(topic, auto_create=True)
        if not self._identified:
            await self._identify()
        queues: defaultdict[int, deque[Batch]] = defaultdict(deque)
        sent = 0
        for batch in self._batches(found, records):
            queues[batch.partition].append(batch)
            sent += batch.record_count
        while queues:
            try:
                await self._write(topic, [queue[0] for queue in queues.values()])
            except BaseException:
                self._forget_identity()
                raise
            for partition in list(queues):
                queues[partition].popleft()
                if not queues[partition]:
                    del queues[partition]
        return sent

    def _forget_identity(self) -> None:
        self._producer_id, self._producer_epoch = NO_PRODUCER_ID, NO_PRODUCER_EPOCH
        self._sequences.clear()
        self._identified = self._acks != ACKS_ALL

    async def _identify(self) -> None:
        """Request a producer id, if the broker supplies them."""
        channel = await self._cluster.any_channel()
        self._identified = True
        if not channel.supports(ApiKey.INIT_PRODUCER_ID):
            return
        self._producer_id, self._producer_epoch = await self._cluster.run(
            idempotent_producer(self._cluster.state)
        )

    def _batches(self, topic: Topic, records: Iterable[OutgoingRecord]) -> list[Batch]:
        builders: dict[int, BatchBuilder] = {}
        finished: list[Batch] = []
        now_ms = self._cluster.clock.now_ms()
        self._turn += 1
        for record in records:
            partition = self._partition(topic, record)
            builder = builders.get(partition)
            if builder is None:
                builder = builders[partition] = self._builder(topic.name, partition)
            timestamp_ms = now_ms if record.timestamp_ms is None else record.timestamp_ms
            builder.append(record.key, record.value, record.headers, timestamp_ms)
            if builder.inflated_size_bytes >= self._batch_bytes:
                finished.append(self._finish(topic.name, partition, builders.pop(partition)))
        finished += [self._finish(topic.name, partition, left) for partition, left in builders.items()]
        return finished

    def _partition(self, topic: Topic, record: OutgoingRecord) -> int:
        count = len(topic.partitions)
        if record.partition is not None:
            if not 0 <= record.partition < count:
                raise InvalidPartitions(
                    f"{topic.name} has partitions 0 to {count - 1}, not {record.partition}"
                )
            return record.partition
        return self._turn % count if record.key is None else partition_for_key(record.key, count)

    def _builder(self, topic: str, partition: int) -> BatchBuilder:
        if self._producer_id == NO_PRODUCER_ID:
            return BatchBuilder(codec=self._codec, base_sequence=NO_SEQUENCE)
        return BatchBuilder(
            codec=self._codec,
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            base_sequence=self._sequences.get((topic, partition), 0),
        )

    def _finish(self, topic: str, partition: int, builder: BatchBuilder) -> Batch:
        count = builder.record_count
        key = (topic, partition)
        self._sequences[key] = (self._sequences.get(key, 0) + count) & _SEQUENCE_MASK
        return Batch(partition, builder.build(), count)

    async def _write(self, topic: str, batches: Sequence[Batch]) -> None:
        """Send one batch to each of several partitions, until all are acknowledged."""
        retries = self._cluster.state.retries(RETRY_TIMEOUT_MS)
        left = {batch.partition: batch for batch in batches}
        while True:
            failures = await self._attempt(topic, left)
            left = {partition: left[partition] for partition in failures}
            if not left:
                return
            fatal = [each for each in failures.values() if not each.retriable]
            pause_ms = retries.next_pause_ms((fatal or [*failures.values()])[0])
            self._cluster.state.forget_topic(topic)
            await asyncio.sleep(pause_ms / 1_000)

    async def _attempt(self, topic: str, batches: dict[int, Batch]) -> dict[int, KafkaError]:
        """Send each batch to its leader once; returns the failed partitions with their errors."""
        found = await self._cluster.topic(topic, auto_create=True)
        by_leader: defaultdict[int, list[Batch]] = defaultdict(list)
        failures: dict[int, KafkaError] = {}
        for batch in batches.values():
            if batch.partition < len(found.partitions):
                by_leader[found.partitions[batch.partition].leader_id].append(batch)
            else:  # the broker's metadata lacks the partition
                error = UnknownTopicOrPartition(f"{topic} has no partition {batch.partition}")
                failures[batch.partition] = error
        outcomes = await asyncio.gather(
            *(self._send_to_leader(found, leader, group) for leader, group in by_leader.items())
        )
        for outcome in outcomes:
            failures |= outcome
        return failures

    async def _send_to_leader(self, topic: Topic, leader: int, batches: list[Batch]) -> dict[int, KafkaError]:
        data = [PartitionProduceData(index=batch.partition, records=batch.records) for batch in batches]
        request = ProduceRequest(
            acks=self._acks,
            timeout_ms=int(self._cluster.request_timeout_ms * 0.9),
            topic_data=[TopicProduceData(name=topic.name, topic_id=topic.topic_id, partition_data=data)],
        )
        version_max = VERSION_WITHOUT_TOPIC_IDS if topic.topic_id == ZERO_UUID else None
        try:
            channel = await self._cluster.channel_to(leader)
            if self._acks == 0:
                await channel.send_unanswered(request, version_max=version_max)
                return {}
            answer = await channel.send(request, ProduceResponse, version_max=version_max)
        except KafkaError as error:
            return {batch.partition: error for batch in batches}
        rows = {row.index: row for group in answer.responses for row in group.partition_responses}
        failures = {batch.partition: _failure(topic.name, rows.get(batch.partition)) for batch in batches}
        return {partition: error for partition, error in failures.items() if error is not None}


def _failure(topic: str, row: PartitionProduceResponse | None) -> KafkaError | None:
    if row is None:
        return LeaderNotAvailable(f"the Produce response lacks a partition of {topic}")
    if row.error_code in (0, DuplicateSequenceNumber.code):
        return None
    return error_for(row.error_code, row.error_message or f"partition {row.index} of {topic}")
