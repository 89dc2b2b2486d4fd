"""Elements of a request that a fault rule selects, and the joining of the responses."""

from __future__ import annotations

import pytest

from barnabas.core.ids import Uuid
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTransaction,
)
from barnabas.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest
from barnabas.protocol.messages.describe_transactions import DescribeTransactionsRequest
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from barnabas.protocol.schema.message import Message
from barnabas.testing.faults.rules import milliseconds
from barnabas.testing.faults.selection import Selection, merge, replace

ORDERS = Uuid(bytes(15) + b"\1")
ONE = frozenset({1})


def produce(*named: tuple[str, int]) -> ProduceRequest:
    topics: dict[str, TopicProduceData] = {}
    for topic, partition in named:
        row = topics.setdefault(topic, TopicProduceData(name=topic))
        row.partition_data.append(PartitionProduceData(index=partition))
    return ProduceRequest(topic_data=list(topics.values()))


def names(request: Message | None) -> list[tuple[str, int]]:
    assert isinstance(request, ProduceRequest)
    return [(topic.name, each.index) for topic in request.topic_data for each in topic.partition_data]


def nameless(_: Uuid) -> str | None:
    return None


def test_the_selected_partition_leaves_the_others() -> None:
    request = produce(("a", 0), ("a", 1), ("b", 1))
    selected, others = Selection("a", ONE).split(request, nameless)
    assert names(selected) == [("a", 1)]
    assert names(others) == [("a", 0), ("b", 1)]
    assert names(request) == [("a", 0), ("a", 1), ("b", 1)]  # the request itself is unchanged


def test_a_partition_of_every_topic() -> None:
    selected, others = Selection(partitions=ONE).split(produce(("a", 0), ("a", 1), ("b", 1)), nameless)
    assert names(selected) == [("a", 1), ("b", 1)]
    assert names(others) == [("a", 0)]


@pytest.mark.parametrize(
    ("selection", "is_selected", "has_others"),
    [(Selection(), True, False), (Selection("a"), True, False), (Selection("c"), False, True)],
)
def test_all_or_nothing(selection: Selection, is_selected: bool, has_others: bool) -> None:
    selected, others = selection.split(produce(("a", 0)), nameless)
    assert (selected is not None, others is not None) == (is_selected, has_others)


def test_topics_are_found_by_their_id() -> None:
    request = FetchRequest(topics=[FetchTopic(topic_id=ORDERS, partitions=[FetchPartition(partition=3)])])
    selected, others = Selection("orders", frozenset({3})).split(request, {ORDERS: "orders"}.get)
    assert selected is not None
    assert others is None
    assert Selection("orders", frozenset({3})).split(request, nameless) == (None, request)


def test_plain_names_of_topics() -> None:
    request = DeleteTopicsRequest(topic_names=["a", "b"])
    selected, others = Selection("b").split(request, nameless)
    assert isinstance(selected, DeleteTopicsRequest)
    assert isinstance(others, DeleteTopicsRequest)
    assert (selected.topic_names, others.topic_names) == (["b"], ["a"])


def test_groups_at_the_top_and_in_arrays() -> None:
    assert Selection(group="g").names_subject_of(HeartbeatRequest(group_id="g"))
    assert not Selection(group="h").names_subject_of(HeartbeatRequest(group_id="g"))
    assert Selection(group="g").names_subject_of(
        OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id="f"), OffsetFetchRequestGroup(group_id="g")]
        )
    )


def response(*codes: tuple[str, int, int]) -> ProduceResponse:
    topics: dict[str, TopicProduceResponse] = {}
    for topic, partition, code in codes:
        row = topics.setdefault(topic, TopicProduceResponse(name=topic))
        row.partition_responses.append(PartitionProduceResponse(index=partition, error_code=code))
    return ProduceResponse(responses=list(topics.values()))


def test_refused_partitions_join_their_topic() -> None:
    merged = merge(response(("a", 0, 0), ("b", 0, 0)), response(("a", 1, 6), ("c", 0, 6)))
    assert merged == response(("a", 0, 0), ("a", 1, 6), ("b", 0, 0), ("c", 0, 6))


def test_refused_partitions_take_the_place_of_those_that_were_served() -> None:
    served = response(("a", 0, 0), ("a", 1, 0), ("b", 0, 0))
    assert replace(served, response(("a", 1, 7), ("b", 0, 7))) == response(
        ("a", 0, 0), ("a", 1, 7), ("b", 0, 7)
    )


def test_refused_topics_take_the_place_of_those_that_were_made() -> None:
    made = CreateTopicsResponse(
        topics=[CreatableTopicResult(name="a"), CreatableTopicResult(name="b", topic_id=ORDERS)]
    )
    late = CreatableTopicResult(name="b", error_code=7)
    replaced = replace(made, CreateTopicsResponse(topics=[late]))
    assert replaced == CreateTopicsResponse(topics=[CreatableTopicResult(name="a"), late])


@pytest.mark.parametrize(
    ("request_", "is_named"),
    [
        (ProduceRequest(transactional_id="t"), True),
        (ProduceRequest(transactional_id=None), False),
        (AddPartitionsToTxnRequest(v3_and_below_transactional_id="t"), True),
        (
            AddPartitionsToTxnRequest(transactions=[AddPartitionsToTxnTransaction(transactional_id="t")]),
            True,
        ),
        (FindCoordinatorRequest(key="t", key_type=1), True),
        (FindCoordinatorRequest(coordinator_keys=["s", "t"], key_type=1), True),
        (FindCoordinatorRequest(key="t", key_type=0), False),
        (HeartbeatRequest(group_id="t"), False),
    ],
)
def test_transactional_ids_at_the_top_and_in_arrays(request_: Message, is_named: bool) -> None:
    assert Selection(transactional_id="t").names_subject_of(request_) is is_named


def test_a_coordinator_of_a_transaction_is_none_of_a_group() -> None:
    wanted = Selection(group="g")
    assert wanted.names_subject_of(FindCoordinatorRequest(coordinator_keys=["g"], key_type=0))
    assert not wanted.names_subject_of(FindCoordinatorRequest(coordinator_keys=["g"], key_type=1))


@pytest.mark.parametrize(
    ("text", "expected"), [("500ms", 500), ("1.5s", 1_500), ("10m", 600_000), ("2h", 7_200_000), (0.25, 250)]
)
def test_durations(text: str | float, expected: int) -> None:
    assert milliseconds(text) == expected


def test_one_transaction_of_several_is_selected() -> None:
    request = DescribeTransactionsRequest(transactional_ids=["a", "b"])
    selected, others = Selection(transactional_id="a").split(request, nameless)
    assert isinstance(selected, DescribeTransactionsRequest)
    assert isinstance(others, DescribeTransactionsRequest)
    assert (selected.transactional_ids, others.transactional_ids) == (["a"], ["b"])
    rows = [AddPartitionsToTxnTransaction(transactional_id=each) for each in ("a", "b")]
    selected, others = Selection(transactional_id="b").split(
        AddPartitionsToTxnRequest(transactions=rows), nameless
    )
    assert isinstance(selected, AddPartitionsToTxnRequest)
    assert isinstance(others, AddPartitionsToTxnRequest)
    assert (selected.transactions, others.transactions) == (rows[1:], rows[:1])
