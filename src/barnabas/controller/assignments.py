"""Arithmetic on the assignment of a partition that moves.

While it moves, `replicas` is everything old and new; the *origin* is that without what is being
added, the *target* that without what is being removed.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.cluster.znodes import ReplicaAssignment

NO_REPLICAS = ReplicaAssignment(())


def origin_replicas(assignment: ReplicaAssignment) -> tuple[int, ...]:
    return _without(assignment.replicas, assignment.adding_replicas)


def target_replicas(assignment: ReplicaAssignment) -> tuple[int, ...]:
    return _without(assignment.replicas, assignment.removing_replicas)


def reassigned_to(assignment: ReplicaAssignment, target: Sequence[int]) -> ReplicaAssignment:
    """On the way from where the partition was before any move to `target`; the target's order leads."""
    origin = origin_replicas(assignment)
    everyone = tuple(dict.fromkeys((*target, *origin)))
    return ReplicaAssignment(everyone, _without(everyone, origin), _without(everyone, target))


def without(assignment: ReplicaAssignment, broker_id: int) -> ReplicaAssignment:
    return ReplicaAssignment(*(_without(replicas, (broker_id,)) for replicas in assignment))


def _without(replicas: Sequence[int], unwanted: Sequence[int]) -> tuple[int, ...]:
    return tuple(replica for replica in replicas if replica not in unwanted)
