"""Partition moves with progress lines, for `cluster decommission` and `reassign`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import click

from barnabas.cli.support.output import print_json
from barnabas.client.admin.reassignment import Assignment, Reassignments, check_known, plan_as_json
from barnabas.client.admin.replication_throttle import remove_throttles, set_throttle
from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.core.ids import TopicPartition

POLL_MS = 200


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
        await set_throttle(client, plan, present, throttle)
    await Reassignments(client).alter(plan)
    click.echo(f"moving {len(plan)} partitions", err=True)


async def wait_for_moves(client: ClusterClient) -> None:
    """Wait until no partition moves, then remove the throttles."""
    reassignments = Reassignments(client)
    left = None
    while ongoing := await reassignments.ongoing():
        if len(ongoing) != left:
            left = len(ongoing)
            click.echo(f"{left} partitions are moving", err=True)
        await asyncio.sleep(POLL_MS / 1_000)
    await remove_throttles(client)
