"""`barnabas cluster`: status, decommission."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import click

from barnabas.cli.support.output import json_option, print_json, print_table
from barnabas.cli.support.partition_moves import start_moves, wait_for_moves
from barnabas.cli.support.session import Bootstrap, bootstrap_option, run
from barnabas.client.admin.admin import Admin
from barnabas.client.admin.reassignment import current_assignment, plan_moves
from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.core.cluster_state import ClusterState, Partition, Topic
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.errors import KafkaError, ResourceNotFound
from barnabas.core.ids import NO_LEADER

SHOWN_MAX = 20
ANSWER_TIMEOUT_S = 3.0


@click.group()
def cluster() -> None:
    """Show the state of the cluster, and decommission brokers."""


@cluster.command(short_help="Show brokers, the controller and partitions at risk.")
@json_option
@click.option("--check", is_flag=True, help="Fail (exit code 1) unless every partition has all its replicas.")
@bootstrap_option
def status(as_json: bool, check: bool, bootstrap: Bootstrap) -> None:
    """Show brokers, the controller, and partitions without a leader or with missing replicas.

    The table is the metadata of one broker, which gets it from the controller. Whether the brokers answer is
    tested now.
    """

    async def action(admin: Admin) -> tuple[ClusterState, list[Topic], Endpoint, set[int]]:
        client = admin.cluster
        topics = await admin.list_topics(include_internal=True)
        source = (await client.any_channel()).address
        return client.state, topics, source, await _silent_brokers(client)

    state, topics, source, silent = run(bootstrap, action)
    offline = _where(topics, lambda at: at.leader_id == NO_LEADER)
    under_replicated = _where(topics, lambda at: len(at.isr) < len(at.replicas))
    not_preferred = _where(topics, lambda at: bool(at.replicas) and at.leader_id != at.replicas[0])
    if as_json:
        known = _as_json(state, topics, offline, under_replicated, not_preferred)
        print_json({**known, "told_by": str(source), "silent_brokers": sorted(silent)})
    else:
        _print_source(state, source, silent)
        _print(state, topics, offline, under_replicated, not_preferred)
    if check and (offline or under_replicated or silent):
        sys.exit(1)


@cluster.command(short_help="Move all replicas away from a broker.")
@click.argument("broker_id", type=int)
@click.option("--dry-run", is_flag=True, help="Print the plan as JSON and change nothing.")
@click.option("--wait/--no-wait", default=True, help="Wait until every replica has moved.  [default: wait]")
@click.option(
    "--throttle",
    type=click.IntRange(min=1),
    metavar="BYTES",
    help="Limit of the replication traffic, in bytes per second.",
)
@bootstrap_option
def decommission(
    broker_id: int, dry_run: bool, wait: bool, throttle: int | None, bootstrap: Bootstrap
) -> None:
    """Move all replicas away from BROKER_ID, so that it can be stopped for good."""

    async def action(admin: Admin) -> int:
        client = admin.cluster
        everything = current_assignment(await admin.list_topics(include_internal=True))
        targets = {id_: rack for id_, rack in client.state.racks.items() if id_ != broker_id}
        held = [each for each, replicas in everything.items() if broker_id in replicas]
        if not held and broker_id not in client.state.brokers:
            raise ResourceNotFound(f"there is no broker {broker_id}, and no replica is assigned to it")
        plan = plan_moves(everything, held, targets)
        await start_moves(admin, plan, everything, throttle=throttle, dry_run=dry_run)
        if wait and not dry_run:
            await wait_for_moves(admin)
        return len(plan)

    count = run(bootstrap, action)
    if not dry_run:
        click.echo(
            f"broker {broker_id} has no replicas left: it can be stopped"
            if wait
            else f"{count} partitions are moving; see 'barnabas reassign status'"
        )


async def _silent_brokers(client: ClusterClient) -> set[int]:
    """Brokers in the metadata that do not answer."""

    async def answers(broker_id: int) -> bool:
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                await client.channel_to(broker_id)
        except (KafkaError, TimeoutError):
            return False
        return True

    brokers = list(client.state.brokers)
    outcomes = await asyncio.gather(*map(answers, brokers))
    return {broker_id for broker_id, answered in zip(brokers, outcomes, strict=True) if not answered}


def _print_source(state: ClusterState, source: Endpoint, silent: set[int]) -> None:
    click.echo(f"metadata of the broker at {source}")
    if state.controller_id not in state.brokers:
        click.echo("the cluster has no controller now: this metadata may be stale")
    if silent:
        listed = ", ".join(map(str, sorted(silent)))
        click.echo(f"brokers that do not answer, though the controller lists them: {listed}")


def _where(topics: Iterable[Topic], test: Callable[[Partition], bool]) -> list[tuple[str, Partition]]:
    return [(topic.name, at) for topic in topics for at in topic.partitions if test(at)]


def _broker_rows(state: ClusterState, topics: Iterable[Topic]) -> list[dict[str, Any]]:
    leaders: Counter[int] = Counter()
    replicas: Counter[int] = Counter()
    in_sync: Counter[int] = Counter()
    for topic in topics:
        for at in topic.partitions:
            leaders[at.leader_id] += 1
            replicas.update(at.replicas)
            in_sync.update(at.isr)
    # A broker that is down still has replicas assigned to it: they are the missing ones.
    return [
        {
            "id": broker_id,
            "address": str(state.brokers[broker_id]) if broker_id in state.brokers else None,
            "rack": state.racks.get(broker_id),
            "controller": broker_id == state.controller_id,
            "leaders": leaders[broker_id],
            "replicas": replicas[broker_id],
            "in_sync": in_sync[broker_id],
        }
        for broker_id in sorted({*state.brokers, *replicas})
    ]


def _print(
    state: ClusterState,
    topics: list[Topic],
    offline: list[tuple[str, Partition]],
    under_replicated: list[tuple[str, Partition]],
    not_preferred: list[tuple[str, Partition]],
) -> None:
    controller = state.controller_id if state.controller_id in state.brokers else "none"
    click.echo(f"cluster {state.cluster_id}  controller {controller}")
    print_table(
        ("broker", "address", "rack", "leaders", "replicas", "in sync"),
        [
            (
                str(row["id"]),
                row["address"] or "down",
                row["rack"] or "",
                str(row["leaders"]),
                str(row["replicas"]),
                str(row["in_sync"]),
            )
            for row in _broker_rows(state, topics)
        ],
    )
    total = sum(len(topic.partitions) for topic in topics)
    click.echo(
        f"topics {len(topics)}  partitions {total}  offline {len(offline)}"
        f"  under-replicated {len(under_replicated)}  not led by the preferred replica {len(not_preferred)}"
    )
    troubled = dict.fromkeys((name, at.index) for name, at in (*offline, *under_replicated))
    by_partition = {(topic.name, at.index): at for topic in topics for at in topic.partitions}
    if troubled:
        print_table(
            ("partition", "leader", "replicas", "isr"),
            [
                (
                    f"{name}-{index}",
                    "none"
                    if by_partition[name, index].leader_id == NO_LEADER
                    else str(by_partition[name, index].leader_id),
                    ",".join(map(str, by_partition[name, index].replicas)),
                    ",".join(map(str, by_partition[name, index].isr)),
                )
                for name, index in list(troubled)[:SHOWN_MAX]
            ],
        )
    if len(troubled) > SHOWN_MAX:
        click.echo(f"and {len(troubled) - SHOWN_MAX} more; --json shows all of them")


def _as_json(
    state: ClusterState,
    topics: list[Topic],
    offline: list[tuple[str, Partition]],
    under_replicated: list[tuple[str, Partition]],
    not_preferred: list[tuple[str, Partition]],
) -> dict[str, Any]:
    def named(found: list[tuple[str, Partition]]) -> list[dict[str, Any]]:
        return [
            {
                "topic": name,
                "partition": at.index,
                "leader": at.leader_id,
                "replicas": at.replicas,
                "isr": at.isr,
            }
            for name, at in found
        ]

    return {
        "cluster_id": state.cluster_id,
        "controller": state.controller_id,
        "brokers": _broker_rows(state, topics),
        "topics": len(topics),
        "partitions": sum(len(topic.partitions) for topic in topics),
        "offline": named(offline),
        "under_replicated": named(under_replicated),
        "not_preferred": named(not_preferred),
    }
