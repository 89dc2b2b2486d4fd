"""Partition moves with progress lines, for `cluster decommission` and `reassign`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import click

from barnabas.cli.support.output import print_json
from barnabas.client.admin.admin import Admin
from barnabas.client.admin.reassignment import Assignment, check_known, plan_as_json
from barnabas.client.admin.replication_throttle import remove_throttles, set_throttle
from barnabas.core.ids import TopicPartition

POLL_MS = 200


async def start_moves(
    admin: Admin,
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
        await set_throttle(admin.cluster, plan, present, throttle)
    await admin.alter_partition_reassignments(plan)
    click.echo(f"moving {len(plan)} partitions", err=True)


async def wait_for_moves(admin: Admin) -> None:
    """Wait until no partition moves, then remove the throttles."""
    left = None
    while ongoing := await admin.list_partition_reassignments():
        if len(ongoing) != left:
            left = len(ongoing)
            click.echo(f"{left} partitions are moving", err=True)
        await asyncio.sleep(POLL_MS / 1_000)
    await remove_throttles(admin.cluster)
