"""`barnabas topic`: create, list, describe, alter, delete."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from barnabas.cli.names import complete_topic
from barnabas.cli.output import json_option, print_json, print_table
from barnabas.cli.pairs import parse_pairs
from barnabas.cli.session import Bootstrap, bootstrap_option, run
from barnabas.client.admin import Admin
from barnabas.client.cluster_client import ClusterClient
from barnabas.client.cluster_state import Topic
from barnabas.client.partition_sizes import partition_sizes
from barnabas.core.errors import TopicAlreadyExists, UnknownTopicOrPartition
from barnabas.protocol.config_numbers import ResourceType


@click.group()
def topic() -> None:
    """Create, list, describe, alter and delete topics."""


@topic.command()
@click.argument("name")
@click.option(
    "--partitions",
    type=click.IntRange(min=1),
    metavar="N",
    help="How many; else the broker's num.partitions.",
)
@click.option(
    "--replication-factor",
    type=click.IntRange(min=1),
    metavar="N",
    help="How many; else the broker's default.",
)
@click.option("--config", "configs", multiple=True, metavar="KEY=VALUE", help="A setting of the topic.")
@click.option("--if-not-exists", is_flag=True, help="Succeed if it exists already.")
@bootstrap_option
def create(
    name: str,
    partitions: int | None,
    replication_factor: int | None,
    configs: tuple[str, ...],
    if_not_exists: bool,
    bootstrap: Bootstrap,
) -> None:
    """Create the topic NAME."""
    settings = parse_pairs(configs, "--config")

    async def action(cluster: ClusterClient) -> str:
        try:
            await Admin(cluster).create_topic(
                name,
                partitions=partitions or -1,
                replication_factor=replication_factor or -1,
                configs=settings,
            )
        except TopicAlreadyExists:
            if not if_not_exists:
                raise
            return f"topic {name} exists already"
        return f"created topic {name}"

    click.echo(run(bootstrap, action))


@topic.command(name="list")
@click.option("--internal", is_flag=True, help="Show the broker's own topics too.")
@json_option
@bootstrap_option
def list_(internal: bool, as_json: bool, bootstrap: Bootstrap) -> None:
    """List the topics, one a line."""
    topics = run(bootstrap, lambda cluster: Admin(cluster).list_topics())
    shown = [each for each in topics if internal or not each.is_internal]
    if as_json:
        print_json([{"name": each.name, "partitions": len(each.partitions)} for each in shown])
        return
    for each in shown:
        click.echo(each.name)


@topic.command()
@click.argument("names", nargs=-1, shell_complete=complete_topic)
@click.option("--internal", is_flag=True, help="With no NAMES: show the broker's own topics too.")
@json_option
@bootstrap_option
def describe(names: tuple[str, ...], internal: bool, as_json: bool, bootstrap: Bootstrap) -> None:
    """Show partitions, replicas and settings of the topics NAMES, or of all."""

    async def action(cluster: ClusterClient) -> list[tuple[Topic, dict[str, str]]]:
        admin = Admin(cluster)
        topics = await (admin.describe_topics(names) if names else admin.list_topics())
        shown = [each for each in topics if names or internal or not each.is_internal]
        return [(each, await _own_settings(admin, each.name)) for each in shown]

    described = run(bootstrap, action)
    if as_json:
        print_json([_as_json(each, settings) for each, settings in described])
        return
    for each, settings in described:
        click.echo(f"{each.name}  id {each.topic_id}  partitions {len(each.partitions)}")
        if settings:
            click.echo("  " + "  ".join(f"{key}={value}" for key, value in settings.items()))
        print_table(
            ("partition", "leader", "replicas", "isr"),
            [
                (str(at.index), _leader(at.leader_id), _ids(at.replicas), _ids(at.isr))
                for at in each.partitions
            ],
        )


@topic.command()
@click.argument("name", shell_complete=complete_topic)
@json_option
@bootstrap_option
def offsets(name: str, as_json: bool, bootstrap: Bootstrap) -> None:
    """Show the first and the next offset of every partition of NAME, and its size on its leader's disk."""
    sizes = run(bootstrap, lambda cluster: partition_sizes(cluster, name))
    if as_json:
        print_json([asdict(each) for each in sizes])
        return
    rows = [(each.partition, each.start_offset, each.end_offset, each.size_bytes) for each in sizes]
    print_table(("partition", "begins at", "next", "bytes"), [tuple(map(str, row)) for row in rows])


@topic.command()
@click.argument("name", shell_complete=complete_topic)
@click.option(
    "--partitions", type=click.IntRange(min=1), metavar="N", help="The new number; it can only grow."
)
@click.option("--config", "configs", multiple=True, metavar="KEY=VALUE", help="Set a setting.")
@click.option("--delete-config", "removals", multiple=True, metavar="KEY", help="Return to the default.")
@bootstrap_option
def alter(
    name: str,
    partitions: int | None,
    configs: tuple[str, ...],
    removals: tuple[str, ...],
    bootstrap: Bootstrap,
) -> None:
    """Add partitions to the topic NAME, or change its settings."""
    changes = parse_pairs(configs, "--config")
    if partitions is None and not changes and not removals:
        raise click.UsageError("nothing to alter: give --partitions, --config or --delete-config")

    async def action(cluster: ClusterClient) -> None:
        admin = Admin(cluster)
        if changes or removals:
            await admin.alter_configs(ResourceType.TOPIC, name, changes=changes, removals=removals)
        if partitions is not None:
            await admin.add_partitions(name, partitions)

    run(bootstrap, action)
    click.echo(f"altered topic {name}")


@topic.command()
@click.argument("names", nargs=-1, shell_complete=complete_topic, required=True)
@click.option("--if-exists", is_flag=True, help="Succeed if it does not exist.")
@bootstrap_option
def delete(names: tuple[str, ...], if_exists: bool, bootstrap: Bootstrap) -> None:
    """Delete the topics NAMES and all their records."""

    async def action(cluster: ClusterClient) -> None:
        for name in names:
            try:
                await Admin(cluster).delete_topic(name)
            except UnknownTopicOrPartition:
                if not if_exists:
                    raise
                click.echo(f"there is no topic {name}")
            else:
                click.echo(f"deleted topic {name}")

    run(bootstrap, action)


async def _own_settings(admin: Admin, name: str) -> dict[str, str]:
    """What was set on the topic itself."""
    settings = await admin.describe_configs(ResourceType.TOPIC, name)
    return {each.name: each.value or "" for each in settings if each.source == "topic"}


def _as_json(each: Topic, settings: dict[str, str]) -> dict[str, Any]:
    return {
        "name": each.name,
        "topic_id": str(each.topic_id),
        "is_internal": each.is_internal,
        "configs": settings,
        "partitions": [
            {
                "partition": at.index,
                "leader": at.leader_id,
                "leader_epoch": at.leader_epoch,
                "replicas": list(at.replicas),
                "isr": list(at.isr),
                "offline_replicas": list(at.offline),
            }
            for at in each.partitions
        ],
    }


def _ids(brokers: tuple[int, ...]) -> str:
    return ",".join(map(str, brokers))


def _leader(broker_id: int) -> str:
    return "none" if broker_id < 0 else str(broker_id)
