"""Who should read what: the assignors of the broker's side.

Pure functions of the members, their subscriptions and their present target. `range` gives every member a
run of neighbouring partitions of each topic, the same run in topics of the same size. `uniform` evens out
the number of partitions over all topics and moves as few as it can.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from barnabas.coordinator.group.assignment import Assignment
from barnabas.core.ids import Uuid


@dataclass(frozen=True, slots=True)
class AssignorMember:
    topic_ids: frozenset[Uuid]
    instance_id: str | None = None
    target: Assignment = field(default_factory=dict)


Members = Mapping[str, AssignorMember]
PartitionCounts = Mapping[Uuid, int]
Assignor = Callable[[Members, PartitionCounts], dict[str, Assignment]]
_Held = dict[str, set[tuple[Uuid, int]]]


def assign_range(members: Members, partition_counts: PartitionCounts) -> dict[str, Assignment]:
    """Static members first, by their instance ids, so that a restart changes nothing."""
    ordered = sorted(members, key=lambda name: _static_first(name, members[name]))
    readers: defaultdict[Uuid, list[str]] = defaultdict(list)
    for name in ordered:
        for topic_id in members[name].topic_ids:
            readers[topic_id].append(name)
    result: dict[str, dict[Uuid, frozenset[int]]] = {name: {} for name in members}
    for topic_id, names in readers.items():
        quota, extra = divmod(partition_counts.get(topic_id, 0), len(names))
        start = 0
        for place, name in enumerate(names):
            end = start + quota + (place < extra)
            if start < end:
                result[name][topic_id] = frozenset(range(start, end))
            start = end
    return dict(result)


def _static_first(name: str, member: AssignorMember) -> tuple[bool, str]:
    return (member.instance_id is None, member.instance_id or name)


def assign_uniform(members: Members, partition_counts: PartitionCounts) -> dict[str, Assignment]:
    if not members:
        return {}
    held = _kept(members, partition_counts)
    subscriptions = {member.topic_ids for member in members.values()}
    if len(subscriptions) == 1:
        _fill_equal(held, _free(held, next(iter(subscriptions)), partition_counts))
    else:
        everything = frozenset().union(*subscriptions)
        _fill_unequal(held, members, _free(held, everything, partition_counts), partition_counts)
    return {name: _as_assignment(partitions) for name, partitions in held.items()}


def _kept(members: Members, partition_counts: PartitionCounts) -> _Held:
    """What every member has and may keep. The leader of a classic group that was converted may have given
    a partition to two: one of them keeps it."""
    held: _Held = {}
    taken: set[tuple[Uuid, int]] = set()
    for name, member in members.items():
        mine = {
            (topic_id, partition)
            for topic_id, partitions in member.target.items()
            if topic_id in member.topic_ids
            for partition in partitions
            if partition < partition_counts.get(topic_id, 0)
        }
        held[name] = mine - taken
        taken |= mine
    return held


def _free(held: _Held, topic_ids: frozenset[Uuid], counts: PartitionCounts) -> list[tuple[Uuid, int]]:
    taken: set[tuple[Uuid, int]] = set().union(*held.values())
    return [
        (topic_id, partition)
        for topic_id in sorted(topic_ids)
        for partition in range(counts.get(topic_id, 0))
        if (topic_id, partition) not in taken
    ]


def _fill_equal(held: _Held, free: list[tuple[Uuid, int]]) -> None:
    """Everybody may read everything: quotas differ by one at most, and who has more keeps the larger."""
    total = len(free) + sum(map(len, held.values()))
    quota, extra = divmod(total, len(held))
    wanting: list[tuple[str, int]] = []
    for name in sorted(held, key=lambda name: (-len(held[name]), name)):
        limit = quota + (extra > 0)
        extra -= extra > 0
        partitions = held[name]
        if len(partitions) > limit:
            surplus = sorted(partitions)[limit:]
            partitions.difference_update(surplus)
            free.extend(surplus)
        elif len(partitions) < limit:
            wanting.append((name, limit - len(partitions)))
    free.sort(reverse=True)
    for name, missing in wanting:
        for _ in range(missing):
            held[name].add(free.pop())


def _fill_unequal(
    held: _Held, members: Members, free: list[tuple[Uuid, int]], counts: PartitionCounts
) -> None:
    """Subscriptions differ: give each partition to whoever may have it and has least, then even out."""
    readers: dict[Uuid, list[str]] = {
        topic_id: sorted(name for name, member in members.items() if topic_id in member.topic_ids)
        for topic_id in counts
    }
    for topic_id, partition in sorted(free, key=lambda each: (len(readers[each[0]]), each)):
        if readers[topic_id]:
            poorest = min(readers[topic_id], key=lambda name: (len(held[name]), name))
            held[poorest].add((topic_id, partition))
    while any(_even_out(held, topic_id, readers[topic_id]) for topic_id in sorted(readers)):
        """Every move brings two members closer together, so this ends."""


def _even_out(held: _Held, topic_id: Uuid, readers: list[str]) -> bool:
    """Move partitions of one topic from those who have most to those who have least."""
    moved = False
    while len(readers) > 1:
        owners = [name for name in readers if any(each[0] == topic_id for each in held[name])]
        if not owners:
            break
        richest = max(owners, key=lambda name: (len(held[name]), name))
        poorest = min(readers, key=lambda name: (len(held[name]), name))
        if len(held[richest]) - len(held[poorest]) < 2:
            break
        partition = max(each for each in held[richest] if each[0] == topic_id)
        held[richest].remove(partition)
        held[poorest].add(partition)
        moved = True
    return moved


def _as_assignment(partitions: set[tuple[Uuid, int]]) -> Assignment:
    grouped: defaultdict[Uuid, set[int]] = defaultdict(set)
    for topic_id, partition in partitions:
        grouped[topic_id].add(partition)
    return {topic_id: frozenset(numbers) for topic_id, numbers in grouped.items()}


ASSIGNORS: Final[dict[str, Assignor]] = {"uniform": assign_uniform, "range": assign_range}
