"""A transactional producer by hand, every request in any version: a test may do what no client would."""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.client.aio.channel import Channel
from barnabas.core.errors import name_of
from barnabas.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from barnabas.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from tests.support.wire import batch

TRANSACTIONAL = 0x10
GROUP, TRANSACTION = 0, 1
LAST_BEFORE_EPOCH_BUMP = {"produce": 11, "end": 4, "offsets": 4}
FIRST_WITH_EPOCH_BUMP = {"produce": 12, "end": 5, "offsets": 5}


@dataclass
class HandProducer:
    """`id` and `epoch` may be set to anything; sequences count per partition and epoch."""

    channel: Channel
    transactional_id: str = "tx"
    id: int = -1
    epoch: int = -1

    def __post_init__(self) -> None:
        self._sequences: dict[tuple[str, int, int], int] = {}

    def clone(self) -> HandProducer:
        """The same producer as it is now, which will not learn what the other one learns."""
        return HandProducer(self.channel, self.transactional_id, self.id, self.epoch)

    async def find(self, key_type: int = TRANSACTION, key: str | None = None) -> str:
        request = FindCoordinatorRequest(key=key or self.transactional_id, key_type=key_type)
        return name_of((await self.channel.send(request, FindCoordinatorResponse, version_max=3)).error_code)

    async def init(self, *, timeout_ms: int = 60_000, version: int = 5) -> str:
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=timeout_ms
        )
        answer = await self.channel.send(request, InitProducerIdResponse, version_max=version)
        if not answer.error_code:
            self.id, self.epoch = answer.producer_id, answer.producer_epoch
        return name_of(answer.error_code)

    async def add(self, topic: str, *partitions: int, version: int = 3) -> str:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(partitions or (0,)))],
        )
        answer = await self.channel.send(request, AddPartitionsToTxnResponse, version_max=version)
        (topic_result,) = answer.results_by_topic_v3_and_below
        codes = {each.partition_error_code for each in topic_result.results_by_partition}
        return "|".join(sorted(map(name_of, codes)))

    def produce_request(self, topic: str, *values: bytes, partition: int = 0) -> ProduceRequest:
        place = (topic, partition, self.epoch)
        sequence = self._sequences.get(place, 0)
        self._sequences[place] = sequence + len(values)
        records = batch(
            values,
            attributes=TRANSACTIONAL,
            producer_id=self.id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
        )
        return ProduceRequest(
            transactional_id=self.transactional_id,
            acks=-1,
            timeout_ms=30_000,
            topic_data=[
                TopicProduceData(
                    name=topic, partition_data=[PartitionProduceData(index=partition, records=records)]
                )
            ],
        )

    async def produce(self, topic: str, *values: bytes, partition: int = 0, version: int = 11) -> str:
        request = self.produce_request(topic, *values, partition=partition)
        answer = await self.channel.send(request, ProduceResponse, version_max=version)
        return name_of(answer.responses[0].partition_responses[0].error_code)

    async def add_offsets(self, group: str, *, version: int = 4) -> str:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.id,
            producer_epoch=self.epoch,
            group_id=group,
        )
        answer = await self.channel.send(request, AddOffsetsToTxnResponse, version_max=version)
        return name_of(answer.error_code)

    async def commit_offset(self, group: str, topic: str, offset: int, *, version: int = 4) -> str:
        partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=self.id,
            producer_epoch=self.epoch,
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[partition])],
        )
        answer = await self.channel.send(request, TxnOffsetCommitResponse, version_max=version)
        return name_of(answer.topics[0].partitions[0].error_code)

    async def end(self, *, commit: bool, version: int = 4) -> str:
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.id,
            producer_epoch=self.epoch,
            committed=commit,
        )
        answer = await self.channel.send(request, EndTxnResponse, version_max=version)
        if version >= FIRST_WITH_EPOCH_BUMP["end"] and not answer.error_code:
            self.id, self.epoch = answer.producer_id, answer.producer_epoch
        return name_of(answer.error_code)
