"""CreateTopics, DeleteTopics, CreatePartitions: each topic has its own answer."""

from __future__ import annotations

import pytest

from barnabas.administration.topic_rules import TopicSpec
from barnabas.config.log_config import LogConfig
from barnabas.core.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopicException,
    TopicAlreadyExists,
    TopicAuthorizationFailed,
    TopicDeletionDisabled,
    UnknownServerError,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from barnabas.core.ids import Uuid
from barnabas.handlers.create_partitions import CREATE_PARTITIONS
from barnabas.handlers.create_topics import CREATE_TOPICS
from barnabas.handlers.delete_topics import DELETE_TOPICS
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
from barnabas.security.acl.audit import Audit
from barnabas.security.acl.authorizer import AclAuthorizer
from tests.support.manual_time import ManualClock
from tests.unit.handlers.support import Broker


def creatable(name: str, partitions: int = 1, factor: int = 1, **configs: str | None) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        configs=[
            CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()
        ],
    )


@pytest.mark.parametrize("version", [4, 5])
async def test_settings_are_gathered_only_for_those_who_see_them(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    asked: list[object] = []
    entries = broker.configs.entries

    def noted(config: LogConfig) -> object:
        asked.append(config)
        return entries(config)

    monkeypatch.setattr(broker.configs, "entries", noted)
    await broker.ask(CREATE_TOPICS, CreateTopicsRequest(topics=[creatable("t")]), version)
    assert len(asked) == (version == 5)


@pytest.mark.parametrize("version", CREATE_TOPICS.versions)
async def test_a_topic_is_created_in_every_version(broker: Broker, version: int) -> None:
    request = CreateTopicsRequest(topics=[creatable("t", 3, retention_ms="5")])
    (result,) = (await broker.ask(CREATE_TOPICS, request, version)).topics
    assert (result.name, result.error_code, result.error_message) == ("t", 0, None)
    known = broker.metadata.topic("t")
    assert known is not None
    assert len(known.partitions) == 3
    if version >= 5:
        assert (result.num_partitions, result.replication_factor) == (3, 1)
        by_name = {config.name: config for config in result.configs}
        assert (by_name["retention.ms"].value, by_name["retention.ms"].config_source) == ("5", 1)
        assert by_name["segment.bytes"].config_source == 5
    if version >= 7:
        assert result.topic_id == known.topic_id


async def test_each_topic_of_a_request_has_its_own_error(broker: Broker) -> None:
    await broker.topics.create_topic(TopicSpec("taken"))
    await broker.topics.create_topic(TopicSpec("with.dot"))
    by_hand = creatable("by-hand", -1, -1)
    by_hand.assignments = [CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 9])]
    both = creatable("both", 1, 1)
    both.assignments = [CreatableReplicaAssignment(partition_index=0, broker_ids=[1])]
    twice_keyed = creatable("keys", retention_ms="1")
    twice_keyed.configs.append(CreatableTopicConfig(name="retention.ms", value="2"))
    expected = {
        "ok": 0,
        "defaults": 0,
        "taken": TopicAlreadyExists.code,
        "with_dot": InvalidTopicException.code,
        "a b": InvalidTopicException.code,
        "none": InvalidPartitions.code,
        "far": InvalidReplicationFactor.code,
        "by-hand": InvalidReplicaAssignment.code,
        "both": InvalidRequest.code,
        "config": InvalidConfig.code,
        "null": InvalidConfig.code,
        "keys": InvalidRequest.code,
        "twice": InvalidRequest.code,
        "__cluster_metadata": InvalidRequest.code,
    }
    topics = [
        creatable("ok"),
        creatable("defaults", -1, -1),
        creatable("taken"),
        creatable("with_dot"),
        creatable("a b"),
        creatable("none", 0),
        creatable("far", 1, 2),
        by_hand,
        both,
        creatable("config", retention_ms="soon"),
        creatable("null", retention_ms=None),
        twice_keyed,
        creatable("twice"),
        creatable("twice"),
        creatable("__cluster_metadata"),
    ]
    response = await broker.ask(CREATE_TOPICS, CreateTopicsRequest(topics=topics))
    assert {result.name: result.error_code for result in response.topics} == expected
    assert len(response.topics) == len(expected)
    assert all(result.error_message for result in response.topics if result.error_code)
    assert set(broker.metadata.topic_names()) == {"taken", "with.dot", "ok", "defaults"}


async def test_a_manual_assignment_is_used(broker: Broker) -> None:
    topic = creatable("t", -1, -1)
    topic.assignments = [CreatableReplicaAssignment(partition_index=n, broker_ids=[1]) for n in (1, 0)]
    (result,) = (await broker.ask(CREATE_TOPICS, CreateTopicsRequest(topics=[topic]))).topics
    assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 2, 1)


async def test_validate_only_creates_nothing(broker: Broker) -> None:
    request = CreateTopicsRequest(topics=[creatable("t", 3)], validate_only=True)
    (result,) = (await broker.ask(CREATE_TOPICS, request)).topics
    assert (result.error_code, result.num_partitions) == (0, 3)
    assert "t" not in broker.metadata


async def test_a_bug_is_not_shown_to_the_client(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    async def create_topic(spec: TopicSpec, *, validate_only: bool) -> None:
        raise RuntimeError("a secret of the broker")

    monkeypatch.setattr(broker.topics, "create_topic", create_topic)
    (result,) = (await broker.ask(CREATE_TOPICS, CreateTopicsRequest(topics=[creatable("t")]))).topics
    assert result.error_code == UnknownServerError.code
    assert "secret" not in result.error_message


@pytest.mark.parametrize("version", DELETE_TOPICS.versions)
async def test_a_topic_is_deleted_by_name_in_every_version(broker: Broker, version: int) -> None:
    created = await broker.topics.create_topic(TopicSpec("t"))
    request = (
        DeleteTopicsRequest(topic_names=["t", "nobody"])
        if version < 6
        else DeleteTopicsRequest(topics=[DeleteTopicState(name="t"), DeleteTopicState(name="nobody")])
    )
    gone, missing = (await broker.ask(DELETE_TOPICS, request, version)).responses
    assert (gone.name, gone.error_code) == ("t", 0)
    assert (missing.name, missing.error_code) == ("nobody", UnknownTopicOrPartition.code)
    if version >= 6:
        assert gone.topic_id == created.topic_id
    assert "t" not in broker.metadata


async def test_a_topic_is_deleted_by_id(broker: Broker) -> None:
    created = await broker.topics.create_topic(TopicSpec("t"))
    other = Uuid(b"0123456789abcdef")
    states = [DeleteTopicState(topic_id=created.topic_id), DeleteTopicState(topic_id=other)]
    gone, missing = (await broker.ask(DELETE_TOPICS, DeleteTopicsRequest(topics=states))).responses
    assert (gone.name, gone.topic_id, gone.error_code) == ("t", created.topic_id, 0)
    assert (missing.name, missing.topic_id, missing.error_code) == (None, other, UnknownTopicId.code)


async def test_a_topic_to_delete_is_named_once_and_in_one_way(broker: Broker) -> None:
    created = await broker.topics.create_topic(TopicSpec("t"))
    states = [
        DeleteTopicState(name="t", topic_id=created.topic_id),
        DeleteTopicState(),
        DeleteTopicState(name="u"),
        DeleteTopicState(name="u"),
    ]
    response = await broker.ask(DELETE_TOPICS, DeleteTopicsRequest(topics=states))
    assert [result.error_code for result in response.responses] == [InvalidRequest.code] * 3
    assert "t" in broker.metadata


@pytest.mark.parametrize(("version", "code"), [(2, InvalidRequest.code), (3, TopicDeletionDisabled.code)])
async def test_deletion_can_be_disabled(broker: Broker, version: int, code: int) -> None:
    await broker.topics.create_topic(TopicSpec("t"))
    broker.config.delete_topic_enable = False
    (result,) = (await broker.ask(DELETE_TOPICS, DeleteTopicsRequest(topic_names=["t"]), version)).responses
    assert result.error_code == code
    assert "t" in broker.metadata


@pytest.mark.parametrize("version", CREATE_PARTITIONS.versions)
async def test_each_topic_grows_by_itself(broker: Broker, version: int) -> None:
    for name in ("a", "b", "c", "d"):
        await broker.topics.create_topic(TopicSpec(name, 2, 1))
    by_hand = [CreatePartitionsAssignment(broker_ids=[9])]
    request = CreatePartitionsRequest(
        topics=[
            CreatePartitionsTopic(name="a", count=3, assignments=None),
            CreatePartitionsTopic(name="b", count=2, assignments=None),
            CreatePartitionsTopic(name="c", count=3, assignments=by_hand),
            CreatePartitionsTopic(name="nobody", count=3, assignments=None),
            CreatePartitionsTopic(name="d", count=3, assignments=None),
            CreatePartitionsTopic(name="d", count=4, assignments=None),
        ]
    )
    response = await broker.ask(CREATE_PARTITIONS, request, version)
    assert [(result.name, result.error_code) for result in response.results] == [
        ("a", 0),
        ("b", InvalidPartitions.code),
        ("c", InvalidReplicaAssignment.code),
        ("nobody", UnknownTopicOrPartition.code),
        ("d", InvalidRequest.code),
    ]
    known = broker.metadata.topic("a")
    assert known is not None
    assert len(known.partitions) == 3


async def test_the_name_behind_an_id_is_told_only_to_those_who_may_know_it(broker: Broker) -> None:
    created = await broker.topics.create_topic(TopicSpec("secret"))
    broker.services.authorizer = AclAuthorizer(Audit(ManualClock()), (), is_open_without_rules=False)
    states = [DeleteTopicState(topic_id=created.topic_id), DeleteTopicState(name="secret")]
    answer = await broker.ask(DELETE_TOPICS, DeleteTopicsRequest(topics=states, timeout_ms=10_000))
    by_id, by_name = answer.responses
    assert (by_id.name, by_id.error_code) == (None, TopicAuthorizationFailed.code)
    assert "secret" not in by_id.error_message
    assert by_name.error_code == TopicAuthorizationFailed.code, "not even that the two are the same"
