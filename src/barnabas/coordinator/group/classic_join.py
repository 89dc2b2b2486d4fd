"""JoinGroup for classic groups.

A dynamic member first gets an id and must come back with it (v4+): otherwise a client that is cut off in
the middle of a join would leave a ghost behind with every retry. A static member is known by its instance
id: when it comes back, its new life takes over the place of the old one, and while the group is stable
nobody else need notice.
"""

from __future__ import annotations

from barnabas.coordinator.decision import Answers, Decision
from barnabas.coordinator.group.callers import Caller
from barnabas.coordinator.group.classic_group import (
    COMPLETING,
    DEAD,
    EMPTY,
    PREPARING,
    STABLE,
    ClassicGroup,
)
from barnabas.coordinator.group.classic_member import ClassicMember, JoinWaiter, Protocols, protocols_of
from barnabas.coordinator.group.classic_rebalance import ClassicRebalance
from barnabas.coordinator.group.registry import GroupRegistry
from barnabas.coordinator.group.settings import NEW_MEMBER_JOIN_TIMEOUT_MS
from barnabas.coordinator.group.timer_keys import session_key
from barnabas.core.errors import (
    CoordinatorNotAvailable,
    GroupMaxSizeReached,
    InconsistentGroupProtocol,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMemberId,
)
from barnabas.core.log_text import cut
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
        """The response, or none: then `waiter` is answered when the rebalance completes."""
        group_id = request.group_id
        former = self._registry.groups.get(group_id)
        if isinstance(former, ClassicGroup) and not former.exists_by_offsets:
            return self._join_group(former, request, caller, waiter)
        if request.member_id:
            raise UnknownMemberId(f"group {group_id} has no members")
        # A new group is written down when its first member knocks. It takes the place of what there was under
        # its name: nothing, offsets without a group, or an empty group of the consumer protocol.
        group = ClassicGroup(group_id)
        decision = self._join_group(group, request, caller, waiter)
        assert not decision.records
        records = [*(former.tombstones() if former is not None else ()), group.empty_record()]
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

    # New members

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
            former_id = group.static_members.get(instance_id)
            if former_id is not None:
                return self._take_over(group, request, protocols, caller, former_id, member_id, waiter)
        elif caller.api_version >= VERSION_WITH_REQUIRED_ID:
            group.pending_join.add(member_id)
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
            _rebalance_timeout_ms(request),
            request.session_timeout_ms,
            request.protocol_type,
            protocols,
        )
        member.is_new = True
        if group.state is PREPARING and group.previous_state is EMPTY:
            group.new_member_added = True
        group.add(member, waiter)
        self._rebalance.expect_heartbeat(group, member, NEW_MEMBER_JOIN_TIMEOUT_MS)
        reason = f"member {cut(member_id)} joins ({cut(request.reason or '')})"
        return _held(self._rebalance.rebalance(group, reason))

    # Members that are known

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
            # It joined, but our answer did not reach it.
            return Decision(group.join_response(member_id, with_members=group.is_leader(member_id)))
        if group.state is STABLE and is_unchanged and not group.is_leader(member_id):
            return Decision(group.join_response(member_id, with_members=False))
        if group.state is EMPTY:
            raise UnknownMemberId(f"group {group.group_id} has no members")
        # Should an earlier JoinGroup of it still wait, nobody else would answer that.
        superseded = JoinGroupResponse(error_code=RebalanceInProgress.code, member_id=member_id)
        answers = group.complete_join(member, superseded)
        group.update(member, protocols, _rebalance_timeout_ms(request), request.session_timeout_ms, waiter)
        reason = f"member {cut(member_id)} joins again ({cut(request.reason or '')})"
        return _held(self._rebalance.rebalance(group, reason).also(answers))

    def _take_over(
        self,
        group: ClassicGroup,
        request: JoinGroupRequest,
        protocols: Protocols,
        caller: Caller,
        former_id: str,
        member_id: str,
        waiter: JoinWaiter,
    ) -> Decision[JoinGroupResponse]:
        """A static member is back under a new id."""
        instance_id = request.group_instance_id
        assert instance_id is not None

        def replaced(group: ClassicGroup, waiter: JoinWaiter | None) -> Answers:
            member, answers = group.replace_static_member(instance_id, former_id, member_id)
            timeout_ms = _rebalance_timeout_ms(request)
            group.update(member, protocols, timeout_ms, request.session_timeout_ms, waiter)
            self._rebalance.expect_heartbeat(group, member)
            return answers

        if group.state is STABLE:
            after = group.copy()
            answers = replaced(after, None)
            if after.select_protocol() == group.protocol_name:
                response = _unnoticed(after, member_id, group.leader_id, caller)
                return Decision(response, [after.record()], answers=answers)
        self._registry.timers.cancel(session_key(group.group_id, former_id))
        answers = replaced(group, waiter)
        if group.state is COMPLETING:
            reason = f"static member {cut(instance_id)} is back"
            return _held(self._rebalance.prepare(group, reason).also(answers))
        if group.state is not STABLE:
            return _held(self._rebalance.maybe_complete_join(group).also(answers))
        reason = f"static member {cut(instance_id)} changed the protocol"
        return _held(self._rebalance.rebalance(group, reason).also(answers))


def _unnoticed(
    group: ClassicGroup, member_id: str, former_leader: str | None, caller: Caller
) -> JoinGroupResponse:
    """What a static member hears whose return is no reason to rebalance."""
    is_leader = group.is_leader(member_id)
    if caller.api_version >= VERSION_WITH_SKIPPED_ASSIGNMENT:
        response = group.join_response(member_id, with_members=is_leader)
        response.skip_assignment = is_leader
    else:
        # An older leader would assign again; it is told that its former life still leads.
        response = group.join_response(member_id, with_members=False)
        response.leader = former_leader or ""
    return response


def _rebalance_timeout_ms(request: JoinGroupRequest) -> int:
    """Version 0 has one timeout for both."""
    return request.session_timeout_ms if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms


def _held(decision: Decision[None]) -> Decision[JoinGroupResponse]:
    """The member's own answer comes when the rebalance completes."""
    return decision.answered(None)
