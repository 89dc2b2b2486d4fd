"""Opening the logs of one log directory when the broker starts.

The marker of a clean shutdown says that every file is whole, and the logs are opened as they are. Without it
they are recovered from their recovery points, in threads: recovery reads the disk, and nothing else runs yet.
A log that makes no sense is found damaged, and the others are opened all the same (`damaged_log`). One for
which there was no file descriptor is opened when the others are done with theirs.
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
from barnabas.storage import checkpoints
from barnabas.storage.directory.damaged_log import DamagedLog
from barnabas.storage.directory.directory_properties import read_clean_shutdown, remove_clean_shutdown
from barnabas.storage.environment import Environment, LogDirectory
from barnabas.storage.failures import Reach, reach_of
from barnabas.storage.log.log import Log
from barnabas.storage.log.log_loader import open_log
from barnabas.storage.names import DELETE_DIRECTORY, FUTURE_DIRECTORY, parse_log_directory, renamed_suffix
from barnabas.storage.segment.batch_scan import GarbledLog

_log = logging.getLogger(__name__)


class DirectoryContents(NamedTuple):
    """What lies in a log directory before any log of it is opened."""

    is_clean: bool
    """Whether the last broker here shut down in order."""
    logs: list[tuple[TopicPartition, str]]
    """Whose log lies under which name."""
    leftover_names: list[str]
    """Logs on their way out, and copies that were not complete: to be removed."""
    checkpointed: Mapping[str, Mapping[TopicPartition, int]]
    """By the name of the checkpoint file."""

    @property
    def has_former_logs(self) -> bool:
        """Whether the checkpoints speak of logs that are not here."""
        spoken_of = {
            partition
            for name in (checkpoints.RECOVERY_POINTS, checkpoints.LOG_START_OFFSETS)
            for partition in self.checkpointed[name]
        }
        return not spoken_of <= {partition for partition, _ in self.logs}


def read_contents(files: Files, directory: LogDirectory) -> DirectoryContents:
    """Look around, and take the clean-shutdown marker away: from now on an end is a crash until it is not."""
    path = directory.path
    is_clean = read_clean_shutdown(files, path) is not None
    if is_clean:
        remove_clean_shutdown(files, path)
    names = [entry.name for entry in files.list(path) if entry.is_directory]
    return DirectoryContents(
        is_clean,
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
    """The logs, one by one as they are open: who takes them can let go of them if a later one fails."""

    postponed: list[tuple[TopicPartition, str]] = []

    def load(found: tuple[TopicPartition, str]) -> Log | DamagedLog:
        return _load(*found, directory, contents, config_of(found[0].topic), environment)

    def load_or_postpone(found: tuple[TopicPartition, str]) -> Log | DamagedLog | None:
        try:
            return load(found)
        except (OSError, KafkaStorageError) as error:
            if reach_of(error) is not Reach.REQUEST:
                raise
            _log.warning("%s/%s is opened later: %s", directory.path, found[1], error)
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
        )
    except (GarbledLog, KafkaStorageError) as error:
        if reach_of(error) is not Reach.LOG:
            raise
        return DamagedLog(partition, directory, path, str(error), checkpointed)
