"""`barnabas topic`: create, list, describe, alter, delete."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import click

from barnabas.cli.support.arguments import parse_pairs
from barnabas.cli.support.completion import complete_topic
from barnabas.cli.support.output import json_option, print_json, print_table
from barnabas.cli.support.pipeline_client import Service
from barnabas.cli.support.session import Bootstrap, bootstrap_option, run
from barnabas.cli.support.topic_tables import (
    KEEP,
    REMOVE,
    asked_fate,
    checked_table,
    kept_table,
    removed,
    service_of,
    wait_for_end,
)
from barnabas.client.admin.admin import Admin
from barnabas.client.admin.calls.topics import NewTopic
from barnabas.client.admin.topic_records import partition_sizes
from barnabas.client.core.metadata import Topic
from barnabas.config.definitions.topics import TABLE
from barnabas.core.errors import KafkaError, TopicAlreadyExists, UnknownTopicOrPartition
from barnabas.core.ids import INTERNAL_TOPICS
from barnabas.pipelines.spec.topic_table import pipeline_of
from barnabas.protocol.config_numbers import ResourceType

_LOST_WITH = {
    "__consumer_offsets": "the offsets of all consumer groups",
    "__transaction_state": "the state of all transactions",
}
assert _LOST_WITH.keys() == INTERNAL_TOPICS


@click.group()
def topic() -> None:
    """Create, list, describe, alter and delete topics."""


@topic.command()
@click.argument("name")
@click.option(
    "--partitions",
    type=click.IntRange(min=1),
    metavar="N",
    help="Number of partitions; default: the broker's num.partitions.",
)
@click.option(
    "--replication-factor",
    type=click.IntRange(min=1),
    metavar="N",
    help="Number of replicas; default: the broker's.",
)
@click.option("--config", "configs", multiple=True, metavar="KEY=VALUE", help="A setting of the topic.")
@click.option(
    "--table",
    metavar="FORMAT:PATH",
    help="Keep the topic as a table too: delta:/lake/orders, or iceberg:PATH. The pipeline service fills it.",
)
@click.option("--if-not-exists", is_flag=True, help="Succeed if it exists already.")
@bootstrap_option
def create(
    name: str,
    partitions: int | None,
    replication_factor: int | None,
    configs: tuple[str, ...],
    table: str | None,
    if_not_exists: bool,
    bootstrap: Bootstrap,
) -> None:
    """Create the topic NAME.

    With --table, the pipeline table-NAME of the service ('barnabas pipeline serve') writes every record into
    a Delta or Iceberg table. Options of the pipeline follow a question mark, as in
    'delta:/lake/orders?schema=id BIGINT, name STRING'.
    """
    settings = parse_pairs(configs, "--config")
    if table is not None:
        settings = {**settings, TABLE: checked_table(name, table)}

    async def action(admin: Admin) -> str:
        try:
            await admin.create_topics([NewTopic(name, partitions or -1, replication_factor or -1, settings)])
        except TopicAlreadyExists:
            if not if_not_exists:
                raise
            return f"topic {name} exists already"
        await admin.wait_until_known(name)  # the next command may ask another broker
        kept = "" if TABLE not in settings else f"; {kept_table(name, settings[TABLE])}"
        return f"created topic {name}{kept}"

    click.echo(run(bootstrap, action))


@topic.command(name="list")
@click.option("--internal", is_flag=True, help="Include internal topics.")
@json_option
@bootstrap_option
def list_(internal: bool, as_json: bool, bootstrap: Bootstrap) -> None:
    """List the topics, one per line."""
    shown = run(bootstrap, lambda admin: admin.list_topics(include_internal=internal))
    if as_json:
        print_json([{"name": each.name, "partitions": len(each.partitions)} for each in shown])
        return
    for each in shown:
        click.echo(each.name)


@topic.command(short_help="Show partitions, replicas and settings of topics.")
@click.argument("names", nargs=-1, shell_complete=complete_topic)
@click.option("--internal", is_flag=True, help="Without NAMES: include internal topics.")
@json_option
@bootstrap_option
def describe(names: tuple[str, ...], internal: bool, as_json: bool, bootstrap: Bootstrap) -> None:
    """Show partitions, replicas and settings of the topics NAMES, or of all."""

    async def action(admin: Admin) -> list[tuple[Topic, dict[str, str]]]:
        if names:
            shown = list((await admin.describe_topics(names)).values())
        else:
            shown = await admin.list_topics(include_internal=internal)
        return [(each, await _own_settings(admin, each.name)) for each in shown]

    described = run(bootstrap, action)
    if as_json:
        print_json([_as_json(each, settings) for each, settings in described])
        return
    for each, settings in described:
        click.echo(f"{each.name}  id {each.topic_id}  partitions {len(each.partitions)}")
        if settings:
            click.echo("  " + "  ".join(f"{key}={value}" for key, value in settings.items()))
        if TABLE in settings:
            click.echo(f"  {kept_table(each.name, settings[TABLE])}")
        print_table(
            ("partition", "leader", "replicas", "isr"),
            [
                (str(at.index), _leader(at.leader_id), _ids(at.replicas), _ids(at.isr))
                for at in each.partitions
            ],
        )


@topic.command(short_help="Show the offsets and the size of each partition of NAME.")
@click.argument("name", shell_complete=complete_topic)
@json_option
@bootstrap_option
def offsets(name: str, as_json: bool, bootstrap: Bootstrap) -> None:
    """Show first offset, next offset and size on the leader's disk of every partition of NAME."""
    sizes = run(bootstrap, lambda admin: partition_sizes(admin.cluster, name))
    if as_json:
        print_json([asdict(each) for each in sizes])
        return
    rows = [(each.partition, each.start_offset, each.end_offset, each.size_bytes) for each in sizes]
    print_table(("partition", "begins at", "next", "bytes"), [tuple(map(str, row)) for row in rows])


@topic.command()
@click.argument("name", shell_complete=complete_topic)
@click.option(
    "--partitions",
    type=click.IntRange(min=1),
    metavar="N",
    help="New number of partitions; it can only grow.",
)
@click.option("--config", "configs", multiple=True, metavar="KEY=VALUE", help="Set a setting.")
@click.option(
    "--delete-config", "removals", multiple=True, metavar="KEY", help="Return a setting to its default."
)
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

    async def action(admin: Admin) -> None:
        if changes or removals:
            await admin.alter_configs({(ResourceType.TOPIC, name): {**changes, **dict.fromkeys(removals)}})
        if partitions is not None:
            await admin.create_partitions({name: partitions})

    run(bootstrap, action)
    click.echo(f"altered topic {name}")


@topic.command()
@click.argument("names", nargs=-1, shell_complete=complete_topic, required=True)
@click.option("--if-exists", is_flag=True, help="Succeed if it does not exist.")
@click.option(
    "--force", is_flag=True, help="Delete internal topics too, with the state of the cluster in them."
)
@click.option(
    "--table",
    "of_table",
    type=click.Choice([KEEP, REMOVE]),
    help="Whether the tables of the topics stay. Without it, the command asks.",
)
@bootstrap_option
@click.pass_context
def delete(
    ctx: click.Context,
    names: tuple[str, ...],
    if_exists: bool,
    force: bool,
    of_table: str | None,
    bootstrap: Bootstrap,
) -> None:
    """Delete the topics NAMES and all their records.

    A topic that is kept as a table (barnabas.table) loses its pipeline. Its table stays, or is removed too:
    the command asks, or --table says.

    Internal topics hold the state of the cluster: __consumer_offsets has all consumer groups with their
    offsets, __transaction_state all transactions. Only --force deletes them.
    """
    internal = [name for name in names if name in INTERNAL_TOPICS]
    if internal and not force:
        raise click.UsageError(_internal_topics_kept(internal))

    tables = {name: setting for name, setting in _tables_of(names, bootstrap).items() if setting}
    fates = {name: of_table or asked_fate(name, setting) for name, setting in tables.items()}
    service = service_of(ctx)

    async def action(admin: Admin) -> None:
        for name in names:
            try:
                if name in tables:
                    await _delete_with_pipeline(admin, name, tables[name], service)
                else:
                    await admin.delete_topics([name])
            except UnknownTopicOrPartition:
                if not if_exists:
                    raise
                click.echo(f"there is no topic {name}")
            else:
                click.echo(f"deleted topic {name}")
                if name in tables:
                    click.echo(removed(tables[name]) if fates[name] == REMOVE else f"{tables[name]} stays")

    run(bootstrap, action)


def _tables_of(names: tuple[str, ...], bootstrap: Bootstrap) -> dict[str, str | None]:
    """The setting `barnabas.table` of each topic."""

    async def action(admin: Admin) -> dict[str, str | None]:
        found: dict[str, str | None] = {}
        for name in names:
            topic = (ResourceType.TOPIC, name)
            with suppress(KafkaError):  # the deletion itself reports what is wrong
                settings = (await admin.describe_configs([topic], [TABLE]))[topic]
                found[name] = next((each.value for each in settings if each.name == TABLE), None)
        return found

    return run(bootstrap, action)


async def _delete_with_pipeline(admin: Admin, name: str, setting: str, service: Service) -> None:
    """Delete a topic after its pipeline, which could otherwise write into a table that is removed."""
    topic = (ResourceType.TOPIC, name)
    await admin.alter_configs({topic: {TABLE: None}})
    try:
        await asyncio.to_thread(wait_for_end, pipeline_of(name), service)
        await admin.delete_topics([name])
    except BaseException:
        with suppress(KafkaError):
            await admin.alter_configs({topic: {TABLE: setting}})
        raise


def _internal_topics_kept(names: list[str]) -> str:
    lost = "; ".join(f"{name} holds {_LOST_WITH[name]}" for name in names)
    return f"internal topics are not deleted without --force: {lost}"


async def _own_settings(admin: Admin, name: str) -> dict[str, str]:
    """Settings of the topic itself, without defaults."""
    topic = (ResourceType.TOPIC, name)
    settings = (await admin.describe_configs([topic]))[topic]
    return {each.name: each.value or "" for each in settings if each.source == "topic"}


def _as_json(each: Topic, settings: dict[str, str]) -> dict[str, Any]:
    return {
        "name": each.name,
        "topic_id": str(each.topic_id),
        "is_internal": each.is_internal,
        "configs": settings,
        "table": settings.get(TABLE),
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
