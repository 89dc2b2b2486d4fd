"""The rules for new topics and more partitions."""

from __future__ import annotations

import pytest

from barnabas.administration.topic_rules import (
    PARTITIONS_PER_REQUEST_MAX,
    Assignment,
    TopicSpec,
    check_new_name,
    given_configs,
    plan_more_partitions,
    plan_topic,
    repeated,
)
from barnabas.core.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopicException,
    PolicyViolation,
    TopicAlreadyExists,
)

LIVE = {1, 2, 3}


def assign(partitions: int, factor: int, first: int) -> Assignment:
    return {partition: [1, 2, 3][:factor] for partition in range(first, first + partitions)}


def plan(spec: TopicSpec) -> Assignment:
    return plan_topic(
        spec, default_partitions=4, default_replication_factor=2, live_brokers=LIVE, assign=assign
    )


def test_minus_one_means_the_defaults_of_the_broker() -> None:
    assert plan(TopicSpec("t")) == {partition: [1, 2] for partition in range(4)}


def test_counts_given_are_counts_used() -> None:
    assert plan(TopicSpec("t", 1, 3)) == {0: [1, 2, 3]}


@pytest.mark.parametrize("partitions", [0, -2])
def test_a_topic_needs_a_partition(partitions: int) -> None:
    with pytest.raises(InvalidPartitions, match=r"larger than 0"):
        plan(TopicSpec("t", partitions, 1))


def test_one_request_cannot_make_endless_partitions() -> None:
    assert len(plan(TopicSpec("t", PARTITIONS_PER_REQUEST_MAX, 1))) == PARTITIONS_PER_REQUEST_MAX
    with pytest.raises(PolicyViolation):
        plan(TopicSpec("t", PARTITIONS_PER_REQUEST_MAX + 1, 1))


@pytest.mark.parametrize("factor", [0, -2, 4])
def test_a_replication_factor_lies_between_one_and_the_live_brokers(factor: int) -> None:
    with pytest.raises(InvalidReplicationFactor):
        plan(TopicSpec("t", 1, factor))


def test_a_manual_assignment_is_taken_as_it_is() -> None:
    assert plan(TopicSpec("t", assignments=[(1, [2, 3]), (0, [1, 2])])) == {0: [1, 2], 1: [2, 3]}


@pytest.mark.parametrize(("partitions", "factor"), [(1, -1), (-1, 1)])
def test_an_assignment_and_counts_exclude_each_other(partitions: int, factor: int) -> None:
    with pytest.raises(InvalidRequest):
        plan(TopicSpec("t", partitions, factor, assignments=[(0, [1])]))


@pytest.mark.parametrize(
    ("assignments", "reason"),
    [
        ([(0, [1]), (0, [2])], "twice"),
        ([(0, [])], "empty"),
        ([(0, [1, 1])], "duplicate"),
        ([(0, [1, 9])], "unknown broker.*9"),
        ([(0, [1]), (1, [1, 2])], "same number"),
        ([(1, [1])], "consecutive"),
        ([(0, [1]), (2, [1])], "consecutive"),
    ],
)
def test_a_manual_assignment_must_make_sense(assignments: list[tuple[int, list[int]]], reason: str) -> None:
    with pytest.raises(InvalidReplicaAssignment, match=reason):
        plan(TopicSpec("t", assignments=assignments))


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "x" * 250, "a/b"])
def test_a_topic_has_a_proper_name(name: str) -> None:
    with pytest.raises(InvalidTopicException):
        check_new_name(name, set())


def test_a_name_is_taken_once() -> None:
    with pytest.raises(TopicAlreadyExists):
        check_new_name("a.b", {"a.b"})


@pytest.mark.parametrize(("name", "existing"), [("a.b", "a_b"), ("a_b.c", "a.b_c")])
def test_names_that_differ_only_in_dots_and_underscores_collide(name: str, existing: str) -> None:
    with pytest.raises(InvalidTopicException, match=rf"collides.*{existing}"):
        check_new_name(name, {existing, "other"})
    check_new_name("a-b", {existing})


def test_the_metadata_log_of_apache_kafka_is_no_topic() -> None:
    with pytest.raises(InvalidRequest, match=r"prohibited"):
        check_new_name("__cluster_metadata", set())


def more(count: int, by_hand: list[list[int]] | None = None) -> Assignment:
    current = [[1, 2], [2, 3]]
    return plan_more_partitions("t", current, count, by_hand, live_brokers=LIVE, assign=assign)


def test_more_partitions_are_assigned_with_the_factor_of_the_topic() -> None:
    assert more(4) == {2: [1, 2], 3: [1, 2]}


def test_more_partitions_can_be_assigned_by_hand() -> None:
    assert more(4, [[3, 1], [1, 3]]) == {2: [3, 1], 3: [1, 3]}


@pytest.mark.parametrize(("count", "reason"), [(1, "more than the requested"), (2, "already has 2")])
def test_the_number_of_partitions_only_grows(count: int, reason: str) -> None:
    with pytest.raises(InvalidPartitions, match=reason):
        more(count)


@pytest.mark.parametrize(
    ("by_hand", "reason"),
    [
        ([[1, 2], [2, 3]], "grows by 1"),
        ([[1]], "same number"),
        ([[1, 9]], "unknown"),
        ([[1, 1]], "duplicate"),
    ],
)
def test_an_assignment_of_more_partitions_must_fit_the_topic(by_hand: list[list[int]], reason: str) -> None:
    with pytest.raises(InvalidReplicaAssignment, match=reason):
        more(3, by_hand)


def test_a_config_without_a_value_is_refused() -> None:
    assert given_configs({"a": "1"}) == {"a": "1"}
    with pytest.raises(InvalidConfig, match=r"null value"):
        given_configs({"a": "1", "retention.ms": None})


def test_repeated_names_are_found() -> None:
    assert repeated(["a", "b", "a", "c", "a"]) == {"a"}
