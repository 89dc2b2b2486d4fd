"""Metadata cache: leader epochs never go back, topics expire, and names follow ids."""

from __future__ import annotations

import pytest

from barnabas.client.core.metadata import Leader, Metadata
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.errors import (
    InvalidReplicationFactor,
    InvalidTopicException,
    KafkaError,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
)
from barnabas.core.ids import TopicPartition, Uuid
from barnabas.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

ONE, OTHER = Uuid(bytes([1] * 16)), Uuid(bytes([2] * 16))


def answer(*topics: MetadataResponseTopic) -> MetadataResponse:
    brokers = [MetadataResponseBroker(node_id=each, host="h", port=each) for each in (1, 2)]
    return MetadataResponse(brokers=brokers, topics=list(topics))


def row(name: str, *leaders: tuple[int, int], topic_id: Uuid = ONE, error: int = 0) -> MetadataResponseTopic:
    partitions = [
        MetadataResponsePartition(
            partition_index=index, leader_id=leader, leader_epoch=epoch, replica_nodes=[], isr_nodes=[]
        )
        for index, (leader, epoch) in enumerate(leaders)
    ]
    return MetadataResponseTopic(name=name, topic_id=topic_id, partitions=partitions, error_code=error)


def cache(*topics: str) -> Metadata:
    metadata = Metadata()
    for topic in topics:
        assert metadata.want(topic)
    return metadata


def test_an_older_epoch_does_not_replace_a_newer_leader() -> None:
    metadata = cache("t")
    metadata.update(answer(row("t", (1, 5), (1, 5))), 0, ["t"])
    metadata.update(answer(row("t", (2, 4), (2, 6))), 1, ["t"])
    assert (metadata.leader("t", 0), metadata.leader("t", 1)) == (Leader(1, 5), Leader(2, 6))
    assert metadata.version == 2


def test_a_topic_created_again_begins_with_its_own_epochs() -> None:
    metadata = cache("t")
    metadata.update(answer(row("t", (1, 5))), 0, ["t"])
    metadata.update(answer(row("t", (2, 0), topic_id=OTHER)), 1, ["t"])
    assert metadata.leader("t", 0) == Leader(2, 0)
    assert metadata.names == {OTHER: "t"}


def test_a_named_leader_counts_only_when_it_is_newer_and_known() -> None:
    metadata = cache("t")
    metadata.update(answer(row("t", (1, 5))), 0, ["t"])
    at = TopicPartition("t", 0)
    assert not metadata.update_leader(at, Leader(2, 5))
    assert not metadata.update_leader(at, Leader(3, 6))
    assert not metadata.update_leader(TopicPartition("t", 1), Leader(2, 6))
    assert metadata.update_leader(at, Leader(3, 6), {3: Endpoint("h", 3)})
    assert metadata.leader("t", 0) == Leader(3, 6)


def test_errors_of_topics_are_kept_until_the_topic_is_there() -> None:
    metadata = cache("t", "secret")
    denied = row("secret", error=TopicAuthorizationFailed.code)
    metadata.update(answer(row("t", error=UnknownTopicOrPartition.code), denied), 0, ["t", "secret"])
    assert {name: type(error) for name, error in metadata.errors.items()} == {
        "t": UnknownTopicOrPartition,
        "secret": TopicAuthorizationFailed,
    }
    metadata.update(answer(row("t", (1, 0))), 0, ["t"])
    assert metadata.errors.keys() == {"secret"}
    assert metadata.has_leaders("t")
    assert not metadata.has_leaders("secret")


def test_unused_topics_expire_and_others_are_never_kept() -> None:
    metadata = Metadata()
    metadata.want("short", expires_ms=10)
    metadata.want("long", expires_ms=20)
    metadata.update(answer(row("short", (1, 0)), row("long", (1, 0), topic_id=OTHER), row("x")), 0, None)
    assert metadata.topics.keys() == {"short", "long"}
    assert metadata.topics_to_ask(10) == ["long"]
    assert metadata.topics.keys() == {"long"}
    assert metadata.names == {OTHER: "long"}
    metadata.want_only(["x"])
    assert metadata.topics_to_ask(99) == ["x"]
    assert not metadata.topics


def test_all_topics_are_wanted_by_a_pattern_and_a_full_answer_removes_deleted_ones() -> None:
    metadata = Metadata()
    metadata.wants_all = True
    assert metadata.topics_to_ask(0) is None
    metadata.update(answer(row("a", (1, 0)), row("b", (1, 0), topic_id=OTHER)), 0, None)
    metadata.update(answer(row("a", (1, 0))), 0, None)
    assert metadata.topics.keys() == {"a"}


def test_an_answer_about_other_topics_does_not_make_the_cache_fresh() -> None:
    metadata = cache("t")
    metadata.update(answer(row("t", (1, 0))), 5, ["t"])
    metadata.update(answer(), 9, [])
    assert metadata.refreshed_ms == 5


def test_a_topic_that_needs_more_brokers_says_how_many_there_are() -> None:
    metadata = cache("t")
    metadata.update(answer(row("t", error=InvalidReplicationFactor.code)), 0, ["t"])
    assert str(metadata.errors["t"]).endswith(
        "default.replication.factor is larger than the number of live brokers, 2"
    )


@pytest.mark.parametrize(
    ("name", "refused", "said"),
    [
        (
            "bad topic",
            InvalidTopicException,
            "topic name 'bad topic' has characters other than ASCII letters",
        ),
        ("x" * 250, InvalidTopicException, "a topic name has at most 249 characters, this one has 250"),
        ("t", InvalidTopicException, "topic t"),
        ("t", TopicAuthorizationFailed, "not authorized: DESCRIBE on TOPIC t"),
    ],
)
def test_a_refused_topic_has_a_reason(name: str, refused: type[KafkaError], said: str) -> None:
    """An answer has only a code, and the rules of another broker may be stricter."""
    metadata = cache(name)
    metadata.update(answer(row(name, error=refused.code)), 0, [name])
    assert metadata.errors[name].message.startswith(said)
