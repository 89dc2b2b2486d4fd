"""Group of the consumer protocol (KIP-848): the broker assigns.

Three epochs follow each other. The *group epoch* grows with every change that the assignment depends on. The
*assignment epoch* is the group epoch of the current target. A *member epoch* is the assignment epoch that the
member has reached. A group is

    Empty        without members
    Assigning    while the target is older than the group
    Reconciling  while a member is older than the target
    Stable       otherwise

Only `replay` changes a group: every fact about it is a record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple

from barnabas.coordinator.group.state import record_schemas as schemas
from barnabas.coordinator.group.state.assignment import NO_PARTITIONS, Assignment, from_record, to_record
from barnabas.coordinator.group.state.consumer_member import LEAVE_EPOCH, ConsumerMember
from barnabas.coordinator.group.state.embedded_protocol import CONSUMER_PROTOCOL_TYPE
from barnabas.coordinator.group.state.records import GroupRecord
from barnabas.core.bounds.kept_memory import Reservation
from barnabas.core.errors import UnknownMemberId
from barnabas.core.ids import Uuid


class ConsumerGroupState(Enum):
    """State names of ListGroups and ConsumerGroupDescribe."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class SubscribedTopic(NamedTuple):
    topic_id: Uuid
    partitions: int


@dataclass(frozen=True, slots=True)
class ResolvedRegex:
    """Topics that a regular expression matched at its last resolution."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


class ConsumerGroup:
    type_name = "consumer"
    protocol_type = CONSUMER_PROTOCOL_TYPE
    is_implicit = False

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.group_epoch = 0
        self.assignment_epoch = 0
        self.members: dict[str, ConsumerMember] = {}
        self.static_members: dict[str, str] = {}
        self.target: dict[str, Assignment] = {}
        self.topics: dict[str, SubscribedTopic] = {}
        """Subscribed topics as of the last group epoch."""
        self.regexes: dict[str, ResolvedRegex] = {}
        self.owners: dict[tuple[Uuid, int], str] = {}
        """Member that owns a partition, or has yet to revoke it."""
        self.regexes_seen: dict[str, tuple[int, int]] = {}
        """Last resolution of each expression: metadata generation and time; not stored."""
        self.seen_generation = -1
        """Metadata generation of the last check; not stored."""

    # --- properties ---

    @property
    def state(self) -> ConsumerGroupState:
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.group_epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        epoch = self.assignment_epoch
        if all(member.is_reconciled_to(epoch) for member in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    @property
    def is_empty(self) -> bool:
        return not self.members

    def member(self, member_id: str) -> ConsumerMember:
        found = self.members.get(member_id)
        if found is None:
            raise UnknownMemberId(f"group {self.group_id} has no member {member_id!r}")
        return found

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        member_id = self.static_members.get(instance_id) if instance_id is not None else None
        return None if member_id is None else self.members.get(member_id)

    def is_owned(self, topic_id: Uuid, partition: int) -> bool:
        return (topic_id, partition) in self.owners

    def is_subscribed_to(self, topic: str) -> bool:
        return any(self.topics_of(member) >= {topic} for member in self.members.values())

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """Topic names of a member, including the matches of its expression."""
        resolved = self.regexes.get(member.topic_regex) if member.topic_regex else None
        return member.topic_names if resolved is None else member.topic_names | resolved.topics

    def preferred_assignor(self, members: Iterable[ConsumerMember], default: str) -> str:
        """Assignor that most members prefer."""
        votes = Counter(member.server_assignor for member in members if member.server_assignor)
        return votes.most_common(1)[0][0] if votes else default

    # --- classic members ---

    @property
    def classic_members(self) -> list[ConsumerMember]:
        return [member for member in self.members.values() if member.is_classic]

    def supports_classic(self, protocol_type: str, protocols: Iterable[str]) -> bool:
        if protocol_type != CONSUMER_PROTOCOL_TYPE:
            return False
        names = set(protocols)
        for member in self.classic_members:
            assert member.classic is not None
            names &= {protocol.name for protocol in member.classic.supported_protocols}
        return bool(names)

    def is_classic_but_for(self, member_id: str) -> bool:
        """Whether the group could go back to the classic protocol without this member."""
        member = self.members.get(member_id)
        return (
            member is not None
            and not member.is_classic
            and len(self.classic_members) == len(self.members) - 1
        )

    # --- records ---

    def epoch_record(self, epoch: int) -> GroupRecord:
        return GroupRecord(
            schemas.ConsumerGroupMetadataKey(group_id=self.group_id),
            schemas.ConsumerGroupMetadataValue(epoch=epoch),
        )

    def topics_record(self, topics: dict[str, SubscribedTopic]) -> GroupRecord:
        return GroupRecord(
            schemas.ConsumerGroupPartitionMetadataKey(group_id=self.group_id),
            schemas.ConsumerGroupPartitionMetadataValue(
                topics=[
                    schemas.TopicMetadata(
                        topic_id=topic.topic_id, topic_name=name, num_partitions=topic.partitions
                    )
                    for name, topic in sorted(topics.items())
                ]
            ),
        )

    def target_record(self, member_id: str, assignment: Assignment) -> GroupRecord:
        return GroupRecord(
            schemas.ConsumerGroupTargetAssignmentMemberKey(group_id=self.group_id, member_id=member_id),
            schemas.ConsumerGroupTargetAssignmentMemberValue(topic_partitions=to_record(assignment)),
        )

    def target_epoch_record(self, epoch: int) -> GroupRecord:
        return GroupRecord(
            schemas.ConsumerGroupTargetAssignmentMetadataKey(group_id=self.group_id),
            schemas.ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch),
        )

    def regex_record(self, regex: str, resolved: ResolvedRegex | None) -> GroupRecord:
        key = schemas.ConsumerGroupRegularExpressionKey(group_id=self.group_id, regular_expression=regex)
        if resolved is None:
            return GroupRecord(key)
        return GroupRecord(
            key,
            schemas.ConsumerGroupRegularExpressionValue(
                topics=sorted(resolved.topics), version=resolved.version, timestamp=resolved.timestamp_ms
            ),
        )

    def member_tombstones(self, member_id: str) -> list[GroupRecord]:
        names = {"group_id": self.group_id, "member_id": member_id}
        return [
            GroupRecord(schemas.ConsumerGroupCurrentMemberAssignmentKey(**names)),
            GroupRecord(schemas.ConsumerGroupTargetAssignmentMemberKey(**names)),
            GroupRecord(schemas.ConsumerGroupMemberMetadataKey(**names)),
        ]

    def tombstones(self) -> list[GroupRecord]:
        """Tombstones of the group, in an order in which every step is consistent."""
        records = [record for member_id in self.members for record in self.member_tombstones(member_id)]
        records += [self.regex_record(regex, None) for regex in self.regexes]
        return [
            *records,
            GroupRecord(schemas.ConsumerGroupTargetAssignmentMetadataKey(group_id=self.group_id)),
            GroupRecord(schemas.ConsumerGroupPartitionMetadataKey(group_id=self.group_id)),
            GroupRecord(schemas.ConsumerGroupMetadataKey(group_id=self.group_id)),
        ]

    def records(self) -> list[GroupRecord]:
        """Records of the whole group, for a conversion."""
        members = self.members.values()
        return [
            *(member.subscription_record(self.group_id) for member in members),
            self.epoch_record(self.group_epoch),
            *(self.target_record(each.member_id, self.target[each.member_id]) for each in members),
            self.target_epoch_record(self.assignment_epoch),
            *(member.assignment_record(self.group_id) for member in members),
        ]

    # --- replay ---

    def put_member(self, member: ConsumerMember) -> None:
        previous = self.members.get(member.member_id)
        if previous is not None:
            self._release(previous)
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        for topic_id, numbers in _everything_of(member):
            for partition in numbers:
                self.owners[topic_id, partition] = member.member_id

    def remove_member(self, member_id: str) -> None:
        previous = self.members.pop(member_id, None)
        if previous is None:
            return
        self._release(previous)
        if previous.instance_id is not None and self.static_members.get(previous.instance_id) == member_id:
            del self.static_members[previous.instance_id]

    def _release(self, member: ConsumerMember) -> None:
        for topic_id, numbers in _everything_of(member):
            for partition in numbers:
                if self.owners.get((topic_id, partition)) == member.member_id:
                    del self.owners[topic_id, partition]

    def replay_member(
        self,
        member_id: str,
        value: schemas.ConsumerGroupMemberMetadataValue | None,
        memory: Reservation | None,
        claim: Callable[[ConsumerMember], Reservation],
    ) -> None:
        """A record that is read back from the log has no memory yet, and claims some."""
        if value is None:
            self.remove_member(member_id)
        else:
            previous = self.members.get(member_id) or ConsumerMember(member_id)
            member = previous.with_subscription(value)
            self.put_member(replace(member, memory=claim(member) if memory is None else memory))

    def replay_current_assignment(
        self, member_id: str, value: schemas.ConsumerGroupCurrentMemberAssignmentValue | None
    ) -> None:
        previous = self.members.get(member_id)
        if value is not None:
            self.put_member((previous or ConsumerMember(member_id)).with_assignment(value))
        elif previous is not None:
            self.put_member(
                replace(
                    previous,
                    member_epoch=LEAVE_EPOCH,
                    previous_member_epoch=LEAVE_EPOCH,
                    assigned=NO_PARTITIONS,
                    pending_revocation=NO_PARTITIONS,
                )
            )

    def replay_target(
        self, member_id: str, value: schemas.ConsumerGroupTargetAssignmentMemberValue | None
    ) -> None:
        if value is None:
            self.target.pop(member_id, None)
        else:
            self.target[member_id] = from_record(value.topic_partitions)

    def replay_topics(self, value: schemas.ConsumerGroupPartitionMetadataValue | None) -> None:
        self.topics = {
            topic.topic_name: SubscribedTopic(topic.topic_id, topic.num_partitions)
            for topic in (value.topics if value is not None else ())
        }

    def replay_regex(self, regex: str, value: schemas.ConsumerGroupRegularExpressionValue | None) -> None:
        if value is None:
            self.regexes.pop(regex, None)
        else:
            self.regexes[regex] = ResolvedRegex(frozenset(value.topics), value.version, value.timestamp)


def _everything_of(member: ConsumerMember) -> list[tuple[Uuid, frozenset[int]]]:
    return [*member.assigned.items(), *member.pending_revocation.items()]
