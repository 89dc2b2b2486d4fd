"""`barnabas log`: the files of a log, read without a broker."""

from __future__ import annotations

from pathlib import Path

import click

from barnabas.cli.exits import Failure, NotFound, failure_for
from barnabas.core.errors import KafkaError


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
