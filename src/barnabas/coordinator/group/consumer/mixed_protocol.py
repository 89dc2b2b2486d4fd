"""Classic members of a consumer group, during an online migration.

While a group is being upgraded, its members use two protocols. The classic ones still send JoinGroup,
SyncGroup and Heartbeat, but no request waits for another member. Their generation is their member epoch. A
heartbeat with REBALANCE_IN_PROGRESS makes them join again, which takes them one step of reconciliation
further. The group needs no group leader: the JoinGroup response names none.
"""

from __future__ import annotations

from dataclasses import replace

from barnabas.coordinator.group.classic.join import VERSION_WITH_REQUIRED_ID
from barnabas.coordinator.group.consumer.heartbeat import (
    ConsumerHeartbeat,
    replacement_records,
)
from barnabas.coordinator.group.consumer.update import ConsumerUpdates, Update
from barnabas.coordinator.group.migration.conversion import encode_ids
from barnabas.coordinator.group.state.assignment import NO_PARTITIONS, Assignment
from barnabas.coordinator.group.state.classic_member import protocols_of, rebalance_timeout_ms_of
from barnabas.coordinator.group.state.client_info import Caller
from barnabas.coordinator.group.state.consumer_group import ConsumerGroup
from barnabas.coordinator.group.state.consumer_member import ConsumerMember, MemberState
from barnabas.coordinator.group.state.embedded_protocol import (
    CONSUMER_PROTOCOL_TYPE,
    decode_subscription,
    decode_version,
)
from barnabas.coordinator.group.state.record_schemas import ClassicMemberMetadata, ClassicProtocol
from barnabas.coordinator.group.state.records import GroupRecord
from barnabas.coordinator.group.state.registry import GroupRegistry
from barnabas.coordinator.group.state.timer_keys import member_join_key, member_sync_key
from barnabas.coordinator.runtime.decision import Decision
from barnabas.core.errors import (
    FencedInstanceId,
    GroupMaxSizeReached,
    IllegalGeneration,
    InconsistentGroupProtocol,
    KafkaError,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMemberId,
)
from barnabas.core.limits import SUBSCRIPTIONS_DECODED_BYTES_MAX
from barnabas.protocol.errors import MalformedMessage
from barnabas.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from barnabas.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse


class MixedProtocol:
    def __init__(
        self, registry: GroupRegistry, updates: ConsumerUpdates, heartbeats: ConsumerHeartbeat
    ) -> None:
        self._registry = registry
        self._updates = updates
        self._heartbeats = heartbeats

    # --- JoinGroup ---

    def join(
        self, group: ConsumerGroup, request: JoinGroupRequest, caller: Caller
    ) -> Decision[JoinGroupResponse]:
        is_new = not request.member_id
        member_id = request.member_id or self._registry.new_uuid()
        protocols = protocols_of(request.protocols)
        names = [name for name, _ in protocols]
        if member_id not in group.members and len(group.members) >= self._registry.settings.consumer_max_size:
            raise GroupMaxSizeReached(f"group {group.group_id} is full")
        if not group.supports_classic(request.protocol_type, names):
            raise InconsistentGroupProtocol(f"group {group.group_id} supports none of {names}")
        if is_new and request.group_instance_id is None and caller.api_version >= VERSION_WITH_REQUIRED_ID:
            return Decision(JoinGroupResponse(error_code=MemberIdRequired.code, member_id=member_id))
        subscription = _subscription(request)
        records: list[GroupRecord] = []
        update = self._identify(group, request, member_id, records)
        previous = update.previous
        joining = replace(
            previous,
            instance_id=request.group_instance_id or previous.instance_id,
            rack_id=subscription.rack_id or previous.rack_id,
            rebalance_timeout_ms=rebalance_timeout_ms_of(request),
            topic_names=frozenset(subscription.topics),
            client_id=caller.client_id,
            client_host=caller.client_host,
            classic=ClassicMemberMetadata(
                session_timeout_ms=request.session_timeout_ms,
                supported_protocols=[
                    ClassicProtocol(name=name, metadata=metadata) for name, metadata in protocols
                ],
            ),
        )
        update.member = self._updates.charged(update, joining, caller)
        member = self._updates.carry_out(update, self._owned(subscription), caller.may_describe)
        response = JoinGroupResponse(
            member_id=member.member_id,
            generation_id=member.member_epoch,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocol_name=names[0],
        )
        self._joined(group.group_id, member)
        return Decision(response, update.records, later_answers=[self._updates.when_replicated(update)])

    def _identify(
        self, group: ConsumerGroup, request: JoinGroupRequest, member_id: str, records: list[GroupRecord]
    ) -> Update:
        static = group.static_member(request.group_instance_id)
        if request.group_instance_id is None or (not request.member_id and static is None):
            member = group.members.get(member_id) or ConsumerMember(member_id)
            return Update(group, member, member, records)
        if static is None:
            raise UnknownMemberId(f"instance id {request.group_instance_id} is unknown")
        if request.member_id:
            if static.member_id != member_id:
                raise FencedInstanceId(f"instance {request.group_instance_id} is now {static.member_id}")
            return Update(group, static, static, records)
        successor = replace(static, member_id=member_id, member_epoch=0, previous_member_epoch=0)
        records += replacement_records(group, static, successor)
        return Update(group, successor, successor, records, frozenset({static.member_id}))

    def _owned(self, subscription: ConsumerProtocolSubscription) -> Assignment:
        topics = self._registry.topics
        owned = dict(NO_PARTITIONS)
        for each in subscription.owned_partitions:
            topic = topics.topic(each.topic)
            if topic is not None and each.partitions:
                owned[topic.topic_id] = frozenset(each.partitions)
        return owned

    def _joined(self, group_id: str, member: ConsumerMember) -> None:
        assert member.classic is not None
        member_id = member.member_id
        timers = self._registry.timers
        timers.cancel(member_join_key(group_id, member_id))
        self._heartbeats.expect_heartbeat(group_id, member_id, member.classic.session_timeout_ms)
        timers.schedule(
            member_sync_key(group_id, member_id),
            member.rebalance_timeout_ms,
            lambda: self._heartbeats.fence(group_id, member_id, "it did not ask for its assignment"),
            is_retried=True,
        )

    # --- SyncGroup and Heartbeat ---

    def sync(self, group: ConsumerGroup, request: SyncGroupRequest) -> Decision[SyncGroupResponse]:
        member = self._classic_member(group, request.member_id, request.group_instance_id)
        _check_generation(member, request.generation_id)
        assert member.classic is not None
        protocol = member.classic.supported_protocols[0]
        if request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or request.protocol_name not in (
            None,
            protocol.name,
        ):
            raise InconsistentGroupProtocol(f"the member joined with {protocol.name}")
        if group.group_epoch > member.member_epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._expect_join(group.group_id, member)
            raise RebalanceInProgress(f"group {group.group_id} has a newer assignment; join again")
        version = decode_version(protocol.metadata)
        assignment = encode_ids(member.assigned, version, self._registry.topics)
        self._registry.timers.cancel(member_sync_key(group.group_id, member.member_id))
        session_ms = member.classic.session_timeout_ms
        self._heartbeats.expect_heartbeat(group.group_id, member.member_id, session_ms)
        return Decision(
            SyncGroupResponse(
                protocol_type=request.protocol_type,
                protocol_name=request.protocol_name,
                assignment=assignment,
            )
        )

    def heartbeat(self, group: ConsumerGroup, request: HeartbeatRequest) -> Decision[HeartbeatResponse]:
        member = self._classic_member(group, request.member_id, request.group_instance_id)
        _check_generation(member, request.generation_id)
        assert member.classic is not None
        session_ms = member.classic.session_timeout_ms
        self._heartbeats.expect_heartbeat(group.group_id, member.member_id, session_ms)
        if not self._must_join_again(group, member):
            return Decision(HeartbeatResponse())
        self._expect_join(group.group_id, member)
        return Decision(HeartbeatResponse(error_code=RebalanceInProgress.code))

    def _must_join_again(self, group: ConsumerGroup, member: ConsumerMember) -> bool:
        if member.member_epoch < group.group_epoch or member.state is MemberState.UNREVOKED_PARTITIONS:
            return True
        if member.state is not MemberState.UNRELEASED_PARTITIONS:
            return False
        missing = (
            (topic_id, partition)
            for topic_id, partitions in group.target.get(member.member_id, NO_PARTITIONS).items()
            for partition in partitions - member.assigned.get(topic_id, frozenset())
        )
        return not any(group.is_owned(topic_id, partition) for topic_id, partition in missing)

    def _expect_join(self, group_id: str, member: ConsumerMember) -> None:
        key = member_join_key(group_id, member.member_id)
        if not self._registry.timers.is_scheduled(key):
            member_id = member.member_id
            self._registry.timers.schedule(
                key,
                member.rebalance_timeout_ms,
                lambda: self._heartbeats.fence(group_id, member_id, "it did not join again in time"),
                is_retried=True,
            )

    def _classic_member(
        self, group: ConsumerGroup, member_id: str, instance_id: str | None
    ) -> ConsumerMember:
        member = _member(group, member_id, instance_id)
        if not member.is_classic:
            raise UnknownMemberId(f"member {member_id} does not use the classic protocol")
        return member

    # --- LeaveGroup ---

    def leave(self, group: ConsumerGroup, request: LeaveGroupRequest) -> Decision[LeaveGroupResponse]:
        """Remove members of either protocol, as administrators do."""
        gone: dict[str, ConsumerMember] = {}
        answers = [self._leave_one(group, identity, gone) for identity in request.members]
        response = LeaveGroupResponse(members=answers)
        members = list(gone.values())
        if len(members) == 1:
            return self._heartbeats.remove(group, members[0], response)
        return Decision(response, self._heartbeats.removal_records(group, members) if members else ())

    def _leave_one(
        self, group: ConsumerGroup, identity: MemberIdentity, gone: dict[str, ConsumerMember]
    ) -> MemberResponse:
        answer = MemberResponse(member_id=identity.member_id, group_instance_id=identity.group_instance_id)
        try:
            member = _member(group, identity.member_id, identity.group_instance_id)
            gone[member.member_id] = member
        except KafkaError as error:
            answer.error_code = error.code
        return answer


def _member(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember:
    if instance_id is None:
        return group.member(member_id)
    static = group.static_member(instance_id)
    if static is None:
        raise UnknownMemberId(f"instance id {instance_id} is unknown")
    if member_id and static.member_id != member_id:
        raise FencedInstanceId(f"instance {instance_id} is now member {static.member_id}")
    return static


def _check_generation(member: ConsumerMember, generation_id: int) -> None:
    if member.member_epoch != generation_id:
        raise IllegalGeneration(f"member {member.member_id} is at epoch {member.member_epoch}")


def _subscription(request: JoinGroupRequest) -> ConsumerProtocolSubscription:
    size_bytes = len(request.protocols[0].metadata)
    if size_bytes > SUBSCRIPTIONS_DECODED_BYTES_MAX:
        raise InconsistentGroupProtocol(f"a subscription of {size_bytes} bytes is too large")
    try:
        return decode_subscription(request.protocols[0].metadata)
    except MalformedMessage:
        raise InconsistentGroupProtocol("the member's subscription cannot be read") from None
