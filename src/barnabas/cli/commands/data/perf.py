"""`barnabas perf`: measure producing, consuming, and the way from one to the other."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import click

from barnabas.cli.commands.data.consume import consuming
from barnabas.cli.commands.data.produce import producer_of, producer_options
from barnabas.cli.perf.measurement import Measurement
from barnabas.cli.perf.report import report
from barnabas.cli.perf.workloads import STAMP, RoundTrips, read_to_end, send_all
from barnabas.cli.records.partitions import check_partition, partitions_of
from barnabas.cli.support.completion import complete_group, complete_topic
from barnabas.cli.support.session import Bootstrap, bootstrap_option, run
from barnabas.client.admin.admin import Admin
from barnabas.client.config.consumer_keys import CONSUMER_KEYS
from barnabas.client.config.producer_keys import PRODUCER_KEYS


@click.group()
def perf() -> None:
    """Measure producing, consuming and the latency between them."""


def _report_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the form of the report."""
    command = click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)
    command = click.option("--plot/--no-plot", default=None, help="Draw a plot.  [default: on a terminal]")(
        command
    )
    return click.option("--quiet", is_flag=True, help="Print no progress.")(command)


def _load_options(records: int, size: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add the number of records, their size and their rate."""

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in (
            click.option("--rate", type=click.FloatRange(min=0, min_open=True), metavar="N",
                help="Records a second.  [default: as fast as it goes]"),
            click.option("--size", type=click.IntRange(1, 1 << 20), default=size, show_default=True,
                metavar="BYTES", help="Size of a value."),
            click.option("--records", type=click.IntRange(min=1), default=records, show_default=True,
                metavar="N", help="Number of records."),
        ):  # fmt: skip
            command = option(command)
        return command

    return add


@perf.command(name="produce")
@click.argument("topic", shell_complete=complete_topic)
@_load_options(records=100_000, size=100)
@click.option("--keys", type=click.IntRange(min=1), metavar="N", help="Records have one of N keys.")
@producer_options
@_report_options
@bootstrap_option
def produce_(
    topic: str,
    records: int,
    size: int,
    rate: float | None,
    keys: int | None,
    codec: str | None,
    acks: str | None,
    linger_ms: int | None,
    batch_size: int | None,
    as_json: bool,
    plot: bool | None,
    quiet: bool,
    bootstrap: Bootstrap,
) -> None:
    """Write records of random letters to TOPIC. The latency is from send to acknowledgement."""
    config = bootstrap.config(
        PRODUCER_KEYS,
        compression_type=codec,
        acks="all" if acks == "-1" else acks,
        linger_ms=linger_ms,
        batch_size=batch_size,
    )

    async def action(admin: Admin) -> Measurement:
        await check_partition(admin, topic, None, auto_create=True)
        measured = Measurement()
        producer = producer_of(config)
        await producer.start()
        try:
            async with measured.running(quiet=quiet):
                await send_all(producer, topic, measured, records=records, size=size, rate=rate, keys=keys)
        finally:
            await producer.close(0)
        return measured

    measured = run(bootstrap, action, announces_itself=True)
    report(measured, latency_of="send to acknowledgement", as_json=as_json, plot=_draws(plot))


@perf.command(name="consume")
@click.argument("topic", shell_complete=complete_topic)
@click.option("--records", type=click.IntRange(min=1), metavar="N",
    help="Stop after N records.  [default: at the present end]")  # fmt: skip
@click.option("--group", metavar="NAME", shell_complete=complete_group,
    help="Read as a member of this group; needs --records.")  # fmt: skip
@click.option("--committed", is_flag=True, help="Omit records of open and aborted transactions.")
@_report_options
@bootstrap_option
def consume_(
    topic: str,
    records: int | None,
    group: str | None,
    committed: bool,
    as_json: bool,
    plot: bool | None,
    quiet: bool,
    bootstrap: Bootstrap,
) -> None:
    """Read TOPIC from its beginning. The latency is that of one poll, of up to 500 records."""
    if group is not None and records is None:
        raise click.UsageError("--group needs --records: a group has no end")
    config = bootstrap.config(
        CONSUMER_KEYS,
        group_id=group,
        auto_offset_reset="earliest",
        isolation_level="read_committed" if committed else None,
    )

    async def action(admin: Admin) -> Measurement:
        wanted = await partitions_of(admin, topic)
        measured = Measurement()
        async with consuming(config) as consumer:
            if group is None:
                await consumer.assign(wanted)
                await consumer.seek_to_beginning()
            else:
                await consumer.subscribe([topic])
            ends = await consumer.end_offsets(wanted) if records is None else {}
            async with measured.running(quiet=quiet):
                await read_to_end(consumer, measured, records, ends)
        return measured

    measured = run(bootstrap, action, announces_itself=True)
    report(measured, latency_of="poll", as_json=as_json, plot=_draws(plot))


@perf.command(name="end-to-end")
@click.argument("topic", shell_complete=complete_topic)
@_load_options(records=1_000, size=100)
@click.option(
    "--acks", type=click.Choice(["all", "1", "0"]), help="Required acknowledgements.  [default: all]"
)
@_report_options
@bootstrap_option
def end_to_end(
    topic: str,
    records: int,
    size: int,
    rate: float | None,
    acks: str | None,
    as_json: bool,
    plot: bool | None,
    quiet: bool,
    bootstrap: Bootstrap,
) -> None:
    """Write records to TOPIC and read them back. The latency is from send to the consumer.

    Without --rate the next record is sent when the last one has arrived.
    """
    if size < STAMP.size:
        raise click.BadParameter(
            f"a value holds its time of sending: {STAMP.size} bytes", param_hint="--size"
        )
    sending = bootstrap.config(PRODUCER_KEYS, acks=acks, linger_ms=0)
    reading = bootstrap.config(CONSUMER_KEYS, fetch_min_bytes=1)

    async def action(admin: Admin) -> Measurement:
        await check_partition(admin, topic, None, auto_create=True)
        wanted = await partitions_of(admin, topic)
        measured = Measurement()
        producer = producer_of(sending)
        await producer.start()
        try:
            async with consuming(reading) as consumer:
                await consumer.assign(wanted)
                for at, end in (await consumer.end_offsets(wanted)).items():
                    consumer.seek(at, end)
                await consumer.poll()
                async with measured.running(quiet=quiet):
                    await RoundTrips(producer, consumer, topic, measured, size).run(records, rate)
        finally:
            await producer.close(0)
        return measured

    measured = run(bootstrap, action, announces_itself=True)
    report(measured, latency_of="send to consumer", as_json=as_json, plot=_draws(plot))


def _draws(plot: bool | None) -> bool:
    return sys.stdout.isatty() if plot is None else plot
