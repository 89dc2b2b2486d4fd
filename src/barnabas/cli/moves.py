"""Starting moves of partitions and waiting for them, as `cluster decommission` and `reassign` do.

A throttle is what kafka-reassign-partitions sets: a rate on every broker that takes part, and on
each topic the replicas it is for. It is taken away when nothing moves any more.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence

import click

from barnabas.cli.output import print_json
from barnabas.client.admin import Admin
from barnabas.client.cluster_client import ClusterClient
from barnabas.client.reassignment import Assignment, Reassignments, check_known, plan_as_json
from barnabas.core.ids import TopicPartition
from barnabas.protocol.config_numbers import ResourceType

POLL_MS = 200
LEADER_RATE, FOLLOWER_RATE = "leader.replication.throttled.rate", "follower.replication.throttled.rate"
LEADER_REPLICAS, FOLLOWER_REPLICAS = (
    "leader.replication.throttled.replicas",
    "follower.replication.throttled.replicas",
)


async def start_moves(
    client: ClusterClient,
    plan: Mapping[TopicPartition, Sequence[int]],
    present: Assignment,
    *,
    throttle: int | None,
    dry_run: bool,
) -> None:
    check_known(plan, present)
    if dry_run:
        print_json(plan_as_json(plan))
        return
    if not plan:
        return
    if throttle is not None:
        await _set_throttle(client, plan, present, throttle)
    await Reassignments(client).alter(plan)
    click.echo(f"moving {len(plan)} partitions", err=True)


async def wait_for_moves(client: ClusterClient) -> None:
    reassignments = Reassignments(client)
    left = None
    while ongoing := await reassignments.ongoing():
        if len(ongoing) != left:
            left = len(ongoing)
            click.echo(f"{left} partitions are on their way", err=True)
        await asyncio.sleep(POLL_MS / 1_000)
    await remove_throttles(client)


async def remove_throttles(client: ClusterClient) -> None:
    """Take away the throttles of moves that have ended."""
    admin = Admin(client)
    for broker_id in list(client.state.brokers):
        await _unset(admin, ResourceType.BROKER, str(broker_id), (LEADER_RATE, FOLLOWER_RATE))
    for topic in await admin.list_topics():
        await _unset(admin, ResourceType.TOPIC, topic.name, (LEADER_REPLICAS, FOLLOWER_REPLICAS))


async def _unset(admin: Admin, kind: ResourceType, name: str, keys: Sequence[str]) -> None:
    found = await admin.describe_configs(kind, name, keys)
    set_here = [each.name for each in found if not each.is_default]
    if set_here:
        await admin.alter_configs(kind, name, changes={}, removals=set_here)


async def _set_throttle(
    client: ClusterClient, plan: Mapping[TopicPartition, Sequence[int]], present: Assignment, rate: int
) -> None:
    admin = Admin(client)
    leaders: defaultdict[str, list[str]] = defaultdict(list)
    followers: defaultdict[str, list[str]] = defaultdict(list)
    taking_part: set[int] = set()
    for each, replicas in plan.items():
        coming = [broker for broker in replicas if broker not in present[each]]
        leaders[each.topic] += [f"{each.partition}:{broker}" for broker in present[each]]
        followers[each.topic] += [f"{each.partition}:{broker}" for broker in coming]
        taking_part.update(present[each], coming)
    for topic in leaders:
        changes = {
            LEADER_REPLICAS: ",".join(leaders[topic]),
            FOLLOWER_REPLICAS: ",".join(followers[topic]),
        }
        await admin.alter_configs(ResourceType.TOPIC, topic, changes=changes)
    for broker_id in sorted(taking_part & client.state.brokers.keys()):
        changes = {LEADER_RATE: str(rate), FOLLOWER_RATE: str(rate)}
        await admin.alter_configs(ResourceType.BROKER, str(broker_id), changes=changes)
