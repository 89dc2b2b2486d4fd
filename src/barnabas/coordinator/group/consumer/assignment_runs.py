"""Target assignments of consumer groups: computed within the request, or for a large group in many turns.

The protocol has a state for a group whose target is older than the group (Assigning). Its members keep their
partitions and get the new target with a later heartbeat. So the assignment of a large group delays no request
and no other group. A group computes one target at a time, for its epoch at the start. If the group changes
meanwhile, the next heartbeat starts another computation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from barnabas.coordinator.group.consumer.assignors import ASSIGNORS, Assigned, AssignorMember
from barnabas.coordinator.group.state.assignment import NO_PARTITIONS, Assignment
from barnabas.coordinator.group.state.consumer_group import ConsumerGroup, SubscribedTopic
from barnabas.coordinator.group.state.consumer_member import ConsumerMember
from barnabas.coordinator.group.state.records import GroupRecord
from barnabas.coordinator.group.state.registry import GroupRegistry
from barnabas.coordinator.group.state.timer_keys import assignment_key
from barnabas.coordinator.runtime.decision import Decision
from barnabas.core.limits import ASSIGNMENT_ELEMENTS_PER_TURN_MAX, TURN_MS_MAX
from barnabas.core.steps import Ended, advance_until

PAUSE_MS = 1.0
"""Pause between two turns, for other work."""


class _Job:
    """Target assignment in progress."""

    __slots__ = ("ended", "epoch", "group", "work")

    def __init__(self, group: ConsumerGroup, work: Assigned) -> None:
        self.group = group
        self.epoch = group.group_epoch
        self.work = work
        self.ended: Ended[dict[str, Assignment]] | None = None
        """Kept, because a target that could not be written is written again."""


class Assigning:
    def __init__(self, registry: GroupRegistry) -> None:
        self._registry = registry
        self._default_assignor = registry.settings.consumer_assignors[0]

    def is_large(
        self,
        group: ConsumerGroup,
        members: Mapping[str, ConsumerMember],
        topics: Mapping[str, SubscribedTopic],
    ) -> bool:
        """Whether the target is computed in turns of its own. The first target of a group is not: until there
        is one, its members have no epoch."""
        if group.assignment_epoch <= 0:
            return False
        elements = sum(topic.partitions for topic in topics.values())
        elements += sum(len(group.topics_of(member)) for member in members.values())
        return elements > ASSIGNMENT_ELEMENTS_PER_TURN_MAX

    def assign(
        self,
        group: ConsumerGroup,
        members: Mapping[str, ConsumerMember],
        topics: Mapping[str, SubscribedTopic],
    ) -> Assigned:
        """Assignment by the assignor that most members prefer."""
        name = group.preferred_assignor(members.values(), self._default_assignor)
        specs = {
            member_id: AssignorMember(
                frozenset(topics[name].topic_id for name in group.topics_of(member) if name in topics),
                member.instance_id,
                target_of(group, member),
            )
            for member_id, member in members.items()
        }
        return ASSIGNORS[name](specs, {topic.topic_id: topic.partitions for topic in topics.values()})

    def begin(self, group_id: str) -> None:
        """Compute the target of a group once the current decision is made, unless a computation is in
        progress."""
        timers, key = self._registry.timers, assignment_key(group_id)
        if not timers.is_scheduled(key):
            timers.schedule(key, 0, lambda: self._start(group_id))

    def _start(self, group_id: str) -> Decision[Any]:
        group = self._registry.find_consumer(group_id)
        if group is None or group.group_epoch <= group.assignment_epoch:
            return Decision()
        return self._go_on(_Job(group, self.assign(group, group.members, group.topics)))

    def _go_on(self, job: _Job) -> Decision[Any]:
        monotonic_ms = self._registry.clock.monotonic_ms
        if job.ended is None:
            job.ended = advance_until(job.work, monotonic_ms, monotonic_ms() + TURN_MS_MAX)
        if job.ended is None:
            self._registry.timers.schedule(
                assignment_key(job.group.group_id), PAUSE_MS, lambda: self._go_on(job), is_retried=True
            )
            return Decision()
        return self._finish(job, job.ended.result)

    def _finish(self, job: _Job, result: Mapping[str, Assignment]) -> Decision[Any]:
        """Store the target; members that joined meanwhile get none yet, and members that left are dropped."""
        group = self._registry.find_consumer(job.group.group_id)
        if group is not job.group or group.assignment_epoch >= job.epoch:
            return Decision()
        return Decision(records=target_records(group, group.members, result, job.epoch))


def target_of(group: ConsumerGroup, member: ConsumerMember) -> Assignment:
    """Target of a member; a static member that came back inherits that of its previous member id."""
    found = group.target.get(member.member_id)
    if found is None and member.instance_id is not None:
        found = group.target.get(group.static_members.get(member.instance_id, ""))
    return NO_PARTITIONS if found is None else found


def target_records(
    group: ConsumerGroup,
    members: Mapping[str, ConsumerMember],
    result: Mapping[str, Assignment],
    epoch: int,
) -> list[GroupRecord]:
    records: list[GroupRecord] = []
    for member_id in members:
        assignment = result.get(member_id, NO_PARTITIONS)
        if assignment != group.target.get(member_id):
            records.append(group.target_record(member_id, assignment))
    return [*records, group.target_epoch_record(epoch)]
