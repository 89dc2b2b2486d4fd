"""Member by the classic protocol, as transcripts: requests out, answers in, events for the owner."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import pytest
from tests.support.manual_time import ManualClock

from barnabas.client.core.metadata import Metadata
from barnabas.client.membership.classic_messages import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from barnabas.client.membership.classic_protocol import ClassicMember, State
from barnabas.client.membership.interface import NOTHING, Ask, Assigned, Failed, GroupOptions, Lost, Revoked
from barnabas.core.backoff import Backoff
from barnabas.core.errors import (
    FencedInstanceId,
    GroupAuthorizationFailed,
    IllegalGeneration,
    InconsistentGroupProtocol,
    KafkaError,
    MemberIdRequired,
    NetworkException,
    NotCoordinator,
    RebalanceInProgress,
    UnknownMemberId,
)
from barnabas.core.ids import TopicPartition
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from barnabas.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

BEAT_MS = 3_000


def partitions(*numbers: int, topic: str = "orders") -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic, number) for number in numbers)


class Conversation:
    """One member, its coordinator's answers, and its owner."""

    def __init__(self, *assignors: str, **options: object) -> None:
        self.clock = ManualClock()
        self.metadata = Metadata()
        self.metadata.wants_all = True
        self.know(orders=4)
        wanted = GroupOptions(
            "group",
            assignors=assignors or ("range",),
            backoff=Backoff(100, 1_000),
            **options,  # type: ignore[arg-type]
        )
        self.member = ClassicMember(wanted, self.metadata, self.clock, random.Random(1))
        self.asked: Ask | None = None

    def know(self, **topics: int) -> None:
        rows = [
            MetadataResponseTopic(
                name=name,
                partitions=[MetadataResponsePartition(partition_index=index) for index in range(count)],
            )
            for name, count in topics.items()
        ]
        self.metadata.update(MetadataResponse(topics=rows), 0, None)

    def sends(self) -> str:
        self.asked = self.member.next_ask()
        if self.asked is None:
            return "nothing"
        request = self.asked.request
        if isinstance(request, JoinGroupRequest):
            (first, *_) = request.protocols
            said = decode_subscription(first.metadata, None, first.name)
            owned = ",".join(str(each.partition) for each in said.owned) or "nothing"
            return f"join as {request.member_id!r}, reads {'+'.join(said.topics)}, owns {owned}"
        if isinstance(request, SyncGroupRequest):
            shares = {
                row.member_id: sorted(each.partition for each in decode_assignment(row.assignment))
                for row in request.assignments
            }
            return f"sync {request.generation_id} {shares}"
        if isinstance(request, LeaveGroupRequest):
            return f"leave as {request.members[0].member_id!r}"
        assert isinstance(request, HeartbeatRequest)
        return f"beat {request.generation_id}"

    def fails(self, error: type[KafkaError], member_id: str = "") -> None:
        assert self.asked is not None
        request = self.asked.request
        answer: JoinGroupResponse | SyncGroupResponse | HeartbeatResponse
        if isinstance(request, JoinGroupRequest):
            answer = JoinGroupResponse(error_code=error.code, member_id=member_id, protocol_name=None)
        elif isinstance(request, SyncGroupRequest):
            answer = SyncGroupResponse(error_code=error.code)
        else:
            answer = HeartbeatResponse(error_code=error.code)
        self.member.answered(self.asked, answer)

    def joined(
        self,
        generation: int,
        *,
        leader: str = "other",
        members: Mapping[str, bytes] | None = None,
        protocol: str | None = None,
    ) -> None:
        assert self.asked is not None
        assert isinstance(self.asked.request, JoinGroupRequest)
        rows = [
            JoinGroupResponseMember(member_id=name, metadata=data) for name, data in (members or {}).items()
        ]
        answer = JoinGroupResponse(
            generation_id=generation,
            protocol_name=protocol or self.asked.request.protocols[0].name,
            leader=leader,
            member_id="me",
            members=rows,
        )
        self.member.answered(self.asked, answer)

    def synced(self, *numbers: int) -> None:
        assert self.asked is not None
        answer = SyncGroupResponse(assignment=encode_assignment(partitions(*numbers)))
        self.member.answered(self.asked, answer)

    def beaten(self) -> None:
        assert self.asked is not None
        self.member.answered(self.asked, HeartbeatResponse())

    def handles(self, *expected: object) -> None:
        for event in expected:
            assert self.member.event == event
            self.member.event_done()
        assert self.member.event is None

    def settle(self, generation: int, numbers: Sequence[int]) -> None:
        """Join as a follower, and take an assignment."""
        if self.member.state is State.UNJOINED:
            self.member.subscribe(["orders"])
        assert self.sends().startswith("join")
        self.joined(generation)
        assert self.sends() == f"sync {generation} {{}}"
        self.synced(*numbers)
        while self.member.event is not None:
            self.member.event_done()
        assert self.member.state is State.STABLE


def test_a_member_joins_twice_syncs_and_beats() -> None:
    talk = Conversation()
    talk.member.subscribe(["orders"])
    assert talk.sends() == "join as '', reads orders, owns nothing"
    talk.fails(MemberIdRequired, "me")
    assert talk.sends() == "join as 'me', reads orders, owns nothing"
    talk.joined(1)
    assert talk.sends() == "sync 1 {}"
    talk.synced(0, 1)
    talk.handles(Assigned(partitions(0, 1)))
    assert talk.member.owned == partitions(0, 1)
    assert talk.sends() == "nothing"
    talk.clock.advance(BEAT_MS)
    assert talk.sends() == "beat 1"


def test_the_leader_waits_for_metadata_of_all_topics_and_assigns() -> None:
    talk = Conversation()
    talk.member.subscribe(["orders"])
    talk.sends()
    members = {
        "me": encode_subscription(["orders"], (), -1, None, None),
        "you": encode_subscription(["orders", "parcels"], (), -1, None, None),
    }
    talk.joined(1, leader="me", members=members)
    assert talk.sends() == "nothing"
    assert talk.member.wants_metadata
    assert list(talk.member.wants_topics) == ["orders", "parcels"]
    talk.know(orders=4, parcels=2)
    talk.member.metadata_changed()
    assert talk.sends() == "sync 1 {'me': [0, 1], 'you': [0, 1, 2, 3]}"


def test_the_leader_rebalances_when_partitions_are_added() -> None:
    talk = Conversation()
    talk.member.subscribe(["orders"])
    talk.sends()
    talk.joined(1, leader="me", members={"me": encode_subscription(["orders"], (), -1, None, None)})
    talk.member.metadata_changed()
    talk.sends()
    talk.synced(0, 1, 2, 3)
    talk.handles(Assigned(partitions(0, 1, 2, 3)))
    talk.member.metadata_changed()
    assert talk.sends() == "nothing"
    talk.know(orders=6)
    talk.member.metadata_changed()
    assert talk.sends() == "nothing"
    talk.handles(Revoked(partitions(0, 1, 2, 3)))
    assert talk.sends().startswith("join as 'me'")


def test_an_eager_member_gives_everything_up_before_it_joins_again() -> None:
    talk = Conversation("range")
    talk.settle(1, [0, 1])
    talk.clock.advance(BEAT_MS)
    assert talk.sends() == "beat 1"
    talk.fails(RebalanceInProgress)
    assert talk.sends() == "nothing"
    assert talk.member.event == Revoked(partitions(0, 1))
    talk.clock.advance(BEAT_MS)
    assert talk.sends() == "beat 1", "it stays a member while the owner commits"
    talk.fails(RebalanceInProgress)
    talk.handles(Revoked(partitions(0, 1)))
    assert talk.sends() == "join as 'me', reads orders, owns nothing"


def test_a_cooperative_member_keeps_its_partitions_and_joins_once_more_after_a_revocation() -> None:
    talk = Conversation("cooperative-sticky")
    talk.settle(1, [0, 1])
    talk.clock.advance(BEAT_MS)
    talk.sends()
    talk.fails(RebalanceInProgress)
    assert talk.sends() == "nothing"
    talk.handles(Revoked(frozenset()))
    assert talk.sends() == "join as 'me', reads orders, owns 0,1"
    talk.joined(2)
    talk.sends()
    talk.synced(1)
    assert talk.sends() == "nothing"
    talk.handles(Revoked(partitions(0)))
    assert talk.member.owned == partitions(1)
    assert talk.sends() == "nothing"
    talk.handles(Revoked(frozenset()))
    assert talk.sends() == "join as 'me', reads orders, owns 1"


def test_range_beside_cooperative_is_eager() -> None:
    talk = Conversation("range", "cooperative-sticky")
    talk.settle(1, [0])
    talk.member.rejoin()
    talk.sends()
    assert talk.member.event == Revoked(partitions(0))


@pytest.mark.parametrize(
    ("error", "member_id"), [(UnknownMemberId, ""), (IllegalGeneration, "me")], ids=["unknown", "illegal"]
)
def test_a_forgotten_member_loses_its_partitions(error: type[KafkaError], member_id: str) -> None:
    talk = Conversation()
    talk.settle(1, [0, 1])
    talk.clock.advance(BEAT_MS)
    talk.sends()
    talk.fails(error)
    assert talk.member.epoch == -1
    assert talk.sends() == "nothing"
    talk.handles(Lost(partitions(0, 1)))
    assert talk.sends() == f"join as {member_id!r}, reads orders, owns nothing"


def test_a_cooperative_member_forgotten_while_it_prepares_loses_its_partitions() -> None:
    talk = Conversation("cooperative-sticky")
    talk.settle(1, [0])
    talk.member.rejoin()
    talk.sends()
    talk.clock.advance(BEAT_MS)
    assert talk.sends() == "beat 1"
    talk.fails(UnknownMemberId)
    talk.handles(Revoked(frozenset()), Lost(partitions(0)))
    assert talk.sends() == "join as '', reads orders, owns nothing"


def test_a_rebalance_during_sync_joins_again() -> None:
    talk = Conversation()
    talk.member.subscribe(["orders"])
    talk.sends()
    talk.joined(1)
    talk.sends()
    talk.fails(RebalanceInProgress)
    talk.handles(Revoked(frozenset()))
    talk.clock.advance(121)
    assert talk.sends().startswith("join as 'me'")


def test_a_coordinator_that_moved_is_looked_up_again() -> None:
    talk = Conversation()
    talk.settle(1, [0])
    talk.clock.advance(BEAT_MS)
    talk.sends()
    talk.fails(NotCoordinator)
    assert talk.member.forgets_coordinator
    assert talk.member.owned == partitions(0)
    talk.clock.advance(BEAT_MS)
    assert talk.sends() == "beat 1"
    assert talk.asked is not None
    talk.member.failed(talk.asked, NetworkException("gone"))
    talk.clock.advance(BEAT_MS)
    assert talk.sends() == "beat 1"


def test_a_join_without_an_answer_is_sent_again() -> None:
    talk = Conversation()
    talk.member.subscribe(["orders"])
    talk.sends()
    assert talk.asked is not None
    talk.member.failed(talk.asked, NetworkException("gone"))
    assert talk.sends() == "nothing"
    talk.clock.advance(121)
    assert talk.sends().startswith("join")


def test_a_fenced_instance_is_refused_for_good() -> None:
    talk = Conversation(instance_id="first")
    talk.settle(1, [0])
    talk.clock.advance(BEAT_MS)
    talk.sends()
    talk.fails(FencedInstanceId)
    assert isinstance(talk.member.event, Failed)
    talk.member.event_done()
    talk.clock.advance(100_000)
    assert talk.sends() == "nothing"
    assert talk.member.is_out


def test_a_refused_member_leaves_so_that_no_other_waits_for_its_session() -> None:
    talk = Conversation()
    talk.settle(1, [0])
    talk.clock.advance(BEAT_MS)
    talk.sends()
    talk.fails(GroupAuthorizationFailed)
    talk.member.event_done()
    assert talk.member.is_out
    talk.member.leave()
    assert not talk.member.is_out
    assert talk.sends() == "leave as 'me'"
    assert talk.asked is not None
    talk.member.answered(talk.asked, LeaveGroupResponse(error_code=GroupAuthorizationFailed.code))
    assert talk.member.is_out
    assert talk.sends() == "nothing"


def test_a_refused_member_joins_again_when_it_is_asked_to() -> None:
    talk = Conversation()
    talk.settle(1, [0])
    talk.clock.advance(BEAT_MS)
    talk.sends()
    talk.fails(GroupAuthorizationFailed)
    talk.member.event_done()
    talk.member.owned = NOTHING
    talk.member.begin_again()
    talk.member.subscribe(["orders"])
    assert talk.sends().startswith("join as 'me'")


def test_an_assignor_that_it_does_not_have_is_refused() -> None:
    talk = Conversation("range")
    talk.member.subscribe(["orders"])
    talk.sends()
    talk.joined(1, leader="me", protocol="strange")
    assert isinstance(talk.member.event, Failed)
    assert isinstance(talk.member.event.error, InconsistentGroupProtocol)


def test_a_member_leaves_and_a_static_one_stays() -> None:
    talk = Conversation()
    talk.settle(1, [0])
    talk.member.leave()
    assert talk.sends() == "leave as 'me'"
    assert talk.asked is not None
    talk.member.answered(talk.asked, LeaveGroupResponse())
    assert talk.member.is_out
    static = Conversation(instance_id="first")
    static.settle(1, [0])
    static.member.leave()
    assert static.sends() == "nothing"
    assert static.member.is_out


@pytest.mark.parametrize("instance_id", [None, "first"])
def test_a_member_that_becomes_stale_during_an_event_loses_its_partitions_after_it(
    instance_id: str | None,
) -> None:
    talk = Conversation(max_poll_interval_ms=10_000, instance_id=instance_id)
    talk.member.subscribe(["orders"])
    talk.sends()
    talk.joined(1)
    talk.sends()
    talk.synced(0)
    assert talk.member.event == Assigned(partitions(0))
    talk.clock.advance(10_000)
    if instance_id is None:
        assert talk.sends() == "leave as 'me'"
        assert talk.asked is not None
        talk.member.answered(talk.asked, LeaveGroupResponse())
    else:
        assert talk.sends() == "nothing"
    assert talk.member.state is State.STALE
    talk.handles(Assigned(partitions(0)), Lost(partitions(0)))
    assert talk.member.owned == frozenset()
    talk.member.polled()
    assert talk.sends().startswith("join")


def test_an_application_that_takes_no_records_leaves_and_joins_again_with_its_next_poll() -> None:
    talk = Conversation(max_poll_interval_ms=10_000)
    talk.settle(1, [0])
    talk.clock.advance(9_999)
    assert talk.sends() == "beat 1"
    talk.beaten()
    talk.clock.advance(1)
    assert talk.sends() == "leave as 'me'"
    assert talk.asked is not None
    talk.member.answered(talk.asked, LeaveGroupResponse())
    talk.handles(Lost(partitions(0)))
    assert talk.sends() == "nothing"
    talk.member.polled()
    assert talk.sends() == "join as '', reads orders, owns nothing"


def test_a_changed_subscription_joins_again() -> None:
    talk = Conversation("cooperative-sticky")
    talk.settle(1, [0])
    talk.member.subscribe(["parcels"])
    assert talk.sends() == "nothing"
    talk.handles(Revoked(partitions(0)))
    assert talk.sends() == "join as 'me', reads parcels, owns nothing"


def test_a_sticky_member_repeats_its_last_assignment() -> None:
    talk = Conversation("sticky")
    talk.settle(7, [0, 3])
    talk.member.rejoin()
    talk.sends()
    talk.handles(Revoked(partitions(0, 3)))
    assert talk.sends() == "join as 'me', reads orders, owns 0,3"
    assert talk.asked is not None
    assert isinstance(talk.asked.request, JoinGroupRequest)
    said = decode_subscription(talk.asked.request.protocols[0].metadata, None, "sticky")
    assert said.generation == 7


def test_damaged_metadata_of_another_member_costs_only_its_share() -> None:
    talk = Conversation()
    talk.member.subscribe(["orders"])
    talk.sends()
    good = encode_subscription(["orders"], (), -1, None, None)
    talk.joined(1, leader="me", members={"me": good, "you": b"\0"})
    talk.member.metadata_changed()
    assert talk.sends() == "sync 1 {'me': [0, 1, 2, 3], 'you': []}"


def test_an_assignment_that_cannot_be_decoded_is_refused() -> None:
    talk = Conversation()
    talk.member.subscribe(["orders"])
    talk.sends()
    talk.joined(1)
    talk.sends()
    assert talk.asked is not None
    talk.member.answered(talk.asked, SyncGroupResponse(assignment=b"\0\1\xff"))
    assert isinstance(talk.member.event, Failed)
