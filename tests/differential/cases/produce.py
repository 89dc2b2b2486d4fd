"""Produce (0): what is taken, what is refused and with which code, and what an answer carries.

Null records are no case: Kafka fails on them without an answer and leaves the client waiting.
"""

from __future__ import annotations

import struct

from barnabas.core.ids import ZERO_UUID
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.records.compression import Codec
from tests.differential.case import Case, Unanswered, case
from tests.differential.prepared import compressed
from tests.differential.world import NOWHERE, TIMESTAMP_MS, Topic, World
from tests.support.wire import batch, message_set_entry, record

TRANSACTIONAL, CONTROL = 0x10, 0x20
PRODUCER_ID = 4_000_000


def produce(topic: Topic, records: bytes, *, partition: int = 0, acks: int = -1,
            timeout_ms: int = 10_000, transactional_id: str | None = None) -> ProduceRequest:  # fmt: skip
    data = PartitionProduceData(index=partition, records=records)
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[TopicProduceData(name=topic.name, topic_id=topic.id, partition_data=[data])],
    )


def end_offset(topic: Topic) -> ListOffsetsRequest:
    """Shows whether anything was appended."""
    asked = ListOffsetsPartition(partition_index=0, timestamp=-1)
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic.name, partitions=[asked])])


def idempotent(sequence: int, *, count: int = 1, epoch: int = 0, producer_id: int = PRODUCER_ID,
               attributes: int = 0) -> bytes:  # fmt: skip
    return batch([b"v"] * count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence,
                 attributes=attributes)  # fmt: skip


@case(ApiKey.PRODUCE)
def one_record(world: World) -> Case:
    topic = world.topic()
    yield produce(topic, batch())
    yield produce(topic, batch([b"1", b"2", b"3"]))
    yield end_offset(topic)


@case(ApiKey.PRODUCE)
def acks_of_the_leader(world: World) -> Case:
    yield produce(world.topic(), batch(), acks=1)


@case(ApiKey.PRODUCE)
def acks_zero_is_not_answered(world: World) -> Case:
    topic = world.topic()
    yield Unanswered(produce(topic, batch(), acks=0))
    yield end_offset(topic)


@case(ApiKey.PRODUCE)
def acks_zero_that_fails_closes(world: World) -> Case:
    yield Unanswered(produce(NOWHERE, batch(), acks=0))
    yield Unanswered(produce(world.shared("empty"), batch(crc=1), acks=0))
    yield Unanswered(produce(world.shared("empty"), batch(attributes=CONTROL), acks=0))


@case(ApiKey.PRODUCE)
def acks_that_do_not_exist(world: World) -> Case:
    topic = world.topic()
    yield produce(topic, batch(), acks=2)
    yield produce(topic, batch(), acks=-2)
    yield end_offset(topic)


@case(ApiKey.PRODUCE)
def no_topics(world: World) -> Case:
    yield ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=[])
    yield Unanswered(ProduceRequest(acks=0, timeout_ms=1_000, topic_data=[]))


@case(ApiKey.PRODUCE)
def no_partitions(world: World) -> Case:
    topic = world.shared("empty")
    data = TopicProduceData(name=topic.name, topic_id=topic.id, partition_data=[])
    yield ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=[data])


@case(ApiKey.PRODUCE)
def an_unknown_topic(world: World) -> Case:
    yield produce(NOWHERE, batch())


@case(ApiKey.PRODUCE)
def an_unknown_partition(world: World) -> Case:
    topic = world.shared("empty")
    yield produce(topic, batch(), partition=7)
    yield produce(topic, batch(), partition=-1)


@case(ApiKey.PRODUCE, "13+")
def a_zero_topic_id(world: World) -> Case:
    yield produce(Topic("", ZERO_UUID), batch())


@case(ApiKey.PRODUCE, "0-12")
def names_that_cannot_be(world: World) -> Case:
    for name in ("", ".", "..", "a/b", "a b", "x" * 250, "naïve"):
        yield produce(Topic(name), batch())


@case(ApiKey.PRODUCE)
def several_partitions_each_with_its_own_answer(world: World) -> Case:
    topic = world.topic(partitions=2)
    data = [
        PartitionProduceData(index=0, records=batch()),
        PartitionProduceData(index=1, records=batch(crc=5)),
        PartitionProduceData(index=2, records=batch()),
    ]
    other = TopicProduceData(
        name=NOWHERE.name,
        topic_id=NOWHERE.id,
        partition_data=[PartitionProduceData(index=0, records=batch())],
    )
    mine = TopicProduceData(name=topic.name, topic_id=topic.id, partition_data=data)
    yield ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=[mine, other])


@case(ApiKey.PRODUCE)
def a_partition_twice(world: World) -> Case:
    topic = world.topic()
    data = [PartitionProduceData(index=0, records=batch([value])) for value in (b"1", b"2")]
    yield ProduceRequest(
        acks=-1,
        timeout_ms=1_000,
        topic_data=[TopicProduceData(name=topic.name, topic_id=topic.id, partition_data=data)],
    )
    yield end_offset(topic)


@case(ApiKey.PRODUCE)
def empty_records(world: World) -> Case:
    topic = world.topic()
    yield produce(topic, b"")
    yield end_offset(topic)


@case(ApiKey.PRODUCE)
def a_wrong_checksum(world: World) -> Case:
    topic = world.topic()
    yield produce(topic, batch(crc=1))
    yield end_offset(topic)


@case(ApiKey.PRODUCE)
def a_batch_cut_short(world: World) -> Case:
    topic = world.topic()
    whole = batch([b"value"])
    for size in (1, 12, 17, 60, len(whole) - 1):
        yield produce(topic, whole[:size])
    yield end_offset(topic)


@case(ApiKey.PRODUCE)
def bytes_after_the_batch(world: World) -> Case:
    topic = world.topic()
    yield produce(topic, batch() + b"\x00\x00\x00")
    yield end_offset(topic)


@case(ApiKey.PRODUCE)
def two_batches(world: World) -> Case:
    topic = world.topic()
    yield produce(topic, batch() + batch())
    yield end_offset(topic)


@case(ApiKey.PRODUCE)
def old_and_future_magic(world: World) -> Case:
    topic = world.topic()
    yield produce(topic, message_set_entry(b"old", magic=0))
    yield produce(topic, message_set_entry(b"old", magic=1))
    yield produce(topic, batch(magic=3))
    yield produce(topic, batch(magic=-1))
    yield end_offset(topic)


@case(ApiKey.PRODUCE)
def a_control_batch(world: World) -> Case:
    topic = world.topic()
    yield produce(topic, batch(attributes=CONTROL))
    yield produce(
        topic, batch(attributes=CONTROL | TRANSACTIONAL, producer_id=1, producer_epoch=0, base_sequence=0)
    )
    yield end_offset(topic)


@case(ApiKey.PRODUCE)
def counts_that_do_not_fit(world: World) -> Case:
    topic = world.topic()
    one = record(b"v")
    yield produce(topic, batch(records=one, count=2))
    yield produce(topic, batch(records=one, count=1, last_offset_delta=5))
    yield produce(topic, batch(records=one, count=0, last_offset_delta=0))
    yield produce(topic, batch(records=one, count=-1, last_offset_delta=0))
    yield produce(topic, batch(records=b"", count=0, last_offset_delta=-1))
    yield produce(topic, batch(records=b"", count=0, last_offset_delta=0))
    yield end_offset(topic)


@case(ApiKey.PRODUCE)
def records_that_do_not_parse(world: World) -> Case:
    topic = world.topic()
    one = record(b"value")
    yield produce(topic, batch(records=one[:-1], count=1))
    yield produce(topic, batch(records=one + b"\x00", count=1))
    yield produce(topic, batch(records=b"\xff" * 20, count=1))
    yield produce(topic, batch(records=b"\x00", count=1))
    yield end_offset(topic)


@case(ApiKey.PRODUCE)
def every_codec(world: World) -> Case:
    topic = world.topic()
    for codec in Codec:
        yield produce(topic, compressed(codec))
    yield end_offset(topic)


@case(ApiKey.PRODUCE)
def a_codec_that_does_not_exist(world: World) -> Case:
    topic = world.topic()
    yield produce(topic, batch(attributes=5))
    yield produce(topic, batch(attributes=7))
    yield end_offset(topic)


@case(ApiKey.PRODUCE)
def too_large_a_message(world: World) -> Case:
    topic = world.topic(configs={"max.message.bytes": "200"})
    yield produce(topic, batch([b"x" * 100]))
    yield produce(topic, batch([b"x" * 200]))
    yield end_offset(topic)


@case(ApiKey.PRODUCE)
def a_compacted_topic_needs_keys(world: World) -> Case:
    topic = world.topic(configs={"cleanup.policy": "compact"})
    yield produce(topic, batch([b"v"]))
    yield produce(topic, batch(records=record(b"v", key=b"k"), count=1))
    mixed = record(b"v", key=b"k") + record(b"v", offset_delta=1) + record(b"v", offset_delta=2)
    yield produce(topic, batch(records=mixed, count=3))
    yield produce(topic, batch(records=record(None, key=b"k"), count=1))
    yield end_offset(topic)


@case(ApiKey.PRODUCE)
def log_append_time(world: World) -> Case:
    topic = world.topic(configs={"message.timestamp.type": "LogAppendTime"})
    yield produce(topic, batch())
    yield produce(topic, batch(attributes=8))


@case(ApiKey.PRODUCE)
def the_timestamp_type_is_the_brokers(world: World) -> Case:
    topic = world.topic()
    yield produce(topic, batch(attributes=8))
    yield end_offset(topic)


@case(ApiKey.PRODUCE)
def timestamps_out_of_bounds(world: World) -> Case:
    topic = world.topic(
        configs={"message.timestamp.before.max.ms": "1000", "message.timestamp.after.max.ms": "1000"}
    )
    yield produce(topic, batch(timestamp_ms=TIMESTAMP_MS))
    yield produce(topic, batch([b"1", b"2"], timestamp_ms=TIMESTAMP_MS))
    yield produce(topic, batch(timestamp_ms=9_000_000_000_000))
    yield produce(world.topic(), batch(timestamp_ms=9_000_000_000_000))
    yield produce(world.topic(), batch(timestamp_ms=-1))
    yield produce(world.topic(), batch(timestamp_ms=-2))
    yield end_offset(topic)


@case(ApiKey.PRODUCE)
def another_compression_type(world: World) -> Case:
    for codec in ("gzip", "uncompressed"):
        topic = world.topic(configs={"compression.type": codec})
        yield produce(topic, batch([b"v" * 10] * 3))
        yield produce(topic, compressed(Codec.LZ4))
        yield end_offset(topic)


@case(ApiKey.PRODUCE)
def a_base_offset_of_the_clients_own(world: World) -> Case:
    topic = world.topic()
    yield produce(topic, struct.pack(">q", 77) + batch()[8:])
    yield produce(topic, struct.pack(">q", -5) + batch()[8:])
    yield end_offset(topic)


@case(ApiKey.PRODUCE)
def offset_deltas_with_gaps(world: World) -> Case:
    topic = world.topic()
    gapped = record(b"v") + record(b"v", offset_delta=2)
    yield produce(topic, batch(records=gapped, count=2, last_offset_delta=1))
    yield produce(topic, batch(records=gapped, count=2, last_offset_delta=2))
    yield end_offset(topic)


@case(ApiKey.PRODUCE, "3+")
def idempotent_in_order(world: World) -> Case:
    topic = world.topic()
    for sequence in range(3):
        yield produce(topic, idempotent(sequence))
    yield end_offset(topic)


@case(ApiKey.PRODUCE, "3+")
def idempotent_duplicates_give_the_first_offset(world: World) -> Case:
    topic = world.topic()
    for sequence in range(7):
        yield produce(topic, idempotent(sequence))
    for sequence in (6, 5, 4, 3, 2):
        yield produce(topic, idempotent(sequence))
    yield produce(topic, idempotent(1))
    yield produce(topic, idempotent(0))
    yield end_offset(topic)


@case(ApiKey.PRODUCE, "3+")
def idempotent_gaps(world: World) -> Case:
    topic = world.topic()
    yield produce(topic, idempotent(0))
    yield produce(topic, idempotent(2))
    yield produce(topic, idempotent(1, count=2))
    yield produce(topic, idempotent(2, count=2))
    yield end_offset(topic)


@case(ApiKey.PRODUCE, "3+")
def idempotent_first_sequence_is_free(world: World) -> Case:
    topic = world.topic()
    yield produce(topic, idempotent(10))
    yield produce(topic, idempotent(11))
    yield end_offset(topic)


@case(ApiKey.PRODUCE, "3+")
def idempotent_epochs(world: World) -> Case:
    topic = world.topic()
    yield produce(topic, idempotent(0, epoch=1))
    yield produce(topic, idempotent(1, epoch=0))
    yield produce(topic, idempotent(5, epoch=2))
    yield produce(topic, idempotent(0, epoch=2))
    yield produce(topic, idempotent(1, epoch=1))
    yield end_offset(topic)


@case(ApiKey.PRODUCE, "3+")
def idempotent_sequences_wrap(world: World) -> Case:
    topic = world.topic()
    yield produce(topic, idempotent(2**31 - 2, count=2))
    yield produce(topic, idempotent(0))
    yield produce(topic, idempotent(2**31 - 2, count=2))
    other = world.topic()
    yield produce(other, idempotent(2**31 - 1, count=3))
    yield produce(other, idempotent(2))
    yield end_offset(other)


@case(ApiKey.PRODUCE, "3+")
def idempotent_nonsense(world: World) -> Case:
    topic = world.topic()
    yield produce(topic, batch(producer_id=PRODUCER_ID, producer_epoch=0, base_sequence=-1))
    yield produce(topic, batch(producer_id=PRODUCER_ID, producer_epoch=-1, base_sequence=0))
    yield produce(topic, batch(producer_id=PRODUCER_ID, producer_epoch=0, base_sequence=-2))
    yield produce(topic, batch(producer_id=-1, producer_epoch=0, base_sequence=0))
    yield produce(topic, batch(producer_id=-2, producer_epoch=0, base_sequence=0))
    yield end_offset(topic)


@case(ApiKey.PRODUCE, "3+")
def idempotent_two_batches(world: World) -> Case:
    topic = world.topic()
    yield produce(topic, idempotent(0) + idempotent(1))
    yield end_offset(topic)


@case(ApiKey.PRODUCE, "3+")
def a_transactional_batch_without_a_transactional_id(world: World) -> Case:
    topic = world.topic()
    yield produce(topic, idempotent(0, attributes=TRANSACTIONAL))
    yield produce(topic, batch(attributes=TRANSACTIONAL))
    yield end_offset(topic)


@case(ApiKey.PRODUCE, "3+")
def a_transactional_id_without_a_transaction(world: World) -> Case:
    topic = world.topic()
    yield produce(topic, idempotent(0, attributes=TRANSACTIONAL), transactional_id="nobody")
    yield produce(topic, idempotent(0), transactional_id="nobody")
    yield end_offset(topic)


@case(ApiKey.PRODUCE)
def in_sync_replicas_too_few(world: World) -> Case:
    topic = world.topic(configs={"min.insync.replicas": "2"})
    yield produce(topic, batch())
    yield produce(topic, batch(), acks=1)
    yield end_offset(topic)


@case(ApiKey.PRODUCE)
def a_timeout_of_nothing(world: World) -> Case:
    topic = world.topic()
    yield produce(topic, batch(), timeout_ms=0)
    yield produce(topic, batch(), timeout_ms=-1)
