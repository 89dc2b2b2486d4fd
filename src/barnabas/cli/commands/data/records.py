"""`barnabas records`: delete a topic's oldest records."""

from __future__ import annotations

import click

from barnabas.cli.support.arguments import parse_timestamp
from barnabas.cli.support.completion import complete_topic
from barnabas.cli.support.exit_codes import Failure
from barnabas.cli.support.output import json_option, print_json, print_table
from barnabas.cli.support.session import Bootstrap, bootstrap_option, run
from barnabas.client.admin.topic_records import delete_records
from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.aio.consumer import list_offsets
from barnabas.core.errors import OffsetOutOfRange
from barnabas.protocol.offset_numbers import LATEST


@click.group()
def records() -> None:
    """Delete the oldest records of a topic."""


@records.command()
@click.argument("topic", shell_complete=complete_topic)
@click.option("--before-offset", type=click.IntRange(min=0), metavar="N", help="Records before this offset.")
@click.option("--before-time", metavar="ISO|MS", help="Records before the first one of that time or later.")
@click.option("--all", "everything", is_flag=True, help="All current records.")
@click.option("--partition", "partitions", type=click.IntRange(min=0), multiple=True, metavar="N",
    help="Only this partition; may be given several times.")  # fmt: skip
@json_option
@bootstrap_option
def delete(
    topic: str,
    before_offset: int | None,
    before_time: str | None,
    everything: bool,
    partitions: tuple[int, ...],
    as_json: bool,
    bootstrap: Bootstrap,
) -> None:
    """Delete records from the start of TOPIC's partitions. They cannot be restored."""
    if sum((before_offset is not None, before_time is not None, everything)) != 1:
        raise click.UsageError("give exactly one of --before-offset, --before-time and --all")
    since_ms = None if before_time is None else parse_timestamp(before_time, "--before-time")

    async def action(cluster: ClusterClient) -> dict[int, int]:
        found = await cluster.topic(topic)
        indexes = sorted(set(partitions)) or [at.index for at in found.partitions]
        if indexes[-1] >= len(found.partitions):
            raise Failure(f"{topic} has partitions 0 to {len(found.partitions) - 1}, not {indexes[-1]}")
        before = await list_offsets(cluster, topic, indexes, LATEST)
        if before_offset is not None:
            short = [f"{index} ends at {end}" for index, end in sorted(before.items()) if end < before_offset]
            if short:
                raise OffsetOutOfRange(
                    f"no record was deleted: some partitions of {topic} end before offset {before_offset} "
                    f"({', '.join(short)}); choose with --partition"
                )
            before = dict.fromkeys(indexes, before_offset)
        if since_ms is not None:
            later = await list_offsets(cluster, topic, indexes, since_ms)
            before = {index: at if at >= 0 else before[index] for index, at in later.items()}
        return await delete_records(cluster, topic, before)

    starts = sorted(run(bootstrap, action).items())
    if as_json:
        print_json([{"partition": partition, "start_offset": start} for partition, start in starts])
    else:
        print_table(("partition", "begins at"), [(str(partition), str(start)) for partition, start in starts])
