"""Sticky assignment: balanced, with as few moves as possible.

1. Each partition stays with its previous owner, if that member still reads the topic.
2. Unowned partitions go to the member with the fewest, partitions with the fewest readers first.
3. While some member has at least two more than another that could take one of them, one moves.

The result is balanced in Kafka's sense: no single move makes two members more equal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush

from barnabas.core.ids import TopicPartition


def previous_owners(
    claims: Mapping[str, tuple[int, Sequence[TopicPartition]]],
) -> dict[TopicPartition, str]:
    """Owner of each partition, by (generation, owned partitions) of each member.

    A claim of a later generation wins. Two claims of one generation cancel each other: one of the members is
    mistaken, and the leader cannot tell which.
    """
    best: dict[TopicPartition, tuple[int, str | None]] = {}
    for member, (generation, owned) in claims.items():
        for partition in owned:
            known = best.get(partition)
            if known is None or generation > known[0]:
                best[partition] = (generation, member)
            elif generation == known[0] and member != known[1]:
                best[partition] = (generation, None)
    return {partition: member for partition, (_, member) in best.items() if member is not None}


def balanced(
    counts: Mapping[str, int],
    topics: Mapping[str, Sequence[str]],
    owners: Mapping[TopicPartition, str],
    order: Sequence[str],
) -> dict[str, list[TopicPartition]]:
    """Share of each member; `topics` names the topics that each member reads, `order` breaks ties."""
    rank = {member: index for index, member in enumerate(order)}
    readers: dict[str, list[str]] = {
        topic: [member for member in order if topic in topics[member]] for topic in sorted(counts)
    }
    shares: dict[str, set[TopicPartition]] = {member: set() for member in order}
    unowned: list[TopicPartition] = []
    for topic, eligible in readers.items():
        for number in range(counts[topic] if eligible else 0):
            partition = TopicPartition(topic, number)
            owner = owners.get(partition)
            if owner in eligible:
                shares[owner].add(partition)
            else:
                unowned.append(partition)
    for partition in sorted(unowned, key=lambda each: (len(readers[each.topic]), each)):
        least = min(readers[partition.topic], key=lambda member: (len(shares[member]), rank[member]))
        shares[least].add(partition)
    _even_out(shares, readers, rank)
    return {member: sorted(shares[member]) for member in order}


def _even_out(
    shares: dict[str, set[TopicPartition]], readers: Mapping[str, Sequence[str]], rank: Mapping[str, int]
) -> None:
    groups = {topic: tuple(eligible) for topic, eligible in readers.items()}
    movable = {member: _by_readers(share, groups) for member, share in shares.items()}
    # Each move lowers the sum of squares, so that the loop ends.
    while True:
        for giver in sorted(shares, key=lambda member: (-len(shares[member]), rank[member])):
            move = _move_from(giver, shares, movable[giver], rank)
            if move is not None:
                group, taker = move
                entry = heappop(movable[giver][group])
                heappush(movable[taker].setdefault(group, []), entry)
                shares[giver].discard(entry[1])
                shares[taker].add(entry[1])
                break
        else:
            return


def _by_readers(
    share: set[TopicPartition], groups: Mapping[str, tuple[str, ...]]
) -> dict[tuple[str, ...], list[tuple[int, TopicPartition]]]:
    """Heaps of the partitions of a share by the readers of their topics, the one to move next first."""
    found: dict[tuple[str, ...], list[tuple[int, TopicPartition]]] = {}
    for partition in share:
        found.setdefault(groups[partition.topic], []).append((-partition.partition, partition))
    for heap in found.values():
        heapify(heap)
    return found


def _move_from(
    giver: str,
    shares: Mapping[str, set[TopicPartition]],
    movable: Mapping[tuple[str, ...], list[tuple[int, TopicPartition]]],
    rank: Mapping[str, int],
) -> tuple[tuple[str, ...], str] | None:
    """Readers of the partition to move, and the one of them that takes it."""
    size = len(shares[giver])
    best: tuple[int, tuple[int, TopicPartition], tuple[str, ...], str] | None = None
    for group, heap in movable.items():
        if not heap:
            continue
        taker = min(group, key=lambda member: (len(shares[member]), rank[member]))
        room = size - len(shares[taker])
        if room >= 2 and (best is None or (-room, heap[0]) < best[:2]):
            best = (-room, heap[0], group, taker)
    return None if best is None else best[2:]
