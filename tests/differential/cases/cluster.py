"""Metadata (3), FindCoordinator (10), ApiVersions (18), InitProducerId (22), DescribeLogDirs (35),
DescribeCluster (60), DescribeTopicPartitions (75)."""

from __future__ import annotations

import struct

from barnabas.core.ids import ZERO_UUID, Uuid
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest
from barnabas.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from barnabas.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.differential.case import Case, Frame, Until, case
from tests.differential.world import UNKNOWN_ID, World


def named(*names: str) -> list[MetadataRequestTopic]:
    return [MetadataRequestTopic(name=name) for name in names]


def identified(*ids: Uuid) -> list[MetadataRequestTopic]:
    return [MetadataRequestTopic(topic_id=each, name=None) for each in ids]


@case(ApiKey.METADATA, "1+")
def no_topics(world: World) -> Case:
    yield MetadataRequest(topics=[])


@case(ApiKey.METADATA)
def topics_by_name(world: World) -> Case:
    yield MetadataRequest(topics=named("letters"))
    yield MetadataRequest(topics=named("empty", "letters", "stamped"))
    yield MetadataRequest(topics=named("letters", "letters"))


@case(ApiKey.METADATA, "4+")
def unknown_topics_are_not_made(world: World) -> Case:
    yield MetadataRequest(topics=named("nowhere", "letters"), allow_auto_topic_creation=False)


@case(ApiKey.METADATA, "4+")
def names_that_cannot_be(world: World) -> Case:
    for name in ("", ".", "..", "a/b", "a b", "x" * 250, "naïve"):
        yield MetadataRequest(topics=named(name, "letters"), allow_auto_topic_creation=False)


@case(ApiKey.METADATA)
def bad_names_are_not_made(world: World) -> Case:
    for name in ("", "..", "a/b", "x" * 250):
        yield MetadataRequest(topics=named(name))


@case(ApiKey.METADATA)
def unknown_topics_are_made(world: World) -> Case:
    request = MetadataRequest(topics=named(world.new_name()))
    yield Until(
        request,
        lambda answer: answer.topics[0].error_code == 0 and answer.topics[0].partitions[0].error_code == 0,
    )


@case(ApiKey.METADATA, "4+")
def an_internal_topic_before_it_exists(world: World) -> Case:
    yield MetadataRequest(topics=named("__consumer_offsets"), allow_auto_topic_creation=False)


@case(ApiKey.METADATA, "10+")
def topics_by_id(world: World) -> Case:
    yield MetadataRequest(topics=identified(world.shared("letters").id), allow_auto_topic_creation=False)
    yield MetadataRequest(topics=identified(UNKNOWN_ID), allow_auto_topic_creation=False)
    yield MetadataRequest(topics=identified(ZERO_UUID), allow_auto_topic_creation=False)
    yield MetadataRequest(topics=identified(UNKNOWN_ID, world.shared("letters").id))


@case(ApiKey.METADATA, "10+")
def topics_by_id_and_name(world: World) -> Case:
    letters = world.shared("letters")
    both = [MetadataRequestTopic(topic_id=letters.id, name="letters")]
    yield MetadataRequest(topics=both, allow_auto_topic_creation=False)
    yield MetadataRequest(topics=named("empty") + identified(letters.id), allow_auto_topic_creation=False)


@case(ApiKey.METADATA, "8+")
def authorized_operations(world: World) -> Case:
    yield MetadataRequest(topics=named("letters", "nowhere"), include_topic_authorized_operations=True,
                          allow_auto_topic_creation=False)  # fmt: skip


@case(ApiKey.METADATA, "8-10")
def cluster_operations(world: World) -> Case:
    yield MetadataRequest(topics=[], include_cluster_authorized_operations=True)


@case(ApiKey.FIND_COORDINATOR, "0-3")
def coordinators(world: World) -> Case:
    yield Until(FindCoordinatorRequest(key="group"), lambda answer: answer.error_code != 15)
    yield FindCoordinatorRequest(key="")


@case(ApiKey.FIND_COORDINATOR, "1-3")
def coordinators_of_transactions(world: World) -> Case:
    yield Until(FindCoordinatorRequest(key="tx", key_type=1), lambda answer: answer.error_code != 15)
    yield FindCoordinatorRequest(key="", key_type=1)
    yield FindCoordinatorRequest(key="x", key_type=2)
    yield FindCoordinatorRequest(key="x", key_type=3)
    yield FindCoordinatorRequest(key="x", key_type=-1)


@case(ApiKey.FIND_COORDINATOR, "4+")
def several_coordinators(world: World) -> Case:
    def found(answer: object) -> bool:
        return all(each.error_code != 15 for each in answer.coordinators)  # type: ignore[attr-defined]

    yield FindCoordinatorRequest(coordinator_keys=[])
    for key_type in (0, 1):
        yield Until(FindCoordinatorRequest(key_type=key_type, coordinator_keys=["a", "b", ""]), found)
        yield FindCoordinatorRequest(key_type=key_type, coordinator_keys=["a", "a"])
    yield FindCoordinatorRequest(key_type=3, coordinator_keys=["a"])
    yield FindCoordinatorRequest(key_type=-1, coordinator_keys=["a"])


@case(ApiKey.FIND_COORDINATOR, "4+")
def share_coordinators(world: World) -> Case:
    yield FindCoordinatorRequest(key_type=2, coordinator_keys=["not-a-share-key"])
    yield FindCoordinatorRequest(key_type=2, coordinator_keys=[])


# Version 5 is newer than the newest broker that can be had: it answers that in version 0.
@case(ApiKey.API_VERSIONS, "0-4")
def versions(world: World) -> Case:
    yield ApiVersionsRequest(client_software_name="differential", client_software_version="1.0")


@case(ApiKey.API_VERSIONS, "3-4")
def client_software(world: World) -> Case:
    for name, version in (
        ("", "1"),
        ("x", ""),
        ("-x", "1"),
        ("x-", "1"),
        ("a b", "1"),
        ("a.b-c", "1.0-rc.1"),
        ("x", "1_0"),
    ):
        yield ApiVersionsRequest(client_software_name=name, client_software_version=version)


@case(ApiKey.API_VERSIONS, "0")
def a_version_nobody_has(world: World) -> Case:
    for version in (5, 99, -1, 32_767):
        yield Frame(18, version, b"", answer=(ApiVersionsResponse, 0))


@case(ApiKey.API_VERSIONS, "0")
def keys_and_versions_that_are_not_served(world: World) -> Case:
    for key in (-1, 4, 5, 6, 7, 52, 58, 62, 67, 93, 1_000, 32_767):
        yield Frame(key, 0, b"")
    for key, versions in sorted(world.side.versions.items()):
        if key == 18 or key not in COMMON:
            continue
        yield Frame(key, versions[-1] + 1, b"", header_version=2)
        yield Frame(key, -1, b"")
        yield Frame(key, 32_767, b"", header_version=2)


COMMON = (0, 1, 2, 3, 10, 19, 20, 21, 22, 23, 32, 33, 35, 37, 43, 44, 45, 46, 60, 61, 74, 75)


@case(ApiKey.API_VERSIONS, "0")
def bodies_that_do_not_parse(world: World) -> Case:
    for key in COMMON:
        yield Frame(key, world.side.versions[key][-1], b"", header_version=2)
        yield Frame(key, world.side.versions[key][-1], b"\xff" * 9, header_version=2)
    yield Frame(3, 1, struct.pack(">i", 1_000_000))
    yield Frame(3, 1, struct.pack(">ih", 1, -1))
    yield Frame(19, 2, struct.pack(">i", -1))


@case(ApiKey.INIT_PRODUCER_ID)
def an_idempotent_producer(world: World) -> Case:
    plain = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    yield Until(plain, lambda answer: answer.error_code != 14)  # Kafka's first block of ids is on its way
    yield InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
    yield InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=-1)
    yield InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1)


@case(ApiKey.INIT_PRODUCER_ID)
def an_empty_transactional_id(world: World) -> Case:
    yield InitProducerIdRequest(transactional_id="", transaction_timeout_ms=60_000)


@case(ApiKey.INIT_PRODUCER_ID, "3+")
def a_producer_that_comes_back(world: World) -> Case:
    first = yield InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)
    yield InitProducerIdRequest(
        transactional_id=None, transaction_timeout_ms=1, producer_id=first.producer_id, producer_epoch=0
    )
    for producer_id, epoch in ((-1, 0), (5, -1), (999_999_999, 3), (-2, -2)):
        yield InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=1, producer_id=producer_id, producer_epoch=epoch
        )


def log_dirs(*asked: tuple[str, list[int]]) -> DescribeLogDirsRequest:
    return DescribeLogDirsRequest(
        topics=[DescribableLogDirTopic(topic=topic, partitions=partitions) for topic, partitions in asked]
    )


@case(ApiKey.DESCRIBE_LOG_DIRS)
def log_directories(world: World) -> Case:
    yield log_dirs(("letters", [0, 1, 2]), ("many", [0]))
    yield log_dirs(("letters", [1]))
    yield log_dirs()


@case(ApiKey.DESCRIBE_LOG_DIRS)
def log_directories_of_what_is_not_there(world: World) -> Case:
    yield log_dirs(("nowhere", [0]))
    yield log_dirs(("letters", [9, -1]))
    yield log_dirs(("letters", []))
    yield log_dirs(("letters", [0, 0]))


@case(ApiKey.DESCRIBE_CLUSTER)
def the_cluster(world: World) -> Case:
    yield DescribeClusterRequest()
    yield DescribeClusterRequest(include_cluster_authorized_operations=True)


@case(ApiKey.DESCRIBE_CLUSTER, "1+")
def endpoint_types(world: World) -> Case:
    for endpoint_type in (1, 2, 0, 3):
        yield DescribeClusterRequest(endpoint_type=endpoint_type)


@case(ApiKey.DESCRIBE_CLUSTER, "2+")
def fenced_brokers(world: World) -> Case:
    yield DescribeClusterRequest(include_fenced_brokers=True)


def described(
    *names: str, limit: int = 2_000, cursor: Cursor | None = None
) -> DescribeTopicPartitionsRequest:
    return DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names], response_partition_limit=limit, cursor=cursor
    )


@case(ApiKey.DESCRIBE_TOPIC_PARTITIONS)
def partitions_of_topics(world: World) -> Case:
    yield described("letters", "empty")
    yield described("letters", "letters")
    yield described("nowhere", "letters")
    for name in ("", "..", "a/b", "x" * 250):
        yield described(name)


@case(ApiKey.DESCRIBE_TOPIC_PARTITIONS)
def pages_of_partitions(world: World) -> Case:
    for limit in (1, 2, 3, 4, 0, -1):
        yield described("empty", "letters", "stamped", limit=limit)
    for topic, partition in (("letters", 0), ("letters", 1), ("letters", 3), ("letters", 9), ("letters", -1),
                             ("a", 0), ("z", 0), ("nowhere", 0), ("m", 1)):  # fmt: skip
        cursor = Cursor(topic_name=topic, partition_index=partition)
        yield described("empty", "letters", "stamped", limit=2, cursor=cursor)


@case(ApiKey.DESCRIBE_TOPIC_PARTITIONS)
def a_cursor_without_topics(world: World) -> Case:
    yield described(limit=1, cursor=Cursor(topic_name="stamped", partition_index=5))
