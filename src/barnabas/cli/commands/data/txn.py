"""`barnabas txn`: list, describe, hanging, abort."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import click

from barnabas.cli.support.completion import complete_topic
from barnabas.cli.support.exit_codes import NotFound
from barnabas.cli.support.output import json_option, print_json, print_table
from barnabas.cli.support.session import Bootstrap, bootstrap_option, run
from barnabas.client.admin.admin import Admin
from barnabas.client.admin.transactions import OpenTransaction, TransactionDescription
from barnabas.core.ids import TopicPartition

STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")


@click.group()
def txn() -> None:
    """List and describe transactions, and abort hanging ones."""


@txn.command(name="list")
@click.option("--state", "states", multiple=True, type=click.Choice(STATES), help="Only in this state.")
@click.option("--longer-than-ms", type=int, default=-1, help="Only transactions that run longer than this.")
@json_option
@bootstrap_option
def list_(states: tuple[str, ...], longer_than_ms: int, as_json: bool, bootstrap: Bootstrap) -> None:
    """List the transactional ids."""
    found = run(
        bootstrap, lambda admin: admin.list_transactions(states=states, longer_than_ms=longer_than_ms)
    )
    if as_json:
        print_json([asdict(each) for each in found])
        return
    print_table(
        ("transactional id", "producer id", "state", "coordinator"),
        [
            (each.transactional_id, str(each.producer_id), each.state, str(each.coordinator_id))
            for each in found
        ],
    )


@txn.command()
@click.argument("ids", nargs=-1, required=True)
@json_option
@bootstrap_option
def describe(ids: tuple[str, ...], as_json: bool, bootstrap: Bootstrap) -> None:
    """Show the coordinator's state of the transactional IDS."""

    async def action(admin: Admin) -> list[TransactionDescription]:
        found = await admin.describe_transactions(ids)
        return [found[each] for each in ids]

    described = run(bootstrap, action)
    if as_json:
        print_json([_description_as_json(each) for each in described])
        return
    for each in described:
        click.echo(
            f"{each.transactional_id}  {each.state}  producer {each.producer_id} epoch {each.producer_epoch}"
            f"  coordinator {each.coordinator_id}  timeout {each.timeout_ms} ms"
            f"  began {_moment(each.start_timestamp_ms)}"
        )
        if each.partitions:
            print_table(("topic", "partition"), [(topic, str(number)) for topic, number in each.partitions])


@txn.command(short_help="Find hanging transactions, which no coordinator will end.")
@click.argument("topics", nargs=-1)
@json_option
@bootstrap_option
def hanging(topics: tuple[str, ...], as_json: bool, bootstrap: Bootstrap) -> None:
    """Find hanging transactions, which no coordinator will end, in TOPICS or in all topics."""

    async def action(admin: Admin) -> list[OpenTransaction]:
        every = await admin.list_topics(include_internal=True)
        return await admin.find_hanging_transactions(topics or [each.name for each in every])

    found = run(bootstrap, action)
    if as_json:
        print_json([_open_as_json(each) for each in found])
        return
    print_table(
        ("topic", "partition", "producer id", "epoch", "start offset", "last written"),
        [
            (
                each.topic_partition.topic,
                str(each.topic_partition.partition),
                str(each.producer_id),
                str(each.producer_epoch),
                str(each.start_offset),
                _moment(each.last_timestamp_ms),
            )
            for each in found
        ],
    )


@txn.command(short_help="Abort the transaction that is open in a partition.")
@click.argument("topic", shell_complete=complete_topic)
@click.argument("partition", type=int)
@click.option(
    "--start-offset", type=int, required=True, help="First offset of the transaction in the partition."
)
@bootstrap_option
def abort(topic: str, partition: int, start_offset: int, bootstrap: Bootstrap) -> None:
    """Abort the transaction that is open in PARTITION of TOPIC since the start offset.

    The abort marker goes to this partition only. Use it for hanging transactions. A transaction that its
    coordinator knows should be ended by its producer or by its timeout.
    """

    async def action(admin: Admin) -> OpenTransaction:
        at = TopicPartition(topic, partition)
        for each in (await admin.describe_producers([at]))[at]:
            if each.start_offset == start_offset:
                await admin.abort_transaction(each)
                return each
        raise NotFound(f"no transaction is open in {topic}-{partition} since offset {start_offset}")

    aborted = run(bootstrap, action)
    click.echo(f"aborted the transaction of producer {aborted.producer_id} in {topic}-{partition}")


def _moment(timestamp_ms: int) -> str:
    if timestamp_ms < 0:
        return "-"
    return datetime.fromtimestamp(timestamp_ms / 1_000, UTC).isoformat(timespec="milliseconds")


def _description_as_json(description: TransactionDescription) -> dict[str, Any]:
    partitions = [each._asdict() for each in description.partitions]
    return {**asdict(description), "partitions": partitions}


def _open_as_json(transaction: OpenTransaction) -> dict[str, Any]:
    values = asdict(transaction)
    topic, partition = values.pop("topic_partition")
    return {"topic": topic, "partition": partition, **values}
