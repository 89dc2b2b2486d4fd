"""ListOffsets (2), OffsetForLeaderEpoch (23), DeleteRecords (21), DescribeProducers (61)."""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from barnabas.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.differential.case import Case, case
from tests.differential.world import NOWHERE, TIMESTAMP_MS, Topic, World
from tests.support.wire import batch


def list_offsets(topic: Topic, *asked: tuple[int, int], replica_id: int = -1, isolation_level: int = 0,
                 epoch: int = -1) -> ListOffsetsRequest:  # fmt: skip
    rows = [
        ListOffsetsPartition(partition_index=partition, timestamp=timestamp, current_leader_epoch=epoch)
        for partition, timestamp in asked
    ]
    return ListOffsetsRequest(
        replica_id=replica_id,
        isolation_level=isolation_level,
        topics=[ListOffsetsTopic(name=topic.name, partitions=rows)],
        timeout_ms=5_000,
    )


@case(ApiKey.LIST_OFFSETS)
def special_timestamps(world: World) -> Case:
    for timestamp in range(-8, 0):
        for name in ("letters", "empty", "trimmed", "stamped"):
            yield list_offsets(world.shared(name), (0, timestamp))


@case(ApiKey.LIST_OFFSETS)
def timestamps_of_records(world: World) -> Case:
    for timestamp in (0, TIMESTAMP_MS - 1, TIMESTAMP_MS, TIMESTAMP_MS + 1, TIMESTAMP_MS + 1_000,
                      TIMESTAMP_MS + 3_000, TIMESTAMP_MS + 3_001, 2**63 - 1):  # fmt: skip
        yield list_offsets(world.shared("letters"), (0, timestamp), (1, timestamp), (2, timestamp))
        yield list_offsets(world.shared("packed"), (0, timestamp))
        yield list_offsets(world.shared("trimmed"), (0, timestamp))
        yield list_offsets(world.shared("stamped"), (0, timestamp))


@case(ApiKey.LIST_OFFSETS)
def timestamps_out_of_order(world: World) -> Case:
    stamps = (5_000, 1_000, 9_000, 2_000)
    topic = world.topic(batches=[batch(timestamp_ms=TIMESTAMP_MS + stamp) for stamp in stamps])
    for stamp in (0, 1_000, 5_000, 5_001, 9_000, 9_001):
        yield list_offsets(topic, (0, TIMESTAMP_MS + stamp))
    yield list_offsets(topic, (0, -3))


@case(ApiKey.LIST_OFFSETS)
def unknown_topics_and_partitions(world: World) -> Case:
    yield list_offsets(NOWHERE, (0, -1))
    yield list_offsets(world.shared("letters"), (9, -1), (-1, -1), (0, -1))
    yield list_offsets(Topic("a/b"), (0, -1))
    yield list_offsets(Topic(""), (0, -1))


@case(ApiKey.LIST_OFFSETS)
def partitions_asked_for_twice(world: World) -> Case:
    yield list_offsets(world.shared("letters"), (0, -1), (0, -2), (1, -1))
    letters = world.shared("letters")
    row = ListOffsetsTopic(
        name=letters.name, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)]
    )
    yield ListOffsetsRequest(replica_id=-1, topics=[row, row])


@case(ApiKey.LIST_OFFSETS)
def nothing_asked(world: World) -> Case:
    yield ListOffsetsRequest(replica_id=-1, topics=[])
    yield list_offsets(world.shared("letters"))


@case(ApiKey.LIST_OFFSETS, "4+")
def leader_epochs_of_list_offsets(world: World) -> Case:
    for epoch in (0, 1, 9, -2):
        yield list_offsets(world.shared("letters"), (0, -1), epoch=epoch)


@case(ApiKey.LIST_OFFSETS, "2+")
def isolation_levels(world: World) -> Case:
    for level in (1, 2, -1):
        yield list_offsets(world.shared("letters"), (0, -1), isolation_level=level)
        yield list_offsets(world.shared("letters"), (0, TIMESTAMP_MS), isolation_level=level)


@case(ApiKey.LIST_OFFSETS)
def replicas(world: World) -> Case:
    for replica_id in (1, 2, -2, -3):
        yield list_offsets(world.shared("letters"), (0, -1), replica_id=replica_id)


def epochs(topic: Topic, *asked: tuple[int, int, int], replica_id: int = -1) -> OffsetForLeaderEpochRequest:
    rows = [
        OffsetForLeaderPartition(partition=partition, current_leader_epoch=current, leader_epoch=wanted)
        for partition, current, wanted in asked
    ]
    return OffsetForLeaderEpochRequest(
        replica_id=replica_id, topics=[OffsetForLeaderTopic(topic=topic.name, partitions=rows)]
    )


@case(ApiKey.OFFSET_FOR_LEADER_EPOCH)
def epochs_of_a_log(world: World) -> Case:
    for name in ("letters", "empty", "trimmed"):
        for wanted in (-2, -1, 0, 1, 5, 2**31 - 1):
            yield epochs(world.shared(name), (0, -1, wanted))


@case(ApiKey.OFFSET_FOR_LEADER_EPOCH)
def current_epochs(world: World) -> Case:
    for current in (0, 1, 7, -2):
        yield epochs(world.shared("letters"), (0, current, 0))


@case(ApiKey.OFFSET_FOR_LEADER_EPOCH)
def epochs_of_unknown_partitions(world: World) -> Case:
    yield epochs(NOWHERE, (0, -1, 0))
    yield epochs(world.shared("letters"), (9, -1, 0), (-1, -1, 0), (0, -1, 0))
    yield epochs(world.shared("letters"), (0, -1, 0), (0, -1, 1))
    yield OffsetForLeaderEpochRequest(replica_id=-1, topics=[])
    yield epochs(world.shared("letters"))


@case(ApiKey.OFFSET_FOR_LEADER_EPOCH, "3+")
def epochs_for_replicas(world: World) -> Case:
    for replica_id in (-2, 1, 2):
        yield epochs(world.shared("letters"), (0, -1, 0), replica_id=replica_id)


def delete_records(topic: Topic, *asked: tuple[int, int], timeout_ms: int = 5_000) -> DeleteRecordsRequest:
    rows = [DeleteRecordsPartition(partition_index=partition, offset=offset) for partition, offset in asked]
    return DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=topic.name, partitions=rows)], timeout_ms=timeout_ms
    )


TEN = [batch([b"x", b"y"], timestamp_ms=TIMESTAMP_MS + number) for number in range(5)]


@case(ApiKey.DELETE_RECORDS)
def deleting_up_to_an_offset(world: World) -> Case:
    topic = world.topic(batches=TEN)
    for offset in (0, 3, 2, 5, 10):
        yield delete_records(topic, (0, offset))
    yield list_offsets(topic, (0, -2), (0, -1))


@case(ApiKey.DELETE_RECORDS)
def deleting_everything(world: World) -> Case:
    topic = world.topic(batches=TEN)
    yield delete_records(topic, (0, -1))
    yield list_offsets(topic, (0, -2))
    yield delete_records(topic, (0, -1))


@case(ApiKey.DELETE_RECORDS)
def deleting_past_the_end(world: World) -> Case:
    topic = world.topic(batches=TEN)
    for offset in (11, 2**63 - 1, -2, -(2**63)):
        yield delete_records(topic, (0, offset))
    yield list_offsets(topic, (0, -2))


@case(ApiKey.DELETE_RECORDS)
def deleting_from_what_is_not_there(world: World) -> Case:
    yield delete_records(NOWHERE, (0, 0))
    yield delete_records(world.shared("empty"), (5, 0), (-1, 0))
    yield delete_records(world.shared("empty"), (0, 0))
    yield delete_records(world.shared("empty"))
    yield delete_records(Topic("a/b"), (0, 0))
    yield DeleteRecordsRequest(topics=[], timeout_ms=1_000)


@case(ApiKey.DELETE_RECORDS)
def deleting_from_several(world: World) -> Case:
    topic = world.topic(partitions=2, batches=TEN)
    yield delete_records(topic, (0, 2), (1, 1), (2, 0))
    yield delete_records(topic, (0, 4), (0, 6))


@case(ApiKey.DELETE_RECORDS)
def deleting_from_a_compacted_topic(world: World) -> Case:
    topic = world.topic(configs={"cleanup.policy": "compact"})
    yield delete_records(topic, (0, 0))
    both = world.topic(configs={"cleanup.policy": "compact,delete"})
    yield delete_records(both, (0, 0))


@case(ApiKey.DESCRIBE_PRODUCERS)
def producers(world: World) -> Case:
    topic = world.topic()
    asked = TopicRequest(name=topic.name, partition_indexes=[0])
    yield DescribeProducersRequest(topics=[asked])
    for producer_id, sequence in ((7_001, 0), (7_002, 5), (7_001, 1)):
        world.append(topic, batch(producer_id=producer_id, producer_epoch=3, base_sequence=sequence))
    world.append(topic, batch())
    yield DescribeProducersRequest(topics=[asked])


@case(ApiKey.DESCRIBE_PRODUCERS)
def producers_of_what_is_not_there(world: World) -> Case:
    yield DescribeProducersRequest(topics=[])
    yield DescribeProducersRequest(topics=[TopicRequest(name=NOWHERE.name, partition_indexes=[0])])
    yield DescribeProducersRequest(topics=[TopicRequest(name="letters", partition_indexes=[0, 7, -1])])
    yield DescribeProducersRequest(topics=[TopicRequest(name="letters", partition_indexes=[])])
    yield DescribeProducersRequest(topics=[TopicRequest(name="a/b", partition_indexes=[0])])
    yield DescribeProducersRequest(topics=[TopicRequest(name="letters", partition_indexes=[1, 1])])
