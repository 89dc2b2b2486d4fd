"""Replication throttle of a reassignment, as `kafka-reassign-partitions --throttle` sets it.

Each broker of the reassignment gets a rate. Each topic gets the replicas that the rate applies to. The
present replicas are throttled as leaders, because any of them may lead while the copy runs. The added
replicas are throttled as followers. In-sync followers stay unthrottled, so that they do not leave the ISR.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from barnabas.client.admin.reassignment import Assignment
from barnabas.client.admin.topics_and_configs import TopicAdmin
from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.core.ids import TopicPartition
from barnabas.protocol.config_numbers import ResourceType

LEADER_RATE, FOLLOWER_RATE = "leader.replication.throttled.rate", "follower.replication.throttled.rate"
LEADER_REPLICAS, FOLLOWER_REPLICAS = (
    "leader.replication.throttled.replicas",
    "follower.replication.throttled.replicas",
)


class Throttle(NamedTuple):
    topics: dict[str, dict[str, str]]
    """Settings by topic."""
    brokers: frozenset[int]
    """Brokers that send or receive replicas."""


def throttle_for(plan: Mapping[TopicPartition, Sequence[int]], present: Assignment) -> Throttle:
    """Topic settings and brokers of the throttle for a plan."""
    leaders: defaultdict[str, list[str]] = defaultdict(list)
    followers: defaultdict[str, list[str]] = defaultdict(list)
    brokers: set[int] = set()
    for each, replicas in plan.items():
        added = [broker for broker in replicas if broker not in present[each]]
        leaders[each.topic] += [f"{each.partition}:{broker}" for broker in present[each]]
        followers[each.topic] += [f"{each.partition}:{broker}" for broker in added]
        brokers.update(present[each], added)
    topics = {
        topic: {LEADER_REPLICAS: ",".join(leaders[topic]), FOLLOWER_REPLICAS: ",".join(followers[topic])}
        for topic in leaders
    }
    return Throttle(topics, frozenset(brokers))


async def set_throttle(
    cluster: ClusterClient,
    plan: Mapping[TopicPartition, Sequence[int]],
    present: Assignment,
    bytes_per_second: int,
) -> None:
    """Limit the traffic of a plan, before its moves start. Brokers that are down are left out."""
    admin = TopicAdmin(cluster)
    throttle = throttle_for(plan, present)
    for topic, changes in throttle.topics.items():
        await admin.alter_configs(ResourceType.TOPIC, topic, changes=changes)
    for broker_id in sorted(throttle.brokers & cluster.state.brokers.keys()):
        changes = {LEADER_RATE: str(bytes_per_second), FOLLOWER_RATE: str(bytes_per_second)}
        await admin.alter_configs(ResourceType.BROKER, str(broker_id), changes=changes)


async def remove_throttles(cluster: ClusterClient) -> None:
    """Remove the throttles of finished reassignments from all live brokers and all topics."""
    admin = TopicAdmin(cluster)
    for broker_id in list(cluster.state.brokers):
        await _unset(admin, ResourceType.BROKER, str(broker_id), (LEADER_RATE, FOLLOWER_RATE))
    for topic in await admin.list_topics():
        await _unset(admin, ResourceType.TOPIC, topic.name, (LEADER_REPLICAS, FOLLOWER_REPLICAS))


async def _unset(admin: TopicAdmin, kind: ResourceType, name: str, keys: Sequence[str]) -> None:
    found = await admin.describe_configs(kind, name, keys)
    set_here = [each.name for each in found if not each.is_default]
    if set_here:
        await admin.alter_configs(kind, name, changes={}, removals=set_here)
