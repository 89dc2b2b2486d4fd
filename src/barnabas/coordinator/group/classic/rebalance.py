"""Rebalance of a classic group, from the first reason to the last assignment, and the members' sessions.

A rebalance waits for every known member to join again, but not longer than the longest rebalance timeout
among them. A member that has not joined by then is removed. A static member stays until its session ends. An
empty group waits a little after its first member, so that members that start together share the first
generation. Each new member extends that wait.

Eager members give up everything before they join again. Cooperative members (KIP-429) keep their partitions
until the leader takes them. The difference is in their metadata and assignments, which the broker passes on
unread. A cooperative rebalance has two rounds, because a member that gave something up joins once more.
"""

from __future__ import annotations

from typing import Any

from barnabas.coordinator.group.state.classic_group import (
    COMPLETING,
    DEAD,
    EMPTY,
    PREPARING,
    STABLE,
    ClassicGroup,
)
from barnabas.coordinator.group.state.classic_member import ClassicMember, JoinWaiter, SyncWaiter
from barnabas.coordinator.group.state.registry import GroupRegistry
from barnabas.coordinator.group.state.timer_keys import join_key, session_key, sync_key
from barnabas.coordinator.runtime.decision import NOTHING, Answers, Decision, Waiter
from barnabas.coordinator.runtime.timers import RETRY_MS
from barnabas.core.errors import KafkaError, RebalanceInProgress, UnknownMemberId
from barnabas.core.reporting.log_text import cut
from barnabas.protocol.messages.join_group import JoinGroupResponse
from barnabas.protocol.messages.sync_group import SyncGroupResponse


class ClassicRebalance:
    def __init__(self, registry: GroupRegistry) -> None:
        self._registry = registry
        self._timers = registry.timers
        self._clock = registry.clock
        self._settings = registry.settings
        self._limited_log = registry.limited_log

    # --- sessions ---

    def expect_heartbeat(
        self, group: ClassicGroup, member: ClassicMember, timeout_ms: int | None = None
    ) -> None:
        """Restart the member's session timeout after a sign of life."""
        group_id, member_id = group.group_id, member.member_id
        self._timers.schedule(
            session_key(group_id, member_id),
            member.session_timeout_ms if timeout_ms is None else timeout_ms,
            lambda: self.session_expired(group_id, member_id),
        )

    def expect_join(self, group: ClassicGroup, member_id: str, timeout_ms: int) -> None:
        """Expect a JoinGroup with a member id that was given out."""
        group_id = group.group_id
        self._timers.schedule(
            session_key(group_id, member_id), timeout_ms, lambda: self.session_expired(group_id, member_id)
        )

    def session_expired(self, group_id: str, member_id: str) -> Decision[None]:
        group = self._registry.find_classic(group_id)
        if group is None or group.state is DEAD:
            return NOTHING
        if member_id in group.pending_join:
            group.remove(member_id)
            return self.complete_join(group) if self._is_ready(group) else NOTHING
        member = group.members.get(member_id)
        if member is None or member.is_excused:
            return NOTHING
        self._limited_log.info(
            "expired",
            "member %s of group %s: session expired; the member is removed",
            cut(member_id),
            cut(group_id),
        )
        return self.remove_member(group, member)

    def remove_member(self, group: ClassicGroup, member: ClassicMember) -> Decision[None]:
        answers = self.forget_member(group, member)
        if group.state in (STABLE, COMPLETING):
            return self.rebalance(group, f"member {cut(member.member_id)} is removed").also(answers)
        return (self.complete_join(group) if self._is_ready(group) else NOTHING).also(answers)

    def forget_member(self, group: ClassicGroup, member: ClassicMember) -> Answers:
        self._timers.cancel(session_key(group.group_id, member.member_id))
        answers = [
            *group.complete_join(member, JoinGroupResponse(error_code=UnknownMemberId.code)),
            *group.complete_sync(member, SyncGroupResponse(error_code=UnknownMemberId.code)),
        ]
        group.remove(member.member_id)
        return answers

    # --- join phase ---

    def rebalance(self, group: ClassicGroup, reason: str) -> Decision[None]:
        """Begin a rebalance, or complete one in progress if every member has joined."""
        return self.prepare(group, reason) if group.can_rebalance else self.maybe_complete_join(group)

    def prepare(self, group: ClassicGroup, reason: str) -> Decision[None]:
        """`reason` is only logged; the parts that a client chose are cut."""
        answers = self._refuse_syncs(group)
        self.forget_pending_sync(group)
        is_first = group.state is EMPTY
        if is_first:
            delay_ms = self._settings.initial_rebalance_delay_ms
            left_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
            self._schedule_first_join(group.group_id, delay_ms, left_ms)
        group.move_to(PREPARING, self._clock.now_ms())
        self._limited_log.info(
            "rebalance",
            "group %s prepares to rebalance from generation %d: %s",
            cut(group.group_id),
            group.generation_id,
            reason,
        )
        return (NOTHING if is_first else self._complete_join_or_wait(group)).also(answers)

    def maybe_complete_join(self, group: ClassicGroup) -> Decision[None]:
        """Complete the join phase once all members have joined; the initial delay ends the first one."""
        if group.state is PREPARING and group.previous_state is not EMPTY and group.all_joined:
            return self.complete_join(group)
        return NOTHING

    def _is_ready(self, group: ClassicGroup) -> bool:
        return group.state is PREPARING and group.all_joined

    def _complete_join_or_wait(self, group: ClassicGroup) -> Decision[None]:
        if group.all_joined:
            return self.complete_join(group)
        self._schedule_join(group)
        return NOTHING

    def _schedule_join(self, group: ClassicGroup, delay_ms_min: float = 0) -> None:
        group_id = group.group_id
        delay_ms = max(group.rebalance_timeout_ms, delay_ms_min)
        self._timers.schedule(join_key(group_id), delay_ms, lambda: self._join_time_is_up(group_id))

    def _schedule_first_join(self, group_id: str, delay_ms: int, left_ms: int) -> None:
        self._timers.schedule(
            join_key(group_id), delay_ms, lambda: self._first_delay_is_up(group_id, delay_ms, left_ms)
        )

    def _first_delay_is_up(self, group_id: str, delay_ms: int, left_ms: int) -> Decision[None]:
        group = self._registry.find_classic(group_id)
        if group is None or group.state is not PREPARING:
            return NOTHING
        if group.new_member_added and left_ms:
            group.new_member_added = False
            next_delay_ms = min(self._settings.initial_rebalance_delay_ms, left_ms)
            self._schedule_first_join(group_id, next_delay_ms, max(left_ms - delay_ms, 0))
            return NOTHING
        return self.complete_join(group)

    def _join_time_is_up(self, group_id: str) -> Decision[None]:
        group = self._registry.find_classic(group_id)
        return NOTHING if group is None or group.state is not PREPARING else self.complete_join(group)

    def complete_join(self, group: ClassicGroup) -> Decision[None]:
        """Begin the next generation with the members that joined; the leader gets the list of all."""
        self._timers.cancel(join_key(group.group_id))
        late = [
            member
            for member in group.members.values()
            if member.waiting_join is None and not member.is_static
        ]
        for member in late:
            self._limited_log.info(
                "late",
                "member %s of group %s did not rejoin in time",
                cut(member.member_id),
                cut(group.group_id),
            )
            group.remove(member.member_id)
            self._timers.cancel(session_key(group.group_id, member.member_id))
        if group.state is DEAD:
            return NOTHING
        if not group.elect_joined_leader() and group.members:
            # Only static members are left, and none is back yet. One of them has to lead, so the group waits.
            # Without a rebalance timeout the timer would be due again at once, until their sessions end.
            self._schedule_join(group, RETRY_MS)
            return NOTHING
        if not group.members:
            return self._complete_without_members(group)
        group.begin_generation(self._clock.now_ms())
        return Decision(answers=self._join_answers(group))

    def _complete_without_members(self, group: ClassicGroup) -> Decision[None]:
        """Empty the group once the record is written; until then the write is retried."""
        group_id = group.group_id
        self._timers.schedule(join_key(group_id), RETRY_MS, lambda: self._join_time_is_up(group_id))
        after = group.copy()
        after.begin_generation(self._clock.now_ms())
        return Decision(records=[after.record()])

    def _join_answers(self, group: ClassicGroup) -> Answers:
        self._limited_log.info(
            "generation",
            "group %s is at generation %d with %d members",
            cut(group.group_id),
            group.generation_id,
            len(group.members),
        )
        answers: list[tuple[JoinWaiter, JoinGroupResponse]] = []
        for member in group.members.values():
            is_leader = group.is_leader(member.member_id)
            response = group.join_response(member.member_id, with_members=is_leader)
            group.pending_sync.add(member.member_id)
            member.is_new = False
            self.expect_heartbeat(group, member)
            answers.extend(group.complete_join(member, response))
        group_id, generation_id = group.group_id, group.generation_id
        self._timers.schedule(
            sync_key(group_id),
            group.rebalance_timeout_ms,
            lambda: self._sync_time_is_up(group_id, generation_id),
        )
        return answers

    # --- sync phase ---

    def synced(self, group: ClassicGroup, member_id: str) -> None:
        group.pending_sync.discard(member_id)
        if not group.pending_sync:
            self._timers.cancel(sync_key(group.group_id))

    def forget_pending_sync(self, group: ClassicGroup) -> None:
        group.pending_sync.clear()
        self._timers.cancel(sync_key(group.group_id))

    def _sync_time_is_up(self, group_id: str, generation_id: int) -> Decision[None]:
        """Remove members that joined and never sent SyncGroup."""
        group = self._registry.find_classic(group_id)
        if group is None or group.generation_id != generation_id or not group.pending_sync:
            return NOTHING
        if group.state not in (COMPLETING, STABLE):
            return NOTHING
        silent = [group.members[member_id] for member_id in list(group.pending_sync)]
        answers = [answer for member in silent for answer in self.forget_member(group, member)]
        reason = f"{len(silent)} members did not ask for their assignment"
        return self.prepare(group, reason).also(answers)

    def assignment_answers(self, group: ClassicGroup) -> Answers:
        """Responses to members that wait for their assignment. They wait until it is replicated. A rebalance
        may begin before that, and does if replication fails."""
        group_id, generation_id = group.group_id, group.generation_id

        def lost(error: KafkaError) -> None:
            self._timers.run(lambda: self._assignment_lost(group_id, generation_id, error))

        answers: list[tuple[Waiter[Any], Any]] = []
        for member in group.members.values():
            if member.waiting_sync is not None and member.waiting_sync.is_open:
                self.expect_heartbeat(group, member)
                answers.append((member.waiting_sync, group.sync_response(member)))
        answers.append((Waiter(lambda _: None, lost), None))
        return answers

    def _assignment_lost(self, group_id: str, generation_id: int, error: KafkaError) -> Decision[None]:
        group = self._registry.find_classic(group_id)
        if group is None or group.generation_id != generation_id or group.state not in (COMPLETING, STABLE):
            return NOTHING
        return self.prepare(group, f"the assignment could not be stored: {cut(error.message)}")

    def _refuse_syncs(self, group: ClassicGroup) -> Answers:
        """Refuse waiting SyncGroup requests: a rebalance begins, and their members must join again."""
        answers: list[tuple[SyncWaiter, SyncGroupResponse]] = []
        for member in group.members.values():
            if group.state is COMPLETING:
                member.assignment = b""
            answer = group.complete_sync(member, SyncGroupResponse(error_code=RebalanceInProgress.code))
            if answer:
                self.expect_heartbeat(group, member)
                answers.extend(answer)
        return answers
