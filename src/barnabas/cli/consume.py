"""`barnabas consume`: a topic's records on standard output."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable

import click

from barnabas.cli.exits import Failure
from barnabas.cli.json_records import dump_record
from barnabas.cli.moments import parse_timestamp
from barnabas.cli.names import complete_group, complete_topic
from barnabas.cli.session import Bootstrap, bootstrap_option, run
from barnabas.client.cluster_client import ClusterClient
from barnabas.client.consumer import Consumer, Fetched, list_offsets
from barnabas.client.group_member import GroupMember
from barnabas.protocol.offset_numbers import EARLIEST, LATEST

Render = Callable[[Fetched], bytes]

TELL_AFTER_S = 1.5
"""A rebalance takes as long as its slowest member: whoever waits is told for what."""


@click.command()
@click.argument("topic", shell_complete=complete_topic)
@click.option("--from-beginning", is_flag=True, help="Begin with the oldest record, not with the next.")
@click.option("--offset", type=int, help="Begin at this offset; -N is N records before the end.")
@click.option("--timestamp", metavar="ISO|MS", help="Begin with the first record of that time or later.")
@click.option("--partition", "partitions", type=click.IntRange(min=0), multiple=True, metavar="N",
    help="Only this one; may be given several times.")  # fmt: skip
@click.option("--group", metavar="NAME", shell_complete=complete_group,
    help="Read as a member of this group: begin where it stands, and commit what was printed.")  # fmt: skip
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="Stop after so many records.")
@click.option("--timeout", "timeout_s", type=click.FloatRange(min=0), metavar="SECONDS",
    help="Stop when nothing came for so long.")  # fmt: skip
@click.option("--committed", is_flag=True, help="Leave out records of open and aborted transactions.")
@click.option("--keys", is_flag=True, help="Print the key and a tab before each value.")
@click.option("--headers", is_flag=True, help="Print headers and a tab before each value.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one record a line.")
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

    It begins with whatever is written next, and goes on until Ctrl-C, --count or --timeout. With --group it
    begins where the group stands; where that is nowhere, with what is written next, or --from-beginning.
    """
    if group is not None and (partitions or offset is not None or timestamp is not None):
        raise click.UsageError("--group begins where the group stands, in partitions that the group gives it")
    if sum((from_beginning, offset is not None, timestamp is not None)) > 1:
        raise click.UsageError("--from-beginning, --offset and --timestamp exclude each other")
    since_ms = None if timestamp is None else parse_timestamp(timestamp, "--timestamp")
    render: Render = _json_renderer(topic) if as_json else _text_renderer(keys, headers)

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


def _tell_of_joining(group: str) -> None:
    click.echo(f"waiting for the members of group {group} to come together …", err=True)


class Printer:
    """Records on standard output, until there were enough or none came for too long."""

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
        """What came before, such as joining a group, was no silence of the topic."""
        self._last_ms = self._clock.monotonic_ms()

    def print(self, records: list[Fetched]) -> list[Fetched]:
        """Those that were printed: at most as many as are still wanted."""
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
            told = asyncio.get_running_loop().call_later(TELL_AFTER_S, _tell_of_joining, group)
            try:
                partitions = await member.join()
            finally:
                told.cancel()
            begin = await list_offsets(cluster, topic, partitions, EARLIEST if from_beginning else LATEST)
            stands = await member.committed(partitions)
            # Were it nowhere until the first record is read, what is written while members come and go,
            # or between two readings, would be behind the end that is looked up next.
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
    """Where to begin in each partition; an offset outside a partition is refused here, by name."""
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


def _json_renderer(topic: str) -> Render:
    return lambda each: dump_record(topic, each.partition, each.record).encode() + b"\n"


def _text_renderer(keys: bool, headers: bool) -> Render:
    def render(each: Fetched) -> bytes:
        record = each.record
        fields = []
        if headers:
            pairs = (key.encode(errors="replace") + b"=" + (value or b"") for key, value in record.headers)
            fields.append(b",".join(pairs))
        if keys:
            fields.append(b"null" if record.key is None else record.key)
        fields.append(b"null" if record.value is None else record.value)
        return b"\t".join(fields) + b"\n"

    return render
