"""`barnabas produce`: lines of standard input become records."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import click

from barnabas.cli.exits import Failure
from barnabas.cli.json_records import parse_record
from barnabas.cli.names import complete_topic
from barnabas.cli.pairs import parse_pairs
from barnabas.cli.session import Bootstrap, bootstrap_option, run
from barnabas.cli.stdin_lines import LineTooLong, read_lines
from barnabas.client.cluster_client import ClusterClient
from barnabas.client.producer import OutgoingRecord, Producer
from barnabas.core.errors import InvalidPartitions
from barnabas.records.compression import Codec
from barnabas.records.record import Header

ACKS = {"all": -1, "-1": -1, "1": 1, "0": 0}
CODECS = {codec.name.lower(): codec for codec in Codec}
ESCAPES = {"\\t": "\t", "\\n": "\n", "\\0": "\0"}


@click.command()
@click.argument("topic", shell_complete=complete_topic)
@click.option("--key-separator", metavar="SEP", help=r"What divides key from value on each line, e.g. '\t'.")
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
    help="Who must have a record: all in-sync replicas, the leader, or nobody.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Lines are JSON: key, value, headers, timestamp.")
@click.option("--quiet", is_flag=True, help="Do not say how much was written.")
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

    A line is a record's value, or key and value with --key-separator, or a JSON object with
    --json. The topic is created if it does not exist and the broker allows that.
    """
    if as_json and key_separator is not None:
        raise click.UsageError("--json lines carry their keys: --key-separator does not apply")
    common = [(key, value.encode()) for key, value in parse_pairs(headers, "--header").items()]
    parse = _json_parser(common, partition) if as_json else _line_parser(key_separator, common, partition)

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
    """No record has shown yet whether the place is there."""
    count = len((await cluster.topic(topic)).partitions)
    if partition is not None and partition >= count:
        raise InvalidPartitions(f"{topic} has partitions 0 to {count - 1}, not {partition}")


def _parse(parse: Callable[[bytes], OutgoingRecord], line: bytes, number: int) -> OutgoingRecord:
    try:
        return parse(line)
    except ValueError as error:
        raise Failure(f"line {number} of standard input: {error}") from None


def _line_parser(
    separator: str | None, headers: Sequence[Header], partition: int | None
) -> Callable[[bytes], OutgoingRecord]:
    if separator is None:
        return lambda line: OutgoingRecord(None, line, headers, partition)
    if not separator:
        raise click.BadParameter("it is empty", param_hint="--key-separator")
    divider = ESCAPES.get(separator, separator).encode()

    def parse(line: bytes) -> OutgoingRecord:
        key, found, value = line.partition(divider)
        if not found:
            raise ValueError(f"it has no separator {separator!r}")
        return OutgoingRecord(key, value, headers, partition)

    return parse


def _json_parser(headers: Sequence[Header], partition: int | None) -> Callable[[bytes], OutgoingRecord]:
    def parse(line: bytes) -> OutgoingRecord:
        record = parse_record(line, partition)
        return record._replace(headers=[*record.headers, *headers]) if headers else record

    return parse
