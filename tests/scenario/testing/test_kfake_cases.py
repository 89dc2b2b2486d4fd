"""Cases of kfake's tests of its fault rules (`fault_test.go`, `api_test.go`), as rules of the kit.

Requests are written by hand, as there: each names just the elements that the case is about. The docstring of
each test has the names of its cases.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar
from unittest.mock import ANY

import pytest
from confluent_kafka import KafkaError as ConfluentError
from confluent_kafka import Producer

from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.clock import SystemClock
from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from barnabas.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from barnabas.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from barnabas.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from barnabas.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from barnabas.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from barnabas.protocol.messages.produce import ProduceRequest
from barnabas.protocol.schema.message import Message
from barnabas.testing.broker import RunningBroker, run_broker
from barnabas.testing.cluster import run_cluster
from barnabas.testing.faults.rules import FaultRule

M = TypeVar("M", bound=Message)
T = TypeVar("T")
TOPIC_RESOURCE = 2


@pytest.fixture(scope="module")
def shared() -> Iterator[RunningBroker]:
    with run_broker() as broker:
        broker.committed("any")  # the coordinator is there from now on
        yield broker


@pytest.fixture
def broker(shared: RunningBroker) -> Iterator[RunningBroker]:
    yield shared
    shared.faults.clear()


def code(name: str) -> int:
    return next(number for number, each in KafkaError.by_code.items() if each.protocol_name() == name)


def with_client(bootstrap: str, work: Callable[[ClusterClient], Awaitable[T]]) -> T:
    host, _, port = bootstrap.partition(":")

    async def run() -> T:
        clock, randomness = SystemClock(), random.SystemRandom()
        async with ClusterClient([Endpoint(host, int(port))], clock=clock, randomness=randomness) as client:
            return await work(client)

    return asyncio.run(run())


def ask(broker: RunningBroker, request: Message, response: type[M]) -> M:
    """Send one request to the broker, as it is."""

    async def send(client: ClusterClient) -> M:
        return await (await client.any_channel()).send(request, response)

    return with_client(broker.bootstrap, send)


def list_offsets(broker: RunningBroker, topic: str, *partitions: int) -> list[int]:
    """Error codes of a ListOffsets for these partitions, in the order of their numbers."""
    rows = [ListOffsetsPartition(partition_index=each, timestamp=-1) for each in partitions or (0,)]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=rows)])
    answer = ask(broker, request, ListOffsetsResponse)
    found = {each.partition_index: each.error_code for row in answer.topics for each in row.partitions}
    return [found[number] for number in sorted(found)]


def commit(broker: RunningBroker, group: str, topic: str, partitions: int = 1) -> list[int]:
    """Error codes of an OffsetCommit of offset 7, by a client outside of the group."""

    async def send(client: ClusterClient) -> list[int]:
        topic_id = (await client.topic(topic)).topic_id
        rows = [
            OffsetCommitRequestPartition(partition_index=each, committed_offset=7, committed_metadata="")
            for each in range(partitions)
        ]
        named = OffsetCommitRequestTopic(name=topic, topic_id=topic_id, partitions=rows)
        request = OffsetCommitRequest(group_id=group, topics=[named])
        answer = await (await client.any_channel()).send(request, OffsetCommitResponse)
        return [each.error_code for row in answer.topics for each in row.partitions]

    return with_client(broker.bootstrap, send)


def publish(broker: RunningBroker, topic: str, partition: int = 0, **more: object) -> str | None:
    """The name of the error of one record, or None."""
    failed: list[ConfluentError | None] = []
    settings = {"bootstrap.servers": broker.bootstrap, "retry.backoff.ms": 10, "linger.ms": 0, "log_level": 0}
    producer = Producer({**settings, **more})
    producer.produce(topic, b"v", partition=partition, on_delivery=lambda error, _: failed.append(error))
    assert producer.flush(30) == 0
    return None if failed[0] is None else failed[0].name()


def test_a_partition_fails_and_the_others_are_served(broker: RunningBroker) -> None:
    """TestFaultPartition."""
    topic = broker.create_topic(partitions=3)
    rule = broker.faults.add(api="Produce", topic=topic, partition=2, error="POLICY_VIOLATION")
    assert [publish(broker, topic, each) for each in range(3)] == [None, None, "POLICY_VIOLATION"]
    assert rule.hits == 1


def test_several_partitions_of_one_rule(broker: RunningBroker) -> None:
    """TestFaultPartition, with Partitions."""
    topic = broker.create_topic(partitions=3)
    broker.faults.add(topic=topic, partition=[0, 2], error="POLICY_VIOLATION")
    refused = code("POLICY_VIOLATION")
    assert list_offsets(broker, topic, 0, 1, 2) == [refused, 0, refused]


def test_a_rule_for_a_group_fails_all_its_commits(broker: RunningBroker) -> None:
    """TestFaultGroupCommits."""
    topic = broker.create_topic(partitions=3)
    rule = broker.faults.add(api="OffsetCommit", group="g", error="NOT_COORDINATOR")
    assert commit(broker, "g", topic, 3) == [code("NOT_COORDINATOR")] * 3
    assert commit(broker, "other", topic, 3) == [0, 0, 0]
    assert rule.hits == 1


def test_a_rule_for_a_group_fails_its_heartbeats(broker: RunningBroker) -> None:
    """TestFaultGroupHeartbeat."""
    rule = broker.faults.add(api="Heartbeat", group="g", error="COORDINATOR_LOAD_IN_PROGRESS")

    def beat(group: str) -> int:
        request = HeartbeatRequest(group_id=group, generation_id=-1, member_id="m")
        return ask(broker, request, HeartbeatResponse).error_code

    assert beat("g") == code("COORDINATOR_LOAD_IN_PROGRESS")
    assert beat("other") != code("COORDINATOR_LOAD_IN_PROGRESS")
    assert rule.hits == 1


def test_one_group_of_a_describe_fails(broker: RunningBroker) -> None:
    """TestFaultDescribeGroups."""
    broker.faults.add(group="g", error="GROUP_AUTHORIZATION_FAILED")
    answer = ask(broker, DescribeGroupsRequest(groups=["g", "other"]), DescribeGroupsResponse)
    found = {each.group_id: each.error_code for each in answer.groups}
    assert found.keys() == {"g", "other"}
    assert found["g"] == code("GROUP_AUTHORIZATION_FAILED")
    assert found["other"] != code("GROUP_AUTHORIZATION_FAILED")


def fetch(broker: RunningBroker, topic: str, wait_ms: int, partitions: int = 1) -> FetchResponse:
    async def send(client: ClusterClient) -> FetchResponse:
        topic_id = (await client.topic(topic)).topic_id
        rows = [FetchPartition(partition=each, partition_max_bytes=1 << 20) for each in range(partitions)]
        named = FetchTopic(topic=topic, topic_id=topic_id, partitions=rows)
        request = FetchRequest(max_wait_ms=wait_ms, min_bytes=1, session_epoch=-1, topics=[named])
        return await (await client.any_channel()).send(request, FetchResponse)

    return with_client(broker.bootstrap, send)


def test_a_partition_of_a_fetch_fails_and_the_others_are_read(broker: RunningBroker) -> None:
    """TestFaultPartition, for a Fetch. It does not wait for records, because a partition has an error."""
    topic = broker.create_topic(partitions=2)
    broker.faults.add(api="Fetch", topic=topic, partition=1, error="NOT_LEADER_OR_FOLLOWER")
    began = time.monotonic()
    answer = fetch(broker, topic, 60_000, partitions=2)
    assert time.monotonic() - began < 30
    found = {each.partition_index: each for row in answer.responses for each in row.partitions}
    assert {number: each.error_code for number, each in found.items()} == {
        0: 0, 1: code("NOT_LEADER_OR_FOLLOWER"),
    }  # fmt: skip
    assert answer.error_code == 0
    assert [found[number].high_watermark for number in (0, 1)] == [0, -1]


def test_a_topic_of_a_metadata_request_fails(broker: RunningBroker) -> None:
    """Since version 13 the response has a place for the error of the whole request too."""
    one, other = broker.create_topic(), broker.create_topic()
    broker.faults.add(api="Metadata", topic=one, error="LEADER_NOT_AVAILABLE")
    request = MetadataRequest(topics=[MetadataRequestTopic(name=each) for each in (one, other)])
    answer = ask(broker, request, MetadataResponse)
    assert answer.error_code == 0
    assert {each.name: each.error_code for each in answer.topics} == {
        one: code("LEADER_NOT_AVAILABLE"), other: 0,
    }  # fmt: skip


def test_a_rule_for_a_topic_refuses_a_request_whose_response_has_no_error_of_topics(
    broker: RunningBroker,
) -> None:
    one, other = broker.create_topic(), broker.create_topic()
    rule = broker.faults.add(api="ListPartitionReassignments", topic=one, error="POLICY_VIOLATION")
    rows = [ListPartitionReassignmentsTopics(name=each, partition_indexes=[0]) for each in (one, other)]
    answer = ask(broker, ListPartitionReassignmentsRequest(topics=rows), ListPartitionReassignmentsResponse)
    assert (answer.error_code, rule.hits) == (code("POLICY_VIOLATION"), 1)


def test_a_whole_fetch_fails_at_once(broker: RunningBroker) -> None:
    """TestFaultTopLevel."""
    topic = broker.create_topic()
    rule = broker.faults.add(api="Fetch", error="FETCH_SESSION_TOPIC_ID_ERROR")
    answer = fetch(broker, topic, 600_000)  # without the rule it would wait for ten minutes
    assert answer.error_code == code("FETCH_SESSION_TOPIC_ID_ERROR")
    assert answer.responses == []
    assert rule.hits == 1


def test_a_rule_for_a_transactional_id_hits_every_request_that_names_it(broker: RunningBroker) -> None:
    """TestFaultTxnID."""
    rule = broker.faults.add(transactional_id="x", error="PRODUCER_FENCED")
    fenced = code("PRODUCER_FENCED")

    def begin(transactional_id: str) -> int:
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=10_000)
        return ask(broker, request, InitProducerIdResponse).error_code

    assert begin("x") == fenced
    assert ask(broker, EndTxnRequest(transactional_id="x"), EndTxnResponse).error_code == fenced
    assert begin("y") != fenced
    assert rule.hits == 2


def test_a_rule_of_one_broker_hits_no_other() -> None:
    """TestFaultNode."""
    with run_cluster(2) as cluster:
        topic = cluster.create_topic(replication_factor=2)
        rule = cluster.broker(1).faults.add(api="ListOffsets", topic=topic, error="POLICY_VIOLATION")
        assert list_offsets(cluster.broker(2), topic) != [code("POLICY_VIOLATION")]
        assert list_offsets(cluster.broker(1), topic) == [code("POLICY_VIOLATION")]
        assert rule.hits == 1


def test_coordinators_of_groups_and_of_transactions_are_told_apart(broker: RunningBroker) -> None:
    """TestFaultFindCoordinator."""
    broker.faults.add(group="g", error="COORDINATOR_NOT_AVAILABLE")
    broker.faults.add(transactional_id="x", error="COORDINATOR_LOAD_IN_PROGRESS")

    def find(key_type: int, *keys: str) -> dict[str, int]:
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=list(keys))
        answer = ask(broker, request, FindCoordinatorResponse)
        return {each.key: each.error_code for each in answer.coordinators}

    assert find(0, "g")["g"] == code("COORDINATOR_NOT_AVAILABLE")
    assert find(1, "x")["x"] == code("COORDINATOR_LOAD_IN_PROGRESS")
    both = find(0, "x", "g")
    assert both.keys() == {"g", "x"}
    assert both["g"] == code("COORDINATOR_NOT_AVAILABLE")
    assert both["x"] != code("COORDINATOR_LOAD_IN_PROGRESS")
    assert find(1, "g")["g"] != code("COORDINATOR_NOT_AVAILABLE")


def describe_configs(broker: RunningBroker, *topics: str) -> DescribeConfigsResponse:
    rows = [DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=each) for each in topics]
    for each in rows:
        each.configuration_keys = None
    return ask(broker, DescribeConfigsRequest(resources=rows), DescribeConfigsResponse)


def test_one_resource_of_a_describe_fails(broker: RunningBroker) -> None:
    """TestFaultResourceConfigs."""
    one, other = broker.create_topic(), broker.create_topic()
    broker.faults.add(resource=one, error="INVALID_CONFIG")
    answer = describe_configs(broker, one, other)
    found = {each.resource_name: each.error_code for each in answer.results}
    assert found == {one: code("INVALID_CONFIG"), other: 0}


def test_a_rule_never_matches_what_a_request_does_not_name(broker: RunningBroker) -> None:
    """TestFaultSelectorNotCarried."""
    rule = broker.faults.add(topic="t", error="UNKNOWN_SERVER_ERROR")
    answer = ask(broker, HeartbeatRequest(group_id="g", generation_id=-1, member_id="m"), HeartbeatResponse)
    assert answer.error_code != code("UNKNOWN_SERVER_ERROR")
    assert (rule.matches, rule.hits) == (0, 0)


def test_rules_count_and_may_be_removed_twice(broker: RunningBroker) -> None:
    """TestFaultCount."""
    topic, refused = broker.create_topic(), code("POLICY_VIOLATION")
    once = broker.faults.add(api="ListOffsets", topic=topic, error="POLICY_VIOLATION", times=1)
    assert [*list_offsets(broker, topic), *list_offsets(broker, topic)] == [refused, 0]
    assert once.hits == 1
    once.remove()
    ever = broker.faults.add(api="ListOffsets", topic=topic, error="POLICY_VIOLATION")
    assert [list_offsets(broker, topic) for _ in range(3)] == [[refused]] * 3
    ever.remove()
    ever.remove()
    assert list_offsets(broker, topic) == [0]
    assert ever.hits == 3


def test_the_first_rule_that_matches_answers(broker: RunningBroker) -> None:
    """TestFaultBatch."""
    one, other = broker.create_topic(), broker.create_topic()
    for topic, error in ((one, "POLICY_VIOLATION"), (one, "INVALID_REQUEST"), (other, "NOT_ENOUGH_REPLICAS")):
        broker.faults.add(topic=topic, error=error)
    assert list_offsets(broker, one) == [code("POLICY_VIOLATION")]
    assert list_offsets(broker, other) == [code("NOT_ENOUGH_REPLICAS")]
    assert [each.hits for each in broker.faults] == [1, 0, 1]
    broker.faults.clear()
    assert [*list_offsets(broker, one), *list_offsets(broker, other)] == [0, 0]


async def test_hits_are_awaited_before_and_after_they_come(broker: RunningBroker) -> None:
    """TestFaultWait."""
    topic = broker.create_topic()
    rule = broker.faults.add(api="ListOffsets", topic=topic, error="POLICY_VIOLATION", times=3)
    waiting = asyncio.ensure_future(rule.hit(1))
    done, _ = await asyncio.wait([waiting], timeout=0.05)
    assert not done
    await asyncio.to_thread(list_offsets, broker, topic)
    await waiting
    await rule.hit(1)
    await asyncio.to_thread(list_offsets, broker, topic)
    await rule.hit(2)
    with pytest.raises(TimeoutError, match="hit 2 requests in"):
        await rule.hit(3, timeout_s=0.01)
    with pytest.raises(ValueError, match="hits 3 requests at most"):
        await rule.hit(4)
    with pytest.raises(ValueError, match="hits 3 requests at most"):
        rule.wait_for_hits(4)


def test_a_wait_for_a_hit_that_is_cancelled_leaves_no_thread(broker: RunningBroker) -> None:
    """A thread that waited on would hold up the end of the test's loop."""
    rule = broker.faults.add(api="ListOffsets", error="POLICY_VIOLATION")
    before = threading.active_count()

    async def wait() -> None:
        waiting = [asyncio.ensure_future(rule.hit(1)) for _ in range(10)]
        await asyncio.sleep(0)
        assert threading.active_count() == before
        for each in waiting[1:]:
            each.cancel()
        await asyncio.to_thread(list_offsets, broker, broker.create_topic())
        assert await asyncio.gather(*waiting, return_exceptions=True) == [None, *[ANY] * 9]
        assert all(each.cancelled() for each in waiting[1:])

    asyncio.run(wait())


def test_a_rule_for_topics_opens_no_fetch_session_and_a_spent_one_leaves_sessions_alone(
    broker: RunningBroker,
) -> None:
    topic = broker.create_topic()

    async def work(client: ClusterClient) -> None:
        channel = await client.any_channel()
        topic_id = (await client.topic(topic)).topic_id
        wanted = FetchTopic(topic=topic, topic_id=topic_id, partitions=[FetchPartition()])

        async def fetch(session_id: int, session_epoch: int, *topics: FetchTopic) -> FetchResponse:
            request = FetchRequest(
                session_id=session_id, session_epoch=session_epoch, max_wait_ms=0, topics=list(topics)
            )
            return await channel.send(request, FetchResponse)

        assert (await fetch(0, 0, wanted)).session_id == 0
        session_id = (await fetch(0, 0, wanted)).session_id
        assert session_id > 0
        assert (await fetch(session_id, 1)).error_code == 0
        rule = broker.faults.add(api="Fetch", topic="another", error="NOT_LEADER_OR_FOLLOWER")
        assert (await fetch(session_id, 2)).error_code == code("FETCH_SESSION_ID_NOT_FOUND")
        assert (await fetch(0, 0, wanted)).session_id == 0
        assert rule.matches == 0

    spent = broker.faults.add(api="Fetch", topic=topic, error="NOT_LEADER_OR_FOLLOWER", times=1)
    with_client(broker.bootstrap, work)
    assert spent.hits == 1


def test_a_rule_is_added_by_a_function_of_another(broker: RunningBroker) -> None:
    """TestFaultFromControl, TestFaultFromSleepingControl."""
    topic = broker.create_topic()
    made: list[FaultRule] = []

    def add(_: Any) -> bool:
        if not made:
            made.append(broker.faults.add(api="ListOffsets", topic=topic, error="POLICY_VIOLATION"))
        return True

    broker.faults.add(api="ListOffsets", topic=topic, when=add, observe=True)
    assert list_offsets(broker, topic) == [0]
    assert list_offsets(broker, topic) == [code("POLICY_VIOLATION")]
    assert made[0].hits == 1


def test_an_observer_counts_and_a_condition_chooses(broker: RunningBroker) -> None:
    """TestFaultObserveAndWhen."""
    topic = broker.create_topic()
    seen = broker.faults.add(api="Produce", topic=topic, observe=True)

    def is_of_leader_alone(request: ProduceRequest) -> bool:
        return request.acks == 1

    refused = broker.faults.add(api="Produce", error="POLICY_VIOLATION", when=is_of_leader_alone)
    assert publish(broker, topic, acks="all") is None
    assert publish(broker, topic, acks=1) == "POLICY_VIOLATION"
    assert (seen.hits, refused.hits) == (2, 1)


def test_an_observer_leaves_a_waiting_fetch_alone(broker: RunningBroker) -> None:
    """TestFaultObserveLongPoll."""
    topic = broker.create_topic()
    seen = broker.faults.add(api="Fetch", observe=True)
    began = time.monotonic()
    assert fetch(broker, topic, 1_000).error_code == 0
    assert time.monotonic() - began > 0.5
    assert seen.hits == 1


@pytest.mark.parametrize(
    ("error", "idempotent", "copies"),
    [
        ("REQUEST_TIMED_OUT", True, 1),
        ("REQUEST_TIMED_OUT", False, 2),
        ("NOT_ENOUGH_REPLICAS_AFTER_APPEND", True, 1),
    ],
)
def test_a_write_is_stored_before_its_error(
    broker: RunningBroker, error: str, idempotent: bool, copies: int
) -> None:
    """TestFaultAfterApplyProduce."""
    settings: dict[str, Any] = {"enable.idempotence": idempotent, "acks": "all"}
    topic = broker.create_topic(partitions=2)
    rule = broker.faults.add(
        api="Produce", topic=topic, partition=0, error=error, applied=True, times=1
    )  # fmt: skip
    assert publish(broker, topic, 0, **settings) is None
    assert rule.hits == 1
    assert broker.values(topic) == [b"v"] * copies


def test_commits_are_stored_before_their_error(broker: RunningBroker) -> None:
    """TestFaultAfterApplyOffsetCommit."""
    topic = broker.create_topic(partitions=2)
    broker.faults.add(api="OffsetCommit", partition=1, error="REQUEST_TIMED_OUT", applied=True)
    assert commit(broker, "late", topic, 2) == [0, code("REQUEST_TIMED_OUT")]
    assert broker.committed("late") == {TopicPartition(topic, 0): 7, TopicPartition(topic, 1): 7}


def test_a_transactional_commit_is_stored_before_its_error(broker: RunningBroker) -> None:
    """TestFaultAfterApplyTxnOffsetCommit."""
    from confluent_kafka import Consumer  # as the one client of this test
    from confluent_kafka import TopicPartition as Position

    topic = broker.create_topic()
    rule = broker.faults.add(
        api="TxnOffsetCommit", group="within", error="COORDINATOR_LOAD_IN_PROGRESS", applied=True, times=1
    )
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic, "log_level": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    reader = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "within"})
    producer.send_offsets_to_transaction([Position(topic, 0, 7)], reader.consumer_group_metadata(), 30)
    producer.commit_transaction(30)
    reader.close()
    assert rule.hits == 1
    assert broker.committed("within") == {TopicPartition(topic, 0): 7}


def test_records_are_deleted_before_the_error(broker: RunningBroker) -> None:
    """TestFaultAfterApplyDeleteRecords."""
    topic = broker.create_topic()
    for _ in range(3):
        assert publish(broker, topic) is None
    broker.faults.add(api="DeleteRecords", topic=topic, error="REQUEST_TIMED_OUT", applied=True)
    rows = [DeleteRecordsPartition(partition_index=0, offset=2)]
    named = DeleteRecordsTopic(name=topic, partitions=rows)
    answer = ask(broker, DeleteRecordsRequest(topics=[named], timeout_ms=30_000), DeleteRecordsResponse)
    assert [each.error_code for row in answer.topics for each in row.partitions] == [
        code("REQUEST_TIMED_OUT")
    ]
    assert [each.offset for each in broker.records(topic)] == [2]


def test_a_setting_is_changed_before_the_error(broker: RunningBroker) -> None:
    """TestFaultAfterApplyAlterConfigs."""
    topic = broker.create_topic()
    broker.faults.add(
        api="IncrementalAlterConfigs", resource=topic, error="REQUEST_TIMED_OUT", applied=True, times=1
    )
    changed = AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=topic)
    changed.configs = [AlterableConfig(name="max.message.bytes", config_operation=0, value="999999")]
    request = IncrementalAlterConfigsRequest(resources=[changed])
    answer = ask(broker, request, IncrementalAlterConfigsResponse)
    assert [each.error_code for each in answer.responses] == [code("REQUEST_TIMED_OUT")]
    (described,) = describe_configs(broker, topic).results
    assert {each.name: each.value for each in described.configs}["max.message.bytes"] == "999999"


def test_a_group_is_deleted_before_the_error(broker: RunningBroker) -> None:
    """TestFaultAfterApplyDeleteGroups."""
    topic = broker.create_topic()
    assert commit(broker, "doomed", topic) == [0]
    broker.faults.add(api="DeleteGroups", group="doomed", error="REQUEST_TIMED_OUT", applied=True)
    answer = ask(broker, DeleteGroupsRequest(groups_names=["doomed"]), DeleteGroupsResponse)
    assert [each.error_code for each in answer.results] == [code("REQUEST_TIMED_OUT")]
    assert broker.committed("doomed") == {}


def test_a_topic_is_created_before_the_error(broker: RunningBroker) -> None:
    """TestFaultAfterApplyCreateTopics."""
    broker.faults.add(api="CreateTopics", topic="late", error="REQUEST_TIMED_OUT", applied=True)
    rows = [CreatableTopic(name=each, num_partitions=1, replication_factor=1) for each in ("late", "fine")]
    answer = ask(broker, CreateTopicsRequest(topics=rows), CreateTopicsResponse)
    assert sorted((each.name, each.error_code) for each in answer.topics) == [
        ("fine", 0),
        ("late", code("REQUEST_TIMED_OUT")),
    ]
    assert broker.records("late") == []


def test_a_condition_that_fails_closes_the_connection_and_is_logged(broker: RunningBroker) -> None:
    topic = broker.create_topic()
    fails = threading.Event()

    def fail(_: Any) -> bool:
        if not fails.is_set():
            fails.set()
            raise ZeroDivisionError(topic)
        return False

    broker.faults.add(api="Produce", topic=topic, when=fail, drop="after")
    assert publish(broker, topic) is None
    assert broker.values(topic) == [b"v"]
    assert any(topic in line and "the function of the test failed" in line for line in broker.log_lines())


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"observe": True, "error": 6}, "and none of them"),
        ({"applied": True, "drop": "after"}, "give the error"),
        ({"error": 6, "partition": []}, "matches no request"),
        ({"error": 6, "partition": [0, -1]}, "it is negative"),
    ],
)
def test_a_rule_that_contradicts_itself_is_refused(
    broker: RunningBroker, wrong: dict[str, object], told: str
) -> None:
    with pytest.raises(ValueError, match=told):
        broker.faults.add(**wrong)  # type: ignore[arg-type]


def test_a_partition_of_an_offset_fetch_fails_and_the_others_are_served(broker: RunningBroker) -> None:
    topic = broker.create_topic(partitions=2)
    assert commit(broker, "reads", topic, 2) == [0, 0]
    rule = broker.faults.add(api="OffsetFetch", topic=topic, partition=1, error="UNSTABLE_OFFSET_COMMIT")

    async def offsets(client: ClusterClient) -> OffsetFetchResponse:
        named = OffsetFetchRequestTopics(
            topic_id=(await client.topic(topic)).topic_id, partition_indexes=[0, 1]
        )
        group = OffsetFetchRequestGroup(group_id="reads", topics=[named])
        return await (await client.any_channel()).send(
            OffsetFetchRequest(groups=[group]), OffsetFetchResponse
        )

    (group,) = with_client(broker.bootstrap, offsets).groups
    found = [(each.partition_index, each.error_code) for row in group.topics for each in row.partitions]
    assert (group.group_id, group.error_code) == ("reads", 0)
    assert sorted(found) == [(0, 0), (1, code("UNSTABLE_OFFSET_COMMIT"))]
    assert rule.hits == 1


def test_a_whole_offset_fetch_fails_for_its_group(broker: RunningBroker) -> None:
    broker.faults.add(api="OffsetFetch", error="COORDINATOR_LOAD_IN_PROGRESS")
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="reads", topics=None)])
    (group,) = ask(broker, request, OffsetFetchResponse).groups
    assert (group.group_id, group.error_code) == ("reads", code("COORDINATOR_LOAD_IN_PROGRESS"))


def test_a_topic_of_a_transaction_is_refused(broker: RunningBroker) -> None:
    topic = broker.create_topic()
    rule = broker.faults.add(api="AddPartitionsToTxn", topic=topic, error="CONCURRENT_TRANSACTIONS", times=2)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic, "log_level": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"v")
    producer.commit_transaction(30)
    assert rule.hits == 2
    assert broker.values(topic, committed=True) == [b"v"]
