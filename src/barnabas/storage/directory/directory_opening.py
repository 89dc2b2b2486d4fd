"""Opening all logs of one log directory, when the broker starts.

The marker of a clean shutdown proves that every file is whole, and the logs are opened as they are. Without
the marker, threads recover the logs from their recovery points: recovery reads the disk, and no other part of
the broker runs yet. A damaged log does not keep the others from opening (`unusable_logs`). A log that finds
no file descriptor is opened after the others have released theirs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from barnabas.config.log_config import LogConfig
from barnabas.core.errors import KafkaStorageError
from barnabas.core.files import Files
from barnabas.core.ids import TopicPartition
from barnabas.storage.directory.directory_properties import (
    mark_open,
    read_clean_shutdown,
    remove_clean_shutdown,
)
from barnabas.storage.directory.unusable_logs import DamagedLog
from barnabas.storage.files import checkpoints
from barnabas.storage.files.environment import Environment, LogDirectory
from barnabas.storage.files.failures import GarbledLog, Reach, reach_of
from barnabas.storage.files.names import (
    DELETE_DIRECTORY,
    FUTURE_DIRECTORY,
    parse_log_directory,
    renamed_suffix,
)
from barnabas.storage.loading.log_loader import open_log
from barnabas.storage.log.log import Log

logger = logging.getLogger(__name__)


class DirectoryContents(NamedTuple):
    """Content of a log directory before any of its logs is opened."""

    is_clean: bool
    """Whether the last broker in this directory shut down cleanly."""
    was_open_elsewhere: bool
    """Whether Apache Kafka, and not this broker, crashed in this directory."""
    logs: list[tuple[TopicPartition, str]]
    """Partitions, with the directory names of their logs."""
    leftover_names: list[str]
    """Deleted logs and incomplete copies, to be removed."""
    checkpointed: Mapping[str, Mapping[TopicPartition, int]]
    """Offsets by the name of the checkpoint file."""

    @property
    def has_deleted_logs(self) -> bool:
        """Whether the checkpoints list logs that are not in the directory."""
        listed = {partition for offsets in self.checkpointed.values() for partition in offsets}
        return not listed <= {partition for partition, _ in self.logs}


def read_contents(files: Files, directory: LogDirectory) -> DirectoryContents:
    """List the directory and remove the clean-shutdown marker: from now on every end counts as a crash."""
    path = directory.path
    was_open_here = mark_open(files, path)
    is_clean = read_clean_shutdown(files, path) is not None
    if is_clean:
        remove_clean_shutdown(files, path)
    names = [entry.name for entry in files.list(path) if entry.is_directory]
    return DirectoryContents(
        is_clean,
        not (is_clean or was_open_here),
        [(partition, name) for name in names if (partition := parse_log_directory(name))],
        [name for name in names if renamed_suffix(name) in (DELETE_DIRECTORY, FUTURE_DIRECTORY)],
        {
            name: checkpoints.read_offsets(files, f"{path}/{name}")
            for name in (
                checkpoints.RECOVERY_POINTS,
                checkpoints.LOG_START_OFFSETS,
                checkpoints.HIGH_WATERMARKS,
                checkpoints.CLEANED_OFFSETS,
            )
        },
    )


def open_logs(
    directory: LogDirectory,
    contents: DirectoryContents,
    config_of: Callable[[str], LogConfig],
    environment: Environment,
    *,
    threads: int,
) -> Iterator[Log | DamagedLog]:
    """Open the logs one by one, so that the caller can release the open ones if a later one fails."""

    postponed: list[tuple[TopicPartition, str]] = []

    def load(found: tuple[TopicPartition, str]) -> Log | DamagedLog:
        return _load(*found, directory, contents, config_of(found[0].topic), environment)

    def load_or_postpone(found: tuple[TopicPartition, str]) -> Log | DamagedLog | None:
        try:
            return load(found)
        except (OSError, KafkaStorageError) as error:
            if reach_of(error) is not Reach.REQUEST:
                raise
            logger.warning("partition %s: its log opens after the others: %s", found[0], error)
            postponed.append(found)
            return None

    if contents.is_clean:
        yield from filter(None, map(load_or_postpone, contents.logs))
    elif contents.logs:
        with ThreadPoolExecutor(threads, thread_name_prefix="log-recovery") as pool:
            yield from filter(None, pool.map(load_or_postpone, contents.logs))
    yield from map(load, postponed)


def _load(
    partition: TopicPartition,
    name: str,
    directory: LogDirectory,
    contents: DirectoryContents,
    config: LogConfig,
    environment: Environment,
) -> Log | DamagedLog:
    path = f"{directory.path}/{name}"
    checkpointed = {
        file: offsets[partition] for file, offsets in contents.checkpointed.items() if partition in offsets
    }
    try:
        return open_log(
            partition,
            directory,
            path,
            config,
            environment,
            is_clean=contents.is_clean,
            recovery_point=checkpointed.get(checkpoints.RECOVERY_POINTS, 0),
            log_start_offset=checkpointed.get(checkpoints.LOG_START_OFFSETS, 0),
            cleaned_offset=checkpointed.get(checkpoints.CLEANED_OFFSETS, 0),
            are_ends_unknown=contents.was_open_elsewhere,
        )
    except (GarbledLog, KafkaStorageError) as error:
        if reach_of(error) is not Reach.LOG:
            raise
        return DamagedLog(partition, directory, path, str(error), checkpointed)
