"""Cases for three brokers: leaders, replicas, reassignments, elections, and requests to the wrong broker."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

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
    CreateTopicsRequest,
)
from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest
from barnabas.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from barnabas.protocol.messages.fetch import FetchRequest
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.protocol.schema.declarations import Versions
from barnabas.requests.served_versions import SERVED_VERSIONS
from tests.differential.case import At, Case, CaseFunction, Declared, Triple, Until
from tests.differential.cases.fetch import asked, fetch
from tests.differential.cluster.side import placed, write
from tests.differential.world import Topic, World
from tests.support.wire import batch

NODES = (1, 2, 3)
TIMEOUT_MS = 10_000
_REGISTER: list[Declared] = []


def case(api: ApiKey, versions: str = "0+") -> Callable[[CaseFunction], CaseFunction]:
    def declare(function: CaseFunction) -> CaseFunction:
        name = function.__name__.replace("_", "-")
        _REGISTER.append(Declared(api, name, Versions.parse(versions), function))
        return function

    return declare


def all_triples() -> list[Triple]:
    return [
        Triple(declared, version)
        for declared in sorted(_REGISTER, key=lambda each: each.api)
        for version in SERVED_VERSIONS.get(declared.api, range(0))
        if version in declared.versions
    ]


def metadata(*names: str) -> MetadataRequest:
    return MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=False
    )


@case(ApiKey.METADATA, "1+")
def every_broker_knows_who_leads(world: World) -> Case:
    topics = [MetadataRequestTopic(name="letters"), MetadataRequestTopic(name="pair")]
    for node in NODES:
        yield At(node, MetadataRequest(topics=topics))


@case(ApiKey.METADATA, "4+")
def brokers_and_their_racks(world: World) -> Case:
    yield metadata()
    yield metadata("nowhere")


@case(ApiKey.DESCRIBE_CLUSTER)
def brokers_of_the_cluster(world: World) -> Case:
    for node in NODES:
        yield At(node, DescribeClusterRequest())


@case(ApiKey.DESCRIBE_TOPIC_PARTITIONS)
def replicas_of_every_partition(world: World) -> Case:
    topics = [TopicRequest(name=name) for name in ("letters", "pair", "nowhere")]
    for node in NODES:
        yield At(node, DescribeTopicPartitionsRequest(topics=topics))
    cursor = Cursor(topic_name="letters", partition_index=1)
    yield DescribeTopicPartitionsRequest(topics=topics, response_partition_limit=2, cursor=cursor)


def create(
    name: str,
    partitions: int = 1,
    factor: int = 3,
    assignment: Mapping[int, Sequence[int]] | None = None,
    *,
    validate_only: bool = False,
) -> CreateTopicsRequest:
    rows = [
        CreatableReplicaAssignment(partition_index=index, broker_ids=list(nodes))
        for index, nodes in (assignment or {}).items()
    ]
    if assignment is not None:
        partitions = factor = -1
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=factor, assignments=rows)
    return CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS, validate_only=validate_only)


def whole(count: int, replicas: int) -> Callable[[object], bool]:
    """Of the first topic: so many partitions, each with so many replicas in sync."""

    def wished(answer: object) -> bool:
        partitions = answer.topics[0].partitions  # type: ignore[attr-defined]
        return len(partitions) == count and all(
            each.leader_id >= 0 and len(each.isr_nodes) == len(each.replica_nodes) == replicas
            for each in partitions
        )

    return wished


@case(ApiKey.CREATE_TOPICS)
def replicated(world: World) -> Case:
    yield create(world.new_name(), 6, 3)
    yield create(world.new_name(), 2, 2)
    yield create(world.new_name(), -1, -1)


@case(ApiKey.CREATE_TOPICS)
def factors_that_cannot_be(world: World) -> Case:
    for factor in (4, 100, 0, -2):
        yield create(world.new_name(), 1, factor)
        yield create(world.new_name(), 1, factor, validate_only=True)


@case(ApiKey.CREATE_TOPICS)
def replicas_by_hand(world: World) -> Case:
    name = world.new_name()
    yield create(name, assignment={0: [3, 1], 1: [1, 2], 2: [2, 3]})
    world.side.learn_id(name)
    for node in NODES:
        yield At(node, Until(metadata(name), whole(3, 2)))


@case(ApiKey.CREATE_TOPICS)
def replicas_that_cannot_be(world: World) -> Case:
    impossible: tuple[dict[int, list[int]], ...] = (
        {0: [1, 9]},
        {0: [9]},
        {0: [1, 1]},
        {0: [1, 2], 1: [1]},
        {0: []},
        {1: [1, 2]},
        {0: [1], 2: [1]},
        {0: [-1]},
    )
    for assignment in impossible:
        yield create(world.new_name(), assignment=assignment)


def grow(name: str, count: int, *assignments: list[int]) -> CreatePartitionsRequest:
    rows = [CreatePartitionsAssignment(broker_ids=nodes) for nodes in assignments] or None
    topic = CreatePartitionsTopic(name=name, count=count, assignments=rows)
    return CreatePartitionsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)


@case(ApiKey.CREATE_PARTITIONS)
def more_partitions_by_hand(world: World) -> Case:
    topic = placed(world, {0: [1, 2]})
    yield grow(topic.name, 3, [2, 3], [3, 1])
    for node in NODES:
        yield At(node, Until(metadata(topic.name), whole(3, 2)))


@case(ApiKey.CREATE_PARTITIONS)
def more_partitions_that_cannot_be(world: World) -> Case:
    topic = placed(world, {0: [1, 2]})
    impossible: tuple[list[list[int]], ...] = (
        [[1, 9]],
        [[1, 1]],
        [[1]],
        [[1, 2, 3]],
        [[1, 2], [2, 3]],
        [[]],
    )
    for assignments in impossible:
        yield grow(topic.name, 2, *assignments)


def reassign(
    *asked_for: tuple[str, int, list[int] | None], factor_may_change: bool = True
) -> AlterPartitionReassignmentsRequest:
    topics = [
        ReassignableTopic(
            name=name, partitions=[ReassignablePartition(partition_index=index, replicas=nodes)]
        )
        for name, index, nodes in asked_for
    ]
    return AlterPartitionReassignmentsRequest(
        timeout_ms=TIMEOUT_MS, topics=topics, allow_replication_factor_change=factor_may_change
    )


def moved(*replicas: int, leader: int | None = None) -> Callable[[object], bool]:
    def wished(answer: object) -> bool:
        (partition,) = answer.topics[0].partitions  # type: ignore[attr-defined]
        return (
            partition.replica_nodes == list(replicas)
            and sorted(partition.isr_nodes) == sorted(replicas)
            and (leader is None or partition.leader_id == leader)
        )

    return wished


@case(ApiKey.ALTER_PARTITION_REASSIGNMENTS)
def a_move(world: World) -> Case:
    topic = placed(world, {0: [1, 2]})
    write(world, topic, batch([b"a", b"b"]), node=1)
    yield reassign((topic.name, 0, [2, 3]))
    yield Until(metadata(topic.name), moved(2, 3))
    yield reassign((topic.name, 0, [2, 3, 1]))
    yield Until(metadata(topic.name), moved(2, 3, 1))
    yield reassign((topic.name, 0, [1]))
    yield Until(metadata(topic.name), moved(1))
    yield reassign((topic.name, 0, None))


@case(ApiKey.ALTER_PARTITION_REASSIGNMENTS)
def moves_that_cannot_be(world: World) -> Case:
    topic = placed(world, {0: [1, 2]})
    for nodes in ([1, 9], [9], [1, 1], [], [-1], None):
        yield reassign((topic.name, 0, nodes))
    yield reassign((topic.name, 7, [1]))
    yield reassign(("nowhere", 0, [1]))
    yield reassign(("nowhere", 0, None))
    yield reassign((topic.name, 0, [1, 2]))


@case(ApiKey.ALTER_PARTITION_REASSIGNMENTS, "1+")
def moves_that_keep_the_factor(world: World) -> Case:
    topic = placed(world, {0: [1, 2]})
    yield reassign((topic.name, 0, [1, 2, 3]), factor_may_change=False)
    yield reassign((topic.name, 0, [3]), factor_may_change=False)


@case(ApiKey.LIST_PARTITION_REASSIGNMENTS)
def no_moves(world: World) -> Case:
    yield ListPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS)
    topics = [ListPartitionReassignmentsTopics(name="letters", partition_indexes=[0, 9])]
    yield ListPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS, topics=topics)


def elect(name: str, *partitions: int, election_type: int = 0) -> ElectLeadersRequest:
    return ElectLeadersRequest(
        election_type=election_type,
        topic_partitions=[TopicPartitions(topic=name, partitions=list(partitions))],
        timeout_ms=TIMEOUT_MS,
    )


@case(ApiKey.ELECT_LEADERS)
def a_preferred_leader(world: World) -> Case:
    topic = placed(world, {0: [1, 2, 3]})
    yield elect(topic.name, 0)
    yield reassign((topic.name, 0, [2, 1, 3]))
    yield Until(metadata(topic.name), moved(2, 1, 3))
    yield elect(topic.name, 0)
    yield Until(metadata(topic.name), moved(2, 1, 3, leader=2))
    yield elect(topic.name, 0)


@case(ApiKey.ELECT_LEADERS, "1+")
def an_unclean_leader_that_nobody_needs(world: World) -> Case:
    yield elect("letters", 0, 1, 2, 9, election_type=1)


def epochs(name: str, *asked_for: tuple[int, int], partition: int = 0) -> OffsetForLeaderEpochRequest:
    rows = [
        OffsetForLeaderPartition(partition=partition, current_leader_epoch=current, leader_epoch=epoch)
        for current, epoch in asked_for
    ]
    return OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=name, partitions=rows)])


@case(ApiKey.OFFSET_FOR_LEADER_EPOCH)
def ends_of_epochs_at_every_broker(world: World) -> Case:
    for node in NODES:
        for current in (-1, 0, 1):
            yield At(node, epochs("letters", (current, 0)))
            yield At(node, epochs("letters", (current, 5)))


@case(ApiKey.PRODUCE, "3+")
def writing_to_every_broker(world: World) -> Case:
    topic = placed(world, {0: [1, 2, 3]})
    for node in NODES:
        partition = PartitionProduceData(index=0, records=memoryview(bytearray(batch([b"x"]))))
        data = TopicProduceData(name=topic.name, topic_id=topic.id, partition_data=[partition])
        yield At(node, ProduceRequest(acks=-1, timeout_ms=TIMEOUT_MS, topic_data=[data]))


@case(ApiKey.LIST_OFFSETS, "1+")
def offsets_at_every_broker(world: World) -> Case:
    for node in NODES:
        for time_ms in (-1, -2):
            partition = ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=time_ms)
            topic = ListOffsetsTopic(name="letters", partitions=[partition])
            yield At(node, ListOffsetsRequest(replica_id=-1, topics=[topic]))


def read(topic: Topic, *, rack: str = "", epoch: int = -1) -> FetchRequest:
    return fetch(topic, asked(0, 0, current_leader_epoch=epoch), rack_id=rack)


@case(ApiKey.FETCH, "4+")
def reading_at_every_broker(world: World) -> Case:
    for node in NODES:
        yield At(node, read(world.shared("letters")))
    if world.version >= 9:
        for node in NODES:
            for epoch in (0, 1, 5):
                yield At(node, read(world.shared("letters"), epoch=epoch))


@case(ApiKey.FETCH, "11+")
def reading_near_a_rack(world: World) -> Case:
    letters = world.shared("letters")
    for rack in ("rack-1", "rack-2", "rack-3", "rack-9", ""):
        yield At(1, read(letters, rack=rack))
        yield At(2, read(letters, rack=rack))


@case(ApiKey.FIND_COORDINATOR, "1-3")
def a_coordinator(world: World) -> Case:
    for kind in (0, 1):
        request = FindCoordinatorRequest(key="somebody", key_type=kind)
        for node in NODES:
            yield At(node, Until(request, lambda answer: answer.error_code == 0))


def all_found(answer: object) -> bool:
    return not any(each.error_code for each in answer.coordinators)  # type: ignore[attr-defined]


@case(ApiKey.FIND_COORDINATOR, "4+")
def coordinators(world: World) -> Case:
    for kind in (0, 1):
        request = FindCoordinatorRequest(coordinator_keys=["a", "b", "c"], key_type=kind)
        for node in NODES:
            yield At(node, Until(request, all_found))
