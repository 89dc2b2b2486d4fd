"""Administrative commands against a scripted broker: requests they send, output, exit codes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.support.scripted_broker import Script, ScriptedBroker, broker_in_thread

from barnabas.cli.main import cli
from barnabas.core.ids import TopicPartition
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntryResult,
)
from barnabas.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from barnabas.protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from barnabas.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from barnabas.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from barnabas.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from barnabas.protocol.offset_numbers import EARLIEST, LATEST
from barnabas.security.acl.vocabulary import Operation, PatternType, Permission, ResourceType

REPLICAS = {
    TopicPartition("orders", 0): (1, 2),
    TopicPartition("orders", 1): (2, 3),
    TopicPartition("audit", 0): (3,),
}
BOUNDS = {EARLIEST: 10, LATEST: 90}
COMMITTED = 50


def metadata(port: int, request: MetadataRequest) -> MetadataResponse:
    names = [row.name for row in request.topics] if request.topics is not None else ["audit", "orders"]
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=id_, host="127.0.0.1", port=port) for id_ in (1, 2, 3)],
        controller_id=1,
        topics=[
            MetadataResponseTopic(
                name=name,
                partitions=[
                    MetadataResponsePartition(
                        partition_index=at.partition,
                        leader_id=replicas[0],
                        replica_nodes=list(replicas),
                        isr_nodes=list(replicas[:1] if at.partition == 1 else replicas),
                    )
                    for at, replicas in REPLICAS.items()
                    if at.topic == name
                ],
            )
            for name in names
        ],
    )


def list_offsets(request: ListOffsetsRequest, _version: int) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(
                        partition_index=row.partition_index, offset=BOUNDS.get(row.timestamp, -1)
                    )
                    for row in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def offset_fetch(request: Any, _version: int) -> OffsetFetchResponse:
    row = OffsetFetchResponsePartitions(partition_index=0, committed_offset=COMMITTED, metadata="")
    topics = [OffsetFetchResponseTopics(name="orders", partitions=[row])]
    group_id = request.groups[0].group_id
    return OffsetFetchResponse(
        groups=[OffsetFetchResponseGroup(group_id=group_id, topics=topics if group_id == "readers" else [])]
    )


def offset_commit(request: OffsetCommitRequest, _version: int) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=row.partition_index)
                    for row in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def alter_configs(request: IncrementalAlterConfigsRequest, _version: int) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(resource_type=each.resource_type, resource_name=each.resource_name)
            for each in request.resources
        ]
    )


def delete_topics(request: DeleteTopicsRequest, _version: int) -> DeleteTopicsResponse:
    names = [each.name for each in request.topics] or request.topic_names
    return DeleteTopicsResponse(responses=[DeletableTopicResult(name=name) for name in names])


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    script: Script = {
        ApiKey.LIST_OFFSETS: list_offsets,
        ApiKey.OFFSET_FETCH: offset_fetch,
        ApiKey.OFFSET_COMMIT: offset_commit,
        ApiKey.INCREMENTAL_ALTER_CONFIGS: alter_configs,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: lambda *_: AlterPartitionReassignmentsResponse(),
        ApiKey.CREATE_ACLS: lambda request, _version: CreateAclsResponse(
            results=[AclCreationResult() for _ in request.creations]
        ),
        ApiKey.DELETE_TOPICS: delete_topics,
        ApiKey.ALTER_CLIENT_QUOTAS: lambda *_: AlterClientQuotasResponse(entries=[EntryResult()]),
    }
    with broker_in_thread(script) as started:
        port = started.port
        script[ApiKey.METADATA] = lambda request, _version: metadata(port, request)
        script[ApiKey.FIND_COORDINATOR] = lambda request, _version: FindCoordinatorResponse(
            coordinators=[
                Coordinator(key=request.coordinator_keys[0], node_id=1, host="127.0.0.1", port=port)
            ]
        )
        yield started


def barnabas(broker: ScriptedBroker, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["--bootstrap", str(broker.address), *arguments])


# --- reassign and decommission ---


def planned(result: Result) -> dict[str, list[int]]:
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)["partitions"]
    return {f"{row['topic']}-{row['partition']}": row["replicas"] for row in rows}


def test_a_dry_run_prints_the_plan_and_moves_nothing(broker: ScriptedBroker) -> None:
    result = barnabas(broker, "reassign", "start", "--topic", "orders", "--brokers", "1,3", "--dry-run")
    assert planned(result) == {"orders-0": [1, 3], "orders-1": [1, 3]}
    assert broker.asked(AlterPartitionReassignmentsRequest) == []


def test_a_decommission_moves_what_the_broker_holds(broker: ScriptedBroker) -> None:
    result = barnabas(broker, "cluster", "decommission", "3", "--dry-run")
    assert planned(result) == {"audit-0": [1], "orders-1": [2, 1]}
    missing = barnabas(broker, "cluster", "decommission", "9", "--dry-run")
    assert missing.exit_code == 4
    assert "there is no broker 9" in missing.stderr


def test_a_plan_file_is_sent_as_it_is(broker: ScriptedBroker, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    row = {"topic": "orders", "partition": 1, "replicas": [3, 1]}
    plan.write_text(json.dumps({"version": 1, "partitions": [row]}))
    result = barnabas(broker, "reassign", "start", "--plan", str(plan))
    assert (result.exit_code, result.stdout) == (0, "1 partitions are moving\n")
    (request,) = broker.asked(AlterPartitionReassignmentsRequest)
    (topic,) = request.topics
    assert (topic.name, topic.partitions[0].partition_index, topic.partitions[0].replicas) == (
        "orders",
        1,
        [3, 1],
    )


def test_a_throttle_is_set_before_the_moves_start(broker: ScriptedBroker) -> None:
    barnabas(broker, "reassign", "start", "--topic", "audit", "--brokers", "1", "--throttle", "1000")
    kinds = (IncrementalAlterConfigsRequest, AlterPartitionReassignmentsRequest)
    changes: list[Any] = [request for request in broker.requests if isinstance(request, kinds)]
    assert isinstance(changes.pop(), AlterPartitionReassignmentsRequest)
    assert [each.resources[0].resource_name for each in changes] == ["audit", "1", "3"]


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (["--dry-run"], 2, "give either --topic or --plan"),
        (["--topic", "nothing"], 4, "there is no topic nothing"),
        (["--topic", "orders", "--brokers", "1,9"], 4, "there is no broker 9"),
        (["--topic", "orders", "--brokers", "x"], 2, "is not a list of broker ids"),
        (["--topic", "orders", "--replication-factor", "4"], 1, "needs 4 replicas"),
        (["--topic", "orders", "--throttle", "0"], 2, "--throttle"),
    ],
)
def test_a_reassignment_that_cannot_be_is_refused(
    broker: ScriptedBroker, arguments: list[str], code: int, reason: str
) -> None:
    result = barnabas(broker, "reassign", "start", *arguments)
    assert result.exit_code == code
    assert reason in result.stderr
    assert broker.asked(AlterPartitionReassignmentsRequest) == []


def test_an_unreadable_plan_names_its_file(broker: ScriptedBroker, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text('{"partitions": [{"topic": "orders"}]}')
    result = barnabas(broker, "reassign", "start", "--plan", str(plan))
    assert result.exit_code == 2
    assert "partitions[0] needs topic, partition and replicas" in result.stderr


# --- topic delete ---


def test_an_internal_topic_is_deleted_only_by_force(broker: ScriptedBroker) -> None:
    """One typing error must not take the offsets of every consumer group."""
    refused = barnabas(broker, "topic", "delete", "orders", "__consumer_offsets", "--if-exists")
    assert refused.exit_code == 2
    assert "without --force: __consumer_offsets holds the offsets of all consumer groups" in refused.stderr
    assert broker.asked(DeleteTopicsRequest) == [], "not even the topic named before it"
    deleted = barnabas(broker, "topic", "delete", "__consumer_offsets", "__transaction_state", "--force")
    assert (deleted.exit_code, deleted.stdout) == (
        0,
        "deleted topic __consumer_offsets\ndeleted topic __transaction_state\n",
    )
    assert len(broker.asked(DeleteTopicsRequest)) == 2


# --- cluster status ---


def test_the_status_lists_partitions_by_their_trouble(broker: ScriptedBroker) -> None:
    result = barnabas(broker, "cluster", "status", "--json")
    found = json.loads(result.stdout)
    assert result.exit_code == 0
    assert found["under_replicated"] == [
        {"topic": "orders", "partition": 1, "leader": 2, "replicas": [2, 3], "isr": [2]}
    ]
    assert found["offline"] == found["not_preferred"] == []
    assert found["silent_brokers"] == []
    assert found["told_by"] == str(broker.address)


def test_a_check_fails_while_a_replica_is_missing(broker: ScriptedBroker) -> None:
    result = barnabas(broker, "cluster", "status", "--check")
    assert result.exit_code == 1
    assert f"metadata of the broker at {broker.address}" in result.stdout
    assert "under-replicated 1" in result.stdout


# --- group reset-offsets ---


def commits(broker: ScriptedBroker) -> dict[str, int]:
    return {
        f"{topic.name}-{row.partition_index}": row.committed_offset
        for request in broker.asked(OffsetCommitRequest)
        for topic in request.topics
        for row in topic.partitions
    }


@pytest.mark.parametrize(
    ("arguments", "offsets"),
    [
        (["--to-earliest"], {"orders-0": 10}),
        (["--to-latest"], {"orders-0": 90}),
        (["--to-offset", "0"], {"orders-0": 10}),
        (["--to-offset", "60"], {"orders-0": 60}),
        (["--shift-by", "-5"], {"orders-0": 45}),
        (["--shift-by", "0"], {"orders-0": 50}),
        (["--to-datetime", "2026-01-31T12:00:00Z"], {"orders-0": 90}),
        (["--to-earliest", "--topic", "orders:1", "--topic", "audit"], {"orders-1": 10, "audit-0": 10}),
    ],
)
def test_a_reset_commits_its_targets(
    broker: ScriptedBroker, arguments: list[str], offsets: dict[str, int]
) -> None:
    result = barnabas(broker, "group", "reset-offsets", "readers", *arguments)
    assert result.exit_code == 0, result.output
    assert commits(broker) == offsets


def test_a_dry_run_of_a_reset_commits_nothing(broker: ScriptedBroker) -> None:
    result = barnabas(broker, "group", "reset-offsets", "readers", "--to-latest", "--dry-run")
    assert " ".join(result.stdout.split()) == "topic partition before would be orders 0 50 90"
    assert commits(broker) == {}


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (["readers"], 2, "give exactly one of --to-earliest"),
        (["readers", "--to-earliest", "--to-offset", "0"], 2, "give exactly one of --to-earliest"),
        (["readers", "--to-earliest", "--topic", "orders:x"], 2, "numbers separated by commas"),
        (["readers", "--to-earliest", "--topic", "orders:7"], 2, "topic orders has no partition 7"),
        (["strangers", "--to-earliest"], 4, "group strangers has no offsets to reset"),
    ],
)
def test_a_reset_that_cannot_be_is_refused(
    broker: ScriptedBroker, arguments: list[str], code: int, reason: str
) -> None:
    result = barnabas(broker, "group", "reset-offsets", *arguments)
    assert result.exit_code == code
    assert reason in result.stderr
    assert commits(broker) == {}


# --- acl ---


def created(broker: ScriptedBroker) -> set[tuple[object, ...]]:
    (request,) = broker.asked(CreateAclsRequest)
    return {
        (
            ResourceType(row.resource_type),
            row.resource_name,
            PatternType(row.resource_pattern_type),
            row.principal,
            row.host,
            Operation(row.operation),
            Permission(row.permission_type),
        )
        for row in request.creations
    }


def test_a_producer_gets_its_operations(broker: ScriptedBroker) -> None:
    arguments = ["--producer", "--idempotent", "--topic", "orders", "--allow-principal", "User:alice"]
    assert barnabas(broker, "acl", "add", *arguments).exit_code == 0
    topic = (ResourceType.TOPIC, "orders", PatternType.LITERAL, "User:alice", "*")
    cluster = (ResourceType.CLUSTER, "kafka-cluster", PatternType.LITERAL, "User:alice", "*")
    assert created(broker) == {
        (*topic, Operation.WRITE, Permission.ALLOW),
        (*topic, Operation.DESCRIBE, Permission.ALLOW),
        (*topic, Operation.CREATE, Permission.ALLOW),
        (*cluster, Operation.IDEMPOTENT_WRITE, Permission.ALLOW),
    }


def test_rules_are_the_product_of_resources_operations_principals_and_hosts(broker: ScriptedBroker) -> None:
    arguments = [
        "--topic", "a", "--group", "b", "--resource-pattern-type", "prefixed", "--operation", "read",
        "--deny-principal", "User:eve", "--deny-host", "10.0.0.1", "--deny-host", "10.0.0.2",
        "--allow-principal", "User:alice",
    ]  # fmt: skip
    assert barnabas(broker, "acl", "add", *arguments).exit_code == 0
    read = Operation.READ
    assert created(broker) == {
        (kind, name, PatternType.PREFIXED, principal, host, read, permission)
        for kind, name in ((ResourceType.TOPIC, "a"), (ResourceType.GROUP, "b"))
        for principal, host, permission in (
            ("User:eve", "10.0.0.1", Permission.DENY),
            ("User:eve", "10.0.0.2", Permission.DENY),
            ("User:alice", "*", Permission.ALLOW),
        )
    }


def test_a_star_stays_literal_among_prefixes(broker: ScriptedBroker) -> None:
    arguments = ["--topic", "*", "--resource-pattern-type", "prefixed", "--allow-principal", "User:a"]
    barnabas(broker, "acl", "add", *arguments)
    ((_, name, pattern_type, *_),) = created(broker)
    assert (name, pattern_type) == ("*", PatternType.LITERAL)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--allow-principal", "User:a"], "name a resource"),
        (["--topic", "t"], "name a principal"),
        (["--topic", "t", "--allow-principal", "a"], "principal"),
        (["--topic", "t", "--allow-principal", "User:a", "--operation", "fly"], "fly"),
        (["--group", "g", "--allow-principal", "User:a", "--operation", "write"], "has no operation Write"),
        (["--producer", "--group", "g", "--allow-principal", "User:a"], "need a --topic"),
        (["--consumer", "--topic", "t", "--allow-principal", "User:a"], "--consumer needs a --group"),
        (["--producer", "--topic", "t", "--operation", "read"], "exclude --operation"),
    ],
)
def test_a_rule_that_cannot_be_is_refused(broker: ScriptedBroker, arguments: list[str], reason: str) -> None:
    result = barnabas(broker, "acl", "add", *arguments)
    assert result.exit_code == 2
    assert reason in result.stderr
    assert broker.asked(CreateAclsRequest) == []


# --- quota ---


def test_a_quota_names_its_entity_and_default_means_none(broker: ScriptedBroker) -> None:
    result = barnabas(
        broker, "quota", "set", "producer_byte_rate=1.5e6", "--delete", "request_percentage",
        "--user", "alice", "--client-id", "default",
    )  # fmt: skip
    assert result.stdout == "changed the quotas of user alice, client-id default\n"
    (request,) = broker.asked(AlterClientQuotasRequest)
    (entry,) = request.entries
    assert {part.entity_type: part.entity_name for part in entry.entity} == {
        "user": "alice",
        "client-id": None,
    }
    assert [(op.key, op.value, op.remove) for op in entry.ops] == [
        ("producer_byte_rate", 1.5e6, False),
        ("request_percentage", 0.0, True),
    ]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["producer_byte_rate=1"], "an entity is missing"),
        (["--user", "alice"], "nothing to change"),
        (["producer_byte_rate=fast", "--user", "alice"], "'fast' is not a number"),
        (["producer_byte_rate", "--user", "alice"], "is not of the form KEY=VALUE"),
        (
            ["producer_byte_rate=1", "--user", "User:alice"],
            "the user name alice, not the principal User:alice",
        ),
    ],
)
def test_a_quota_that_cannot_be_is_refused(broker: ScriptedBroker, arguments: list[str], reason: str) -> None:
    result = barnabas(broker, "quota", "set", *arguments)
    assert result.exit_code == 2
    assert reason in result.stderr
    assert broker.asked(AlterClientQuotasRequest) == []
