"""Update of a consumer group member: subscription, epochs, target assignment, reconciliation.

The steps are the same for every kind of member and request. Note the changes of the member. Raise the group
epoch if the assignment depends on them. Compute a target if the epoch has none. Take the member one step
towards it. Each step adds records, and the next one works with their effect.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Any

from barnabas.coordinator.group.consumer.assignment_runs import Assigning, target_of, target_records
from barnabas.coordinator.group.consumer.reconciliation import reconcile
from barnabas.coordinator.group.consumer.regex import Regex
from barnabas.coordinator.group.state.assignment import NO_PARTITIONS, Assignment
from barnabas.coordinator.group.state.client_info import Caller
from barnabas.coordinator.group.state.consumer_group import ConsumerGroup, ResolvedRegex, SubscribedTopic
from barnabas.coordinator.group.state.consumer_member import ConsumerMember
from barnabas.coordinator.group.state.records import GroupRecord
from barnabas.coordinator.group.state.registry import GroupRegistry
from barnabas.coordinator.runtime.decision import Waiter
from barnabas.core.ids import Uuid
from barnabas.core.steps import run_to_end

REGEX_REFRESH_MS_MIN = 10_000
"""Shortest interval between two matches of an expression: topics may come and go often."""
REGEX_REFRESH_MS_MAX = 10 * 60 * 1_000
"""Longest interval between two matches: ACLs may change without notice to a coordinator."""


@dataclass(slots=True)
class Update:
    """Change in progress: the current group, the member before and after, the records so far."""

    group: ConsumerGroup
    previous: ConsumerMember
    member: ConsumerMember
    records: list[GroupRecord] = field(default_factory=list)
    gone: frozenset[str] = frozenset()
    """Members that leave by this change, or that the member replaces."""
    regexes_seen: dict[str, tuple[int, int]] = field(default_factory=dict)
    seen_generation: int | None = None
    """Metadata generation of this change; it counts once the change is made."""

    def members(self) -> dict[str, ConsumerMember]:
        """Members after the change."""
        members = {name: each for name, each in self.group.members.items() if name not in self.gone}
        members[self.member.member_id] = self.member
        return members


class ConsumerUpdates:
    def __init__(self, registry: GroupRegistry) -> None:
        self._registry = registry
        self._topics = registry.topics
        self._clock = registry.clock
        self._assigning = Assigning(registry)

    def carry_out(
        self, update: Update, owned: Assignment | None, may_describe: Callable[[str], bool]
    ) -> ConsumerMember:
        """All steps; returns the member after the change, and leaves the records in `update`."""
        group = update.group
        has_changed = self._note_subscription(update)
        has_changed = self._resolve_regex(update, may_describe) or has_changed
        group_epoch = group.group_epoch
        topics = group.topics
        if has_changed or group.seen_generation != self._topics.generation:
            group_epoch, topics = self._refresh(update, has_changed)
        if group_epoch <= group.assignment_epoch:
            return self._reconcile(update, group.assignment_epoch, self._present_target(update), owned)
        if self._assigning.is_large(update.group, update.members(), topics):
            self._assigning.begin(group.group_id)
            return self._reconcile(update, group.assignment_epoch, self._present_target(update), owned)
        return self._reconcile(update, group_epoch, self._new_target(update, group_epoch, topics), owned)

    def charged(self, update: Update, member: ConsumerMember, caller: Caller) -> ConsumerMember:
        """The member with memory for its new metadata, or GROUP_MAX_SIZE_REACHED. Unchanged metadata is
        charged already."""
        if member == update.previous and member.memory is not None:
            return member
        group = update.group
        names = group.topics_of(member)
        found = (self._topics.topic(name) for name in names)
        partitions = sum(len(topic.partitions) for topic in found if topic is not None)
        share = partitions // max(len(group.members), 1)
        return replace(member, memory=self._registry.memory.consumer(group.group_id, caller, member, share))

    def when_replicated(self, update: Update) -> tuple[Waiter[Any], Any]:
        """Waiter that applies the metadata generation once the records are replicated."""
        return Waiter(self.applied, lambda _: None), update

    def applied(self, update: Update) -> None:
        """Apply the metadata generation, after the records are replayed or when there are none. If a write
        fails, the next heartbeat looks again."""
        group = self._registry.find_consumer(update.group.group_id)
        if group is None:
            return
        seen = {**group.regexes_seen, **update.regexes_seen}
        group.regexes_seen = {regex: seen[regex] for regex in group.regexes if regex in seen}
        if update.seen_generation is not None:
            group.seen_generation = update.seen_generation

    def _note_subscription(self, update: Update) -> bool:
        """Write the member if anything about it is new; True if the assignment depends on it."""
        previous, member = update.previous, update.member
        is_new = member.member_id not in update.group.members
        if member != previous or is_new:
            update.records.append(member.subscription_record(update.group.group_id))
        return (
            (is_new and not update.gone)
            or member.topic_names != previous.topic_names
            or member.topic_regex != previous.topic_regex
        )

    # --- regular expressions ---

    def _resolve_regex(self, update: Update, may_describe: Callable[[str], bool]) -> bool:
        """Match the member's expression against the topics, and drop unused expressions."""
        group = update.group
        regexes = {each.topic_regex for each in update.members().values() if each.topic_regex}
        for regex in [each for each in group.regexes if each not in regexes]:
            update.records.append(group.regex_record(regex, None))
        wanted = update.member.topic_regex
        return bool(wanted) and self._match(update, wanted or "", may_describe)

    def _match(self, update: Update, regex: str, may_describe: Callable[[str], bool]) -> bool:
        """Match an expression; topics that the member may not describe do not exist for it. Members with the
        same expression share the last result, as in Kafka."""
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
        # The record is replayed with the others; until then the decision uses this copy.
        update.group = _with_regex(group, regex, resolved)
        return True

    # --- epochs ---

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
        """Whether an expression was matched too recently to be matched again; a later heartbeat must do
        it."""
        seen = {**update.group.regexes_seen, **update.regexes_seen}
        return any(seen.get(regex, (-1, 0))[0] != self._topics.generation for regex in update.group.regexes)

    @property
    def _is_blind(self) -> bool:
        """Whether no topic is known, not even the coordinator's own: this broker has no metadata yet."""
        return not self._topics.topic_names()

    def subscribed_topics(
        self, group: ConsumerGroup, members: Collection[ConsumerMember]
    ) -> dict[str, SubscribedTopic]:
        """Existing topics that the members subscribe to."""
        if self._is_blind:
            return group.topics
        # Members mostly have equal subscriptions: each is resolved once.
        names: set[str] = set().union(*{group.topics_of(member) for member in members})
        found = {}
        for name in names:
            topic = self._topics.topic(name)
            if topic is not None:
                found[name] = SubscribedTopic(topic.topic_id, len(topic.partitions))
        return found

    # --- target assignment ---

    def _new_target(self, update: Update, group_epoch: int, topics: dict[str, SubscribedTopic]) -> Assignment:
        group, members = update.group, update.members()
        result = run_to_end(self._assigning.assign(group, members, topics))
        update.records += target_records(group, members, result, group_epoch)
        return result.get(update.member.member_id, NO_PARTITIONS)

    def _present_target(self, update: Update) -> Assignment:
        return target_of(update.group, update.member)

    # --- reconciliation ---

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
    """The group with the expression, for the rest of this decision."""
    future = ConsumerGroup(group.group_id)
    for name, value in vars(group).items():
        setattr(future, name, value)
    future.regexes = {**group.regexes, regex: resolved}
    return future
