"""Checkpoints of one log directory: offsets that outlive a restart.

Each file of `checkpoints` covers all logs of a directory and is always written as a whole. A timer writes it
in the background. The broker writes it at once where the next step depends on it:

- after a truncation, because recovery would trust bytes that were rewritten;
- after a move, and at the end;
- before a log is created, while the file still lists a deleted log of the same name.

The loop decides the content. Writes may overtake each other on their way to the disk.

A damaged log is not open, so its last known offsets are written each time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

from barnabas.core.errors import KafkaStorageError
from barnabas.core.files import Files
from barnabas.core.ids import TopicPartition
from barnabas.core.reporting.error_isolation import sweeping
from barnabas.storage.directory.unusable_logs import DamagedLog
from barnabas.storage.files.checkpoints import (
    CLEANED_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    read_offsets,
    render_offsets,
)
from barnabas.storage.files.environment import Environment, LogDirectory
from barnabas.storage.log.log import Log


def _moved_start_offset(log: Log) -> int | None:
    """Log start offset, if the first segment starts elsewhere or might do so after a power cut.

    A power cut may bring back the names of deleted segments."""
    is_moved = log.log_start_offset > log.segments.first.base_offset
    return log.log_start_offset if is_moved or not log.flush_state.are_names_synced else None


_OFFSET_OF: Mapping[str, Callable[[Log], int | None]] = {
    RECOVERY_POINTS: lambda log: log.flush_state.recovery_point,
    LOG_START_OFFSETS: _moved_start_offset,
    HIGH_WATERMARKS: lambda log: log.high_watermark,
}


class CheckpointWrite:
    """One write of a checkpoint, on the loop or in a thread. An older one never replaces a newer one."""

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
    """Writes the checkpoints of all logs. `logs` and `damaged` are the log manager's live tables."""

    __slots__ = ("_damaged", "_environment", "_logs", "_with_deleted_logs")

    def __init__(
        self,
        environment: Environment,
        logs: Mapping[TopicPartition, Log],
        damaged: Mapping[TopicPartition, DamagedLog],
    ) -> None:
        self._environment = environment
        self._logs = logs
        self._damaged = damaged
        self._with_deleted_logs: set[str] = set()
        """Directories whose checkpoints may still list deleted logs."""

    def write_soon(self, name: str, directories: Iterable[LogDirectory]) -> None:
        for directory in directories:
            with sweeping(f"writing the {name} of", directory.path):
                self._submit(directory, self._plan(directory, name))

    def write_cleaned_soon(self, directory: LogDirectory, offsets: Mapping[TopicPartition, int]) -> None:
        """Write how far logs are compacted. The cleaner knows these offsets, the log does not."""
        write = CheckpointWrite(self._environment.files, directory, CLEANED_OFFSETS, render_offsets(offsets))
        self._submit(directory, write)

    def write_cleaned_now(self, directory: LogDirectory, offsets: Mapping[TopicPartition, int]) -> None:
        """The same before returning. Raises KafkaStorageError if the write fails."""
        with self._failing(directory, CLEANED_OFFSETS):
            CheckpointWrite(self._environment.files, directory, CLEANED_OFFSETS, render_offsets(offsets))()

    def write_last(self, directory: LogDirectory) -> None:
        """Write all checkpoints at a clean shutdown, with the start offset of every log."""
        self._plan(directory, RECOVERY_POINTS)()
        self._plan(directory, LOG_START_OFFSETS, lambda log: log.log_start_offset)()
        self._plan(directory, HIGH_WATERMARKS)()

    def of(self, log: Log) -> dict[str, int]:
        """Checkpointed offsets of one log, by file name."""
        return {
            name: offset for name, offset_of in _OFFSET_OF.items() if (offset := offset_of(log)) is not None
        }

    def has_deleted_logs(self, directory: LogDirectory) -> None:
        self._with_deleted_logs.add(directory.path)

    def forget_deleted_logs(self, directory: LogDirectory) -> None:
        """Remove deleted logs from the checkpoints, before a log is created.

        After a crash, a new log would otherwise take over the offsets of a deleted log of the same name:

        - A log that ends before its start offset loses everything.
        - Below a high watermark of another log, readers get records that are not committed.
        - Below a cleaned offset of another log, tombstones go although their keys have values, and recovery
          takes lost records for compaction."""
        if directory.path not in self._with_deleted_logs:
            return
        self.write_now(directory, RECOVERY_POINTS)
        self.write_now(directory, LOG_START_OFFSETS)
        self._remove_absent(directory, HIGH_WATERMARKS)
        self._remove_absent(directory, CLEANED_OFFSETS)
        self._with_deleted_logs.discard(directory.path)

    def _remove_absent(self, directory: LogDirectory, name: str) -> None:
        """Drop the lines of absent logs. The others stay as written: soon after a start, a log does not have
        its high watermark again yet."""
        with self._failing(directory, name):
            listed = read_offsets(self._environment.files, f"{directory.path}/{name}")
            logs: list[Log | DamagedLog] = [*self._logs.values(), *self._damaged.values()]
            present = {each.topic_partition for each in logs if each.log_directory is directory}
            kept = {each: offset for each, offset in listed.items() if each in present}
            if len(kept) < len(listed):
                CheckpointWrite(self._environment.files, directory, name, render_offsets(kept))()

    def write_start_offset_of_copy(self, future: Log) -> None:
        """Write the start offset of a copy that is about to replace its log, if no segment starts there.

        Raises KafkaStorageError if the write fails."""
        if _moved_start_offset(future) is not None:
            directory = future.log_directory
            self.has_deleted_logs(directory)  # the copy may fail to replace its log
            self.write_now(directory, LOG_START_OFFSETS, future)

    def write_now(self, directory: LogDirectory, name: str, *more: Log) -> None:
        """Write one checkpoint before returning. Raises KafkaStorageError if the write fails."""
        with self._failing(directory, name):
            self._plan(directory, name, more=more)()

    @staticmethod
    @contextmanager
    def _failing(directory: LogDirectory, name: str) -> Iterator[None]:
        """Report a failed write, and raise KafkaStorageError."""
        try:
            yield
        except OSError as error:
            directory.fail(error)
            raise KafkaStorageError(f"writing {name} of {directory.path}: {error}") from error

    def _plan(
        self,
        directory: LogDirectory,
        name: str,
        offset_of: Callable[[Log], int | None] | None = None,
        *,
        more: Iterable[Log] = (),
    ) -> CheckpointWrite:
        offset_of = offset_of or _OFFSET_OF[name]
        offsets = {}
        for log in (*self._logs.values(), *more):
            if log.log_directory is directory and (offset := offset_of(log)) is not None:
                offsets[log.topic_partition] = offset
        for damaged in self._damaged.values():
            if damaged.log_directory is directory and name in damaged.checkpointed:
                offsets[damaged.topic_partition] = damaged.checkpointed[name]
        return CheckpointWrite(self._environment.files, directory, name, render_offsets(offsets))

    def _submit(self, directory: LogDirectory, write: CheckpointWrite) -> None:
        self._environment.background.submit(write, lambda _: None, directory.fail)
