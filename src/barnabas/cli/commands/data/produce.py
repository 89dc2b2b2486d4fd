"""`barnabas produce`: write lines, or whole files, as records."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import click

from barnabas.cli.records.partitions import check_partition
from barnabas.cli.records.record_lines import Common, Formats, Parse, json_parser, text_parser
from barnabas.cli.records.record_writing import counted, writing
from barnabas.cli.records.stdin_lines import LINE_BYTES_MAX, LineTooLong, read_lines
from barnabas.cli.records.value_formats import FORMATS
from barnabas.cli.support.arguments import parse_pairs
from barnabas.cli.support.completion import complete_topic
from barnabas.cli.support.exit_codes import InvalidSettings
from barnabas.cli.support.session import Bootstrap, bootstrap_option, run
from barnabas.client.admin.admin import Admin
from barnabas.client.config.producer_keys import PRODUCER_KEYS
from barnabas.client.extensions.records import ProducerRecord
from barnabas.client.producer.producer import Producer
from barnabas.core.errors import InvalidConfig
from barnabas.core.files import read_regular_file

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ACKS = ("all", "-1", "1", "0")
PARTITIONERS = ("murmur2", "round-robin")
STANDARD_INPUT = "standard input"


def producer_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the settings of a producer that users change most."""
    for add in (
        click.option("--batch-size", type=click.IntRange(min=0), metavar="BYTES",
            help="Size of a batch.  [default: 16384]"),
        click.option("--linger", "linger_ms", type=click.IntRange(min=0), metavar="MS",
            help="Time that a batch waits for more records.  [default: 5]"),
        click.option("--acks", type=click.Choice(ACKS),
            help="Required acknowledgements: all in-sync replicas, the leader, or none.  [default: all]"),
        click.option("--codec", type=click.Choice(CODECS), help="Compress the batches.  [default: none]"),
    ):  # fmt: skip
        command = add(command)
    return command


@click.command()
@click.argument("topic", shell_complete=complete_topic)
@click.option("--file", "files", multiple=True, type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Read this file instead of standard input; may be given several times.")  # fmt: skip
@click.option("--whole", is_flag=True, help="Each file is the value of one record, not a list of lines.")
@click.option("--key", metavar="KEY", help="Key of every record.")
@click.option(
    "--key-separator", metavar="SEP", help=r"Separator of key and value on each line, such as '\t'."
)
@click.option("--json", "as_json", is_flag=True, help="Lines are JSON: key, value, headers, timestamp.")
@click.option("--key-format", type=click.Choice(list(FORMATS)), default="string", show_default=True,
    help="Format of the keys.")  # fmt: skip
@click.option("--value-format", type=click.Choice(list(FORMATS)), default="string", show_default=True,
    help="Format of the values.")  # fmt: skip
@click.option("--header", "headers", multiple=True, metavar="KEY=VALUE", help="A header of every record.")
@click.option("--partition", type=click.IntRange(min=0), metavar="N", help="Write to this partition only.")
@click.option("--partitioner", type=click.Choice(PARTITIONERS),
    help="Partition by key, else sticky; or one after the other.  [default: murmur2]")  # fmt: skip
@producer_options
@click.option("--transactional-id", metavar="NAME", help="Write in a transaction of this id.")
@click.option("--transaction-records", type=click.IntRange(min=1), metavar="N",
    help="Commit after every N records.  [default: all in one transaction]")  # fmt: skip
@click.option("--quiet", is_flag=True, help="Do not print the number of records.")
@bootstrap_option
def produce(
    topic: str,
    files: tuple[Path, ...],
    whole: bool,
    key: str | None,
    key_separator: str | None,
    as_json: bool,
    key_format: str,
    value_format: str,
    headers: tuple[str, ...],
    partition: int | None,
    partitioner: str | None,
    codec: str | None,
    acks: str | None,
    linger_ms: int | None,
    batch_size: int | None,
    transactional_id: str | None,
    transaction_records: int | None,
    quiet: bool,
    bootstrap: Bootstrap,
) -> None:
    """Write lines of standard input, or of files, to a topic.

    A line is the value of a record, or key and value with --key-separator, or a JSON object with --json. The
    topic is created if it does not exist and the broker allows that. The first faulty line ends the command,
    which then says how many records were written before it.
    """
    _check_usage(files, whole, as_json, key, key_separator, transactional_id, transaction_records)
    formats = Formats(FORMATS[key_format], FORMATS[value_format])
    try:
        same_key = None if key is None else formats.key.read(os.fsencode(key))
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--key") from None
    pairs = [(name, os.fsencode(value)) for name, value in parse_pairs(headers, "--header").items()]
    common = Common(topic, partition, pairs, same_key)
    parse = json_parser(common, formats) if as_json else text_parser(key_separator, common, formats)
    config = bootstrap.config(
        PRODUCER_KEYS,
        compression_type=codec,
        acks="all" if acks == "-1" else acks,
        linger_ms=linger_ms,
        batch_size=batch_size,
        partitioner_class=partitioner,
        transactional_id=transactional_id,
    )

    async def action(admin: Admin) -> int:
        in_transactions = None if transactional_id is None else transaction_records or 0
        is_checked = False
        async with writing(producer_of(config), transaction_records=in_transactions) as writer:
            async for record in _records(files, whole=whole, parse=parse):
                if not is_checked:
                    is_checked = await check_partition(admin, topic, partition, auto_create=True)
                await writer.send(record)
        if not is_checked:
            await check_partition(admin, topic, partition)
        return writer.written

    written = run(bootstrap, action, announces_itself=True)
    if not quiet:
        click.echo(f"wrote {counted(written)} to {topic}", err=True)


def _check_usage(
    files: tuple[Path, ...],
    whole: bool,
    as_json: bool,
    key: str | None,
    key_separator: str | None,
    transactional_id: str | None,
    transaction_records: int | None,
) -> None:
    if as_json and key_separator is not None:
        raise click.UsageError("--json and --key-separator exclude each other: JSON lines contain their keys")
    if key is not None and key_separator is not None:
        raise click.UsageError("--key and --key-separator exclude each other")
    if whole and (not files or as_json or key_separator is not None):
        raise click.UsageError("--whole takes --file, and excludes --json and --key-separator")
    if transaction_records is not None and transactional_id is None:
        raise click.UsageError("--transaction-records needs --transactional-id")


def producer_of(config: dict[str, Any]) -> Producer:
    """Producer with these settings. A setting that cannot be is wrong usage."""
    try:
        return Producer(config)
    except InvalidConfig as error:
        raise InvalidSettings(error.message) from None


async def _records(files: Sequence[Path], *, whole: bool, parse: Parse) -> AsyncIterator[ProducerRecord]:
    """Records of the files, or of standard input. ValueError names the first faulty line."""
    if not files:
        async for record in _records_of_lines(sys.stdin.fileno(), STANDARD_INPUT, parse):
            yield record
    for path in files:
        if whole:
            yield _whole_record(path, parse)
            continue
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise ValueError(f"{path} cannot be read: {error.strerror}") from None
        try:
            async for record in _records_of_lines(descriptor, str(path), parse):
                yield record
        finally:
            os.close(descriptor)


async def _records_of_lines(descriptor: int, source: str, parse: Parse) -> AsyncIterator[ProducerRecord]:
    number = 0
    try:
        async for lines in read_lines(descriptor):
            for line in lines:
                number += 1
                try:
                    record = parse(line)
                except ValueError as error:
                    raise ValueError(f"line {number} of {source}: {error}") from None
                yield record
    except LineTooLong as error:
        raise ValueError(f"{source}, after line {number}: {error}") from None


def _whole_record(path: Path, parse: Parse) -> ProducerRecord:
    try:
        return parse(read_regular_file(path, LINE_BYTES_MAX))
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
