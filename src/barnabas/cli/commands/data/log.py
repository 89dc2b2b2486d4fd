"""`barnabas log`: dump segment files, export a manifest."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from barnabas.cli.support.exit_codes import Failure, NotFound, failure_for
from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition

if TYPE_CHECKING:
    from barnabas.cli.support.session import Bootstrap
    from barnabas.client.admin.admin import Admin
    from barnabas.storage.manifest import Bounds


@click.group()
def log() -> None:
    """Dump the files of a log."""


@log.command(short_help="Print segments, indexes, snapshots and checkpoints.")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--data", "print_data", is_flag=True, help="Print the records: keys, values and headers.")
@click.option("--deep", is_flag=True, help="Decompress batches and print their records.")
def dump(files: tuple[Path, ...], print_data: bool, deep: bool) -> None:
    """Print the contents of segment, index, snapshot and checkpoint FILES.

    The lines have the format of Apache Kafka's DumpLogSegments.
    """
    from barnabas.storage.dump import dump_file  # noqa: PLC0415 - the storage engine is slow to import

    for path in files:
        if path.is_dir():
            raise Failure(f"{path} is a directory; name files in it, such as {path}/*.log")
        if not path.is_file():
            raise NotFound(f"there is no file {path}")
        try:
            for line in dump_file(path, print_data=print_data, deep=deep or print_data):
                click.echo(line)
        except KafkaError as error:
            raise failure_for(error) from None
        except BrokenPipeError:
            raise  # the reader of the pipe has read enough, which is not a fault of the file
        except (OSError, ValueError) as error:
            raise Failure(f"cannot dump {path}: {getattr(error, 'strerror', None) or error}") from None


def _with_bootstrap(command: Callable[..., Any]) -> Callable[..., Any]:
    from barnabas.cli.support.session import bootstrap_option  # noqa: PLC0415 - the client is slow to import

    return bootstrap_option(command)


@log.command(short_help="Export the closed segments of a log directory for Spark.")
@click.argument("directory", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--topic", "topics", multiple=True, help="Only this topic; may be given several times.")
@click.option("--out", type=click.Path(path_type=Path), help="Output file; default: in the log directory.")
@_with_bootstrap
def manifest(directory: Path, topics: tuple[str, ...], out: Path | None, bootstrap: Bootstrap) -> None:
    """Export the closed segments of the log DIRECTORY for Spark's segment reader.

    The running broker supplies the start offset and the last stable offset of each partition.
    """
    from barnabas.cli.support.session import run  # noqa: PLC0415
    from barnabas.core.files import RealFiles  # noqa: PLC0415
    from barnabas.storage.files.names import parse_log_directory  # noqa: PLC0415
    from barnabas.storage.manifest import MANIFEST, build_manifest  # noqa: PLC0415

    found_logs = [parse_log_directory(path.name) for path in directory.iterdir() if path.is_dir()]
    wanted = sorted(
        each
        for each in found_logs
        if each is not None and (each.topic in topics if topics else not each.topic.startswith("__"))
    )
    if not wanted:
        raise NotFound(f"there is no log of {', '.join(topics) or 'any topic'} in {directory}")
    bounds = run(bootstrap, lambda admin: _bounds(admin, wanted))
    files = RealFiles()
    found = build_manifest(files, str(directory.absolute()), bounds)
    target = out or directory / MANIFEST
    files.replace(str(target.absolute()), json.dumps(found, indent=1).encode())
    segments = sum(len(each["segments"]) for each in found["partitions"])
    click.echo(f"{target}: {len(found['partitions'])} partitions, {segments} closed segments")


async def _bounds(admin: Admin, partitions: list[TopicPartition]) -> dict[TopicPartition, Bounds]:
    from barnabas.protocol.offset_numbers import EARLIEST, LATEST  # noqa: PLC0415
    from barnabas.storage.manifest import Bounds  # noqa: PLC0415

    stable = await admin.list_offsets(dict.fromkeys(partitions, LATEST), read_committed=True)
    starts = await admin.list_offsets(dict.fromkeys(partitions, EARLIEST))
    return {at: Bounds(starts[at], stable[at]) for at in partitions}
