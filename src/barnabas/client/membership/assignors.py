"""Assignors of the classic protocol: how the leader of a group divides partitions among its members.

Names and outcomes are those of Apache Kafka, so that members of other clients can share the group. Members
are ordered as Kafka orders them: static members by instance id first, then the others by member id.

Gap: range does not look at racks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import cycle
from typing import Final, TypeAlias

from barnabas.client.membership.sticky_assignor import balanced, previous_owners
from barnabas.core.ids import TopicPartition


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    topics: tuple[str, ...]
    instance_id: str | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1


Subscriptions: TypeAlias = Mapping[str, MemberSubscription]
Counts: TypeAlias = Mapping[str, int]
"""Partitions of each topic. A topic that does not exist is missing."""
Assignment: TypeAlias = dict[str, list[TopicPartition]]


def in_order(members: Subscriptions) -> list[str]:
    """Member ids, static members first."""
    return sorted(
        members, key=lambda each: (members[each].instance_id is None, members[each].instance_id or each)
    )


def assign_range(counts: Counts, members: Subscriptions) -> Assignment:
    """Neighbouring partitions of each topic stay together; the first members get the remainder."""
    shares: Assignment = {each: [] for each in members}
    order = in_order(members)
    for topic in sorted(counts):
        subscribers = [each for each in order if topic in members[each].topics]
        if not subscribers:
            continue
        each_share, left = divmod(counts[topic], len(subscribers))
        first = 0
        for index, member in enumerate(subscribers):
            size = each_share + (index < left)
            shares[member] += [TopicPartition(topic, number) for number in range(first, first + size)]
            first += size
    return shares


def assign_round_robin(counts: Counts, members: Subscriptions) -> Assignment:
    """All partitions in turn to the next member that reads their topic."""
    shares: Assignment = {each: [] for each in members}
    wanted = {topic for each in members.values() for topic in each.topics}
    turns = cycle(in_order(members))
    for topic in sorted(wanted & counts.keys()):
        for number in range(counts[topic]):
            member = next(each for each in turns if topic in members[each].topics)
            shares[member].append(TopicPartition(topic, number))
    return shares


def assign_sticky(counts: Counts, members: Subscriptions) -> Assignment:
    """As even as possible; then as many partitions as possible stay with their owner."""
    topics = {each: subscription.topics for each, subscription in members.items()}
    return balanced(counts, topics, previous_owners(_claims(members)), in_order(members))


def _claims(members: Subscriptions) -> dict[str, tuple[int, tuple[TopicPartition, ...]]]:
    return {each: (it.generation, it.owned) for each, it in members.items()}


def assign_cooperative(counts: Counts, members: Subscriptions) -> Assignment:
    """The sticky assignment, without the partitions that another member still owns.

    Their owners give them up after this generation, and join again; the next one assigns them. A claim of an
    older generation counts as little here as in the sticky assignment: its member gives the partition up.
    Where two members claim a partition in one generation, neither gets it in this round.
    """
    shares = assign_sticky(counts, members)
    owners = previous_owners(_claims(members))
    claimed = {partition for it in members.values() for partition in it.owned}
    return {
        member: [each for each in share if each not in claimed or owners.get(each) == member]
        for member, share in shares.items()
    }


ASSIGNORS: Final[Mapping[str, Callable[[Counts, Subscriptions], Assignment]]] = {
    "range": assign_range,
    "roundrobin": assign_round_robin,
    "sticky": assign_sticky,
    "cooperative-sticky": assign_cooperative,
}
COOPERATIVE: Final = frozenset({"cooperative-sticky"})
"""Assignors whose members keep their partitions during a rebalance."""
