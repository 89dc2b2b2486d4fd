"""Conversations with a cluster without a network: destinations and retries."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, TypeVar

import pytest
from tests.support.manual_time import ManualClock

from barnabas.client.admin.calls.topics import wait_until_known
from barnabas.client.core.cluster_state import TRANSACTION, ClusterState
from barnabas.client.core.retries import BACKOFF, Retries
from barnabas.client.core.steps import ANY_BROKER, ClusterUnreachable, Pause, Send, Step, Steps
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.errors import (
    GroupIdNotFound,
    LeaderNotAvailable,
    NetworkException,
    NotLeaderOrFollower,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from barnabas.core.ids import TopicPartition
from barnabas.core.steps import drive
from barnabas.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from barnabas.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from barnabas.protocol.offset_numbers import EARLIEST

T = TypeVar("T")


class Script:
    """Answers in turn, or errors; time passes while it pauses."""

    def __init__(self, clock: ManualClock, *answers: Any) -> None:
        self.sent: list[Send] = []
        self.pauses: list[Pause] = []
        self._clock = clock
        self._answers = [*answers]

    def __call__(self, step: Step) -> Any:
        if isinstance(step, Pause):
            self.pauses.append(step)
            self._clock.advance(step.ms)
            return None
        self.sent.append(step)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def state(clock: ManualClock) -> ClusterState:
    return ClusterState(clock, random.Random(1), retry_timeout_ms=10_000)


def metadata(*leaders: int, error_code: int = 0, brokers: Sequence[int] = (1, 2)) -> MetadataResponse:
    partitions = [
        MetadataResponsePartition(partition_index=index, leader_id=leader_id)
        for index, leader_id in enumerate(leaders)
    ]
    return MetadataResponse(
        controller_id=1,
        brokers=[MetadataResponseBroker(node_id=each, host=f"h{each}", port=9092) for each in brokers],
        topics=[MetadataResponseTopic(name="t", error_code=error_code, partitions=partitions)],
    )


def test_a_leader_is_looked_up_once_and_again_when_it_is_forgotten(
    state: ClusterState, clock: ManualClock
) -> None:
    script = Script(clock, metadata(1, 2))
    for place, leader_id in ((TopicPartition("t", 0), 1), (TopicPartition("t", 1), 2)):
        assert drive(state.leader(place), script) == leader_id
    assert len(script.sent) == 1
    state.forget()
    assert state.brokers[1] == Endpoint("h1", 9092), "where it was may still be where it is"
    drive(state.leader(TopicPartition("t", 0)), script)
    assert len(script.sent) == 2


def test_what_has_no_leader_is_told_from_what_does_not_exist(state: ClusterState, clock: ManualClock) -> None:
    script = Script(clock, metadata(1, -1))
    with pytest.raises(LeaderNotAvailable, match="t-1 has no leader"):
        drive(state.leader(TopicPartition("t", 1)), script)
    with pytest.raises(UnknownTopicOrPartition, match="no partition t-2"):
        drive(state.leader(TopicPartition("t", 2)), script)
    gone = Script(clock, metadata(error_code=UnknownTopicOrPartition.code))
    drive(state.refresh(("t",)), gone)
    with pytest.raises(UnknownTopicOrPartition, match="there is no topic t"):
        drive(state.leader(TopicPartition("t", 0)), gone)


def test_an_old_broker_is_asked_for_one_coordinator(state: ClusterState, clock: ManualClock) -> None:
    found = FindCoordinatorResponse(node_id=7, host="h7", port=1)
    script = Script(clock, UnsupportedVersion("version 3 has no coordinator_keys"), found)
    assert drive(state.coordinator("x", TRANSACTION), script) == 7
    assert state.brokers[7] == Endpoint("h7", 1)
    new = FindCoordinatorResponse(coordinators=[Coordinator(key="x", node_id=8, host="h8", port=2)])
    assert drive(state.coordinator("x", TRANSACTION), Script(clock, new)) == 8
    assert state.brokers[8] == Endpoint("h8", 2)


def test_offsets_are_asked_of_each_leader_once(state: ClusterState, clock: ManualClock) -> None:
    def offsets(*rows: tuple[int, int]) -> ListOffsetsResponse:
        partitions = [
            ListOffsetsPartitionResponse(partition_index=index, offset=offset) for index, offset in rows
        ]
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=partitions)])

    script = Script(clock, metadata(1, 2, 1), offsets((0, 10), (2, 12)), offsets((1, 11)))
    wanted = dict.fromkeys((TopicPartition("t", each) for each in range(3)), EARLIEST)
    found = drive(state.list_offsets(wanted), script)
    assert {place.partition: offset for place, offset in found.items()} == {0: 10, 1: 11, 2: 12}
    assert [each.broker_id for each in script.sent] == [ANY_BROKER, 1, 2]


def retried(state: ClusterState, script: Script) -> MetadataResponse:
    return drive(state.retrying(lambda: state.refresh(("t",))), script)


def test_what_may_pass_is_tried_again_with_growing_pauses(state: ClusterState, clock: ManualClock) -> None:
    errors = [NotLeaderOrFollower(""), NetworkException("gone")]
    script = Script(clock, *errors, metadata(1))
    retried(state, script)
    assert [each.because for each in script.pauses] == errors
    for nominal_ms, pause in zip((BACKOFF.first_ms, 2 * BACKOFF.first_ms), script.pauses, strict=True):
        assert 0.8 * nominal_ms <= pause.ms <= 1.2 * nominal_ms


def test_what_cannot_pass_is_raised_at_once(state: ClusterState, clock: ManualClock) -> None:
    script = Script(clock, GroupIdNotFound("no"))
    with pytest.raises(GroupIdNotFound):
        retried(state, script)
    assert not script.pauses


@pytest.mark.parametrize(
    ("error", "patience_ms"), [(NetworkException("gone"), 10_000), (UnknownTopicOrPartition("t"), 3_000)]
)
def test_patience_ends(state: ClusterState, clock: ManualClock, error: Exception, patience_ms: float) -> None:
    with pytest.raises(type(error)):
        retried(state, Script(clock, error))
    assert patience_ms - BACKOFF.max_ms <= clock.monotonic_ms() <= patience_ms


def test_progress_begins_the_wait_again(clock: ManualClock) -> None:
    retries = Retries(clock, random.Random(1), timeout_ms=100)
    clock.advance(95)
    with pytest.raises(NetworkException):
        retries.next_pause_ms(NetworkException("gone"))
    retries.begin_again()
    assert retries.next_pause_ms(NetworkException("gone")) <= 1.2 * BACKOFF.first_ms


def test_an_error_of_our_own_is_not_retried(state: ClusterState, clock: ManualClock) -> None:
    def attempt() -> Steps[None]:
        raise ZeroDivisionError
        yield

    with pytest.raises(ZeroDivisionError):
        drive(state.retrying(attempt), Script(clock, ClusterUnreachable(["x"])))


def test_a_new_topic_is_waited_for_on_every_broker(state: ClusterState, clock: ManualClock) -> None:
    unknown, leaderless = UnknownTopicOrPartition.code, LeaderNotAvailable.code
    script = Script(
        clock,
        metadata(),
        metadata(error_code=unknown),
        metadata(error_code=leaderless),
        metadata(1),
        metadata(1),
    )
    drive(wait_until_known(state, "t"), script)
    assert [each.broker_id for each in script.sent] == [ANY_BROKER, 1, 1, 1, 2]


def test_a_broker_that_the_first_one_did_not_know_is_waited_for_too(
    state: ClusterState, clock: ManualClock
) -> None:
    unknown = UnknownTopicOrPartition.code
    script = Script(clock, metadata(brokers=[1]), metadata(1), metadata(error_code=unknown), metadata(1))
    drive(wait_until_known(state, "t"), script)
    assert [each.broker_id for each in script.sent] == [ANY_BROKER, 1, 2, 2]


@pytest.mark.parametrize("error", [ClusterUnreachable(["h1:9092 refuses"]), NetworkException("lost")])
def test_a_broker_that_does_not_answer_is_not_waited_for(
    state: ClusterState, clock: ManualClock, error: Exception
) -> None:
    script = Script(clock, metadata(), error, metadata(1))
    drive(wait_until_known(state, "t"), script)
    assert [each.broker_id for each in script.sent] == [ANY_BROKER, 1, 2]
    assert script.pauses == []


def test_a_hidden_or_late_topic_ends_the_wait(state: ClusterState, clock: ManualClock) -> None:
    hidden = Script(clock, metadata(), metadata(error_code=TopicAuthorizationFailed.code))
    drive(wait_until_known(state, "t"), hidden)
    assert hidden.pauses == []
    late = Script(clock, metadata(), metadata(error_code=UnknownTopicOrPartition.code))
    begun_ms = clock.monotonic_ms()
    drive(wait_until_known(state, "t", timeout_ms=5_000), late)
    assert clock.monotonic_ms() - begun_ms <= 5_000
