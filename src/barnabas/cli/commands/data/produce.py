"""`barnabas produce`: write lines of standard input as records."""

from __future__ import annotations

import sys

import click

from barnabas.cli.support.arguments import parse_pairs
from barnabas.cli.support.completion import complete_topic
from barnabas.cli.support.exit_codes import Failure
from barnabas.cli.support.record_lines import Parse, json_parser, text_parser
from barnabas.cli.support.session import Bootstrap, bootstrap_option, run
from barnabas.cli.support.stdin_lines import LineTooLong, read_lines
from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.aio.producer import OutgoingRecord, Producer
from barnabas.core.errors import InvalidPartitions
from barnabas.records.compression import Codec

ACKS = {"all": -1, "-1": -1, "1": 1, "0": 0}
CODECS = {codec.name.lower(): codec for codec in Codec}


@click.command()
@click.argument("topic", shell_complete=complete_topic)
@click.option(
    "--key-separator", metavar="SEP", help=r"Separator of key and value on each line, such as '\t'."
)
@click.option("--header", "headers", multiple=True, metavar="KEY=VALUE", help="A header of every record.")
@click.option("--partition", type=click.IntRange(min=0), metavar="N", help="Write to this partition only.")
@click.option(
    "--codec",
    type=click.Choice(list(CODECS)),
    default="none",
    show_default=True,
    help="Compress the batches.",
)
@click.option("--acks", type=click.Choice(list(ACKS)), default="all", show_default=True,
    help="Required acknowledgements: all in-sync replicas, the leader, or none.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Lines are JSON: key, value, headers, timestamp.")
@click.option("--quiet", is_flag=True, help="Do not print the number of records.")
@bootstrap_option
def produce(
    topic: str,
    key_separator: str | None,
    headers: tuple[str, ...],
    partition: int | None,
    codec: str,
    acks: str,
    as_json: bool,
    quiet: bool,
    bootstrap: Bootstrap,
) -> None:
    """Write lines of standard input to a topic.

    A line is the value of a record, or key and value with --key-separator, or a JSON object with --json. The
    topic is created if it does not exist and the broker allows that.
    """
    if as_json and key_separator is not None:
        raise click.UsageError("--json and --key-separator exclude each other: JSON lines contain their keys")
    common = [(key, value.encode()) for key, value in parse_pairs(headers, "--header").items()]
    parse = json_parser(common, partition) if as_json else text_parser(key_separator, common, partition)

    async def action(cluster: ClusterClient) -> int:
        producer = Producer(cluster, acks=ACKS[acks], codec=CODECS[codec])
        first, sent = 1, 0
        try:
            async for lines in read_lines(sys.stdin.fileno()):
                records = [_parse(parse, line, number) for number, line in enumerate(lines, first)]
                first += len(lines)
                sent += await producer.send(topic, records)
        except LineTooLong as error:
            raise Failure(f"standard input, after line {first - 1}: {error}") from None
        if not sent:
            await _check_target(cluster, topic, partition)
        return sent

    sent = run(bootstrap, action)
    if not quiet:
        click.echo(f"wrote {sent} record{'' if sent == 1 else 's'} to {topic}", err=True)


async def _check_target(cluster: ClusterClient, topic: str, partition: int | None) -> None:
    """Check topic and partition when no record was written to show that they exist."""
    count = len((await cluster.topic(topic)).partitions)
    if partition is not None and partition >= count:
        raise InvalidPartitions(f"{topic} has partitions 0 to {count - 1}, not {partition}")


def _parse(parse: Parse, line: bytes, number: int) -> OutgoingRecord:
    try:
        return parse(line)
    except ValueError as error:
        raise Failure(f"line {number} of standard input: {error}") from None
