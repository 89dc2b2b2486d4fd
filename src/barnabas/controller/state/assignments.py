"""Assignment of a partition during a reassignment.

During a reassignment `replicas` holds all old and new replicas. The *origin* is that without the adding
replicas, the *target* that without the removing replicas.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.cluster.znodes.layout import ReplicaAssignment

NO_REPLICAS = ReplicaAssignment(())


def origin_replicas(assignment: ReplicaAssignment) -> tuple[int, ...]:
    return _without(assignment.replicas, assignment.adding_replicas)


def target_replicas(assignment: ReplicaAssignment) -> tuple[int, ...]:
    return _without(assignment.replicas, assignment.removing_replicas)


def reassigned_to(assignment: ReplicaAssignment, target: Sequence[int]) -> ReplicaAssignment:
    """Intermediate assignment from the origin to `target`, in the target's order."""
    origin = origin_replicas(assignment)
    all_replicas = tuple(dict.fromkeys((*target, *origin)))
    return ReplicaAssignment(all_replicas, _without(all_replicas, origin), _without(all_replicas, target))


def without(assignment: ReplicaAssignment, broker_id: int) -> ReplicaAssignment:
    return ReplicaAssignment(*(_without(replicas, (broker_id,)) for replicas in assignment))


def _without(replicas: Sequence[int], unwanted: Sequence[int]) -> tuple[int, ...]:
    return tuple(replica for replica in replicas if replica not in unwanted)
