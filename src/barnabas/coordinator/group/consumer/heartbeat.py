"""ConsumerGroupHeartbeat: the one request of the consumer protocol.

Epoch 0 joins, -1 leaves, -2 is a static member that will be back; any other is the member's current epoch. A
member with a wrong epoch is fenced: it must drop everything and join again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, TypeVar

from barnabas.coordinator.group.consumer.regex import Regex
from barnabas.coordinator.group.consumer.update import ConsumerUpdates, Update
from barnabas.coordinator.group.migration.conversion import Conversion
from barnabas.coordinator.group.state.assignment import NO_PARTITIONS, Assignment, contains
from barnabas.coordinator.group.state.classic_group import ClassicGroup
from barnabas.coordinator.group.state.client_info import Caller
from barnabas.coordinator.group.state.consumer_group import ConsumerGroup
from barnabas.coordinator.group.state.consumer_member import (
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerMember,
    MemberState,
)
from barnabas.coordinator.group.state.records import GroupRecord
from barnabas.coordinator.group.state.registry import GroupRegistry
from barnabas.coordinator.group.state.timer_keys import revocation_key, session_key
from barnabas.coordinator.runtime.decision import Decision, Waiter, deliver
from barnabas.core.errors import (
    FencedInstanceId,
    FencedMemberEpoch,
    GroupIdNotFound,
    GroupMaxSizeReached,
    InvalidRequest,
    UnknownMemberId,
    UnreleasedInstanceId,
    UnsupportedAssignor,
)
from barnabas.core.reporting.log_text import cut
from barnabas.protocol.messages.consumer_group_heartbeat import (
    Assignment as AssignmentMessage,
)
from barnabas.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

R = TypeVar("R")

JOIN_EPOCH = 0
NOT_GIVEN = -1
VERSION_WITH_CLIENT_IDS = 1


BLANKS = "".join(map(chr, range(0x21)))
"""Characters that Java's `String.trim` removes: control characters, NUL included, and spaces."""


def is_blank(text: str) -> bool:
    return not text.strip(BLANKS)


class ConsumerHeartbeat:
    def __init__(self, registry: GroupRegistry, updates: ConsumerUpdates, conversion: Conversion) -> None:
        self._registry = registry
        self._settings = registry.settings
        self._updates = updates
        self._conversion = conversion

    def heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, caller: Caller
    ) -> Decision[ConsumerGroupHeartbeatResponse]:
        self._check(request, caller)
        if request.member_epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
            return self._leave(request)
        is_joining = request.member_epoch == JOIN_EPOCH
        records: list[GroupRecord] = []
        group, converted = self._conversion.consumer_group(request.group_id, records, may_create=is_joining)
        self._check_room(group, request.member_id)
        member_id = request.member_id or self._registry.new_uuid()
        owned = None if request.topic_partitions is None else _as_assignment(request.topic_partitions)
        update = self._identify(group, request, member_id, owned, records)
        if request.subscribed_topic_regex:
            Regex(request.subscribed_topic_regex)  # compiled for members only, before memory is charged
        update.member = self._updates.charged(
            update, self._as_requested(update.previous, request, caller), caller
        )
        previous = update.previous
        member = self._updates.carry_out(update, owned, caller.may_describe)
        response = self._response(request, previous, member)
        if not update.records:
            self._updates.applied(update)
            self.expect_heartbeat(request.group_id, member.member_id)
            return Decision(response)
        self.expect_progress(request.group_id, member)
        later_answers = [self._updates.when_replicated(update)]
        if converted is not None:
            later_answers.append(self._when_upgraded(converted, group))
        return Decision(response, update.records, later_answers=later_answers)

    def _when_upgraded(self, classic: ClassicGroup, group: ConsumerGroup) -> tuple[Waiter[Any], Any]:
        """Start the sessions of the consumer group once the conversion is written."""

        def go_on(_: object) -> None:
            if self._registry.find_consumer(group.group_id) is not None:
                deliver(self._conversion.upgrade_answers(classic))
                for each in group.classic_members:
                    self.expect_classic_heartbeat(group.group_id, each)

        return Waiter(go_on, go_on), None

    # --- checks ---

    def _check(self, request: ConsumerGroupHeartbeatRequest, caller: Caller) -> None:
        for value, name in (
            (request.group_id, "GroupId"),
            (request.instance_id, "InstanceId"),
            (request.rack_id, "RackId"),
        ):
            if value is not None and is_blank(value):
                raise InvalidRequest(f"{name} can't be empty.")
        self._check_epoch_fields(request, caller)
        if request.server_assignor is not None and request.server_assignor not in self._assignors:
            raise UnsupportedAssignor(
                f"assignor {request.server_assignor} does not exist; use one of {', '.join(self._assignors)}"
            )

    def _check_epoch_fields(self, request: ConsumerGroupHeartbeatRequest, caller: Caller) -> None:
        epoch = request.member_epoch
        if is_blank(request.member_id) and (
            epoch != JOIN_EPOCH or caller.api_version >= VERSION_WITH_CLIENT_IDS
        ):
            raise InvalidRequest("MemberId can't be empty.")
        if epoch == JOIN_EPOCH:
            if request.rebalance_timeout_ms == NOT_GIVEN:
                raise InvalidRequest("RebalanceTimeoutMs must be provided in first request.")
            if request.topic_partitions is None or request.topic_partitions:
                raise InvalidRequest("TopicPartitions must be empty when (re-)joining.")
            if request.subscribed_topic_names is None and not request.subscribed_topic_regex:
                raise InvalidRequest("A subscription must be set in first request.")
        elif epoch == LEAVE_STATIC_EPOCH and request.instance_id is None:
            raise InvalidRequest("InstanceId can't be null.")
        elif epoch < LEAVE_STATIC_EPOCH:
            raise InvalidRequest("MemberEpoch is invalid.")

    @property
    def _assignors(self) -> tuple[str, ...]:
        return self._settings.consumer_assignors

    def _check_room(self, group: ConsumerGroup, member_id: str) -> None:
        if member_id not in group.members and len(group.members) >= self._settings.consumer_max_size:
            raise GroupMaxSizeReached(f"group {group.group_id} is full")

    # --- identity ---

    def _identify(
        self,
        group: ConsumerGroup,
        request: ConsumerGroupHeartbeatRequest,
        member_id: str,
        owned: Assignment | None,
        records: list[GroupRecord],
    ) -> Update:
        is_joining = request.member_epoch == JOIN_EPOCH
        static = group.static_member(request.instance_id)
        if request.instance_id is None or (is_joining and static is None):
            known = group.members.get(member_id)
            if known is None and not is_joining:
                raise UnknownMemberId(f"group {group.group_id} has no member {member_id!r}")
            member = known or ConsumerMember(member_id)
            if not is_joining or known is not None:
                _check_epoch(member, request.member_epoch, owned)
            return Update(group, member, member, records)
        if is_joining:
            assert static is not None
            return self._take_over(group, static, member_id, records)
        if static is None:
            raise UnknownMemberId(f"instance id {request.instance_id} is unknown")
        if static.member_id != member_id:
            raise FencedInstanceId(f"instance {request.instance_id} is now member {static.member_id}")
        _check_epoch(static, request.member_epoch, owned)
        return Update(group, static, static, records)

    def _take_over(
        self, group: ConsumerGroup, static: ConsumerMember, member_id: str, records: list[GroupRecord]
    ) -> Update:
        """Replace a static member that is back, or refuse a second one while the first has not left."""
        if not static.is_classic and static.member_epoch != LEAVE_STATIC_EPOCH:
            raise UnreleasedInstanceId(f"the instance id is still in use by {static.member_id}")
        successor = replace(static, member_id=member_id, member_epoch=0, previous_member_epoch=0)
        if static.member_id == member_id:
            return Update(group, successor, successor, records)
        records += replacement_records(group, static, successor)
        return Update(group, successor, successor, records, frozenset({static.member_id}))

    def _as_requested(
        self, member: ConsumerMember, request: ConsumerGroupHeartbeatRequest, caller: Caller
    ) -> ConsumerMember:
        """Member as requested; fields that the request omits stay as they were."""
        names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
        return replace(
            member,
            instance_id=request.instance_id or member.instance_id,
            rack_id=request.rack_id or member.rack_id,
            rebalance_timeout_ms=(
                member.rebalance_timeout_ms
                if request.rebalance_timeout_ms == NOT_GIVEN
                else max(request.rebalance_timeout_ms, 0)
            ),
            server_assignor=request.server_assignor or member.server_assignor,
            topic_names=member.topic_names if names is None else frozenset(names),
            topic_regex=member.topic_regex if regex is None else (regex or None),
            client_id=caller.client_id,
            client_host=caller.client_host,
            classic=None,
        )

    def _response(
        self, request: ConsumerGroupHeartbeatRequest, previous: ConsumerMember, member: ConsumerMember
    ) -> ConsumerGroupHeartbeatResponse:
        """Response with the assignment if it is new, or if the request is a full one."""
        is_full = request.member_epoch == JOIN_EPOCH or (
            request.rebalance_timeout_ms != NOT_GIVEN
            and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
            and request.topic_partitions is not None
        )
        response = ConsumerGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.member_epoch,
            heartbeat_interval_ms=self._settings.consumer_times(request.group_id).heartbeat_interval_ms,
        )
        if is_full or member.assigned != previous.assigned:
            response.assignment = AssignmentMessage(
                topic_partitions=[
                    TopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
                    for topic_id, partitions in sorted(member.assigned.items())
                ]
            )
        return response

    # --- leaving ---

    def _leave(self, request: ConsumerGroupHeartbeatRequest) -> Decision[ConsumerGroupHeartbeatResponse]:
        group = self._registry.find_consumer(request.group_id)
        if group is None:
            raise GroupIdNotFound(f"consumer group {request.group_id} does not exist")
        response = ConsumerGroupHeartbeatResponse(
            member_id=request.member_id, member_epoch=request.member_epoch
        )
        if request.instance_id is None:
            return self.remove(group, group.member(request.member_id), response)
        member = group.static_member(request.instance_id)
        if member is None:
            raise UnknownMemberId(f"instance id {request.instance_id} is unknown")
        if member.member_id != request.member_id:
            raise FencedInstanceId(f"instance {request.instance_id} is now member {member.member_id}")
        if request.member_epoch == LEAVE_EPOCH:
            return self.remove(group, member, response)
        away = replace(member, member_epoch=LEAVE_STATIC_EPOCH, pending_revocation=NO_PARTITIONS)
        return Decision(response, [away.assignment_record(group.group_id)])

    def remove(
        self,
        group: ConsumerGroup,
        member: ConsumerMember,
        response: R | None = None,
    ) -> Decision[R]:
        """Remove a member; the group may fall back to the classic protocol if only classic members stay."""
        if self._conversion.may_downgrade(group, member.member_id):
            return self._conversion.downgrade(group, member.member_id, response)
        return Decision(response, self.removal_records(group, [member]))

    def removal_records(self, group: ConsumerGroup, members: Iterable[ConsumerMember]) -> list[GroupRecord]:
        gone = {member.member_id for member in members}
        records = [record for name in sorted(gone) for record in group.member_tombstones(name)]
        staying = [each for name, each in group.members.items() if name not in gone]
        used = {each.topic_regex for each in staying}
        records += [group.regex_record(regex, None) for regex in group.regexes if regex not in used]
        topics = self._updates.subscribed_topics(group, staying)
        if topics != group.topics:
            records.append(group.topics_record(topics))
        records.append(group.epoch_record(group.group_epoch + 1))
        return records

    # --- timers ---

    def expect_heartbeat(self, group_id: str, member_id: str, timeout_ms: int | None = None) -> None:
        if timeout_ms is None:
            timeout_ms = self._settings.consumer_times(group_id).session_timeout_ms
        self._registry.timers.schedule(
            session_key(group_id, member_id),
            timeout_ms,
            lambda: self.fence(group_id, member_id, "its session expired"),
            is_retried=True,
        )

    def expect_classic_heartbeat(self, group_id: str, member: ConsumerMember) -> None:
        """Expect a classic member's heartbeat within the session timeout that it asked for."""
        assert member.classic is not None
        self.expect_heartbeat(group_id, member.member_id, member.classic.session_timeout_ms)

    def expect_progress(self, group_id: str, member: ConsumerMember) -> None:
        """Expect the next heartbeat, and the requested revocation within the rebalance timeout."""
        self.expect_heartbeat(group_id, member.member_id)
        key = revocation_key(group_id, member.member_id)
        if member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._registry.timers.cancel(key)
            return
        member_id, epoch = member.member_id, member.member_epoch
        self._registry.timers.schedule(
            key,
            member.rebalance_timeout_ms,
            lambda: self._fence_at(group_id, member_id, epoch),
            is_retried=True,
        )

    def _fence_at(
        self, group_id: str, member_id: str, epoch: int
    ) -> Decision[ConsumerGroupHeartbeatResponse]:
        group = self._registry.find_consumer(group_id)
        member = None if group is None else group.members.get(member_id)
        if member is None or member.member_epoch != epoch:
            return Decision()
        return self.fence(group_id, member_id, "it did not revoke its partitions in time")

    def fence(self, group_id: str, member_id: str, reason: str) -> Decision[ConsumerGroupHeartbeatResponse]:
        group = self._registry.find_consumer(group_id)
        member = None if group is None else group.members.get(member_id)
        if group is None or member is None:
            return Decision()
        self._registry.limited_log.info(
            "fenced", "member %s of group %s is removed: %s", cut(member_id), cut(group_id), reason
        )
        return self.remove(group, member)

    def loaded(self, group: ConsumerGroup) -> None:
        """Give every member a whole session after a replay."""
        for member in group.members.values():
            if member.is_classic:
                self.expect_classic_heartbeat(group.group_id, member)
            else:
                self.expect_progress(group.group_id, member)


def replacement_records(
    group: ConsumerGroup, previous: ConsumerMember, successor: ConsumerMember
) -> list[GroupRecord]:
    """Records that hand a static member's state from one member id to the next."""
    return [
        *group.member_tombstones(previous.member_id),
        successor.subscription_record(group.group_id),
        group.target_record(successor.member_id, group.target.get(previous.member_id, NO_PARTITIONS)),
        successor.assignment_record(group.group_id),
    ]


def _check_epoch(member: ConsumerMember, epoch: int, owned: Assignment | None) -> None:
    """Check the epoch. The previous one is valid if the response that raised it may have been lost."""
    if epoch == member.member_epoch:
        return
    is_retry = (
        epoch == member.previous_member_epoch and owned is not None and contains(member.assigned, owned)
    )
    if epoch > member.member_epoch or not is_retry:
        raise FencedMemberEpoch(
            f"member {member.member_id} is at epoch {member.member_epoch}, not {epoch}; it must join again"
        )


def _as_assignment(topics: Iterable[TopicPartitions]) -> Assignment:
    return {topic.topic_id: frozenset(topic.partitions) for topic in topics if topic.partitions}
