"""`barnabas consume`: print the records of a topic."""

from __future__ import annotations

import asyncio
import sys

import click

from barnabas.cli.support.arguments import parse_timestamp
from barnabas.cli.support.completion import complete_group, complete_topic
from barnabas.cli.support.exit_codes import Failure
from barnabas.cli.support.record_lines import Render, json_renderer, text_renderer
from barnabas.cli.support.session import Bootstrap, bootstrap_option, run
from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.aio.consumer import Consumer, Fetched, list_offsets
from barnabas.client.group_member import GroupMember
from barnabas.protocol.offset_numbers import EARLIEST, LATEST

NOTICE_AFTER_S = 1.5
"""A rebalance takes as long as its slowest member, so the wait is announced."""


@click.command()
@click.argument("topic", shell_complete=complete_topic)
@click.option("--from-beginning", is_flag=True, help="Start at the oldest record instead of the end.")
@click.option("--offset", type=int, help="Start at this offset; -N is N records before the end.")
@click.option("--timestamp", metavar="ISO|MS", help="Start at the first record of that time or later.")
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
@bootstrap_option
def consume(
    topic: str,
    from_beginning: bool,
    offset: int | None,
    timestamp: str | None,
    partitions: tuple[int, ...],
    group: str | None,
    count: int | None,
    timeout_s: float | None,
    committed: bool,
    keys: bool,
    headers: bool,
    as_json: bool,
    bootstrap: Bootstrap,
) -> None:
    """Print the records of a topic, and follow it.

    Reading starts at the end of the topic, and goes on until Ctrl-C, --count or --timeout. With --group it
    starts at the group's offsets. Where there are none, it starts at the end, or at the beginning with
    --from-beginning.
    """
    if group is not None and (partitions or offset is not None or timestamp is not None):
        raise click.UsageError("--group excludes --offset, --timestamp and --partition")
    if sum((from_beginning, offset is not None, timestamp is not None)) > 1:
        raise click.UsageError("--from-beginning, --offset and --timestamp exclude each other")
    since_ms = None if timestamp is None else parse_timestamp(timestamp, "--timestamp")
    render = json_renderer(topic) if as_json else text_renderer(keys=keys, headers=headers)

    async def action(cluster: ClusterClient) -> None:
        found = await cluster.topic(topic)
        printer = Printer(cluster, render, count, timeout_s)
        if group is not None:
            await _consume_in_group(cluster, topic, group, printer, from_beginning, committed)
            return
        indexes = sorted(set(partitions)) or [at.index for at in found.partitions]
        if indexes[-1] >= len(found.partitions):
            raise Failure(f"{topic} has partitions 0 to {len(found.partitions) - 1}, not {indexes[-1]}")
        positions = await _positions(cluster, topic, indexes, from_beginning, offset, since_ms)
        async with Consumer(cluster, topic, positions, read_committed=committed) as consumer:
            while not printer.is_done:
                printer.print(await consumer.poll())

    run(bootstrap, action)


def _announce_rebalance(group: str) -> None:
    click.echo(f"waiting for the rebalance of group {group} …", err=True)


class Printer:
    """Printer of records, with the limits of --count and --timeout."""

    def __init__(
        self, cluster: ClusterClient, render: Render, count: int | None, timeout_s: float | None
    ) -> None:
        self._clock = cluster.clock
        self._render = render
        self._left = count
        self._timeout_s = timeout_s
        self._last_ms = self._clock.monotonic_ms()
        self.is_done = False

    def begin_waiting(self) -> None:
        """Start the timeout. The time before it, such as a rebalance, does not count."""
        self._last_ms = self._clock.monotonic_ms()

    def print(self, records: list[Fetched]) -> list[Fetched]:
        """Print records, at most as many as --count leaves; returns the printed ones."""
        if self._left is not None:
            records = records[: self._left]
            self._left -= len(records)
        if records:
            sys.stdout.buffer.write(b"".join([self._render(each) for each in records]))
            sys.stdout.buffer.flush()
            self._last_ms = self._clock.monotonic_ms()
        quiet_ms = self._clock.monotonic_ms() - self._last_ms
        is_quiet = not records and self._timeout_s is not None and quiet_ms >= self._timeout_s * 1_000
        self.is_done = self._left == 0 or is_quiet
        return records


async def _consume_in_group(
    cluster: ClusterClient, topic: str, group: str, printer: Printer, from_beginning: bool, committed: bool
) -> None:
    async with GroupMember(cluster, group, topic) as member:
        while not printer.is_done:
            notice = asyncio.get_running_loop().call_later(NOTICE_AFTER_S, _announce_rebalance, group)
            try:
                partitions = await member.join()
            finally:
                notice.cancel()
            begin = await list_offsets(cluster, topic, partitions, EARLIEST if from_beginning else LATEST)
            stands = await member.committed(partitions)
            # Commit the start position at once. Otherwise records written during a rebalance, or between two
            # runs, would lie before the end that the next lookup finds.
            await member.commit({each: offset for each, offset in begin.items() if each not in stands})
            positions = begin | stands
            printer.begin_waiting()
            async with Consumer(cluster, topic, positions, read_committed=committed) as consumer:
                while not printer.is_done and not member.must_rejoin.is_set():
                    printed = printer.print(await consumer.poll())
                    if printed:
                        await member.commit({each.partition: each.record.offset + 1 for each in printed})


async def _positions(
    cluster: ClusterClient,
    topic: str,
    partitions: list[int],
    from_beginning: bool,
    offset: int | None,
    since_ms: int | None,
) -> dict[int, int]:
    """Start offset of each partition. An offset outside a partition is an error that names the partition."""
    if from_beginning:
        return await list_offsets(cluster, topic, partitions, EARLIEST)
    ends = await list_offsets(cluster, topic, partitions, LATEST)
    if since_ms is not None:
        found = await list_offsets(cluster, topic, partitions, since_ms)
        return {index: at if at >= 0 else ends[index] for index, at in found.items()}
    if offset is None:
        return ends
    starts = await list_offsets(cluster, topic, partitions, EARLIEST)
    if offset < 0:
        return {index: max(starts[index], end + offset) for index, end in ends.items()}
    for index, end in ends.items():
        if not starts[index] <= offset <= end:
            raise Failure(f"partition {index} of {topic} has offsets {starts[index]} to {end}, not {offset}")
    return dict.fromkeys(partitions, offset)
