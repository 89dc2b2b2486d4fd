"""Validation of new topics and of added partitions. Pure: no store, no clock.

A `TopicSpec` is a requested topic, with Kafka's −1 for the broker's default. `plan_topic` turns it into a
full assignment or raises the error for the client. Every creation passes here: CreateTopics, Metadata with
auto-creation, and the broker's internal topics.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from barnabas.core.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopicException,
    PolicyViolation,
    TopicAlreadyExists,
)
from barnabas.core.ids import check_topic_name

PARTITIONS_PER_REQUEST_MAX = 10_000
"""Largest number of partitions that one request may create, as in Apache Kafka."""

BROKER_CHOOSES = -1

METADATA_TOPIC = "__cluster_metadata"
"""Apache Kafka's metadata log: never a topic here, even if a directory has that name."""

Assignment = Mapping[int, Sequence[int]]
"""The replicas of each partition, the preferred leader first."""

Assign = Callable[[int, int, int], Assignment]
"""Spreads (partition count, replication factor, first partition) over the live brokers."""


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """Topic as requested by a client."""

    name: str
    num_partitions: int = BROKER_CHOOSES
    replication_factor: int = BROKER_CHOOSES
    assignments: Sequence[tuple[int, Sequence[int]]] = ()
    """(partition, replicas) from a manual assignment."""
    configs: Mapping[str, str | None] = field(default_factory=dict)


def check_new_name(name: str, existing: Collection[str]) -> None:
    """Check that a new name is valid and free, also after '.' becomes '_' in a metric."""
    check_topic_name(name)
    if name == METADATA_TOPIC:
        raise InvalidRequest(f"creation of internal topic {METADATA_TOPIC} is prohibited")
    if name in existing:
        raise TopicAlreadyExists(f"topic '{name}' already exists")
    if "." in name or "_" in name:
        plain = name.replace(".", "_")
        clashing = sorted(other for other in existing if other.replace(".", "_") == plain)
        if clashing:
            raise InvalidTopicException(
                f"topic '{name}' collides with existing topics: {', '.join(clashing)}"
            )


def plan_topic(
    spec: TopicSpec,
    *,
    default_partitions: int,
    default_replication_factor: int,
    live_brokers: Collection[int],
    assign: Assign,
) -> Assignment:
    """Assignment that `spec` resolves to."""
    if spec.assignments:
        if spec.num_partitions != BROKER_CHOOSES or spec.replication_factor != BROKER_CHOOSES:
            raise InvalidRequest(
                "both a replica assignment and a partition count or replication factor were given; "
                "with an assignment the two must be -1"
            )
        return check_manual_assignment(spec.assignments, live_brokers)
    partitions = default_partitions if spec.num_partitions == BROKER_CHOOSES else spec.num_partitions
    factor = spec.replication_factor
    if factor == BROKER_CHOOSES:
        factor = default_replication_factor
    if partitions <= 0:
        raise InvalidPartitions(f"the number of partitions must be larger than 0, or -1, not {partitions}")
    _check_partition_count(partitions)
    _check_replication_factor(factor, live_brokers)
    return assign(partitions, factor, 0)


def plan_more_partitions(
    topic: str,
    current: Sequence[Sequence[int]],
    count: int,
    by_hand: Sequence[Sequence[int]] | None,
    *,
    live_brokers: Collection[int],
    assign: Assign,
) -> Assignment:
    """Assignment of the partitions that `topic` lacks to have `count` of them."""
    added = count - len(current)
    if added < 0:
        raise InvalidPartitions(
            f"topic '{topic}' has {len(current)} partitions, which is more than the requested {count}"
        )
    if added == 0:
        raise InvalidPartitions(f"topic '{topic}' already has {len(current)} partitions")
    _check_partition_count(added)
    factor = len(current[0])
    if by_hand is None:
        _check_replication_factor(factor, live_brokers)
        return assign(added, factor, len(current))
    if len(by_hand) != added:
        raise InvalidReplicaAssignment(
            f"the number of partitions grows by {added}, but {len(by_hand)} assignments were given"
        )
    first = len(current)
    return check_manual_assignment(
        list(enumerate(by_hand, first)), live_brokers, first_partition=first, replication_factor=factor
    )


def check_manual_assignment(
    assignments: Sequence[tuple[int, Sequence[int]]],
    live_brokers: Collection[int],
    *,
    first_partition: int = 0,
    replication_factor: int | None = None,
) -> Assignment:
    """Check that partitions have no gaps, and each the same number of distinct, live brokers."""
    _check_partition_count(len(assignments))
    checked: dict[int, list[int]] = {}
    for partition, replicas in assignments:
        if partition in checked:
            raise InvalidReplicaAssignment(f"partition {partition} is assigned twice")
        _check_replicas(partition, replicas, live_brokers)
        expected = replication_factor or len(replicas)
        if len(replicas) != expected:
            raise InvalidReplicaAssignment(
                f"all partitions should have the same number of replicas: "
                f"partition {partition} has {len(replicas)}, others have {expected}"
            )
        replication_factor = expected
        checked[partition] = list(replicas)
    if sorted(checked) != list(range(first_partition, first_partition + len(checked))):
        raise InvalidReplicaAssignment(
            f"partitions should be a consecutive integer sequence that starts at {first_partition}"
        )
    return dict(sorted(checked.items()))


def given_configs(configs: Mapping[str, str | None]) -> dict[str, str]:
    """Overrides of a new topic; a key without a value is refused."""
    nulls = [name for name, value in configs.items() if value is None]
    if nulls:
        raise InvalidConfig(f"null value not supported for topic configs: {', '.join(nulls)}")
    return {name: value for name, value in configs.items() if value is not None}


def repeated(names: Iterable[str]) -> set[str]:
    """Names that occur more than once."""
    seen: set[str] = set()
    twice: set[str] = set()
    for name in names:
        (twice if name in seen else seen).add(name)
    return twice


def _check_replicas(partition: int, replicas: Sequence[int], live_brokers: Collection[int]) -> None:
    if not replicas:
        raise InvalidReplicaAssignment(f"partition {partition} has an empty replica list")
    if len(set(replicas)) != len(replicas):
        raise InvalidReplicaAssignment(
            f"duplicate replica assignment found: partition {partition} on {replicas}"
        )
    unknown = sorted(set(replicas) - set(live_brokers))
    if unknown:
        raise InvalidReplicaAssignment(
            f"unknown broker(s) in the assignment of partition {partition}: {', '.join(map(str, unknown))}"
        )


def _check_replication_factor(factor: int, live_brokers: Collection[int]) -> None:
    if factor <= 0:
        raise InvalidReplicationFactor(f"the replication factor must be larger than 0, or -1, not {factor}")
    if factor > len(live_brokers):
        raise InvalidReplicationFactor(
            f"replication factor {factor} is larger than the number of live brokers, {len(live_brokers)}"
        )


def _check_partition_count(count: int) -> None:
    if count > PARTITIONS_PER_REQUEST_MAX:
        raise PolicyViolation(
            f"{count} partitions are too many for one request; the most is {PARTITIONS_PER_REQUEST_MAX}"
        )
