"""Bounds on the steps and the sizes of answers about groups, clients and transactions."""

from __future__ import annotations

import json
from collections.abc import Generator
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.coordinator.group.state.embedded_protocol import decode_assignment, encode_assignment
from barnabas.coordinator.transaction.state.states import TransactionState
from barnabas.core import ids
from barnabas.core.errors import InvalidRequest, TopicAuthorizationFailed
from barnabas.inspection import wire
from barnabas.inspection.answers import clients as client_answers
from barnabas.inspection.answers import groups as group_answers
from barnabas.inspection.answers import transactions as transaction_answers
from barnabas.inspection.answers.clients import clients
from barnabas.inspection.answers.groups import committed, group, groups
from barnabas.inspection.answers.transactions import transactions
from barnabas.inspection.wire import LENGTH, encode_answer
from barnabas.protocol.messages.consumer_protocol import ConsumerProtocolAssignment, TopicPartition
from barnabas.security.acl.vocabulary import ResourceType
from tests.support.slices import in_one_go
from tests.unit.coordinator.support import Groups

GROUPS = 5


class Viewer:
    """Describes every group, and all topics but the hidden ones."""

    def __init__(self, *hidden: str) -> None:
        self.hidden = hidden

    def sees_topic(self, name: str) -> bool:
        return name not in self.hidden

    def sees_group(self, _: str) -> bool:
        return True

    def sees(self, *_: object) -> bool:
        return True

    def require(self, kind: ResourceType, name: str = "") -> None:
        if kind is ResourceType.TOPIC and not self.sees_topic(name):
            raise TopicAuthorizationFailed(name)


def assignment(partitions: int, topic: str = "t") -> bytes:
    assigned = [TopicPartition(topic=topic, partitions=list(range(partitions)))]
    return encode_assignment(ConsumerProtocolAssignment(assigned_partitions=assigned), 1)


def inspected(coordinated: Groups | None, *hidden: str, **broker: Any) -> Any:
    parts: dict[str, Any] = {"broker_id": 1, "replicas": SimpleNamespace(find=lambda _: None), **broker}
    if coordinated is not None:
        parts |= {
            "groups": coordinated.coordinator,
            "metadata": SimpleNamespace(topic=lambda _: SimpleNamespace(topic_id=ids.ZERO_UUID)),
            "clock": coordinated.clock,
        }
    return SimpleNamespace(
        broker=SimpleNamespace(**parts),
        viewer=lambda _: Viewer(*hidden),
        end_offset=lambda _: None,
        written_ms=lambda *_: None,
    )


def groups_with(data: bytes, count: int = 1) -> Groups:
    found = Groups(initial_rebalance_delay_ms=0)
    for number in range(count):
        name = f"g{number}"
        member, joined = found.enter(name)
        found.advance(1)
        found.sync(member, joined.value.generation_id, {member: data}, group=name)
    return found


def decodes_of_steps(work: Generator[None, None, Any], decoded: list[bytes]) -> list[int]:
    counts = []
    while True:
        before = len(decoded)
        ended = next(work, work)
        counts.append(len(decoded) - before)
        if ended is work:
            return counts


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Assignments that were decoded."""
    found: list[bytes] = []

    def noted(data: bytes) -> ConsumerProtocolAssignment:
        found.append(data)
        return decode_assignment(data)

    monkeypatch.setattr(group_answers, "decode_assignment", noted)
    return found


def test_a_step_decodes_one_assignment(decoded: list[bytes]) -> None:
    found = inspected(groups_with(assignment(10), GROUPS))
    counts = decodes_of_steps(groups(found, {"topic": "u"}), decoded)
    assert max(counts) == 1
    assert sum(counts) == GROUPS


def test_groups_are_found_by_the_topic_of_a_member() -> None:
    found = inspected(groups_with(assignment(2), GROUPS))
    assert in_one_go(groups(found, {"topic": "t"}))["total"] == GROUPS
    assert in_one_go(groups(found, {"topic": "u"}))["total"] == 0


def test_a_topic_without_a_right_finds_no_group_and_shows_no_partition() -> None:
    found = inspected(groups_with(assignment(2)), "t")
    assert in_one_go(groups(found, {"topic": "t"})) == {"total": 0, "rows": []}
    described = in_one_go(group(found, {"group_id": "g0"}))
    assert [member["partitions"] for member in described["members"]] == [[]]
    assert described["offsets"] == []
    with pytest.raises(TopicAuthorizationFailed):
        in_one_go(committed(found, {"topic": "t", "partition": 0}))


def test_an_assignment_that_is_too_long_is_not_decoded(
    decoded: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = assignment(10)
    found = inspected(groups_with(data))
    monkeypatch.setattr(group_answers, "ASSIGNMENT_BYTES_MAX", len(data) - 1)
    assert in_one_go(group(found, {"group_id": "g0"}))["members"][0]["partitions"] == []
    assert decoded == []


def test_a_group_is_shown_with_a_number_of_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_answers, "PARTITIONS_MAX", 7)
    coordinated = groups_with(assignment(10))
    for partition in range(4, 20):
        assert coordinated.commit(5, group="g1", partition=partition) == 0
    found = inspected(coordinated)
    described = in_one_go(group(found, {"group_id": "g0"}))
    assert described["members"][0]["partitions"] == [("t", number) for number in range(7)]
    assert [row["partition"] for row in described["offsets"]] == list(range(7))
    described = in_one_go(group(found, {"group_id": "g1"}))
    assert len(described["offsets"]) == 7
    assert described["more_offsets"] == 9


def test_metrics_of_clients_have_a_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_answers, "TEXT_CHARACTERS_MAX", 1_000)
    series = {(f"metric-{number}", (("key", "x" * 90),)): 1.0 for number in range(100)}
    reporter = SimpleNamespace(
        client_id="c", host="h", owner=SimpleNamespace(principal="User:a"), software=("a", "1")
    )
    instance = SimpleNamespace(instance_id="i", last_push_ms=1, series=series, reporter=reporter)
    answer = in_one_go(clients(inspected(None, telemetry=[instance, instance]), {}))
    assert [len(row["metrics"]) for row in answer["rows"]] == [9, 0]


def test_transactions_have_a_number_of_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_answers, "ALL_PARTITIONS_MAX", 5)
    places = {ids.TopicPartition("t", number) for number in range(4)}
    opened = SimpleNamespace(
        transactional_id="x", producer_id=1, producer_epoch=0, state=TransactionState.ONGOING, timeout_ms=1,
        start_timestamp_ms=-1, partitions=places,
    )  # fmt: skip
    shard = SimpleNamespace(transactions={1: opened, 2: opened})
    runtime = SimpleNamespace(active_shards=lambda: [(0, shard)])
    found = inspected(None, transactions=SimpleNamespace(runtime=runtime))
    answer = in_one_go(transactions(found, {}))
    assert [[each.partition for each in row["partitions"]] for row in answer["rows"]] == [[0, 1, 2, 3], [0]]


def test_an_answer_is_one_frame_and_has_a_length(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = in_one_go(encode_answer({"rows": [1, {"a": None}], "total": 2}))
    (length,) = LENGTH.unpack_from(frame)
    assert length == len(frame) - LENGTH.size
    assert json.loads(frame[LENGTH.size :]) == {"ok": {"rows": [1, {"a": None}], "total": 2}}
    monkeypatch.setattr(wire, "ANSWER_BYTES_MAX", 100)
    with pytest.raises(InvalidRequest, match="100 bytes"):
        in_one_go(encode_answer(["x" * 101]))
