"""Replica placement for new partitions: pure functions of brokers, counts and two starting points.

Without racks, the first replicas go round the brokers. The others follow at a distance that grows by one each
time round. So the partitions that one broker leads have their followers on all the others. With racks, the
brokers are first ordered so that neighbours are in different racks. A replica goes to a rack that has none
yet, as long as there is one. The results are those of Kafka for the same starting points.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from barnabas.core.errors import (
    InvalidPartitions,
    InvalidReplicationFactor,
)

Racks = Mapping[int, str | None]
"""Brokers that may hold replicas, each with its rack or None."""


def assign_replicas(
    brokers: Racks,
    partitions: int,
    replication_factor: int,
    *,
    start_index: int,
    shift: int | None = None,
    first_partition: int = 0,
) -> dict[int, tuple[int, ...]]:
    """Assign replicas to `partitions` new partitions, the preferred leader first.

    The caller draws `start_index` and `shift` (by default the same number) at random. So topics with few
    partitions do not all land on the same brokers.
    """
    if partitions <= 0:
        raise InvalidPartitions("a topic needs at least one partition")
    if replication_factor <= 0:
        raise InvalidReplicationFactor("the replication factor must be at least 1")
    if replication_factor > len(brokers):
        raise InvalidReplicationFactor(
            f"a replication factor of {replication_factor} needs as many brokers; there are {len(brokers)}"
        )
    # Racks count only if every broker has one: a partial map would crowd the brokers that name theirs.
    racks = {broker: rack for broker, rack in brokers.items() if rack is not None}
    by_rack = len(racks) == len(brokers)
    ring = alternate_racks(racks) if by_rack else sorted(brokers)
    rack_count = len(set(racks.values())) if by_rack else 0
    shift = start_index if shift is None else shift
    assignment: dict[int, tuple[int, ...]] = {}
    for partition in range(first_partition, first_partition + partitions):
        if partition > 0 and partition % len(ring) == 0:
            shift += 1
        first = (partition + start_index) % len(ring)
        if by_rack:
            followers = _across_racks(ring, racks, first, shift * rack_count, replication_factor - 1)
        else:
            followers = [_at(ring, first, shift, step) for step in range(replication_factor - 1)]
        assignment[partition] = (ring[first], *followers)
    return assignment


def alternate_racks(racks: Mapping[int, str]) -> list[int]:
    """Brokers in an order that takes from each rack in turn."""
    members: dict[str, list[int]] = {}
    for broker in sorted(racks):
        members.setdefault(racks[broker], []).append(broker)
    rows = [members[rack] for rack in sorted(members)]
    ring: list[int] = []
    for index in range(max(map(len, rows))):
        ring.extend(row[index] for row in rows if index < len(row))
    return ring


def _at(ring: Sequence[int], first: int, shift: int, step: int) -> int:
    """Follower number `step` of the leader at `first`: never the leader itself."""
    distance = 1 + (shift + step) % (len(ring) - 1)
    return ring[(first + distance) % len(ring)]


def _across_racks(
    ring: Sequence[int], racks: Mapping[int, str], first: int, shift: int, count: int
) -> list[int]:
    used_brokers = {ring[first]}
    used_racks = {racks[ring[first]]}
    rack_count = len(set(racks.values()))
    followers: list[int] = []
    step = 0
    while len(followers) < count:
        broker = _at(ring, first, shift, step)
        step += 1
        rack_is_free = racks[broker] not in used_racks or len(used_racks) == rack_count
        if rack_is_free and broker not in used_brokers:
            followers.append(broker)
            used_brokers.add(broker)
            used_racks.add(racks[broker])
    return followers
