"""ApiVersions, DescribeCluster, FindCoordinator and other requests about the broker and its cluster."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest

from barnabas import handlers
from barnabas.administration.topic_rules import TopicSpec
from barnabas.coordinator.group.coordinator import OFFSETS_TOPIC
from barnabas.coordinator.transaction.coordinator import TRANSACTION_TOPIC
from barnabas.core.errors import (
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    GroupAuthorizationFailed,
    InvalidReplicaAssignment,
    InvalidRequest,
    InvalidTopicException,
    KafkaError,
    KafkaStorageError,
    MismatchedEndpointType,
    NoReassignmentInProgress,
    PreferredLeaderNotAvailable,
    RebootstrapRequired,
    TransactionalIdAuthorizationFailed,
    UnknownTopicOrPartition,
    UnsupportedEndpointType,
    UnsupportedVersion,
)
from barnabas.core.ids import TopicPartition
from barnabas.handlers import APIS
from barnabas.handlers.alter_partition_reassignments import ALTER_PARTITION_REASSIGNMENTS
from barnabas.handlers.api_versions import API_VERSIONS
from barnabas.handlers.describe_cluster import DESCRIBE_CLUSTER
from barnabas.handlers.describe_log_dirs import DESCRIBE_LOG_DIRS
from barnabas.handlers.describe_producers import DESCRIBE_PRODUCERS
from barnabas.handlers.describe_topic_partitions import DESCRIBE_TOPIC_PARTITIONS
from barnabas.handlers.elect_leaders import ELECT_LEADERS
from barnabas.handlers.find_coordinator import FIND_COORDINATOR
from barnabas.handlers.init_producer_id import INIT_PRODUCER_ID
from barnabas.handlers.list_partition_reassignments import LIST_PARTITION_REASSIGNMENTS
from barnabas.protocol import messages
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages import (
    describe_producers,
    describe_topic_partitions,
    elect_leaders,
    request_class,
    response_class,
)
from barnabas.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest
from barnabas.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from barnabas.requests.served_versions import SERVED_VERSIONS
from barnabas.security.acl.authorizer import AllowAll
from barnabas.storage.files.environment import LogDirectory
from tests.unit.controller.support import BROKER_ID, FakeLog
from tests.unit.handlers.support import Broker


def test_every_row_serves_only_versions_that_are_declared() -> None:
    for api in APIS.for_clients():
        assert set(api.versions) <= set(request_class(api.key).supported_versions())
        assert set(api.versions) <= set(response_class(api.key).supported_versions())


def test_the_directory_is_the_table() -> None:
    files = {path.stem for path in Path(handlers.__file__).parent.glob("*.py")} - {"__init__"}
    assert files == {key.name.lower() for key in SERVED_VERSIONS}
    assert [api.key for api in APIS] == sorted(SERVED_VERSIONS)


def test_every_message_has_a_handler() -> None:
    files = {path.stem for path in Path(messages.__file__).parent.glob("*.py")}
    assert files - {"__init__", "consumer_protocol"} == {key.name.lower() for key in SERVED_VERSIONS}


@pytest.mark.parametrize("key", SERVED_VERSIONS, ids=lambda key: key.name)
def test_a_handler_opens_with_its_key_and_versions(key: ApiKey) -> None:
    versions = SERVED_VERSIONS[key]
    shown = f"v{versions[0]}-{versions[-1]}" if len(versions) > 1 else f"v{versions[0]}"
    text = import_module(f"barnabas.handlers.{key.name.lower()}").__doc__
    assert text is not None
    assert text.startswith(f"{key.camel_name} ({int(key)}), {shown}. Gaps: ")


@pytest.mark.parametrize("version", API_VERSIONS.versions)
async def test_what_is_registered_is_what_is_advertised(broker: Broker, version: int) -> None:
    request = ApiVersionsRequest(client_software_name="a-client", client_software_version="1.0")
    response = await broker.ask(API_VERSIONS, request, version)
    assert response.error_code == 0
    advertised = {row.api_key: (row.min_version, row.max_version) for row in response.api_keys}
    assert advertised == {api.key: (api.versions[0], api.versions[-1]) for api in APIS.for_clients()}
    assert advertised[ApiKey.PRODUCE] == (0, 13)
    assert advertised[ApiKey.API_VERSIONS] == (0, 5)
    assert advertised[ApiKey.METADATA] == (0, 13)


@pytest.mark.parametrize("version", API_VERSIONS.versions)
async def test_features_are_told_as_far_as_the_version_allows(broker: Broker, version: int) -> None:
    request = ApiVersionsRequest(client_software_name="a-client", client_software_version="1.0")
    response = await broker.ask(API_VERSIONS, request, version)
    finalized = [(each.name, each.max_version_level) for each in response.finalized_features]
    supported = [(each.name, each.min_version, each.max_version) for each in response.supported_features]
    assert finalized == ([("group.version", 1), ("transaction.version", 2)] if version >= 3 else [])
    assert supported == ([("group.version", 0, 1), ("transaction.version", 0, 2)] if version >= 4 else [])
    assert response.finalized_features_epoch == (0 if version >= 3 else -1)


@pytest.mark.parametrize(("name", "version"), [("", "1"), ("a", ""), ("a b", "1"), ("-a", "1"), ("a", "1-")])
async def test_a_client_names_its_software_properly(broker: Broker, name: str, version: str) -> None:
    request = ApiVersionsRequest(client_software_name=name, client_software_version=version)
    with pytest.raises(InvalidRequest):
        await broker.ask(API_VERSIONS, request, 3)
    assert (await broker.ask(API_VERSIONS, request, 2)).error_code == 0


async def test_a_client_that_was_led_astray_begins_again(broker: Broker) -> None:
    request = ApiVersionsRequest(client_software_name="a-client", client_software_version="1.0")
    here = broker.services.cluster_id, broker.services.broker_id
    assert (await broker.ask(API_VERSIONS, request, 5)).error_code == 0
    for cluster_id, node_id in (here, ("another", here[1]), (here[0], here[1] + 1)):
        request.cluster_id, request.node_id = cluster_id, node_id
        if (cluster_id, node_id) == here:
            assert (await broker.ask(API_VERSIONS, request, 5)).error_code == 0
            continue
        with pytest.raises(RebootstrapRequired):
            await broker.ask(API_VERSIONS, request, 5)
        assert (await broker.ask(API_VERSIONS, request, 4)).error_code == 0


@pytest.mark.parametrize(("cluster_id", "node_id"), [("a", -1), (None, 3)])
async def test_half_a_destination_is_none(broker: Broker, cluster_id: str | None, node_id: int) -> None:
    request = ApiVersionsRequest(
        client_software_name="c", client_software_version="1", cluster_id=cluster_id, node_id=node_id
    )
    with pytest.raises(InvalidRequest):
        await broker.ask(API_VERSIONS, request, 5)


def test_an_unsupported_version_is_answered_with_what_is_supported() -> None:
    data = APIS.unsupported_version().encode(0)
    response, _ = ApiVersionsResponse.decode(data, 0)
    assert response.error_code == UnsupportedVersion.code
    assert [(row.api_key, row.min_version, row.max_version) for row in response.api_keys] == [(18, 0, 5)]


@pytest.mark.parametrize(
    ("version", "key_type"),
    [(0, 0), *((version, key_type) for version in FIND_COORDINATOR.versions[1:] for key_type in (0, 1))],
)
async def test_this_broker_coordinates_everything(broker: Broker, version: int, key_type: int) -> None:
    if version < 4:
        request = FindCoordinatorRequest(key="g", key_type=key_type)
        found = await broker.ask(FIND_COORDINATOR, request, version)
    else:
        request = FindCoordinatorRequest(coordinator_keys=["g", "h"], key_type=key_type)
        response = await broker.ask(FIND_COORDINATOR, request, version)
        assert [each.key for each in response.coordinators] == ["g", "h"]
        found = response.coordinators[1]
    assert (found.error_code, found.node_id, found.host, found.port) == (0, BROKER_ID, "192.0.2.9", 19092)


class AllowOnly(AllowAll):
    """Allows one resource name, of any type."""

    allows_everything = False

    def __init__(self, name: str) -> None:
        self.name = name

    def allows(self, *asked: object, **_: object) -> bool:
        return asked[-1] == self.name


@pytest.mark.parametrize(
    ("key_type", "topic", "denied"),
    [
        (0, OFFSETS_TOPIC, GroupAuthorizationFailed),
        (1, TRANSACTION_TOPIC, TransactionalIdAuthorizationFailed),
    ],
)
async def test_no_topic_is_made_for_who_may_not_ask(
    broker: Broker, key_type: int, topic: str, denied: type[KafkaError]
) -> None:
    broker.services.authorizer = AllowOnly("mine")

    async def ask(*keys: str) -> list[int]:
        request = FindCoordinatorRequest(coordinator_keys=list(keys), key_type=key_type)
        found = (await broker.ask(FIND_COORDINATOR, request, 6)).coordinators
        return [each.error_code for each in found]

    single = FindCoordinatorRequest(key="others", key_type=key_type)
    assert (await broker.ask(FIND_COORDINATOR, single, 3)).error_code == denied.code
    assert await ask("others", "theirs") == [denied.code, denied.code]
    assert topic not in broker.metadata
    assert await ask("others", "mine") == [denied.code, 0]
    assert topic in broker.metadata


async def test_no_broker_coordinates_share_groups(broker: Broker) -> None:
    request = FindCoordinatorRequest(coordinator_keys=["g"], key_type=2)
    (found,) = (await broker.ask(FIND_COORDINATOR, request, 6)).coordinators
    assert (found.error_code, found.node_id) == (InvalidRequest.code, -1)
    found = await broker.ask(FIND_COORDINATOR, FindCoordinatorRequest(key="g", key_type=2), 3)
    assert (found.error_code, found.node_id) == (InvalidRequest.code, -1)


@pytest.mark.parametrize("version", INIT_PRODUCER_ID.versions)
async def test_every_producer_gets_another_id(broker: Broker, version: int) -> None:
    ids = []
    for _ in range(3):
        response = await broker.ask(INIT_PRODUCER_ID, InitProducerIdRequest(transactional_id=None), version)
        assert (response.error_code, response.producer_epoch) == (0, 0)
        ids.append(response.producer_id)
    assert ids == [0, 1, 2]
    await broker.restart()
    response = await broker.ask(INIT_PRODUCER_ID, InitProducerIdRequest(transactional_id=None), version)
    assert response.producer_id == 1000


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (InitProducerIdRequest(transactional_id=""), InvalidRequest),
        (InitProducerIdRequest(transactional_id=None, producer_id=1), InvalidRequest),
        (InitProducerIdRequest(transactional_id=None, producer_epoch=1), InvalidRequest),
    ],
)
async def test_what_has_no_producer_id_is_refused(
    broker: Broker, request_: InitProducerIdRequest, expected: type[KafkaError]
) -> None:
    response = await broker.ask(INIT_PRODUCER_ID, request_, 5)
    assert (response.error_code, response.producer_id, response.producer_epoch) == (expected.code, -1, -1)


@pytest.mark.parametrize("version", DESCRIBE_CLUSTER.versions)
async def test_the_cluster_is_described(broker: Broker, version: int) -> None:
    request = DescribeClusterRequest(include_cluster_authorized_operations=version > 0)
    response = await broker.ask(DESCRIBE_CLUSTER, request, version)
    assert (response.error_code, response.cluster_id, response.controller_id) == (0, "the-cluster", BROKER_ID)
    (node,) = response.brokers
    assert (node.broker_id, node.host, node.port, node.rack) == (BROKER_ID, "192.0.2.9", 19092, "rack-a")
    assert (response.cluster_authorized_operations > 0) == (version > 0)


@pytest.mark.parametrize(("kind", "expected"), [(2, MismatchedEndpointType), (9, UnsupportedEndpointType)])
async def test_a_broker_is_no_controller_endpoint(
    broker: Broker, kind: int, expected: type[Exception]
) -> None:
    with pytest.raises(expected):
        await broker.ask(DESCRIBE_CLUSTER, DescribeClusterRequest(endpoint_type=kind), 1)


async def pages(broker: Broker, limit: int, *names: str) -> list[list[tuple[str, list[int]]]]:
    """Every page of DescribeTopicPartitions, following the cursors."""
    request = describe_topic_partitions.DescribeTopicPartitionsRequest(
        topics=[describe_topic_partitions.TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
    )
    found = []
    while True:
        response = await broker.ask(DESCRIBE_TOPIC_PARTITIONS, request)
        found.append([(t.name, [p.partition_index for p in t.partitions]) for t in response.topics])
        if response.next_cursor is None:
            return found
        request.cursor = response.next_cursor
        assert len(found) < 20, "the cursor does not move"


async def test_partitions_come_page_by_page(broker: Broker) -> None:
    for name, count in (("b", 3), ("a", 2), ("c", 1)):
        await broker.topics.create_topic(TopicSpec(name, count, 1))
    assert await pages(broker, 2000) == [[("a", [0, 1]), ("b", [0, 1, 2]), ("c", [0])]]
    assert await pages(broker, 2) == [[("a", [0, 1])], [("b", [0, 1])], [("b", [2]), ("c", [0])]]
    assert await pages(broker, 3, "c", "b") == [[("b", [0, 1, 2])], [("c", [0])]]
    broker.config.max_request_partition_size_limit = 1
    assert len(await pages(broker, 2000)) == 6
    assert len(await pages(broker, -5)) == 6


async def test_replicas_that_are_not_tracked_are_none_but_not_null(broker: Broker) -> None:
    await broker.topics.create_topic(TopicSpec("a", 1, 1))
    request = describe_topic_partitions.DescribeTopicPartitionsRequest(
        topics=[describe_topic_partitions.TopicRequest(name="a")]
    )
    response = await broker.ask(DESCRIBE_TOPIC_PARTITIONS, request)
    (partition,) = response.topics[0].partitions
    assert (partition.eligible_leader_replicas, partition.last_known_elr) == ([], [])


async def test_topics_that_cannot_be_described_say_why(broker: Broker) -> None:
    await broker.topics.create_topic(TopicSpec("a", 1, 1))
    request = describe_topic_partitions.DescribeTopicPartitionsRequest(
        topics=[describe_topic_partitions.TopicRequest(name=name) for name in ("a", "nobody", "b c")]
    )
    response = await broker.ask(DESCRIBE_TOPIC_PARTITIONS, request)
    assert [(topic.name, topic.error_code) for topic in response.topics] == [
        ("a", 0),
        ("b c", InvalidTopicException.code),
        ("nobody", UnknownTopicOrPartition.code),
    ]
    for cursor in (
        describe_topic_partitions.Cursor(topic_name="elsewhere", partition_index=0),
        describe_topic_partitions.Cursor(topic_name="a", partition_index=-1),
    ):
        request.cursor = cursor
        response = await broker.ask(DESCRIBE_TOPIC_PARTITIONS, request)
        assert {topic.error_code for topic in response.topics} == {InvalidRequest.code}


@pytest.mark.parametrize("version", ELECT_LEADERS.versions)
async def test_an_election_is_needed_only_without_a_leader(broker: Broker, version: int) -> None:
    broker.replicas.broken = {TopicPartition("t", 1): KafkaStorageError("gone")}
    await broker.topics.create_topic(TopicSpec("t", 2, 1))

    async def elect(kind: int, partitions: list[int] | None) -> dict[int, int]:
        asked = None
        if partitions is not None:
            asked = [elect_leaders.TopicPartitions(topic="t", partitions=partitions)]
        request = elect_leaders.ElectLeadersRequest(topic_partitions=asked, election_type=kind)
        response = await broker.ask(ELECT_LEADERS, request, version)
        results = response.replica_election_results
        return {p.partition_id: p.error_code for topic in results for p in topic.partition_result}

    assert await elect(0, [0, 1, 2]) == {
        0: ElectionNotNeeded.code,
        1: PreferredLeaderNotAvailable.code,
        2: UnknownTopicOrPartition.code,
    }
    assert await elect(0, None) == {1: PreferredLeaderNotAvailable.code}
    if version >= 1:
        assert await elect(1, [0, 1]) == {0: ElectionNotNeeded.code, 1: EligibleLeadersNotAvailable.code}
        assert await elect(2, [0]) == {0: InvalidRequest.code}


async def test_partitions_cannot_move_on_one_node(broker: Broker) -> None:
    await broker.topics.create_topic(TopicSpec("t", 6, 1))
    targets: list[list[int] | None] = [[1], None, [], [1, 1], [2], [1, 2]]
    partitions = [ReassignablePartition(partition_index=n, replicas=t) for n, t in enumerate(targets)]
    request = AlterPartitionReassignmentsRequest(
        topics=[
            ReassignableTopic(name="t", partitions=partitions),
            ReassignableTopic(name="u", partitions=[ReassignablePartition(partition_index=0, replicas=[1])]),
        ]
    )
    response = await broker.ask(ALTER_PARTITION_REASSIGNMENTS, request)
    assert response.error_code == 0
    assert [p.error_code for topic in response.responses for p in topic.partitions] == [
        0,
        NoReassignmentInProgress.code,
        InvalidReplicaAssignment.code,
        InvalidReplicaAssignment.code,
        InvalidReplicaAssignment.code,
        InvalidReplicaAssignment.code,
        UnknownTopicOrPartition.code,
    ]
    listed = await broker.ask(LIST_PARTITION_REASSIGNMENTS, ListPartitionReassignmentsRequest(topics=None))
    assert (listed.error_code, listed.topics) == (0, [])


async def test_producers_of_a_partition_are_described(broker: Broker) -> None:
    await broker.topics.create_topic(TopicSpec("t", 1, 1))
    broker.led("t").log.producers.append(
        SimpleNamespace(
            producer_id=7,
            producer_epoch=1,
            last_sequence=4,
            last_timestamp=99,
            coordinator_epoch=-1,
            current_txn_first_offset=-1,
        )
    )
    request = describe_producers.DescribeProducersRequest(
        topics=[
            describe_producers.TopicRequest(name="t", partition_indexes=[0, 1]),
            describe_producers.TopicRequest(name="b c", partition_indexes=[0]),
        ]
    )
    response = await broker.ask(DESCRIBE_PRODUCERS, request)
    known, missing = response.topics[0].partitions
    (producer,) = known.active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (7, 1, 4)
    assert missing.error_code == UnknownTopicOrPartition.code
    assert response.topics[1].partitions[0].error_code == InvalidTopicException.code


async def test_a_partition_named_again_shows_its_producers_once(broker: Broker) -> None:
    """Four bytes of a request would otherwise repeat all producers of a partition."""
    topic = describe_producers.TopicRequest(name="t", partition_indexes=[0, 5, 0, 5] * 100)
    request = describe_producers.DescribeProducersRequest(topics=[topic, topic])
    response = await broker.ask(DESCRIBE_PRODUCERS, request)
    answered = [[each.partition_index for each in topic.partitions] for topic in response.topics]
    assert answered == [[0, 5], []]


@pytest.mark.parametrize("version", DESCRIBE_LOG_DIRS.versions)
async def test_log_directories_show_sizes_and_failures(
    broker: Broker, tmp_path: object, version: int
) -> None:
    home = LogDirectory(str(tmp_path))
    failed = LogDirectory("/gone", OSError("gone"))
    broker.disk.directories = [home, failed]
    for partition in (0, 1):
        found = TopicPartition("t", partition)
        broker.disk.found[found] = FakeLog(found, directory=home)
    everything = await broker.ask(DESCRIBE_LOG_DIRS, DescribeLogDirsRequest(topics=None), version)
    good, bad = everything.results
    assert (good.error_code, good.log_dir) == (0, str(tmp_path))
    assert [(p.partition_index, p.partition_size) for p in good.topics[0].partitions] == [(0, 10), (1, 20)]
    assert (bad.error_code, bad.log_dir, bad.topics) == (KafkaStorageError.code, "/gone", [])
    if version >= 4:
        assert good.total_bytes >= good.usable_bytes > 0
    asked = [DescribableLogDirTopic(topic="t", partitions=[1, 5])]
    some = await broker.ask(DESCRIBE_LOG_DIRS, DescribeLogDirsRequest(topics=asked), version)
    assert [p.partition_index for p in some.results[0].topics[0].partitions] == [1]
