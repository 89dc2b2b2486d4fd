"""What follows when a member of a consumer group changes: epochs, target, reconciliation.

The steps are the same for every kind of member and request: note what changed about the member, raise the
group epoch if the assignment depends on it, compute a new target if there is none for the epoch, and take
the member one step towards it. Each step adds records and works with what they will make true.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from barnabas.coordinator.decision import Waiter
from barnabas.coordinator.group.assignment import NO_PARTITIONS, Assignment
from barnabas.coordinator.group.assignors import ASSIGNORS, AssignorMember
from barnabas.coordinator.group.consumer_group import ConsumerGroup, ResolvedRegex, SubscribedTopic
from barnabas.coordinator.group.consumer_member import ConsumerMember
from barnabas.coordinator.group.reconciliation import reconcile
from barnabas.coordinator.group.records import GroupRecord
from barnabas.coordinator.group.registry import GroupRegistry
from barnabas.coordinator.regex import Regex
from barnabas.core.ids import Uuid

REGEX_REFRESH_MS_MIN = 10_000
"""Topics may come and go often; an expression is not matched against them more often than this."""
REGEX_REFRESH_MS_MAX = 10 * 60 * 1_000
"""Rights may change, of which a coordinator does not hear."""


@dataclass(slots=True)
class Update:
    """A change in the making: the group as it is, the member as it was and will be, the records so far."""

    group: ConsumerGroup
    former: ConsumerMember
    member: ConsumerMember
    records: list[GroupRecord] = field(default_factory=list)
    gone: frozenset[str] = frozenset()
    """Members that leave by this change, or whose place the member takes."""
    regexes_seen: dict[str, tuple[int, int]] = field(default_factory=dict)
    seen_generation: int | None = None
    """What was looked at on the way; it counts once the change is made."""

    def members(self) -> dict[str, ConsumerMember]:
        """The members as they will be."""
        members = {name: each for name, each in self.group.members.items() if name not in self.gone}
        members[self.member.member_id] = self.member
        return members


class ConsumerUpdates:
    def __init__(self, registry: GroupRegistry) -> None:
        self._registry = registry
        self._topics = registry.topics
        self._clock = registry.clock
        self._default_assignor = registry.settings.consumer_assignors[0]

    def carry_out(
        self, update: Update, owned: Assignment | None, may_describe: Callable[[str], bool]
    ) -> ConsumerMember:
        """All steps; returns the member as it will be, and leaves the records in `update`."""
        group = update.group
        has_changed = self._note_subscription(update)
        has_changed = self._resolve_regex(update, may_describe) or has_changed
        group_epoch = group.group_epoch
        topics = group.topics
        if has_changed or group.seen_generation != self._topics.generation:
            group_epoch, topics = self._refresh(update, has_changed)
        if group_epoch > group.assignment_epoch:
            target = self._new_target(update, group_epoch, topics)
            target_epoch = group_epoch
        else:
            target = self._present_target(update)
            target_epoch = group.assignment_epoch
        return self._reconcile(update, target_epoch, target, owned)

    def when_replicated(self, update: Update) -> tuple[Waiter[Any], Any]:
        """What was looked at on the way to the records counts once they do."""
        return Waiter(self.applied, lambda _: None), update

    def applied(self, update: Update) -> None:
        """The records are part of the state, or there are none: what was looked at need not be looked at
        again. Had they not been written, it would."""
        group = self._registry.find_consumer(update.group.group_id)
        if group is None:
            return
        seen = {**group.regexes_seen, **update.regexes_seen}
        group.regexes_seen = {regex: seen[regex] for regex in group.regexes if regex in seen}
        if update.seen_generation is not None:
            group.seen_generation = update.seen_generation

    def _note_subscription(self, update: Update) -> bool:
        """Write the member down if anything about it is new; True if the assignment depends on it."""
        former, member = update.former, update.member
        is_new = member.member_id not in update.group.members
        if member != former or is_new:
            update.records.append(member.subscription_record(update.group.group_id))
        return (
            (is_new and not update.gone)
            or member.topic_names != former.topic_names
            or member.topic_regex != former.topic_regex
        )

    # Regular expressions

    def _resolve_regex(self, update: Update, may_describe: Callable[[str], bool]) -> bool:
        """Match the member's expression against the topics, and drop expressions nobody uses."""
        group = update.group
        regexes = {each.topic_regex for each in update.members().values() if each.topic_regex}
        for regex in [each for each in group.regexes if each not in regexes]:
            update.records.append(group.regex_record(regex, None))
        wanted = update.member.topic_regex
        return bool(wanted) and self._match(update, wanted or "", may_describe)

    def _match(self, update: Update, regex: str, may_describe: Callable[[str], bool]) -> bool:
        """Topics that the member may not describe are none to it. Members with the same expression share what
        the last of them was shown, as in Kafka."""
        group = update.group
        present = group.regexes.get(regex)
        if present is not None and self._is_blind:
            return False
        now_ms = self._clock.now_ms()
        generation = self._topics.generation
        seen_generation, seen_ms = group.regexes_seen.get(regex, (-1, 0))
        refresh_ms = REGEX_REFRESH_MS_MAX if seen_generation == generation else REGEX_REFRESH_MS_MIN
        if present is not None and seen_generation >= 0 and now_ms - seen_ms < refresh_ms:
            return False
        matches = Regex(regex).matches
        topics = frozenset(
            name for name in self._topics.topic_names() if matches(name) and may_describe(name)
        )
        update.regexes_seen[regex] = (generation, now_ms)
        if present is not None and present.topics == topics:
            return False
        resolved = ResolvedRegex(topics, generation, now_ms)
        update.records.append(group.regex_record(regex, resolved))
        # The record is replayed with the others; until then the decision goes by it.
        update.group = _with_regex(group, regex, resolved)
        return True

    # Epochs

    def _refresh(self, update: Update, has_changed: bool) -> tuple[int, dict[str, SubscribedTopic]]:
        group = update.group
        topics = self.subscribed_topics(group, update.members().values())
        if topics != group.topics:
            update.records.append(group.topics_record(topics))
            has_changed = True
        epoch = group.group_epoch
        if has_changed:
            epoch += 1
            update.records.append(group.epoch_record(epoch))
        if not self._has_stale_regex(update) and not self._is_blind:
            update.seen_generation = self._topics.generation
        return epoch, topics

    def _has_stale_regex(self, update: Update) -> bool:
        """An expression that was matched too recently to be matched again; somebody must come back."""
        seen = {**update.group.regexes_seen, **update.regexes_seen}
        return any(seen.get(regex, (-1, 0))[0] != self._topics.generation for regex in update.group.regexes)

    @property
    def _is_blind(self) -> bool:
        """No topic is known, not even the coordinator's own: this broker has not been told yet."""
        return not self._topics.topic_names()

    def subscribed_topics(
        self, group: ConsumerGroup, members: Collection[ConsumerMember]
    ) -> dict[str, SubscribedTopic]:
        """The topics that the members read and that exist."""
        if self._is_blind:
            return group.topics
        names: set[str] = set()
        for member in members:
            names |= group.topics_of(member)
        found = {}
        for name in names:
            topic = self._topics.topic(name)
            if topic is not None:
                found[name] = SubscribedTopic(topic.topic_id, len(topic.partitions))
        return found

    # The target

    def _new_target(self, update: Update, group_epoch: int, topics: dict[str, SubscribedTopic]) -> Assignment:
        group = update.group
        members = update.members()
        name = group.preferred_assignor(members.values(), self._default_assignor)
        specs = {
            member_id: AssignorMember(
                frozenset(topics[name].topic_id for name in group.topics_of(member) if name in topics),
                member.instance_id,
                self._target_of(update, member),
            )
            for member_id, member in members.items()
        }
        counts = {topic.topic_id: topic.partitions for topic in topics.values()}
        result = ASSIGNORS[name](specs, counts)
        for member_id in members:
            assignment = result.get(member_id, NO_PARTITIONS)
            if assignment != group.target.get(member_id):
                update.records.append(group.target_record(member_id, assignment))
        update.records.append(group.target_epoch_record(group_epoch))
        return result.get(update.member.member_id, NO_PARTITIONS)

    def _present_target(self, update: Update) -> Assignment:
        return self._target_of(update, update.member)

    def _target_of(self, update: Update, member: ConsumerMember) -> Assignment:
        """A static member that came back inherits the target of its former life."""
        group = update.group
        found = group.target.get(member.member_id)
        if found is None and member.instance_id is not None:
            found = group.target.get(group.static_members.get(member.instance_id, ""))
        return NO_PARTITIONS if found is None else found

    # The member's step

    def _reconcile(
        self, update: Update, target_epoch: int, target: Assignment, owned: Assignment | None
    ) -> ConsumerMember:
        member = update.member
        group = update.group
        if member.is_reconciled_to(target_epoch):
            return member

        def is_owned(topic_id: Uuid, partition: int) -> bool:
            owner = group.owners.get((topic_id, partition))
            return owner is not None and owner not in update.gone and owner != member.member_id

        reconciled = reconcile(member, target_epoch, target, owned, is_owned)
        if reconciled != member:
            update.records.append(reconciled.assignment_record(group.group_id))
        return reconciled


def _with_regex(group: ConsumerGroup, regex: str, resolved: ResolvedRegex) -> ConsumerGroup:
    """The group as it will be, for the rest of this decision."""
    future = ConsumerGroup(group.group_id)
    for name, value in vars(group).items():
        setattr(future, name, value)
    future.regexes = {**group.regexes, regex: resolved}
    return future
