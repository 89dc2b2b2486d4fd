"""JoinGroup for classic groups.

A dynamic member first gets an id and must come back with it (v4+). Otherwise a client that is cut off in the
middle of a join would leave a ghost behind with every retry. A static member is known by its instance id.
When it comes back, its new member id replaces the old one, and a stable group need not rebalance.
"""

from __future__ import annotations

from barnabas.coordinator.group.classic.rebalance import ClassicRebalance
from barnabas.coordinator.group.state.classic_group import (
    COMPLETING,
    DEAD,
    EMPTY,
    PREPARING,
    STABLE,
    ClassicGroup,
)
from barnabas.coordinator.group.state.classic_member import (
    ClassicMember,
    JoinWaiter,
    Protocols,
    protocols_of,
    rebalance_timeout_ms_of,
)
from barnabas.coordinator.group.state.client_info import Caller
from barnabas.coordinator.group.state.registry import GroupRegistry
from barnabas.coordinator.group.state.settings import NEW_MEMBER_JOIN_TIMEOUT_MS
from barnabas.coordinator.group.state.timer_keys import session_key
from barnabas.coordinator.runtime.decision import Answers, Decision
from barnabas.core.errors import (
    CoordinatorNotAvailable,
    GroupMaxSizeReached,
    InconsistentGroupProtocol,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMemberId,
)
from barnabas.core.reporting.log_text import cut
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse

VERSION_WITH_REQUIRED_ID = 4
VERSION_WITH_SKIPPED_ASSIGNMENT = 9


class ClassicJoin:
    def __init__(self, registry: GroupRegistry, rebalance: ClassicRebalance) -> None:
        self._registry = registry
        self._rebalance = rebalance

    def join(
        self, request: JoinGroupRequest, caller: Caller, waiter: JoinWaiter
    ) -> Decision[JoinGroupResponse]:
        """Response to JoinGroup; without one, the rebalance answers `waiter` when it completes."""
        group_id = request.group_id
        previous = self._registry.groups.get(group_id)
        if isinstance(previous, ClassicGroup) and not previous.exists_by_offsets:
            return self._join_group(previous, request, caller, waiter)
        if request.member_id:
            raise UnknownMemberId(f"group {group_id} has no members")
        # A new group is written when its first member joins. It replaces the previous state of its name:
        # nothing, offsets without a group, or an empty group of the consumer protocol.
        group = ClassicGroup(group_id)
        decision = self._join_group(group, request, caller, waiter)
        assert not decision.records
        records = [*(previous.tombstones() if previous is not None else ()), group.empty_record()]
        return Decision(decision.response, records, answers=decision.answers)

    def _join_group(
        self, group: ClassicGroup, request: JoinGroupRequest, caller: Caller, waiter: JoinWaiter
    ) -> Decision[JoinGroupResponse]:
        member_id = request.member_id
        protocols = protocols_of(request.protocols)
        if not self._has_room(group, member_id):
            group.remove(member_id)
            raise GroupMaxSizeReached(f"group {group.group_id} is full")
        if group.state is DEAD:
            raise CoordinatorNotAvailable(f"group {group.group_id} is being removed")
        if not group.supports(request.protocol_type, protocols):
            raise InconsistentGroupProtocol(
                f"group {group.group_id} has protocol type {group.protocol_type} and no protocol in common"
            )
        if not member_id:
            return self._join_new(group, request, protocols, caller, waiter)
        return self._join_known(group, request, protocols, caller, waiter)

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        max_size = self._registry.settings.max_size
        member = group.members.get(member_id)
        if group.state is PREPARING:
            is_waiting = member is not None and member.waiting_join is not None
            return is_waiting or group.awaiting_join < max_size
        if group.state in (COMPLETING, STABLE):
            return member is not None or len(group.members) < max_size
        return True

    # --- new members ---

    def _join_new(
        self,
        group: ClassicGroup,
        request: JoinGroupRequest,
        protocols: Protocols,
        caller: Caller,
        waiter: JoinWaiter,
    ) -> Decision[JoinGroupResponse]:
        instance_id = request.group_instance_id
        member_id = self._registry.new_member_id(caller.client_id if instance_id is None else instance_id)
        if instance_id is not None:
            previous_id = group.static_members.get(instance_id)
            if previous_id is not None:
                return self._take_over(group, request, protocols, caller, previous_id, member_id, waiter)
        elif caller.api_version >= VERSION_WITH_REQUIRED_ID:
            group.pending_join[member_id] = self._registry.memory.pending(group.group_id, caller)
            self._rebalance.expect_join(group, member_id, request.session_timeout_ms)
            return Decision(JoinGroupResponse(error_code=MemberIdRequired.code, member_id=member_id))
        return self._add(group, request, protocols, caller, member_id, waiter)

    def _add(
        self,
        group: ClassicGroup,
        request: JoinGroupRequest,
        protocols: Protocols,
        caller: Caller,
        member_id: str,
        waiter: JoinWaiter,
    ) -> Decision[JoinGroupResponse]:
        member = ClassicMember(
            member_id,
            request.group_instance_id,
            caller.client_id,
            caller.client_host,
            rebalance_timeout_ms_of(request),
            request.session_timeout_ms,
            request.protocol_type,
            protocols,
            memory=self._registry.memory.classic(
                group.group_id, caller, protocols, request.group_instance_id
            ),
        )
        member.is_new = True
        if group.state is PREPARING and group.previous_state is EMPTY:
            group.new_member_added = True
        group.add(member, waiter)
        self._rebalance.expect_heartbeat(group, member, NEW_MEMBER_JOIN_TIMEOUT_MS)
        reason = f"member {cut(member_id)} joins (client reason: {cut(request.reason or 'not provided')})"
        return _held(self._rebalance.rebalance(group, reason))

    # --- known members ---

    def _join_known(
        self,
        group: ClassicGroup,
        request: JoinGroupRequest,
        protocols: Protocols,
        caller: Caller,
        waiter: JoinWaiter,
    ) -> Decision[JoinGroupResponse]:
        member_id = request.member_id
        if member_id in group.pending_join:
            return self._add(group, request, protocols, caller, member_id, waiter)
        member = group.check_member(member_id, request.group_instance_id)
        is_unchanged = member.protocols == protocols
        if group.state is COMPLETING and is_unchanged:
            # The member has joined, but the response did not reach it.
            return Decision(group.join_response(member_id, with_members=group.is_leader(member_id)))
        if group.state is STABLE and is_unchanged and not group.is_leader(member_id):
            return Decision(group.join_response(member_id, with_members=False))
        if group.state is EMPTY:
            raise UnknownMemberId(f"group {group.group_id} has no members")
        # An earlier JoinGroup of the member may still wait; it is answered here, since nothing else would.
        memory = self._registry.memory.classic(
            group.group_id, caller, protocols, member.group_instance_id, member
        )
        superseded = JoinGroupResponse(error_code=RebalanceInProgress.code, member_id=member_id)
        answers = group.complete_join(member, superseded)
        timeout_ms = rebalance_timeout_ms_of(request)
        group.update(member, protocols, timeout_ms, request.session_timeout_ms, memory, waiter)
        reason = (
            f"member {cut(member_id)} joins again (client reason: {cut(request.reason or 'not provided')})"
        )
        return _held(self._rebalance.rebalance(group, reason).also(answers))

    def _take_over(
        self,
        group: ClassicGroup,
        request: JoinGroupRequest,
        protocols: Protocols,
        caller: Caller,
        previous_id: str,
        member_id: str,
        waiter: JoinWaiter,
    ) -> Decision[JoinGroupResponse]:
        """Replace the id of a static member that came back."""
        instance_id = request.group_instance_id
        assert instance_id is not None
        previous = group.members[previous_id]
        memory = self._registry.memory.classic(group.group_id, caller, protocols, instance_id, previous)

        def replaced(group: ClassicGroup, waiter: JoinWaiter | None) -> Answers:
            member, answers = group.replace_static_member(instance_id, previous_id, member_id)
            timeout_ms = rebalance_timeout_ms_of(request)
            group.update(member, protocols, timeout_ms, request.session_timeout_ms, memory, waiter)
            self._rebalance.expect_heartbeat(group, member)
            return answers

        if group.state is STABLE:
            after = group.copy()
            answers = replaced(after, None)
            if after.select_protocol() == group.protocol_name:
                response = _unnoticed(after, member_id, group.leader_id, caller)
                return Decision(response, [after.record()], answers=answers)
        self._registry.timers.cancel(session_key(group.group_id, previous_id))
        answers = replaced(group, waiter)
        if group.state is COMPLETING:
            reason = f"static member {cut(instance_id)} is back"
            return _held(self._rebalance.prepare(group, reason).also(answers))
        if group.state is not STABLE:
            return _held(self._rebalance.maybe_complete_join(group).also(answers))
        reason = f"static member {cut(instance_id)} changed the protocol"
        return _held(self._rebalance.rebalance(group, reason).also(answers))


def _unnoticed(
    group: ClassicGroup, member_id: str, previous_leader: str | None, caller: Caller
) -> JoinGroupResponse:
    """Response to a static member whose return needs no rebalance."""
    is_leader = group.is_leader(member_id)
    if caller.api_version >= VERSION_WITH_SKIPPED_ASSIGNMENT:
        response = group.join_response(member_id, with_members=is_leader)
        response.skip_assignment = is_leader
    else:
        # An older leader would assign again, so the response names its previous member id as the leader.
        response = group.join_response(member_id, with_members=False)
        response.leader = previous_leader or ""
    return response


def _held(decision: Decision[None]) -> Decision[JoinGroupResponse]:
    """Decision whose response the completed rebalance sends."""
    return decision.answered(None)
