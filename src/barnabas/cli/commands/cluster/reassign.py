"""`barnabas reassign`: start, status, cancel."""

from __future__ import annotations

import json
from pathlib import Path

import click

from barnabas.cli.support.arguments import parse_broker_ids
from barnabas.cli.support.completion import complete_topic
from barnabas.cli.support.output import json_option, print_json, print_table
from barnabas.cli.support.partition_moves import start_moves, wait_for_moves
from barnabas.cli.support.session import Bootstrap, bootstrap_option, run
from barnabas.client.admin.admin import Admin
from barnabas.client.admin.reassignment import (
    Move,
    check_known,
    current_assignment,
    plan_from_json,
    plan_moves,
)
from barnabas.client.admin.replication_throttle import remove_throttles
from barnabas.core.errors import ResourceNotFound
from barnabas.core.ids import TopicPartition


@click.group()
def reassign() -> None:
    """Move partitions between brokers."""


@reassign.command()
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="NAME",
    shell_complete=complete_topic,
    help="Move the partitions of this topic; may be given several times.",
)
@click.option(
    "--brokers", metavar="ID,ID,…", help="Brokers that may hold the replicas; default: all live brokers."
)
@click.option(
    "--replication-factor",
    type=click.IntRange(min=1),
    metavar="N",
    help="New replication factor.",
)
@click.option(
    "--plan",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A plan in the JSON of kafka-reassign-partitions, instead of --topic.",
)
@click.option(
    "--throttle",
    type=click.IntRange(min=1),
    metavar="BYTES",
    help="Limit of the replication traffic, in bytes per second.",
)
@click.option("--dry-run", is_flag=True, help="Print the plan as JSON and change nothing.")
@click.option("--wait", is_flag=True, help="Wait until every replica has moved.")
@bootstrap_option
def start(
    topics: tuple[str, ...],
    brokers: str | None,
    replication_factor: int | None,
    plan: Path | None,
    throttle: int | None,
    dry_run: bool,
    wait: bool,
    bootstrap: Bootstrap,
) -> None:
    """Start moving partitions, of some topics or of a plan."""
    if bool(topics) == (plan is not None):
        raise click.UsageError("give either --topic or --plan")
    wanted = None if brokers is None else parse_broker_ids(brokers, "--brokers")
    given = None if plan is None else _read_plan(plan)

    async def action(admin: Admin) -> int:
        client = admin.cluster
        everything = current_assignment(await admin.list_topics(include_internal=True))
        if given is not None:
            check_known(given, everything)
            moves = {each: replicas for each, replicas in given.items() if replicas != everything[each]}
        else:
            moving = [each for each in everything if each.topic in topics]
            missing = set(topics) - {each.topic for each in moving}
            if missing:
                raise ResourceNotFound(f"there is no topic {min(missing)}")
            unknown = [broker for broker in wanted or () if broker not in client.state.racks]
            if unknown:
                raise ResourceNotFound(f"there is no broker {unknown[0]}")
            targets = {id_: rack for id_, rack in client.state.racks.items() if not wanted or id_ in wanted}
            moves = plan_moves(everything, moving, targets, replication_factor)
        await start_moves(admin, moves, everything, throttle=throttle, dry_run=dry_run)
        if wait and not dry_run:
            await wait_for_moves(admin)
        return len(moves)

    count = run(bootstrap, action)
    if not dry_run:
        moved = f"{count} partitions {'have moved' if wait else 'are moving'}"
        click.echo(moved if count else "nothing to move: every replica is in place")


@reassign.command()
@json_option
@bootstrap_option
def status(as_json: bool, bootstrap: Bootstrap) -> None:
    """Show the moves in progress. Without any, replication throttles are removed."""

    async def action(admin: Admin) -> dict[TopicPartition, Move]:
        ongoing = await admin.list_partition_reassignments()
        if not ongoing:
            await remove_throttles(admin.cluster)
        return ongoing

    ongoing = run(bootstrap, action)
    if as_json:
        print_json(
            [
                {
                    "topic": each.topic,
                    "partition": each.partition,
                    "replicas": move.replicas,
                    "adding": move.adding,
                    "removing": move.removing,
                }
                for each, move in sorted(ongoing.items())
            ]
        )
    elif not ongoing:
        click.echo("no partition is moving")
    else:
        print_table(
            ("partition", "replicas", "adding", "removing"),
            [
                (str(each), *(",".join(map(str, brokers)) for brokers in move))
                for each, move in sorted(ongoing.items())
            ],
        )


@reassign.command()
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="NAME",
    shell_complete=complete_topic,
    help="Only the moves of this topic.",
)
@bootstrap_option
def cancel(topics: tuple[str, ...], bootstrap: Bootstrap) -> None:
    """Cancel the moves in progress. The partitions return to their previous replicas."""

    async def action(admin: Admin) -> int:
        ongoing = await admin.list_partition_reassignments()
        stopped = [each for each in ongoing if not topics or each.topic in topics]
        if stopped:
            await admin.alter_partition_reassignments(dict.fromkeys(stopped))
        return len(stopped)

    click.echo(f"cancelled the moves of {run(bootstrap, action)} partitions")


def _read_plan(path: Path) -> dict[TopicPartition, tuple[int, ...]]:
    try:
        return plan_from_json(json.loads(path.read_text(encoding="utf-8")))
    except ValueError as error:
        raise click.BadParameter(f"{path}: {error}", param_hint="--plan") from None
