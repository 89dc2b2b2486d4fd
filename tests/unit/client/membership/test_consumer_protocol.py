"""Member by the consumer protocol, as transcripts: requests out, answers in, events for the owner."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest
from tests.support.manual_time import ManualClock

from barnabas.client.core.metadata import Metadata
from barnabas.client.membership.consumer_protocol import ConsumerProtocolMember, State
from barnabas.client.membership.interface import Ask, Assigned, Failed, GroupOptions, Lost, Revoked
from barnabas.core.backoff import Backoff
from barnabas.core.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    FencedInstanceId,
    FencedMemberEpoch,
    GroupAuthorizationFailed,
    KafkaError,
    NetworkException,
    NotCoordinator,
    TopicAuthorizationFailed,
    UnknownMemberId,
    UnreleasedInstanceId,
)
from barnabas.core.ids import TopicPartition, Uuid
from barnabas.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from barnabas.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

IDS = {"orders": Uuid(b"o" * 16), "parcels": Uuid(b"p" * 16)}
INTERVAL_MS = 5_000


def partitions(topic: str, *numbers: int) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic, number) for number in numbers)


class Conversation:
    """One member, its coordinator's answers, and its owner."""

    def __init__(self, *, knows: tuple[str, ...] = ("orders", "parcels"), **options: object) -> None:
        self.clock = ManualClock()
        self.metadata = Metadata()
        self.metadata.wants_all = True
        self.know(*knows)
        wanted = GroupOptions("group", backoff=Backoff(100, 1_000), **options)  # type: ignore[arg-type]
        self.member = ConsumerProtocolMember(wanted, self.metadata, self.clock, random.Random(1))
        self.asked: Ask | None = None

    def know(self, *topics: str) -> None:
        rows = [
            MetadataResponseTopic(
                name=name,
                topic_id=IDS[name],
                partitions=[MetadataResponsePartition(partition_index=index) for index in range(4)],
            )
            for name in topics
        ]
        self.metadata.update(MetadataResponse(topics=rows), 0, None)

    def sends(self) -> str:
        """The next request, in words; `nothing` when none is due."""
        self.asked = self.member.next_ask()
        if self.asked is None:
            return "nothing"
        request = self.asked.request
        assert isinstance(request, ConsumerGroupHeartbeatRequest)
        words = [f"epoch {request.member_epoch}"]
        if request.rebalance_timeout_ms >= 0:
            words.append(f"timeout {request.rebalance_timeout_ms}")
        if request.subscribed_topic_names is not None:
            words.append(f"reads {'+'.join(request.subscribed_topic_names) or 'nothing'}")
        if request.topic_partitions is not None:
            names = {topic_id: name for name, topic_id in IDS.items()}
            owned = [
                f"{names[row.topic_id]}:{','.join(map(str, row.partitions))}"
                for row in request.topic_partitions
            ]
            words.append(f"owns {'+'.join(owned) or 'nothing'}")
        return ", ".join(words)

    def answer(
        self,
        epoch: int = 0,
        assignment: Mapping[str, tuple[int, ...]] | None = None,
        error: type[KafkaError] | None = None,
    ) -> None:
        assert self.asked is not None
        given = None
        if assignment is not None:
            rows = [
                TopicPartitions(topic_id=IDS[name], partitions=list(numbers))
                for name, numbers in assignment.items()
            ]
            given = Assignment(topic_partitions=rows)
        response = ConsumerGroupHeartbeatResponse(
            error_code=0 if error is None else error.code,
            member_id=self.member.member_id,
            member_epoch=epoch,
            heartbeat_interval_ms=INTERVAL_MS,
            assignment=given,
        )
        self.member.answered(self.asked, response)

    def handles(self, *expected: object) -> None:
        """The owner handles exactly these events."""
        for event in expected:
            assert self.member.event == event
            self.member.event_done()
        assert self.member.event is None

    def settle(self, **assignment: tuple[int, ...]) -> None:
        """Join, take an assignment and acknowledge it."""
        self.member.subscribe(["orders"])
        self.sends()
        self.answer(1, assignment)
        while self.member.event is not None:
            self.member.event_done()
        self.sends()
        self.answer(1)
        assert self.member.state is State.STABLE


def test_a_member_joins_reconciles_and_acknowledges_at_once() -> None:
    talk = Conversation()
    assert talk.sends() == "nothing"
    talk.member.subscribe(["orders"])
    assert talk.sends() == "epoch 0, timeout 300000, reads orders, owns nothing"
    assert talk.member.next_ask() is None, "one request is in flight at a time"
    talk.answer(1, {"orders": (0, 1)})
    assert talk.member.epoch == 1
    assert talk.sends() == "nothing"
    talk.handles(Assigned(partitions("orders", 0, 1)))
    assert talk.member.owned == partitions("orders", 0, 1)
    assert talk.sends() == "epoch 1, owns orders:0,1"
    talk.answer(1)
    assert talk.member.state is State.STABLE
    assert talk.sends() == "nothing"
    talk.clock.advance(INTERVAL_MS - 1)
    assert talk.sends() == "nothing"
    talk.clock.advance(1)
    assert talk.sends() == "epoch 1"


def test_partitions_are_revoked_before_new_ones_are_taken() -> None:
    talk = Conversation()
    talk.settle(orders=(0, 1))
    talk.clock.advance(INTERVAL_MS)
    assert talk.sends() == "epoch 1"
    talk.answer(2, {"orders": (1, 3)})
    assert talk.member.event == Revoked(partitions("orders", 0))
    assert talk.member.owned == partitions("orders", 0, 1), "it owns them until the owner has committed"
    talk.handles(Revoked(partitions("orders", 0)), Assigned(partitions("orders", 3)))
    assert talk.sends() == "epoch 2, owns orders:1,3"


def test_heartbeats_continue_while_the_owner_is_busy() -> None:
    talk = Conversation()
    talk.settle(orders=(0,))
    talk.clock.advance(INTERVAL_MS)
    talk.sends()
    talk.answer(2, {"orders": ()})
    assert talk.member.event == Revoked(partitions("orders", 0))
    talk.clock.advance(INTERVAL_MS)
    assert talk.sends() == "epoch 2"
    talk.answer(2)
    talk.handles(Revoked(partitions("orders", 0)))
    assert talk.sends() == "epoch 2, owns nothing"


def test_an_assignment_that_comes_during_a_reconciliation_is_taken_after_it() -> None:
    talk = Conversation()
    talk.settle(orders=(0,))
    talk.clock.advance(INTERVAL_MS)
    talk.sends()
    talk.answer(2, {"orders": (0, 1)})
    talk.clock.advance(INTERVAL_MS)
    talk.sends()
    talk.answer(3, {"orders": (0, 1, 2)})
    talk.handles(Assigned(partitions("orders", 1)))
    assert talk.sends() == "epoch 3, owns orders:0,1"
    talk.answer(3)
    talk.handles(Assigned(partitions("orders", 2)))


@pytest.mark.parametrize("error", [FencedMemberEpoch, UnknownMemberId])
def test_a_fenced_member_loses_its_partitions_and_joins_again(error: type[KafkaError]) -> None:
    talk = Conversation()
    talk.settle(orders=(0, 1))
    member_id = talk.member.member_id
    talk.clock.advance(INTERVAL_MS)
    talk.sends()
    talk.answer(error=error)
    assert talk.member.epoch == -1
    assert talk.sends() == "nothing", "it waits until the owner knows"
    talk.handles(Lost(partitions("orders", 0, 1)))
    assert talk.sends() == "epoch 0, timeout 300000, reads orders, owns nothing"
    assert talk.member.member_id == member_id


def test_a_member_fenced_during_a_revocation_loses_the_rest() -> None:
    talk = Conversation()
    talk.settle(orders=(0, 1))
    talk.clock.advance(INTERVAL_MS)
    talk.sends()
    talk.answer(2, {"orders": (1, 2)})
    talk.clock.advance(INTERVAL_MS)
    talk.sends()
    talk.answer(error=UnknownMemberId)
    talk.handles(Revoked(partitions("orders", 0)), Lost(partitions("orders", 1)))
    assert talk.sends().startswith("epoch 0")


def test_after_a_lost_connection_a_heartbeat_says_everything() -> None:
    talk = Conversation()
    talk.settle(orders=(0,))
    talk.clock.advance(INTERVAL_MS)
    talk.sends()
    assert talk.asked is not None
    talk.member.failed(talk.asked, NetworkException("gone"))
    assert talk.member.forgets_coordinator
    assert talk.sends() == "nothing"
    talk.clock.advance(121)
    assert talk.sends() == "epoch 1, timeout 300000, reads orders, owns orders:0"


@pytest.mark.parametrize("error", [CoordinatorNotAvailable, NotCoordinator])
def test_a_coordinator_that_moved_is_looked_up_again(error: type[KafkaError]) -> None:
    talk = Conversation()
    talk.settle(orders=(0,))
    talk.clock.advance(INTERVAL_MS)
    talk.sends()
    talk.answer(error=error)
    assert talk.member.forgets_coordinator
    assert talk.member.owned == partitions("orders", 0)
    talk.clock.advance(121)
    assert talk.sends().startswith("epoch 1, timeout")


def test_a_coordinator_that_loads_is_asked_again_with_growing_pauses() -> None:
    talk = Conversation()
    talk.member.subscribe(["orders"])
    for pause_ms in (100, 200, 400, 800, 1_000, 1_000):
        assert talk.sends().startswith("epoch 0")
        talk.answer(error=CoordinatorLoadInProgress)
        talk.clock.advance(pause_ms * 0.79)
        assert talk.sends() == "nothing"
        talk.clock.advance(pause_ms * 0.42)
    assert not talk.member.forgets_coordinator


@pytest.mark.parametrize("error", [GroupAuthorizationFailed, UnreleasedInstanceId, FencedInstanceId])
def test_a_refusal_is_final(error: type[KafkaError]) -> None:
    talk = Conversation()
    talk.member.subscribe(["orders"])
    talk.sends()
    talk.answer(error=error)
    assert isinstance(talk.member.event, Failed)
    assert isinstance(talk.member.event.error, error)
    talk.member.event_done()
    talk.clock.advance(1_000_000)
    assert talk.sends() == "nothing"
    assert talk.member.is_out
    talk.member.begin_again()  # by the application's next call
    talk.member.subscribe(["orders"])
    assert talk.sends().startswith("epoch 0")


def test_a_missing_right_to_a_topic_is_reported_and_the_member_stays() -> None:
    talk = Conversation()
    talk.settle(orders=(0,))
    talk.clock.advance(INTERVAL_MS)
    talk.sends()
    for _ in range(3):  # the application is busy meanwhile
        talk.answer(error=TopicAuthorizationFailed)
        assert isinstance(talk.member.event, Failed)
        talk.clock.advance(INTERVAL_MS)
        talk.sends()
    talk.member.event_done()
    assert talk.member.event is None, "one event for one fault"
    talk.answer(error=TopicAuthorizationFailed)
    talk.member.event_done()
    talk.clock.advance(INTERVAL_MS)
    assert talk.sends().startswith("epoch 1")


def test_a_member_leaves_with_minus_one_and_a_static_one_with_minus_two() -> None:
    for instance_id, epoch in ((None, -1), ("first", -2)):
        talk = Conversation(instance_id=instance_id)
        talk.settle(orders=(0,))
        talk.member.leave()
        assert not talk.member.is_out
        assert talk.sends() == f"epoch {epoch}"
        talk.answer(epoch)
        assert talk.member.is_out
        assert talk.member.owned == frozenset()
        assert talk.sends() == "nothing"


def test_leaving_before_joining_sends_nothing() -> None:
    talk = Conversation()
    talk.member.subscribe(["orders"])
    talk.member.leave()
    assert talk.member.is_out
    assert talk.sends() == "nothing"


def test_leaving_during_a_join_waits_for_its_answer() -> None:
    talk = Conversation()
    talk.member.subscribe(["orders"])
    talk.sends()
    asked = talk.asked
    talk.member.leave()
    assert talk.sends() == "nothing"
    talk.asked = asked
    talk.answer(1, {"orders": (0,)})
    assert talk.member.event is None
    assert talk.sends() == "epoch -1"


def test_an_application_that_takes_no_records_leaves_and_joins_again_with_its_next_poll() -> None:
    talk = Conversation(max_poll_interval_ms=60_000)
    talk.settle(orders=(0,))
    talk.clock.advance(59_999)
    assert talk.sends() == "epoch 1"
    talk.answer(1)
    assert talk.member.wakes_ms() <= talk.clock.monotonic_ms() + 1, "it wakes for the deadline"
    talk.clock.advance(1)
    assert talk.sends() == "epoch -1"
    talk.answer(-1)
    assert talk.member.event == Lost(partitions("orders", 0))
    assert talk.sends() == "nothing"
    talk.handles(Lost(partitions("orders", 0)))
    talk.member.polled()
    assert talk.sends().startswith("epoch 0")


def test_a_member_that_becomes_stale_during_an_event_loses_its_partitions_after_it() -> None:
    talk = Conversation(max_poll_interval_ms=60_000)
    talk.member.subscribe(["orders"])
    talk.sends()
    talk.answer(1, {"orders": (0,)})
    assert talk.member.event == Assigned(partitions("orders", 0))
    talk.clock.advance(60_000)
    assert talk.sends() == "epoch -1"
    talk.answer(-1)
    assert talk.member.state is State.STALE
    talk.handles(Assigned(partitions("orders", 0)), Lost(partitions("orders", 0)))
    assert talk.member.owned == frozenset()
    talk.member.polled()
    assert talk.sends() == "epoch 0, timeout 60000, reads orders, owns nothing"


def test_a_poll_moves_the_deadline() -> None:
    talk = Conversation(max_poll_interval_ms=60_000)
    talk.settle(orders=(0,))
    for _ in range(3):
        talk.clock.advance(40_000)
        talk.member.polled()
        assert talk.sends() == "epoch 1"
        talk.answer(1)


def test_a_changed_subscription_is_sent_at_once() -> None:
    talk = Conversation()
    talk.settle(orders=(0,))
    talk.member.subscribe(["parcels", "orders"])
    assert talk.sends() == "epoch 1, reads orders+parcels"


def test_an_assignment_of_an_unknown_topic_waits_for_metadata() -> None:
    talk = Conversation(knows=("orders",))
    talk.settle(orders=(0,))
    talk.clock.advance(INTERVAL_MS)
    talk.sends()
    talk.answer(2, {"orders": (0,), "parcels": (1,)})
    assert talk.member.wants_metadata
    assert talk.member.event is None
    talk.know("orders", "parcels")
    talk.member.metadata_changed()
    assert not talk.member.wants_metadata
    talk.handles(Assigned(partitions("parcels", 1)))
