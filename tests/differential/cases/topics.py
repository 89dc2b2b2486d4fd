"""CreateTopics (19), DeleteTopics (20), CreatePartitions (37), ElectLeaders (43),
AlterPartitionReassignments (45), ListPartitionReassignments (46)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from barnabas.core.ids import ZERO_UUID, Uuid
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from barnabas.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from barnabas.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.differential.case import Case, case
from tests.differential.world import UNKNOWN_ID, World

TIMEOUT_MS = 30_000


def wanted(
    name: str,
    partitions: int = 1,
    factor: int = 1,
    configs: Mapping[str, str | None] | None = None,
    assignments: Sequence[tuple[int, list[int]]] = (),
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=[CreatableReplicaAssignment(partition_index=p, broker_ids=ids) for p, ids in assignments],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
    )


def create(*topics: CreatableTopic, validate_only: bool = False) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=list(topics), timeout_ms=TIMEOUT_MS, validate_only=validate_only)


def metadata(*names: str) -> MetadataRequest:
    return MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=False
    )


@case(ApiKey.CREATE_TOPICS)
def a_topic(world: World) -> Case:
    name = world.new_name()
    yield create(wanted(name, 3))
    world.settle(name, 3)
    yield metadata(name)


@case(ApiKey.CREATE_TOPICS)
def no_topic(world: World) -> Case:
    yield create()


@case(ApiKey.CREATE_TOPICS)
def defaults(world: World) -> Case:
    yield create(wanted(world.new_name(), -1, -1))


@case(ApiKey.CREATE_TOPICS)
def only_validated(world: World) -> Case:
    name = world.new_name()
    yield create(wanted(name), validate_only=True)
    yield create(wanted("letters"), validate_only=True)
    yield metadata(name)


@case(ApiKey.CREATE_TOPICS)
def a_topic_that_exists(world: World) -> Case:
    yield create(wanted("letters"))
    yield create(wanted("letters", 0))


@case(ApiKey.CREATE_TOPICS)
def names_that_cannot_be(world: World) -> Case:
    for name in ("", ".", "..", "a/b", "a b", "x" * 250, "naïve", "a:b", "__cluster_metadata"):
        yield create(wanted(name), validate_only=True)


@case(ApiKey.CREATE_TOPICS)
def names_that_collide(world: World) -> Case:
    stem = f"collide{world.version}"
    first = f"{stem}.a"
    yield create(wanted(first))
    world.settle(first)
    yield create(wanted(f"{stem}_a"))
    yield create(wanted(f"{stem}.b"), wanted(f"{stem}_b"), validate_only=True)


@case(ApiKey.CREATE_TOPICS)
def numbers_that_cannot_be(world: World) -> Case:
    for partitions, factor in ((0, 1), (-2, 1), (1, 0), (1, -2), (1, 2), (1, 32_767), (-1, 1), (1, -1)):
        yield create(wanted(world.new_name(), partitions, factor), validate_only=True)


@case(ApiKey.CREATE_TOPICS)
def one_name_twice(world: World) -> Case:
    name, other = world.new_name(), world.new_name()
    yield create(wanted(name), wanted(name, 2), wanted(other))


@case(ApiKey.CREATE_TOPICS)
def good_and_bad_together(world: World) -> Case:
    good, bad = world.new_name(), world.new_name()
    yield create(wanted(good), wanted(bad, 0), wanted("a/b"), wanted("letters"))


@case(ApiKey.CREATE_TOPICS)
def assignments(world: World) -> Case:
    name = world.new_name()
    yield create(wanted(name, -1, -1, assignments=[(0, [1]), (1, [1])]))
    world.settle(name, 2)
    yield metadata(name)


@case(ApiKey.CREATE_TOPICS)
def assignments_that_cannot_be(world: World) -> Case:
    for partitions, factor, rows in (
        (1, 1, [(0, [1])]),
        (-1, 1, [(0, [1])]),
        (1, -1, [(0, [1])]),
        (-1, -1, [(0, [2])]),
        (-1, -1, [(0, [1, 1])]),
        (-1, -1, [(0, [])]),
        (-1, -1, [(0, [1]), (2, [1])]),
        (-1, -1, [(1, [1])]),
        (-1, -1, [(0, [1]), (0, [1])]),
        (-1, -1, [(0, [1]), (1, [1, 2])]),
        (-1, -1, [(0, [-1])]),
        (-1, -1, [(-1, [1])]),
    ):
        yield create(wanted(world.new_name(), partitions, factor, assignments=rows), validate_only=True)


@case(ApiKey.CREATE_TOPICS)
def with_configs(world: World) -> Case:
    yield create(wanted(world.new_name(), configs={"retention.ms": "1000", "cleanup.policy": "compact"}))
    yield create(wanted(world.new_name(), configs={"cleanup.policy": "compact,delete"}), validate_only=True)


@case(ApiKey.CREATE_TOPICS)
def configs_that_cannot_be(world: World) -> Case:
    for key, value in (
        ("no.such.key", "1"),
        ("retention.ms", "soon"),
        ("retention.ms", "-2"),
        ("retention.ms", ""),
        ("retention.ms", None),
        ("retention.ms", " 5 "),
        ("retention.ms", "9223372036854775808"),
        ("cleanup.policy", "burn"),
        ("cleanup.policy", ""),
        ("cleanup.policy", "delete,delete"),
        ("segment.bytes", "13"),
        ("min.insync.replicas", "0"),
        ("compression.type", "rar"),
        ("compression.gzip.level", "0"),
        ("min.cleanable.dirty.ratio", "1.5"),
        ("unclean.leader.election.enable", "maybe"),
        ("unclean.leader.election.enable", "TRUE"),
        ("message.timestamp.type", "Never"),
        ("leader.replication.throttled.replicas", "x"),
        ("max.message.bytes", "-1"),
        ("", "1"),
    ):
        yield create(wanted(world.new_name(), configs={key: value}), validate_only=True)


@case(ApiKey.CREATE_TOPICS)
def configs_at_odds(world: World) -> Case:
    for configs in (
        {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"},
        {"retention.ms": "100", "local.retention.ms": "200"},
        {"retention.bytes": "100", "local.retention.bytes": "200"},
        {"message.format.version": "2.0"},
        {"message.downconversion.enable": "false"},
        {"message.timestamp.difference.max.ms": "5"},
        {"remote.storage.enable": "true"},
        {"preallocate": "true"},
    ):
        yield create(wanted(world.new_name(), configs=configs), validate_only=True)


def delete(*names: str, ids: Sequence[Uuid] = ()) -> DeleteTopicsRequest:
    states = [DeleteTopicState(name=name) for name in names]
    states += [DeleteTopicState(name=None, topic_id=each) for each in ids]
    return DeleteTopicsRequest(topics=states, topic_names=list(names), timeout_ms=TIMEOUT_MS)


def delete_topics(world: World, *names: str) -> DeleteTopicsRequest:
    """Names go into another field from version 6 on."""
    if world.version >= 6:
        return DeleteTopicsRequest(
            topics=[DeleteTopicState(name=name) for name in names], timeout_ms=TIMEOUT_MS
        )
    return DeleteTopicsRequest(topic_names=list(names), timeout_ms=TIMEOUT_MS)


@case(ApiKey.DELETE_TOPICS)
def deleting_a_topic(world: World) -> Case:
    topic, other = world.topic(), world.topic()
    yield delete_topics(world, topic.name, other.name)
    yield delete_topics(world, topic.name)


@case(ApiKey.DELETE_TOPICS)
def deleting_what_is_not_there(world: World) -> Case:
    yield delete_topics(world)
    for name in ("nowhere", "", "..", "a/b", "x" * 250):
        yield delete_topics(world, name)


@case(ApiKey.DELETE_TOPICS)
def deleting_twice_in_one_request(world: World) -> Case:
    topic, other = world.topic(), world.topic()
    yield delete_topics(world, topic.name, topic.name, other.name)
    yield delete_topics(world, "nowhere", other.name)


@case(ApiKey.DELETE_TOPICS, "6+")
def deleting_by_id(world: World) -> Case:
    topic = world.topic()
    yield delete(ids=[topic.id])
    yield delete(ids=[topic.id])
    yield delete(ids=[UNKNOWN_ID])
    yield delete(ids=[ZERO_UUID])


@case(ApiKey.DELETE_TOPICS, "6+")
def deleting_by_id_and_name(world: World) -> Case:
    topic = world.topic()
    both = [DeleteTopicState(name=topic.name, topic_id=topic.id)]
    yield DeleteTopicsRequest(topics=both, timeout_ms=TIMEOUT_MS)
    twice = [DeleteTopicState(name=topic.name), DeleteTopicState(name=None, topic_id=topic.id)]
    yield DeleteTopicsRequest(topics=twice, timeout_ms=TIMEOUT_MS)
    again = [DeleteTopicState(name=None, topic_id=topic.id)] * 2
    yield DeleteTopicsRequest(topics=again, timeout_ms=TIMEOUT_MS)


def grow(name: str, count: int, assignments: Sequence[list[int]] | None = None, *,
         validate_only: bool = False) -> CreatePartitionsRequest:  # fmt: skip
    rows = (
        None if assignments is None else [CreatePartitionsAssignment(broker_ids=ids) for ids in assignments]
    )
    topic = CreatePartitionsTopic(name=name, count=count, assignments=rows)
    return CreatePartitionsRequest(topics=[topic], timeout_ms=TIMEOUT_MS, validate_only=validate_only)


@case(ApiKey.CREATE_PARTITIONS)
def more_partitions(world: World) -> Case:
    topic = world.topic()
    yield grow(topic.name, 3, validate_only=True)
    yield grow(topic.name, 3)
    world.settle(topic.name, 3)
    yield metadata(topic.name)


@case(ApiKey.CREATE_PARTITIONS)
def partition_counts_that_cannot_be(world: World) -> Case:
    for count in (3, 2, 0, -1):
        yield grow("letters", count, validate_only=True)


@case(ApiKey.CREATE_PARTITIONS)
def partitions_of_what_is_not_there(world: World) -> Case:
    for name in ("nowhere", "", "a/b"):
        yield grow(name, 3)
    yield CreatePartitionsRequest(topics=[], timeout_ms=TIMEOUT_MS)


@case(ApiKey.CREATE_PARTITIONS)
def partitions_with_assignments(world: World) -> Case:
    for count, rows in ((4, [[1]]), (5, [[1]]), (4, [[2]]), (4, [[1, 1]]), (4, [[]]), (4, []),
                        (5, [[1], [1, 2]]), (4, [[1], [1]]), (4, [[1, 2]])):  # fmt: skip
        yield grow("letters", count, rows, validate_only=True)


@case(ApiKey.CREATE_PARTITIONS)
def partitions_of_one_topic_twice(world: World) -> Case:
    rows = [CreatePartitionsTopic(name="letters", count=count, assignments=None) for count in (4, 5)]
    rows.append(CreatePartitionsTopic(name="empty", count=2, assignments=None))
    yield CreatePartitionsRequest(topics=rows, timeout_ms=TIMEOUT_MS, validate_only=True)


def elect(*asked: tuple[str, list[int]], election_type: int = 0) -> ElectLeadersRequest:
    return ElectLeadersRequest(
        election_type=election_type,
        topic_partitions=[TopicPartitions(topic=topic, partitions=partitions) for topic, partitions in asked],
        timeout_ms=TIMEOUT_MS,
    )


@case(ApiKey.ELECT_LEADERS)
def elections(world: World) -> Case:
    yield elect(("letters", [0, 1]))
    yield elect(("letters", [0, 9, -1]), ("nowhere", [0]))
    yield elect()
    yield elect(("letters", []))
    yield elect(("letters", [0, 0]))
    yield ElectLeadersRequest(topic_partitions=None, timeout_ms=TIMEOUT_MS)


@case(ApiKey.ELECT_LEADERS, "1+")
def unclean_elections(world: World) -> Case:
    yield elect(("letters", [0, 9]), ("nowhere", [0]), election_type=1)
    yield elect(("letters", [0]), election_type=2)
    yield elect(("letters", [0]), election_type=-1)
    yield ElectLeadersRequest(topic_partitions=None, election_type=1, timeout_ms=TIMEOUT_MS)


def reassign(*asked: tuple[str, int, list[int] | None]) -> AlterPartitionReassignmentsRequest:
    return AlterPartitionReassignmentsRequest(
        timeout_ms=TIMEOUT_MS,
        topics=[
            ReassignableTopic(
                name=topic, partitions=[ReassignablePartition(partition_index=partition, replicas=replicas)]
            )
            for topic, partition, replicas in asked
        ],
    )


@case(ApiKey.ALTER_PARTITION_REASSIGNMENTS)
def reassignments(world: World) -> Case:
    yield reassign()
    for replicas in ([1], None, [], [1, 1], [2], [1, 2], [-1]):
        yield reassign(("letters", 0, replicas))
    yield reassign(("nowhere", 0, [1]), ("letters", 9, [1]), ("letters", -1, None))
    yield AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name="letters", partitions=[])])


@case(ApiKey.ALTER_PARTITION_REASSIGNMENTS, "1+")
def reassignments_that_keep_the_factor(world: World) -> Case:
    request = reassign(("letters", 0, [1]))
    request.allow_replication_factor_change = False
    yield request
    other = reassign(("letters", 0, [1, 2]))
    other.allow_replication_factor_change = False
    yield other


@case(ApiKey.LIST_PARTITION_REASSIGNMENTS)
def listed_reassignments(world: World) -> Case:
    yield ListPartitionReassignmentsRequest(topics=None)
    yield ListPartitionReassignmentsRequest(topics=[])
    for name, partitions in (("letters", [0, 1]), ("letters", [9]), ("nowhere", [0]), ("letters", [])):
        row = ListPartitionReassignmentsTopics(name=name, partition_indexes=partitions)
        yield ListPartitionReassignmentsRequest(topics=[row])
