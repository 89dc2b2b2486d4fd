"""`barnabas log`: the files of a log."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from barnabas.cli.exits import Failure, NotFound, failure_for
from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition

if TYPE_CHECKING:
    from barnabas.cli.session import Bootstrap
    from barnabas.client.cluster_client import ClusterClient
    from barnabas.storage.manifest import Bounds


@click.group()
def log() -> None:
    """Look into the files of a log."""


@log.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--data", "print_data", is_flag=True, help="Print the records: keys, values and headers.")
@click.option("--deep", is_flag=True, help="Look inside compressed batches.")
def dump(files: tuple[Path, ...], print_data: bool, deep: bool) -> None:
    """Print what is in segment, index, snapshot and checkpoint FILES.

    The lines are those of Apache Kafka's own dump tool.
    """
    from barnabas.storage.dump import dump_file  # noqa: PLC0415 - the storage engine is dear to import

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
            raise  # whoever reads has read enough, which is no fault of the file
        except (OSError, ValueError) as error:
            raise Failure(f"cannot dump {path}: {getattr(error, 'strerror', None) or error}") from None


def _with_bootstrap(command: Callable[..., Any]) -> Callable[..., Any]:
    from barnabas.cli.session import bootstrap_option  # noqa: PLC0415 - the client is dear to import

    return bootstrap_option(command)


@log.command()
@click.argument("directory", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--topic", "topics", multiple=True, help="Only this topic; may be given several times.")
@click.option(
    "--out", type=click.Path(path_type=Path), help="Where to write it; default: in the log directory."
)
@_with_bootstrap
def manifest(directory: Path, topics: tuple[str, ...], out: Path | None, bootstrap: Bootstrap) -> None:
    """Export the closed segments of the log DIRECTORY for Spark's segment reader.

    The running broker says where each partition starts and up to where its data is committed.
    """
    from barnabas.cli.session import run  # noqa: PLC0415
    from barnabas.core.files import RealFiles  # noqa: PLC0415
    from barnabas.storage.manifest import MANIFEST, build_manifest  # noqa: PLC0415
    from barnabas.storage.names import parse_log_directory  # noqa: PLC0415

    places = [parse_log_directory(path.name) for path in directory.iterdir() if path.is_dir()]
    wanted = sorted(
        place
        for place in places
        if place is not None and (place.topic in topics if topics else not place.topic.startswith("__"))
    )
    if not wanted:
        raise NotFound(f"there is no log of {', '.join(topics) or 'any topic'} in {directory}")
    bounds = run(bootstrap, lambda cluster: _bounds(cluster, wanted))
    files = RealFiles()
    found = build_manifest(files, str(directory.absolute()), bounds)
    target = out or directory / MANIFEST
    files.replace(str(target.absolute()), json.dumps(found, indent=1).encode())
    segments = sum(len(each["segments"]) for each in found["partitions"])
    click.echo(f"{target}: {len(found['partitions'])} partitions, {segments} closed segments")


async def _bounds(cluster: ClusterClient, places: list[TopicPartition]) -> dict[TopicPartition, Bounds]:
    from barnabas.client.consumer import list_offsets  # noqa: PLC0415
    from barnabas.storage.manifest import Bounds  # noqa: PLC0415

    found = {}
    for topic in sorted({place.topic for place in places}):
        numbers = [place.partition for place in places if place.topic == topic]
        stable = await list_offsets(cluster, topic, numbers, -1, isolation_level=1)
        starts = await list_offsets(cluster, topic, numbers, -2)
        for number in numbers:
            found[TopicPartition(topic, number)] = Bounds(starts[number], stable[number])
    return found
