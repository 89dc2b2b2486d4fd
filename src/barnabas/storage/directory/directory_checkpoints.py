"""What a log directory remembers of its logs from one start to the next: their checkpoints.

Each file of `checkpoints` speaks for all logs of a directory, so each is written anew as a whole. From time
to time that is done in the background; at once, where what comes next would be wrong without it: after a
truncation (recovery would trust what has been rewritten), after a move, at the end, and before a new log is
made where the file still speaks of a deleted namesake.

What to write is decided on the loop; the writes may overtake each other on their way to the disk.

A damaged log is not open, so it cannot be asked; what was known of it is written again and again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from barnabas.core.errors import KafkaStorageError
from barnabas.core.files import Files
from barnabas.core.ids import TopicPartition
from barnabas.core.sweeping import sweeping
from barnabas.storage.checkpoints import (
    CLEANED_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    render_offsets,
)
from barnabas.storage.directory.damaged_log import DamagedLog
from barnabas.storage.environment import Environment, LogDirectory
from barnabas.storage.log.log import Log


def _moved_start_offset(log: Log) -> int | None:
    """The log start offset where it differs from where the first segment starts, or would after a power cut,
    which may bring back the names of segments that were deleted."""
    is_moved = log.log_start_offset > log.segments.first.base_offset
    return log.log_start_offset if is_moved or not log.flush_state.are_names_synced else None


_OFFSET_OF: Mapping[str, Callable[[Log], int | None]] = {
    RECOVERY_POINTS: lambda log: log.recovery_point,
    LOG_START_OFFSETS: _moved_start_offset,
    HIGH_WATERMARKS: lambda log: log.high_watermark,
}


class CheckpointWrite:
    """One checkpoint to be written, here or elsewhere. An older one never undoes a newer one."""

    __slots__ = ("_content", "_directory", "_files", "_name", "_version")

    def __init__(self, files: Files, directory: LogDirectory, name: str, content: bytes) -> None:
        self._files = files
        self._directory = directory
        self._name = name
        self._content = content
        self._version = directory.checkpoints_planned = directory.checkpoints_planned + 1

    def __call__(self) -> None:
        written = self._directory.checkpoints_written
        with self._directory.checkpoint_lock:
            if self._version > written.get(self._name, 0):
                self._files.replace(f"{self._directory.path}/{self._name}", self._content)
                written[self._name] = self._version


class DirectoryCheckpoints:
    """Looks at the logs that there are (`logs` and `damaged` are the log manager's own), writes of them."""

    __slots__ = ("_damaged", "_environment", "_logs", "_with_former_logs")

    def __init__(
        self,
        environment: Environment,
        logs: Mapping[TopicPartition, Log],
        damaged: Mapping[TopicPartition, DamagedLog],
    ) -> None:
        self._environment = environment
        self._logs = logs
        self._damaged = damaged
        self._with_former_logs: set[str] = set()
        """Directories whose checkpoints may still speak of logs that are no longer there."""

    def write_soon(self, name: str, directories: Iterable[LogDirectory]) -> None:
        for directory in directories:
            with sweeping(f"writing the {name} of", directory.path):
                self._submit(directory, self._plan(directory, name))

    def write_cleaned_soon(self, directory: LogDirectory, offsets: Mapping[TopicPartition, int]) -> None:
        """How far logs are compacted, which the cleaner knows and not the log."""
        write = CheckpointWrite(self._environment.files, directory, CLEANED_OFFSETS, render_offsets(offsets))
        self._submit(directory, write)

    def write_last(self, directory: LogDirectory) -> None:
        """At a clean end: of every log, whether its start offset has moved or not."""
        self._plan(directory, RECOVERY_POINTS)()
        self._plan(directory, LOG_START_OFFSETS, lambda log: log.log_start_offset)()
        self._plan(directory, HIGH_WATERMARKS)()

    def has_former_logs(self, directory: LogDirectory) -> None:
        self._with_former_logs.add(directory.path)

    def forget_former_logs(self, directory: LogDirectory) -> None:
        """Before a log is made: after a crash, a checkpoint of a deleted namesake would be taken for
        its own, and a log that ends before its start offset loses everything."""
        if directory.path not in self._with_former_logs:
            return
        self.write_now(directory, RECOVERY_POINTS)
        self.write_now(directory, LOG_START_OFFSETS)
        self._with_former_logs.discard(directory.path)

    def write_now(self, directory: LogDirectory, name: str) -> None:
        """Raises KafkaStorageError where it cannot be done."""
        try:
            self._plan(directory, name)()
        except OSError as error:
            directory.fail(error)
            raise KafkaStorageError(f"writing {name} of {directory.path}: {error}") from error

    def _plan(
        self, directory: LogDirectory, name: str, offset_of: Callable[[Log], int | None] | None = None
    ) -> CheckpointWrite:
        offset_of = offset_of or _OFFSET_OF[name]
        offsets = {}
        for log in self._logs.values():
            if log.log_directory is directory and (offset := offset_of(log)) is not None:
                offsets[log.topic_partition] = offset
        for damaged in self._damaged.values():
            if damaged.log_directory is directory and name in damaged.checkpointed:
                offsets[damaged.topic_partition] = damaged.checkpointed[name]
        return CheckpointWrite(self._environment.files, directory, name, render_offsets(offsets))

    def _submit(self, directory: LogDirectory, write: CheckpointWrite) -> None:
        self._environment.background.submit(write, lambda _: None, directory.fail)
