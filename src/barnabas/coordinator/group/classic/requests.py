"""SyncGroup, Heartbeat and LeaveGroup for classic groups."""

from __future__ import annotations

from typing import Any

from barnabas.coordinator.group.classic.rebalance import ClassicRebalance
from barnabas.coordinator.group.state.classic_group import (
    COMPLETING,
    DEAD,
    EMPTY,
    PREPARING,
    STABLE,
    ClassicGroup,
)
from barnabas.coordinator.group.state.classic_member import SyncWaiter
from barnabas.coordinator.group.state.registry import GroupRegistry
from barnabas.coordinator.group.state.timer_keys import session_key
from barnabas.coordinator.runtime.decision import NOTHING, Decision, Waiter
from barnabas.core.errors import (
    CoordinatorNotAvailable,
    IllegalGeneration,
    InconsistentGroupProtocol,
    KafkaError,
    RebalanceInProgress,
    UnknownMemberId,
)
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse


class ClassicRequests:
    def __init__(self, registry: GroupRegistry, rebalance: ClassicRebalance) -> None:
        self._registry = registry
        self._rebalance = rebalance

    # --- SyncGroup ---

    def sync(
        self, group: ClassicGroup, request: SyncGroupRequest, waiter: SyncWaiter
    ) -> Decision[SyncGroupResponse]:
        """The leader brings the assignments; every member waits for its own."""
        if group.state is EMPTY:
            raise UnknownMemberId(f"group {group.group_id} has no members")
        if group.state is DEAD:
            raise CoordinatorNotAvailable(f"group {group.group_id} is being removed")
        member = group.check_member(request.member_id, request.group_instance_id)
        if request.generation_id != group.generation_id:
            raise IllegalGeneration(f"group {group.group_id} is at generation {group.generation_id}")
        if _differ(request.protocol_type, group.protocol_type) or _differ(
            request.protocol_name, group.protocol_name
        ):
            raise InconsistentGroupProtocol(f"group {group.group_id} uses {group.protocol_name}")
        if group.state is PREPARING:
            raise RebalanceInProgress(f"group {group.group_id} is rebalancing")
        self._rebalance.synced(group, member.member_id)
        if group.state is STABLE:
            return Decision(group.sync_response(member))
        # An earlier SyncGroup of the member may still wait; it is answered here, since nothing else would.
        answers = group.complete_sync(member, SyncGroupResponse(error_code=RebalanceInProgress.code))
        member.waiting_sync = waiter
        if not group.is_leader(member.member_id):
            return Decision(answers=answers)
        after = group.copy()
        assignments = {each.member_id: each.assignment for each in request.assignments}
        for each in after.members.values():
            self._registry.memory.assigned(group.group_id, each, assignments.get(each.member_id, b""))
        after.complete_generation(assignments, self._registry.clock.now_ms())
        later_answers = self._rebalance.assignment_answers(after)
        return Decision(records=[after.record()], answers=answers, later_answers=later_answers)

    # --- Heartbeat ---

    def heartbeat(self, group: ClassicGroup, request: HeartbeatRequest) -> Decision[HeartbeatResponse]:
        if group.state is DEAD:
            raise CoordinatorNotAvailable(f"group {group.group_id} is being removed")
        member = group.check_member(request.member_id, request.group_instance_id)
        if request.generation_id != group.generation_id:
            raise IllegalGeneration(f"group {group.group_id} is at generation {group.generation_id}")
        if group.state is EMPTY:
            raise UnknownMemberId(f"group {group.group_id} has no members")
        self._rebalance.expect_heartbeat(group, member)
        if group.state is PREPARING:
            return Decision(HeartbeatResponse(error_code=RebalanceInProgress.code))
        return Decision(HeartbeatResponse())

    # --- LeaveGroup ---

    def leave(self, group: ClassicGroup, request: LeaveGroupRequest) -> Decision[LeaveGroupResponse]:
        if group.state is DEAD:
            raise CoordinatorNotAvailable(f"group {group.group_id} is being removed")
        left: list[tuple[Waiter[Any], Any]] = []
        members = [self._leave_one(group, identity, left) for identity in request.members]
        decision = NOTHING
        if any(member.error_code == 0 for member in members):
            decision = self._after_leaving(group)
        return decision.answered(LeaveGroupResponse(members=members), left)

    def _after_leaving(self, group: ClassicGroup) -> Decision[None]:
        if group.state in (STABLE, COMPLETING):
            return self._rebalance.rebalance(group, "members left")
        if group.state is PREPARING:
            return self._rebalance.maybe_complete_join(group)
        return NOTHING

    def _leave_one(
        self, group: ClassicGroup, identity: MemberIdentity, left: list[tuple[Waiter[Any], Any]]
    ) -> MemberResponse:
        """An administrator may name only the instance id; a member names its member id."""
        answer = MemberResponse(member_id=identity.member_id, group_instance_id=identity.group_instance_id)
        member_id = identity.member_id or group.static_members.get(identity.group_instance_id or "", "")
        if member_id in group.pending_join:
            group.remove(member_id)
            self._registry.timers.cancel(session_key(group.group_id, member_id))
            return answer
        try:
            member = group.check_member(member_id, identity.group_instance_id)
            left.extend(self._rebalance.forget_member(group, member))
        except KafkaError as error:
            answer.error_code = error.code
        return answer


def _differ(said: str | None, known: str | None) -> bool:
    return said is not None and known is not None and said != known
