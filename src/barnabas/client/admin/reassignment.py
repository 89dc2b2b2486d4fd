"""Partition reassignment: plans of moves, and the requests that start and list them.

A plan is a pure function of the cluster. Replicas stay where they can, because each move copies a whole log
over the network. A replacement goes to the broker with the fewest replicas, and if possible to a rack that
the partition does not have yet. The first replica is the preferred leader, so a replacement keeps the
position of the replica that it replaces.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.core.cluster_state import Topic
from barnabas.client.core.steps import Steps, raise_for
from barnabas.core.errors import InvalidReplicaAssignment, InvalidReplicationFactor
from barnabas.core.ids import TopicPartition
from barnabas.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

Assignment = Mapping[TopicPartition, Sequence[int]]
Racks = Mapping[int, str | None]
"""Brokers that may hold replicas, and their racks."""


class Move(NamedTuple):
    """Reassignment in progress of one partition."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


def current_assignment(topics: Iterable[Topic]) -> dict[TopicPartition, tuple[int, ...]]:
    return {
        TopicPartition(topic.name, partition.index): partition.replicas
        for topic in topics
        for partition in topic.partitions
    }


def plan_moves(
    everything: Assignment,
    moving: Iterable[TopicPartition],
    targets: Racks,
    replication_factor: int | None = None,
) -> dict[TopicPartition, tuple[int, ...]]:
    """Plan that puts all replicas of the partitions in `moving` on `targets`; partitions that can stay are
    left out. `everything` is the assignment of all partitions: the load that new replicas are weighed
    against.
    """
    load = Counter(dict.fromkeys(targets, 0))
    load.update(broker for replicas in everything.values() for broker in replicas if broker in targets)
    plan = {}
    for topic_partition in sorted(moving):
        present = everything[topic_partition]
        count = len(present) if replication_factor is None else replication_factor
        if not targets:
            raise InvalidReplicationFactor(f"no other broker can hold {topic_partition}")
        if count > len(targets):
            raise InvalidReplicationFactor(
                f"{topic_partition} needs {count} replicas, but there are only {len(targets)} brokers to hold"
                f" them: {', '.join(map(str, sorted(targets)))}"
            )
        wanted = _place(present[:count], count, targets, load)
        if wanted != tuple(present):
            plan[topic_partition] = wanted
    return plan


def _place(present: Sequence[int], count: int, targets: Racks, load: Counter[int]) -> tuple[int, ...]:
    kept = [broker for broker in present if broker in targets]
    chosen: list[int] = []
    for at in range(count):
        if at < len(present) and present[at] in targets:
            chosen.append(present[at])
            continue
        taken = {*kept, *chosen}
        racks = {targets[broker] for broker in taken}
        candidates = [broker for broker in targets if broker not in taken]
        best = min(candidates, key=lambda broker: (targets[broker] in racks, load[broker], broker))
        load[best] += 1
        chosen.append(best)
    return tuple(chosen)


def plan_from_json(document: object) -> dict[TopicPartition, tuple[int, ...]]:
    """Parse a plan in the format of kafka-reassign-partitions. ValueError names the problem."""
    if not isinstance(document, dict) or not isinstance(document.get("partitions"), list):
        raise ValueError('the plan is not of the form {"version":1,"partitions":[...]}')
    plan: dict[TopicPartition, tuple[int, ...]] = {}
    for index, row in enumerate(document["partitions"]):
        try:
            topic_partition = TopicPartition(str(row["topic"]), int(row["partition"]))
            replicas = tuple(int(broker) for broker in row["replicas"])
        except (KeyError, TypeError, ValueError):
            raise ValueError(f"partitions[{index}] needs topic, partition and replicas") from None
        if not replicas or len(set(replicas)) < len(replicas):
            raise ValueError(f"partitions[{index}]: replicas are one or more different brokers")
        if topic_partition in plan:
            raise ValueError(f"partitions[{index}]: {topic_partition} appears twice")
        plan[topic_partition] = replicas
    return plan


def plan_as_json(plan: Assignment) -> dict[str, object]:
    return {
        "version": 1,
        "partitions": [
            {"topic": each.topic, "partition": each.partition, "replicas": list(replicas)}
            for each, replicas in sorted(plan.items())
        ],
    }


class Reassignments:
    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster

    async def alter(self, plan: Mapping[TopicPartition, Sequence[int] | None]) -> None:
        """Start the moves of a plan. None instead of replicas cancels a move in progress."""
        by_topic: defaultdict[str, list[ReassignablePartition]] = defaultdict(list)
        for (topic, partition), replicas in plan.items():
            by_topic[topic].append(
                ReassignablePartition(
                    partition_index=partition, replicas=None if replicas is None else list(replicas)
                )
            )
        request = AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(name=name, partitions=rows) for name, rows in by_topic.items()]
        )

        def attempt() -> Steps[None]:
            answer = yield from self._cluster.state.ask_controller(
                request, AlterPartitionReassignmentsResponse
            )
            raise_for(answer.error_code, answer.error_message, "the reassignment")
            for topic in answer.responses:
                for row in topic.partitions:
                    raise_for(row.error_code, row.error_message, f"{topic.name}-{row.partition_index}")

        await self._cluster.run_with_retries(attempt, unknown_topic_timeout_ms=0)

    async def ongoing(self) -> dict[TopicPartition, Move]:
        def attempt() -> Steps[dict[TopicPartition, Move]]:
            answer = yield from self._cluster.state.ask_controller(
                ListPartitionReassignmentsRequest(topics=None), ListPartitionReassignmentsResponse
            )
            raise_for(answer.error_code, answer.error_message, "the reassignments")
            return {
                TopicPartition(topic.name, row.partition_index): Move(
                    tuple(row.replicas), tuple(row.adding_replicas), tuple(row.removing_replicas)
                )
                for topic in answer.topics
                for row in topic.partitions
            }

        return await self._cluster.run_with_retries(attempt)


def check_known(plan: Iterable[TopicPartition], known: Assignment) -> None:
    """Reject a plan with unknown partitions."""
    unknown = [each for each in plan if each not in known]
    if unknown:
        raise InvalidReplicaAssignment(f"there is no partition {unknown[0]}")
