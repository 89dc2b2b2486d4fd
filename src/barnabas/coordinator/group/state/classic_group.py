"""Group of the classic protocol: its members elect a leader, and the leader assigns.

    Empty -> PreparingRebalance -> CompletingRebalance -> Stable
               all join              all sync

While a group is preparing, JoinGroup waits for all members. While it is completing, SyncGroup waits for the
leader's assignment. A member that joins, leaves, expires or changes its metadata sends the group back to
PreparingRebalance. Each completed rebalance is a generation; commits and heartbeats of an older one are
refused.

Joining members are soft state: nothing is written before their generation is complete. Then one record holds
the whole group, assignments included. The group becomes Stable, or Empty, when that record is replayed. A
record that is replayed on the broker that wrote it carries the group it was made from, with the members'
waiting requests. A new coordinator finds the last complete generation; members of an incomplete one join
again.
"""

from __future__ import annotations

from collections import Counter
from copy import copy
from enum import Enum

from barnabas.coordinator.group.state.classic_member import NOT_GIVEN, ClassicMember, JoinWaiter, Protocols
from barnabas.coordinator.group.state.embedded_protocol import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from barnabas.coordinator.group.state.record_schemas import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
)
from barnabas.coordinator.group.state.records import GroupRecord
from barnabas.coordinator.runtime.decision import NO_ANSWERS, Answers
from barnabas.core.bounds.kept_memory import Reservation
from barnabas.core.errors import FencedInstanceId, UnknownMemberId
from barnabas.core.limits import SUBSCRIPTIONS_DECODED_BYTES_MAX
from barnabas.core.transitions import Transitions
from barnabas.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from barnabas.protocol.messages.sync_group import SyncGroupResponse

NO_TIMESTAMP = -1


class GroupState(Enum):
    """State names of DescribeGroups."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


EMPTY, PREPARING, COMPLETING, STABLE, DEAD = GroupState

TRANSITIONS = Transitions(
    {
        EMPTY: frozenset({PREPARING}),
        PREPARING: frozenset({EMPTY, COMPLETING, STABLE}),
        COMPLETING: frozenset({PREPARING}),
        STABLE: frozenset({COMPLETING}),
        DEAD: frozenset(GroupState),
    }
)


class ClassicGroup:
    type_name = "classic"

    def __init__(self, group_id: str, state: GroupState = EMPTY, generation_id: int = 0) -> None:
        self.group_id = group_id
        self.state = state
        self.previous_state = DEAD
        self.generation_id = generation_id
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.state_timestamp_ms = NO_TIMESTAMP
        self.members: dict[str, ClassicMember] = {}
        self.static_members: dict[str, str] = {}
        """Member ids by group instance id."""
        self.pending_join: dict[str, Reservation] = {}
        """Member ids that were given out and must come back with a JoinGroup, each with its reserved
        memory."""
        self.pending_sync: set[str] = set()
        self.awaiting_join = 0
        self.new_member_added = False
        """A member joined during the initial delay, so the delay is extended."""
        self.subscribed_topics: frozenset[str] | None = None
        """None if unknown: then a group of consumers counts as reading everything."""
        self._supporters: Counter[str] = Counter()
        self.exists_by_offsets = False
        """Only committed offsets make the group exist, not a record of its own."""

    def copy(self) -> ClassicGroup:
        """Copy for a decision; its changes count once they are replayed."""
        twin = copy(self)
        twin.members = {member_id: copy(member) for member_id, member in self.members.items()}
        twin.static_members = self.static_members.copy()
        twin.pending_join = self.pending_join.copy()
        twin.pending_sync = self.pending_sync.copy()
        twin._supporters = self._supporters.copy()
        return twin

    # --- states ---

    def move_to(self, state: GroupState, now_ms: int) -> None:
        TRANSITIONS.check(self.state, state)
        self.previous_state = self.state
        self.state = state
        self.state_timestamp_ms = now_ms

    @property
    def can_rebalance(self) -> bool:
        return TRANSITIONS.allows(self.state, PREPARING)

    @property
    def is_empty(self) -> bool:
        return self.state is EMPTY

    @property
    def is_implicit(self) -> bool:
        return self.exists_by_offsets and self.state is EMPTY and not self.pending_join

    @property
    def is_for_consumers(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def all_joined(self) -> bool:
        return len(self.members) == self.awaiting_join and not self.pending_join

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def is_leader(self, member_id: str) -> bool:
        return self.leader_id == member_id

    # --- members ---

    def add(self, member: ClassicMember, waiter: JoinWaiter | None = None) -> None:
        if not self.members:
            self.protocol_type = member.protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        self._supporters.update({name for name, _ in member.protocols})
        self.pending_join.pop(member.member_id, None)
        member.waiting_join = waiter
        if waiter is not None:
            self.awaiting_join += 1

    def remove(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is not None:
            self._supporters.subtract({name for name, _ in member.protocols})
            if member.waiting_join is not None:
                self.awaiting_join -= 1
            if member.group_instance_id is not None:
                self.static_members.pop(member.group_instance_id, None)
        if self.is_leader(member_id):
            self.leader_id = next(iter(self.members), None)
        self.pending_join.pop(member_id, None)
        self.pending_sync.discard(member_id)

    def update(
        self,
        member: ClassicMember,
        protocols: Protocols,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        memory: Reservation,
        waiter: JoinWaiter | None,
    ) -> None:
        self._supporters.subtract({name for name, _ in member.protocols})
        self._supporters.update({name for name, _ in protocols})
        member.protocols = protocols
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms
        member.memory = memory
        self.awaiting_join += (waiter is not None) - (member.waiting_join is not None)
        member.waiting_join = waiter

    def replace_static_member(
        self, instance_id: str, old_member_id: str, new_member_id: str
    ) -> tuple[ClassicMember, Answers]:
        """Replace the member id of an instance; requests that wait under the old id are fenced."""
        previous, code = self.members.pop(old_member_id), FencedInstanceId.code
        answers = [
            *self.complete_join(
                previous, JoinGroupResponse(error_code=code, member_id=old_member_id, protocol_name=None)
            ),
            *self.complete_sync(previous, SyncGroupResponse(error_code=code)),
        ]
        member = ClassicMember(
            new_member_id,
            instance_id,
            previous.client_id,
            previous.client_host,
            previous.rebalance_timeout_ms,
            previous.session_timeout_ms,
            previous.protocol_type,
            previous.protocols,
            previous.assignment,
            previous.memory,
        )
        self.members[new_member_id] = member
        if self.is_leader(old_member_id):
            self.leader_id = new_member_id
        if old_member_id in self.pending_sync:
            self.pending_sync.remove(old_member_id)
            self.pending_sync.add(new_member_id)
        self.static_members[instance_id] = new_member_id
        return member, answers

    def elect_joined_leader(self) -> bool:
        """Keep the leader if it has joined, else elect a joined member; False if no member has joined."""
        leader = self.members.get(self.leader_id or "")
        if leader is not None and leader.waiting_join is not None:
            return True
        joined = next((member for member in self.members.values() if member.waiting_join is not None), None)
        if joined is None:
            return False
        self.leader_id = joined.member_id
        return True

    def check_member(self, member_id: str, instance_id: str | None) -> ClassicMember:
        """The member; else UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID for a replaced id of an instance."""
        if instance_id is not None:
            current = self.static_members.get(instance_id)
            if current is None:
                raise UnknownMemberId(f"group {self.group_id} has no member with instance id {instance_id}")
            if current != member_id:
                raise FencedInstanceId(f"instance {instance_id} is now member {current}")
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMemberId(f"group {self.group_id} has no member {member_id!r}")
        return member

    # --- protocols ---

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether a member with these protocols has one in common with all the others."""
        if self.state is EMPTY:
            return bool(protocol_type) and bool(protocols)
        everybody = len(self.members)
        return self.protocol_type == protocol_type and any(
            self._supporters[name] == everybody for name, _ in protocols
        )

    def select_protocol(self) -> str:
        """Each member votes for its first protocol among those that all support; most votes win."""
        everybody = len(self.members)
        candidates = {name for name, count in self._supporters.items() if count == everybody}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    def begin_generation(self, now_ms: int) -> None:
        """Begin the next generation; it is completing if it has members."""
        self.generation_id += 1
        self.protocol_name = self.select_protocol() if self.members else None
        self.subscribed_topics = self.find_subscribed_topics()
        self.move_to(COMPLETING if self.members else EMPTY, now_ms)
        self.pending_sync.clear()

    def complete_generation(self, assignments: dict[str, bytes], now_ms: int) -> None:
        """Apply the leader's assignments."""
        for member in self.members.values():
            member.assignment = assignments.get(member.member_id, b"")
        self.move_to(STABLE, now_ms)

    @property
    def subscriptions_bytes(self) -> int:
        """Bytes of all subscriptions and assignments, which a conversion reads."""
        return sum(
            len(member.metadata(self.protocol_name or member.protocols[0][0])) + len(member.assignment)
            for member in self.members.values()
        )

    def find_subscribed_topics(self) -> frozenset[str] | None:
        if not self.is_for_consumers:
            return None
        if not self.members:
            return frozenset()
        if self.protocol_name is None:
            return None
        subscriptions = {member.metadata(self.protocol_name) for member in self.members.values()}
        if sum(map(len, subscriptions)) > SUBSCRIPTIONS_DECODED_BYTES_MAX:
            return None
        found: set[str] = set()
        for each in subscriptions:
            topics = subscribed_topics(each)
            if topics is None:
                return None
            found |= topics
        return frozenset(found)

    def is_subscribed_to(self, topic: str) -> bool:
        if self.subscribed_topics is None:
            return self.is_for_consumers
        return topic in self.subscribed_topics

    # --- responses ---

    def complete_join(self, member: ClassicMember, response: JoinGroupResponse) -> Answers:
        """The member's waiting JoinGroup, if any, with its response; the member waits no more."""
        waiter = member.waiting_join
        if waiter is None:
            return NO_ANSWERS
        member.waiting_join = None
        self.awaiting_join -= 1
        return [(waiter, response)]

    def complete_sync(self, member: ClassicMember, response: SyncGroupResponse) -> Answers:
        waiter = member.waiting_sync
        member.waiting_sync = None
        return [(waiter, response)] if waiter is not None and waiter.is_open else NO_ANSWERS

    def join_response(self, member_id: str, *, with_members: bool) -> JoinGroupResponse:
        return JoinGroupResponse(
            generation_id=self.generation_id,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=self.leader_id or "",
            member_id=member_id,
            members=self._member_list() if with_members else [],
        )

    def sync_response(self, member: ClassicMember) -> SyncGroupResponse:
        return SyncGroupResponse(
            protocol_type=self.protocol_type, protocol_name=self.protocol_name, assignment=member.assignment
        )

    def _member_list(self) -> list[JoinGroupResponseMember]:
        return [
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                metadata=member.metadata(self.protocol_name),
            )
            for member in self.members.values()
        ]

    # --- records ---

    def record(self) -> ClassicGroupRecord:
        """Record of the whole group."""
        return ClassicGroupRecord(
            self,
            GroupMetadataValue(
                protocol_type=self.protocol_type or "",
                generation=self.generation_id,
                protocol=self.protocol_name,
                leader=self.leader_id,
                current_state_timestamp=self.state_timestamp_ms,
                members=[
                    MemberMetadata(
                        member_id=member.member_id,
                        group_instance_id=member.group_instance_id,
                        client_id=member.client_id,
                        client_host=member.client_host,
                        rebalance_timeout=member.rebalance_timeout_ms,
                        session_timeout=member.session_timeout_ms,
                        subscription=member.metadata(self.protocol_name),
                        assignment=member.assignment,
                    )
                    for member in self.members.values()
                ],
            ),
        )

    def empty_record(self) -> ClassicGroupRecord:
        """Record of the group before its first member has joined."""
        return ClassicGroupRecord(
            self, GroupMetadataValue(protocol_type="", generation=0, protocol=None, leader=None)
        )

    def tombstones(self) -> list[GroupRecord]:
        return [GroupRecord(GroupMetadataKey(group=self.group_id))]

    @classmethod
    def from_record(cls, group_id: str, value: GroupMetadataValue) -> ClassicGroup:
        group = cls(group_id, STABLE if value.members else EMPTY, value.generation)
        for each in value.members:
            given_ms = each.rebalance_timeout
            rebalance_ms = each.session_timeout if given_ms == NOT_GIVEN else max(given_ms, 0)
            protocols = ((value.protocol or "", each.subscription),)
            group.add(
                ClassicMember(
                    each.member_id,
                    each.group_instance_id,
                    each.client_id,
                    each.client_host,
                    rebalance_ms,
                    each.session_timeout,
                    value.protocol_type,
                    protocols,
                    each.assignment,
                )
            )
        group.protocol_type = value.protocol_type or None
        group.protocol_name = value.protocol
        group.leader_id = value.leader
        group.state_timestamp_ms = value.current_state_timestamp
        group.subscribed_topics = group.find_subscribed_topics()
        return group


class ClassicGroupRecord(GroupRecord):
    """Record of a classic group, with the group that it was made from."""

    __slots__ = ("group",)

    def __init__(self, group: ClassicGroup, value: GroupMetadataValue) -> None:
        super().__init__(GroupMetadataKey(group=group.group_id), value)
        self.group = group
