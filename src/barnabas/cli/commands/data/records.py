"""`barnabas records`: delete a topic's oldest records."""

from __future__ import annotations

import click

from barnabas.cli.records.partitions import partitions_of
from barnabas.cli.support.arguments import parse_timestamp
from barnabas.cli.support.completion import complete_topic
from barnabas.cli.support.output import json_option, print_json, print_table
from barnabas.cli.support.session import Bootstrap, bootstrap_option, run
from barnabas.client.admin.admin import Admin
from barnabas.core.errors import OffsetOutOfRange
from barnabas.core.ids import TopicPartition
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

    async def action(admin: Admin) -> dict[TopicPartition, int]:
        wanted = await partitions_of(admin, topic, partitions)
        before = await admin.list_offsets(dict.fromkeys(wanted, LATEST))
        if before_offset is not None:
            short = [f"{at.partition} ends at {end}" for at, end in before.items() if end < before_offset]
            if short:
                raise OffsetOutOfRange(
                    f"no record was deleted: some partitions of {topic} end before offset {before_offset} "
                    f"({', '.join(short)}); choose with --partition"
                )
            before = dict.fromkeys(wanted, before_offset)
        if since_ms is not None:
            later = await admin.list_offsets(dict.fromkeys(wanted, since_ms))
            before = {at: first if first >= 0 else before[at] for at, first in later.items()}
        return await admin.delete_records(before)

    starts = sorted((at.partition, start) for at, start in run(bootstrap, action).items())
    if as_json:
        print_json([{"partition": partition, "start_offset": start} for partition, start in starts])
    else:
        print_table(("partition", "begins at"), [(str(partition), str(start)) for partition, start in starts])
