"""`barnabas consume`: print the records of a topic."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import click

from barnabas.cli.records.partitions import partitions_of
from barnabas.cli.records.record_lines import Formats, json_renderer, text_renderer
from barnabas.cli.records.record_printing import (
    POLL_MS,
    Following,
    Printer,
    has_read_everything,
    watching_brokers,
)
from barnabas.cli.records.value_formats import FORMATS
from barnabas.cli.support.arguments import parse_moment
from barnabas.cli.support.completion import complete_group, complete_topic
from barnabas.cli.support.exit_codes import Failure, InvalidSettings
from barnabas.cli.support.session import Bootstrap, bootstrap_option, run
from barnabas.client.admin.admin import Admin
from barnabas.client.config.consumer_keys import CONSUMER_KEYS
from barnabas.client.consumer.consumer import Consumer
from barnabas.client.consumer.listener import RebalanceListener
from barnabas.client.core.client_errors import CommitFailed
from barnabas.core.errors import InvalidConfig
from barnabas.core.ids import TopicPartition
from barnabas.protocol.offset_numbers import EARLIEST, LATEST

NOTICE_AFTER_S = 1.5
"""A rebalance takes as long as its slowest member, so the wait is announced."""
CLOSE_TIMEOUT_MS = 2_000


class Bounds(NamedTuple):
    """Start and end of the reading."""

    from_beginning: bool
    offset: int | None
    since_ms: int | None
    until_ms: int | None
    to_end: bool


@click.command()
@click.argument("topic", shell_complete=complete_topic)
@click.option("--from-beginning", is_flag=True, help="Start at the oldest record instead of the end.")
@click.option("--offset", type=int, help="Start at this offset; -N is N records before the end.")
@click.option("--since", "--timestamp", metavar="TIME",
    help="Start at the first record of this time (10m ago, ISO 8601, ms since 1970) or later.")  # fmt: skip
@click.option("--until", metavar="TIME", help="Stop before the first record of this time or later.")
@click.option("--to-end", is_flag=True, help="Stop at the present end of each partition.")
@click.option("--partition", "partitions", type=click.IntRange(min=0), multiple=True, metavar="N",
    help="Only this partition; may be given several times.")  # fmt: skip
@click.option("--group", metavar="NAME", shell_complete=complete_group,
    help="Join this group: start at its offsets, and commit the printed records.")  # fmt: skip
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="Stop after N records.")
@click.option("--timeout", "timeout_s", type=click.FloatRange(min=0), metavar="SECONDS",
    help="Stop after this time without a record.")  # fmt: skip
@click.option("--committed", is_flag=True, help="Omit records of open and aborted transactions.")
@click.option("--keys", is_flag=True, help="Print the key and a tab before each value.")
@click.option("--headers", is_flag=True, help="Print headers and a tab before each value.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one record per line.")
@click.option("--key-format", type=click.Choice(list(FORMATS)), default="string", show_default=True,
    help="How keys are printed.")  # fmt: skip
@click.option("--value-format", type=click.Choice(list(FORMATS)), default="string", show_default=True,
    help="How values are printed.")  # fmt: skip
@bootstrap_option
def consume(
    topic: str,
    from_beginning: bool,
    offset: int | None,
    since: str | None,
    until: str | None,
    to_end: bool,
    partitions: tuple[int, ...],
    group: str | None,
    count: int | None,
    timeout_s: float | None,
    committed: bool,
    keys: bool,
    headers: bool,
    as_json: bool,
    key_format: str,
    value_format: str,
    bootstrap: Bootstrap,
) -> None:
    """Print the records of a topic, and follow it.

    Reading starts at the end of the topic, and goes on until Ctrl-C, --count or --timeout. With --group it
    starts at the group's offsets. Where there are none, it starts at the end, or at the beginning with
    --from-beginning. --until and --to-end read from the beginning, unless a start is given.
    """
    has_start = from_beginning or offset is not None or since is not None
    bounds = Bounds(
        from_beginning or (not has_start and (until is not None or to_end)),
        offset,
        None if since is None else parse_moment(since, "--since"),
        None if until is None else parse_moment(until, "--until"),
        to_end,
    )
    if group is not None and (partitions or offset is not None or since or until or to_end):
        raise click.UsageError("--group excludes --offset, --since, --until, --to-end and --partition")
    if sum((from_beginning, offset is not None, since is not None)) > 1:
        raise click.UsageError("--from-beginning, --offset and --since exclude each other")
    formats = Formats(FORMATS[key_format], FORMATS[value_format])
    render = json_renderer(formats) if as_json else text_renderer(keys=keys, headers=headers, formats=formats)
    config = bootstrap.config(
        CONSUMER_KEYS,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest" if bounds.from_beginning else "latest",
        isolation_level="read_committed" if committed else None,
    )

    async def action(admin: Admin) -> None:
        wanted = await partitions_of(admin, topic, partitions)
        printer = Printer(render, count=count, timeout_s=timeout_s)
        async with consuming(config) as consumer, watching_brokers(admin, printer, consumer):
            if group is not None:
                await _follow_in_group(consumer, topic, group, printer)
            else:
                is_committed = config.get("isolation.level") == "read_committed"
                starts, ends = await _offsets(admin, wanted, bounds, is_committed=is_committed)
                await consumer.assign(starts)
                for at, start in starts.items():
                    consumer.seek(at, start)
                if starts:
                    await Following(consumer, printer, ends).run()

    run(bootstrap, action, announces_itself=True)


@asynccontextmanager
async def consuming(config: dict[str, Any]) -> AsyncIterator[Consumer[Any, Any]]:
    """Consumer with these settings. A setting that cannot be is wrong usage."""
    try:
        consumer: Consumer[Any, Any] = Consumer(config)
    except InvalidConfig as error:
        raise InvalidSettings(error.message) from None
    try:
        await consumer.start()
        yield consumer
    finally:
        await consumer.close(timeout_ms=CLOSE_TIMEOUT_MS)


async def _follow_in_group(consumer: Consumer[Any, Any], topic: str, group: str, printer: Printer) -> None:
    settled: Collection[TopicPartition] | None = None
    loop = asyncio.get_running_loop()
    notice = loop.call_later(NOTICE_AFTER_S, _announce_rebalance, group)
    joined = asyncio.Event()
    try:
        await consumer.subscribe([topic], listener=_Joined(joined))
        while not printer.is_full and not (printer.timed_out and await has_read_everything(consumer)):
            records = await consumer.poll(timeout_ms=POLL_MS, max_records=printer.room)
            if not joined.is_set():
                printer.begin_waiting()
                continue
            notice.cancel()
            printer.print(records)
            # The start position is committed at once. Otherwise records written during a rebalance, or
            # between two runs, would lie before the end that the next lookup finds.
            is_new = consumer.assignment != settled and consumer.is_positioned
            if records or is_new:
                await _commit(consumer)
                settled = consumer.assignment
            elif consumer.assignment != settled:
                printer.begin_waiting()
    finally:
        notice.cancel()


async def _commit(consumer: Consumer[Any, Any]) -> None:
    try:
        await consumer.commit()
    except CommitFailed as error:  # the next owner prints these records again
        click.echo(f"barnabas: {error}", err=True)


class _Joined(RebalanceListener):
    """Notes the first assignment, which may be empty."""

    def __init__(self, joined: asyncio.Event) -> None:
        self._joined = joined

    def on_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        del partitions
        self._joined.set()


def _announce_rebalance(group: str) -> None:
    click.echo(f"waiting for the rebalance of group {group} …", err=True)


Offsets = dict[TopicPartition, int]


async def _offsets(
    admin: Admin, partitions: list[TopicPartition], bounds: Bounds, *, is_committed: bool
) -> tuple[Offsets, Offsets]:
    """Start of each partition to read, and its end if reading ends there. Partitions that have nothing
    between the two are left out. An offset outside a partition is an error that names the partition.
    """
    ends = await admin.list_offsets(dict.fromkeys(partitions, LATEST), read_committed=is_committed)
    starts = await _starts(admin, partitions, bounds, ends)
    if bounds.until_ms is None and not bounds.to_end:
        return starts, {}
    if bounds.until_ms is not None:
        ends = _at_most(ends, await admin.list_offsets(dict.fromkeys(partitions, bounds.until_ms)))
    left = [at for at in partitions if starts[at] < ends[at]]
    return {at: starts[at] for at in left}, {at: ends[at] for at in left}


def _at_most(ends: Offsets, found: Offsets) -> Offsets:
    return {at: end if found[at] < 0 else min(found[at], end) for at, end in ends.items()}


async def _starts(admin: Admin, partitions: list[TopicPartition], bounds: Bounds, ends: Offsets) -> Offsets:
    if bounds.since_ms is not None:
        return _at_most(ends, await admin.list_offsets(dict.fromkeys(partitions, bounds.since_ms)))
    if bounds.offset is None and not bounds.from_beginning:
        return ends
    starts = await admin.list_offsets(dict.fromkeys(partitions, EARLIEST))
    if bounds.offset is None:
        return starts
    if bounds.offset < 0:
        return {at: max(starts[at], end + bounds.offset) for at, end in ends.items()}
    for (topic, index), end in ends.items():
        start = starts[TopicPartition(topic, index)]
        if not start <= bounds.offset <= end:
            raise Failure(f"partition {index} of {topic} has offsets {start} to {end}, not {bounds.offset}")
    return dict.fromkeys(partitions, bounds.offset)
