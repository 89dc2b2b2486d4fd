"""Server-side assignors: `range` and `uniform`.

Pure functions of the members, their subscriptions and their current target. `range` gives every member a run
of neighbouring partitions of each topic, the same run in topics of the same size. `uniform` evens out the
number of partitions over all topics and moves as few as it can.

A group may have thousands of members and partitions, so an assignor is a generator that stops now and then. A
large assignment is computed in many turns of the loop (`assignment_runs`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace
from typing import Final

from barnabas.coordinator.group.state.assignment import Assignment
from barnabas.core.ids import Uuid
from barnabas.core.steps import Sliced


@dataclass(frozen=True, slots=True)
class AssignorMember:
    topic_ids: frozenset[Uuid]
    instance_id: str | None = None
    target: Assignment = field(default_factory=dict)


Members = Mapping[str, AssignorMember]
PartitionCounts = Mapping[Uuid, int]
Assigned = Sliced[dict[str, Assignment]]
Assignor = Callable[[Members, PartitionCounts], Assigned]
STEPS_PER_PAUSE: Final = 500

_Held = dict[str, dict[Uuid, set[int]]]
"""Partitions of each member, by topic."""


def assign_range(members: Members, partition_counts: PartitionCounts) -> Assigned:
    """Static members come first, by instance id, so that a restart changes nothing."""
    ordered = sorted(members, key=lambda name: _static_first(name, members[name]))
    readers: defaultdict[Uuid, list[str]] = defaultdict(list)
    for name in ordered:
        for topic_id in members[name].topic_ids:
            readers[topic_id].append(name)
        yield
    result: dict[str, dict[Uuid, frozenset[int]]] = {name: {} for name in members}
    for topic_id, names in readers.items():
        quota, extra = divmod(partition_counts.get(topic_id, 0), len(names))
        start = 0
        for index, name in enumerate(names):
            end = start + quota + (index < extra)
            if start < end:
                result[name][topic_id] = frozenset(range(start, end))
            start = end
        yield
    return dict(result)


def _static_first(name: str, member: AssignorMember) -> tuple[bool, str]:
    return (member.instance_id is None, member.instance_id or name)


def assign_uniform(members: Members, partition_counts: PartitionCounts) -> Assigned:
    held = yield from _kept(members, partition_counts)
    subscriptions = {member.topic_ids for member in members.values()}
    if len(subscriptions) == 1:
        free = yield from _free(held, next(iter(subscriptions)), partition_counts)
        yield from _fill_equal(held, free)
    elif subscriptions:
        free = yield from _free(held, frozenset().union(*subscriptions), partition_counts)
        yield from _fill_unequal(held, members, free)
    return {
        name: {topic_id: frozenset(numbers) for topic_id, numbers in topics.items() if numbers}
        for name, topics in held.items()
    }


def _kept(members: Members, partition_counts: PartitionCounts) -> Sliced[_Held]:
    """Partitions that every member has and may keep. The leader of a converted classic group may have
    assigned a partition twice: one member keeps it."""
    held: _Held = {}
    taken: defaultdict[Uuid, set[int]] = defaultdict(set)
    for name, member in members.items():
        mine = held[name] = {}
        for topic_id, partitions in member.target.items():
            if topic_id in member.topic_ids:
                count = partition_counts.get(topic_id, 0)
                numbers = {number for number in partitions if number < count} - taken[topic_id]
                taken[topic_id] |= numbers
                mine[topic_id] = numbers
        yield
    return held


def _free(held: _Held, topic_ids: frozenset[Uuid], counts: PartitionCounts) -> Sliced[dict[Uuid, list[int]]]:
    """Partitions without a member, by topic, both in order."""
    taken: defaultdict[Uuid, set[int]] = defaultdict(set)
    for topics in held.values():
        for topic_id, numbers in topics.items():
            taken[topic_id] |= numbers
        yield
    free: dict[Uuid, list[int]] = {}
    for topic_id in sorted(topic_ids):
        free[topic_id] = sorted(set(range(counts.get(topic_id, 0))) - taken[topic_id])
        yield
    return free


def _load(topics: Mapping[Uuid, set[int]]) -> int:
    return sum(map(len, topics.values()))


def _fill_equal(held: _Held, free: dict[Uuid, list[int]]) -> Sliced[None]:
    """Assign when every member may read everything. Quotas differ by one at most, and members with more
    partitions keep the larger."""
    loads = {name: _load(topics) for name, topics in held.items()}
    quota, extra = divmod(sum(map(len, free.values())) + sum(loads.values()), len(held))
    wanting: list[tuple[str, int]] = []
    for name in sorted(held, key=lambda name: (-loads[name], name)):
        limit = quota + (extra > 0)
        extra -= extra > 0
        surplus = loads[name] - limit
        if surplus < 0:
            wanting.append((name, -surplus))
        for topic_id in sorted(held[name], reverse=True) if surplus > 0 else ():
            numbers = held[name][topic_id]
            given = sorted(numbers)[max(len(numbers) - surplus, 0) :]
            numbers.difference_update(given)
            free.setdefault(topic_id, []).extend(given)
            surplus -= len(given)
            if not surplus:
                break
        yield
    index = 0
    for topic_id in sorted(free):
        numbers_free, start = sorted(free[topic_id]), 0
        while start < len(numbers_free):
            name, missing = wanting[index]
            given = numbers_free[start : start + missing]
            held[name].setdefault(topic_id, set()).update(given)
            start += len(given)
            wanting[index] = (name, missing - len(given))
            index += missing == len(given)
        yield


def _fill_unequal(held: _Held, members: Members, free: dict[Uuid, list[int]]) -> Sliced[None]:
    """Assign when subscriptions differ: each partition goes to the eligible member with the fewest, then
    loads are evened out.

    Every move brings two members closer together, so this ends.
    """
    readers: dict[Uuid, list[str]] = {topic_id: [] for topic_id in sorted(free)}
    for name in sorted(members):
        for topic_id in members[name].topic_ids:
            if topic_id in readers:
                readers[topic_id].append(name)
        yield
    loads = {name: _load(topics) for name, topics in held.items()}
    for topic_id in sorted(free, key=lambda each: (len(readers[each]), each)):
        yield from _give(held, loads, readers[topic_id], topic_id, free[topic_id])
    is_moving = True
    while is_moving:
        is_moving = False
        for topic_id, names in readers.items():
            moved = yield from _even_out(held, loads, topic_id, names)
            is_moving = is_moving or moved


def _give(
    held: _Held, loads: dict[str, int], readers: Sequence[str], topic_id: Uuid, numbers: Sequence[int]
) -> Sliced[None]:
    """Give each partition of a topic to the reader with the fewest."""
    poorest = [(loads[name], name) for name in readers]
    heapify(poorest)
    for number in numbers if poorest else ():
        load, name = poorest[0]
        held[name].setdefault(topic_id, set()).add(number)
        loads[name] = load + 1
        heapreplace(poorest, (load + 1, name))
        if not number % STEPS_PER_PAUSE:
            yield
    yield


def _even_out(held: _Held, loads: dict[str, int], topic_id: Uuid, readers: Sequence[str]) -> Sliced[bool]:
    """Move partitions of one topic from the readers with most to those with fewest."""
    yield
    poorest = [(loads[name], name) for name in readers]
    richest = [(-loads[name], name) for name in readers if held[name].get(topic_id)]
    heapify(poorest)
    heapify(richest)
    in_order: dict[str, list[int]] = {}
    moves = 0
    while richest:
        owner = richest[0][1]
        if -richest[0][0] != loads[owner] or not held[owner].get(topic_id):
            _renew(richest, -loads[owner], has_any=bool(held[owner].get(topic_id)))
            continue
        load, name = poorest[0]
        if load != loads[name]:
            heapreplace(poorest, (loads[name], name))
            continue
        if loads[owner] - load < 2:
            break
        if owner not in in_order:
            in_order[owner] = sorted(held[owner][topic_id])
        number = in_order[owner].pop()
        held[owner][topic_id].remove(number)
        held[name].setdefault(topic_id, set()).add(number)
        loads[owner] -= 1
        loads[name] += 1
        moves += 1
        if not moves % STEPS_PER_PAUSE:
            yield
    return moves > 0


def _renew(heap: list[tuple[int, str]], priority: int, *, has_any: bool) -> None:
    """Update the outdated first entry of the heap, or drop it."""
    name = heap[0][1]
    if has_any:
        heapreplace(heap, (priority, name))
    else:
        heappop(heap)


ASSIGNORS: Final[dict[str, Assignor]] = {"uniform": assign_uniform, "range": assign_range}
