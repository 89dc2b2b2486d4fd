"""Conversion of a group from one protocol to the other, empty or online.

An empty group simply changes. A group with members is converted online if the policy allows it. It is
converted *up* when the first member of the consumer protocol joins a classic group of consumers. It is
converted *down* when the last such member leaves. A conversion is records like everything else: tombstones of
the old group, then records of the new one.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, TypeVar

from barnabas.cluster.metadata.cache import MetadataCache
from barnabas.coordinator.group.classic.rebalance import ClassicRebalance
from barnabas.coordinator.group.state.assignment import NO_PARTITIONS, Assignment
from barnabas.coordinator.group.state.classic_group import STABLE, ClassicGroup
from barnabas.coordinator.group.state.classic_member import ClassicMember, protocols_of
from barnabas.coordinator.group.state.consumer_group import ConsumerGroup
from barnabas.coordinator.group.state.consumer_member import ConsumerMember
from barnabas.coordinator.group.state.embedded_protocol import (
    CONSUMER_PROTOCOL_TYPE,
    decode_assignment,
    decode_subscription,
    decode_version,
    encode_assignment,
)
from barnabas.coordinator.group.state.record_schemas import ClassicMemberMetadata, ClassicProtocol
from barnabas.coordinator.group.state.records import GroupRecord
from barnabas.coordinator.group.state.registry import GroupRegistry
from barnabas.coordinator.runtime.decision import Answers, Decision, Waiter
from barnabas.core.errors import GroupIdNotFound, RebalanceInProgress
from barnabas.core.ids import Uuid
from barnabas.core.limits import SUBSCRIPTIONS_DECODED_BYTES_MAX
from barnabas.core.reporting.log_text import cut
from barnabas.protocol.errors import MalformedMessage
from barnabas.protocol.messages.consumer_protocol import ConsumerProtocolAssignment, TopicPartition
from barnabas.protocol.messages.join_group import JoinGroupResponse
from barnabas.protocol.messages.sync_group import SyncGroupResponse

R = TypeVar("R")


class Conversion:
    def __init__(self, registry: GroupRegistry, rebalance: ClassicRebalance) -> None:
        self._registry = registry
        self._rebalance = rebalance
        self._policy = registry.settings.migration_policy

    def consumer_group(
        self, group_id: str, records: list[GroupRecord], *, may_create: bool
    ) -> tuple[ConsumerGroup, ClassicGroup | None]:
        """Group that a member of the consumer protocol names, created or converted if the policy allows. A
        converted group comes with its classic original (see `upgrade_answers`)."""
        group = self._registry.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group, None
        if not may_create:
            raise GroupIdNotFound(f"consumer group {group_id} does not exist")
        if group is None:
            return ConsumerGroup(group_id), None
        if group.is_empty:
            records += group.tombstones()
            return ConsumerGroup(group_id), None
        if not self._may_upgrade(group):
            raise GroupIdNotFound(f"group {group_id} is a classic group with members")
        return self._upgrade(group, records), group

    # --- upgrade ---

    def _may_upgrade(self, group: ClassicGroup) -> bool:
        return (
            self._policy.allows_upgrade
            and group.is_for_consumers
            and len(group.members) <= self._registry.settings.consumer_max_size
            and group.subscriptions_bytes <= SUBSCRIPTIONS_DECODED_BYTES_MAX
        )

    def _upgrade(self, classic: ClassicGroup, records: list[GroupRecord]) -> ConsumerGroup:
        try:
            group = from_classic(classic, self._registry.topics)
        except MalformedMessage:
            raise GroupIdNotFound(
                f"group {classic.group_id} cannot be converted: its members' subscriptions cannot be read"
            ) from None
        records += classic.tombstones()
        records += group.records()
        return group

    def upgrade_answers(self, classic: ClassicGroup) -> Answers:
        """Responses to requests that wait for a classic rebalance: their members must join again."""
        self._registry.limited_log.info(
            "converted", "group %s is converted to the consumer protocol", cut(classic.group_id)
        )
        answers: list[tuple[Waiter[Any], Any]] = []
        for member in classic.members.values():
            code = RebalanceInProgress.code
            response = JoinGroupResponse(error_code=code, member_id=member.member_id, protocol_name=None)
            answers.extend(classic.complete_join(member, response))
            answers.extend(classic.complete_sync(member, SyncGroupResponse(error_code=code)))
        return answers

    # --- downgrade ---

    def may_downgrade(self, group: ConsumerGroup, leaving_id: str) -> bool:
        return (
            self._policy.allows_downgrade
            and group.is_classic_but_for(leaving_id)
            and 1 < len(group.members) <= self._registry.settings.max_size + 1
        )

    def downgrade(self, group: ConsumerGroup, leaving_id: str, response: R | None) -> Decision[R]:
        self._registry.limited_log.info(
            "converted", "group %s is converted to the classic protocol", cut(group.group_id)
        )
        classic = to_classic(group, leaving_id, self._registry.topics, self._registry.clock.now_ms())
        records = [*group.tombstones(), classic.record()]
        self._rebalance.prepare(classic, "downgrade to the classic protocol")

        def go_on(_: object) -> None:
            if self._registry.groups.get(classic.group_id) is classic:
                for member in classic.members.values():
                    self._rebalance.expect_heartbeat(classic, member)

        return Decision(response, records, later_answers=[(Waiter(go_on, go_on), None)])


def from_classic(classic: ClassicGroup, topics: MetadataCache) -> ConsumerGroup:
    group = ConsumerGroup(classic.group_id)
    group.group_epoch = group.assignment_epoch = classic.generation_id
    for each in classic.members.values():
        protocol = classic.protocol_name or each.protocols[0][0]
        subscription = decode_subscription(each.metadata(protocol))
        assigned = decode_to_ids(each.assignment, topics)
        group.target[each.member_id] = assigned
        group.put_member(
            ConsumerMember(
                each.member_id,
                member_epoch=classic.generation_id,
                previous_member_epoch=classic.generation_id,
                instance_id=each.group_instance_id,
                rack_id=subscription.rack_id,
                rebalance_timeout_ms=each.rebalance_timeout_ms,
                client_id=each.client_id,
                client_host=each.client_host,
                topic_names=frozenset(subscription.topics),
                assigned=assigned,
                classic=ClassicMemberMetadata(
                    session_timeout_ms=each.session_timeout_ms,
                    supported_protocols=[
                        ClassicProtocol(name=name, metadata=metadata) for name, metadata in each.protocols
                    ],
                ),
                memory=each.memory,
            )
        )
    return group


def to_classic(group: ConsumerGroup, leaving_id: str, topics: MetadataCache, now_ms: int) -> ClassicGroup:
    """Classic group of the remaining members: their epoch is the generation, their target the assignment."""
    classic = ClassicGroup(group.group_id, STABLE, group.group_epoch)
    for member in group.members.values():
        if member.member_id == leaving_id:
            continue
        assert member.classic is not None
        classic.add(
            ClassicMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                member.classic.session_timeout_ms,
                CONSUMER_PROTOCOL_TYPE,
                protocols_of(member.classic.supported_protocols),
                memory=member.memory,
            )
        )
    classic.protocol_name = classic.select_protocol()
    classic.subscribed_topics = classic.find_subscribed_topics()
    classic.state_timestamp_ms = now_ms
    for each in classic.members.values():
        version = _assignment_version(each.metadata(classic.protocol_name))
        each.assignment = encode_ids(group.target.get(each.member_id, NO_PARTITIONS), version, topics)
    return classic


def _assignment_version(metadata: bytes) -> int:
    """Version of the assignment that a member reads: that of its subscription. Metadata without a readable
    version gets the oldest; it must not keep other members from leaving."""
    try:
        return decode_version(metadata)
    except MalformedMessage:
        return 0


def decode_to_ids(assignment: bytes, topics: MetadataCache) -> Assignment:
    """Partitions of a classic assignment by topic id, without deleted topics."""
    if not assignment:
        return NO_PARTITIONS
    found: defaultdict[Uuid, set[int]] = defaultdict(set)
    for each in decode_assignment(assignment).assigned_partitions:
        topic = topics.topic(each.topic)
        if topic is not None:
            found[topic.topic_id].update(each.partitions)
    return {topic_id: frozenset(partitions) for topic_id, partitions in found.items() if partitions}


def encode_ids(assignment: Assignment, version: int, topics: MetadataCache) -> bytes:
    named: list[TopicPartition] = []
    for topic_id, partitions in assignment.items():
        topic = topics.topic_by_id(topic_id)
        if topic is not None:
            named.append(TopicPartition(topic=topic.name, partitions=sorted(partitions)))
    return encode_assignment(ConsumerProtocolAssignment(assigned_partitions=named), version)
