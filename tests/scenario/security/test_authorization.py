"""Authorization on real sockets: known mistakes of other brokers, and rules that hold."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from barnabas.client.aio.channel import Channel
from barnabas.core.errors import name_of
from barnabas.network.transport.sockets import SYSTEM_SOCKETS
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.messages.describe_acls import DescribeAclsResponse
from barnabas.protocol.messages.fetch import FetchResponse
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from barnabas.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.protocol.messages.produce import ProduceResponse
from barnabas.protocol.offset_numbers import LATEST
from barnabas.security.acl.bindings import AclBinding
from barnabas.security.acl.vocabulary import CLUSTER_NAME, Operation, PatternType, Permission, ResourceType
from tests.scenario.security.callers import (
    ADMIN_HOST,
    ADMIN_RULES,
    CALLER_HOST,
    SETTINGS,
    connected,
    create,
    delete,
    delete_all,
    describe,
    rule,
)
from tests.scenario.security.requests import CASES, TOPIC, TRANSACTION, World, fetch_as
from tests.support.in_process import InProcessBroker
from tests.support.transactions import HandProducer

READ = rule(Operation.READ, ResourceType.TOPIC, TOPIC)
WRITE = rule(Operation.WRITE, ResourceType.TOPIC, TOPIC)
NOBODY = World(b"", b"", 1, 0)  # type: ignore[arg-type]


class Callers:
    def __init__(self, broker: InProcessBroker, admin: Channel, caller: Channel) -> None:
        self.broker = broker
        self.admin = admin
        self.caller = caller

    async def grant(self, *bindings: object) -> None:
        await delete_all(self.admin)
        assert set(await create(self.admin, bindings)) <= {0}  # type: ignore[arg-type]


@pytest.fixture
async def callers(tmp_path: Path) -> AsyncIterator[Callers]:
    broker = InProcessBroker([tmp_path], None, SYSTEM_SOCKETS, **SETTINGS)
    await broker.broker.startup()
    try:
        async with (
            connected(ADMIN_HOST, broker.address) as admin,
            connected(CALLER_HOST, broker.address) as caller,
        ):
            assert set(await create(admin, ADMIN_RULES)) == {0}
            topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
            await admin.send(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), CreateTopicsResponse)
            yield Callers(broker, admin, caller)
    finally:
        await broker.broker.shutdown()


async def fetched(channel: Channel, replica_id: int = -1) -> str:
    answer = await channel.send(fetch_as(replica_id), FetchResponse, version_max=12)
    return name_of(answer.responses[0].partitions[0].error_code)


async def produced(channel: Channel, place: int, transactional_id: str | None) -> str:
    request = CASES[ApiKey.PRODUCE][place].build(NOBODY)
    request.transactional_id = transactional_id  # type: ignore[attr-defined]
    answer = await channel.send(request, ProduceResponse, version_max=11)
    return name_of(answer.responses[0].partition_responses[0].error_code)


async def test_a_reader_cannot_fetch_as_a_replica(callers: Callers) -> None:
    """CVE-2018-1288."""
    await callers.grant(READ)
    assert await fetched(callers.caller) == "NONE"
    assert await fetched(callers.caller, replica_id=1) == "TOPIC_AUTHORIZATION_FAILED"
    await callers.grant(rule(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME))
    assert await fetched(callers.caller) == "TOPIC_AUTHORIZATION_FAILED"
    assert await fetched(callers.caller, replica_id=1) != "TOPIC_AUTHORIZATION_FAILED"


async def test_no_client_sees_beyond_the_high_watermark_as_a_replica(callers: Callers) -> None:
    """A replica sees the end of the log, and a consumer the end of what is committed."""
    producer = HandProducer(callers.admin, TRANSACTION)
    while await producer.init() != "NONE":
        await producer.find()
    assert await producer.add(TOPIC) == "NONE"
    assert await producer.produce(TOPIC, b"open") == "NONE"
    await callers.grant(rule(Operation.DESCRIBE, ResourceType.TOPIC, TOPIC))
    for replica_id in (-1, -2, 0, 5):
        assert await end_offset(callers.caller, replica_id) == 0
    assert await end_offset(callers.admin, 5) == 1


async def end_offset(channel: Channel, replica_id: int) -> int:
    partition = ListOffsetsPartition(partition_index=0, timestamp=LATEST)
    request = ListOffsetsRequest(
        replica_id=replica_id,
        isolation_level=1,
        topics=[ListOffsetsTopic(name=TOPIC, partitions=[partition])],
    )
    answer = await channel.send(request, ListOffsetsResponse)
    found = answer.topics[0].partitions[0]
    assert found.error_code == 0
    return found.offset


async def test_a_pattern_is_compiled_for_who_sees_an_id(callers: Callers) -> None:
    """Neither the cost nor the error of a pattern depends on ids that are hidden."""
    producer = HandProducer(callers.admin, TRANSACTION)
    while await producer.init() != "NONE":
        await producer.find()
    request = ListTransactionsRequest(transactional_id_pattern="(")
    described = rule(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, TRANSACTION)
    for rules, expected in (((), "NONE"), ((described,), "INVALID_REGULAR_EXPRESSION")):
        await callers.grant(*rules)
        answer = await callers.caller.send(request, ListTransactionsResponse)
        assert (name_of(answer.error_code), answer.transaction_states) == (expected, [])


async def test_the_batches_say_whether_a_write_is_transactional(callers: Callers) -> None:
    """CVE-2018-17196: not the request."""
    await callers.grant(WRITE)
    assert await produced(callers.caller, 1, None) == "NONE"
    assert await produced(callers.caller, 0, None) == "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
    assert await produced(callers.caller, 0, TRANSACTION) == "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
    await callers.grant(WRITE, rule(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, TRANSACTION))
    assert await produced(callers.caller, 0, TRANSACTION) != "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
    assert await produced(callers.caller, 0, None) == "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"


async def test_a_transactional_batch_that_is_cut_short_is_refused_by_itself(callers: Callers) -> None:
    """As in Apache Kafka, which looks for the flag in whole batches."""
    await callers.grant(WRITE)
    request = CASES[ApiKey.PRODUCE][0].build(NOBODY)
    (data,) = request.topic_data[0].partition_data  # type: ignore[attr-defined]
    data.records = bytes(data.records)[:-1]
    request.transactional_id = None  # type: ignore[attr-defined]
    answer = await callers.caller.send(request, ProduceResponse, version_max=11)
    (partition,) = answer.responses[0].partition_responses
    assert name_of(partition.error_code) == "CORRUPT_MESSAGE"


async def test_a_right_that_is_taken_back_ends_with_the_next_fetch_of_a_session(callers: Callers) -> None:
    await callers.grant(READ)
    request = fetch_as(-1)
    request.session_epoch = 0
    opened = await callers.caller.send(request, FetchResponse, version_max=12)
    assert (opened.error_code, opened.responses[0].partitions[0].error_code) == (0, 0)
    await callers.grant()
    request.session_id, request.session_epoch, request.topics = opened.session_id, 1, []
    answer = await callers.caller.send(request, FetchResponse, version_max=12)
    assert name_of(answer.responses[0].partitions[0].error_code) == "TOPIC_AUTHORIZATION_FAILED"


async def test_no_rule_is_lost_when_many_connections_change_one_resource(callers: Callers) -> None:
    """CVE-2024-27309: half of the rules are taken back while others come, each by a connection of its own."""
    address = callers.broker.address

    def of(number: int) -> AclBinding:
        return rule(Operation.READ, ResourceType.TOPIC, TOPIC, principal=f"User:u{number}")

    async def change(number: int, *, removes: bool) -> None:
        async with connected(ADMIN_HOST, address) as admin:
            if removes:
                await delete(admin, of(number))
            else:
                assert set(await create(admin, [of(number)])) == {0}

    await callers.grant(*map(of, range(10)))
    changes = [change(number, removes=number < 10) for number in (*range(0, 10, 2), *range(10, 20))]
    await asyncio.gather(*changes)
    found = await callers.admin.send(describe(TOPIC), DescribeAclsResponse)
    names = {each.principal for resource in found.resources for each in resource.acls}
    assert names == {f"User:u{number}" for number in (*range(1, 10, 2), *range(10, 20))}


async def test_a_name_without_rights_does_not_show_whether_it_exists(callers: Callers) -> None:
    await callers.grant()
    answers = []
    for name in (TOPIC, "no-such-topic"):
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)
        (topic,) = (await callers.caller.send(request, MetadataResponse)).topics
        assert name_of(topic.error_code) == "TOPIC_AUTHORIZATION_FAILED"
        assert topic.name == name
        topic.name = ""
        answers.append(topic)
    assert answers[0] == answers[1]


async def test_a_denial_wins_over_a_prefix_and_the_wildcard(callers: Callers) -> None:
    prefix = rule(Operation.READ, ResourceType.TOPIC, TOPIC[:3], pattern_type=PatternType.PREFIXED)
    await callers.grant(prefix, rule(Operation.ALL, ResourceType.TOPIC, "*"))
    assert await fetched(callers.caller) == "NONE"
    await callers.grant(
        prefix,
        rule(Operation.READ, ResourceType.TOPIC, TOPIC, principal="User:*", permission=Permission.DENY),
    )
    assert await fetched(callers.caller) == "TOPIC_AUTHORIZATION_FAILED"


async def test_rules_outlive_a_restart_and_hold_from_the_first_request(
    callers: Callers, tmp_path: Path
) -> None:
    await callers.grant(READ)
    await callers.broker.broker.shutdown()
    again = InProcessBroker([tmp_path], None, SYSTEM_SOCKETS, **SETTINGS)
    await again.broker.startup()
    try:
        async with connected(CALLER_HOST, again.address) as caller:
            assert await fetched(caller) == "NONE"
            assert await produced(caller, 1, None) == "TOPIC_AUTHORIZATION_FAILED"
        async with connected(ADMIN_HOST, again.address) as admin:
            listed = await admin.send(
                describe(TOPIC),
                DescribeAclsResponse,
            )
            (resource,) = listed.resources
            assert (resource.resource_name, [each.operation for each in resource.acls]) == (TOPIC, [3])
    finally:
        await again.broker.shutdown()


async def test_a_denial_is_one_line_in_the_audit_log(
    callers: Callers, caplog: pytest.LogCaptureFixture
) -> None:
    await callers.grant(READ)
    with caplog.at_level("INFO", "kafka.authorizer.logger"):
        assert await produced(callers.caller, 1, None) == "TOPIC_AUTHORIZATION_FAILED"
    (line,) = [record.getMessage() for record in caplog.records if record.name == "kafka.authorizer.logger"]
    said = json.loads(line)
    assert (said["decision"], said["principal"], said["host"]) == ("denied", "User:ANONYMOUS", CALLER_HOST)
    assert (said["operation"], said["resource_type"], said["resource"]) == ("WRITE", "TOPIC", TOPIC)
