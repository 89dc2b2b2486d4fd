"""Future logs: copies of logs that move from one log directory to another.

A log moves as a copy, the *future* log, which replaces it once the copy is complete.
`replication.log_dir_mover` fills the copy and syncs it in a thread: a roll of the copy syncs nothing. Until
then the copy has a name of its own, and a start deletes it.

For a moment both have the log's name, in two directories, and the broker may crash. So the original is marked
as superseded before (`duplicates`). A start that finds both keeps the copy. A start that finds only the
marked log removes the mark: the copy did not get its name.
"""

from __future__ import annotations

from barnabas.core.errors import KafkaStorageError
from barnabas.core.ids import TopicPartition
from barnabas.storage.directory import duplicates
from barnabas.storage.directory.disk_errors import keep_trying
from barnabas.storage.files.delayed_delete import remove_later
from barnabas.storage.files.environment import Environment, LogDirectory
from barnabas.storage.files.names import FUTURE_DIRECTORY, SUPERSEDED, renamed_directory
from barnabas.storage.loading.log_loader import open_log
from barnabas.storage.log.log import Log
from barnabas.storage.log.truncation import truncate_fully_and_start_at


class FutureLogs:
    """Copies in progress, at most one for each log."""

    __slots__ = ("_environment", "_futures")

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._futures: dict[TopicPartition, Log] = {}

    def get(self, topic_partition: TopicPartition) -> Log | None:
        return self._futures.get(topic_partition)

    def all(self) -> list[Log]:
        return list(self._futures.values())

    def create(self, log: Log, log_directory: LogDirectory) -> Log:
        """Create an empty log in another directory, to be filled from the current one."""
        topic_partition = log.topic_partition
        unique = self._environment.randomness.randbytes(16).hex()
        path = f"{log_directory.path}/{renamed_directory(topic_partition, unique, FUTURE_DIRECTORY)}"
        try:
            future = self._begin(log, log_directory, path)
        except KafkaStorageError:
            if log_directory.failure is None:  # there was no file descriptor, and the mover does not retry
                remove_later(self._environment, path, delay_ms=0)
            raise
        self._futures[topic_partition] = future
        return future

    def _begin(self, log: Log, log_directory: LogDirectory, path: str) -> Log:
        try:
            future = open_log(log.topic_partition, log_directory, path, log.config, self._environment)
        except OSError as error:
            log_directory.fail(error)
            raise KafkaStorageError(f"creating a copy of {log.topic_partition}: {error}") from error
        future.flush_by(lambda _: None)
        if log.topic_id is not None:
            future.assign_topic_id(log.topic_id)
        if log.log_start_offset:
            truncate_fully_and_start_at(future, log.log_start_offset)
        return future

    def drop(self, topic_partition: TopicPartition) -> None:
        future = self._futures.pop(topic_partition, None)
        if future is not None:
            future.release()
            if future.log_directory.failure is None:
                remove_later(self._environment, future.directory, delay_ms=0)

    def complete(self, old: Log) -> Log:
        """Sync the copy, which must have every record, and take over the log's config and watermarks."""
        future = self._futures[old.topic_partition]
        assert future.log_end_offset == old.log_end_offset, "the copy is not complete"
        future.flush()
        future.update_config(old.config)
        future.update_high_watermark(old.high_watermark)
        future.maybe_increment_log_start_offset(old.log_start_offset, "start offset of the moved log")
        return future

    def rename_into_place(self, old: Log) -> Log:
        """Give the complete copy the name of the log. From here on the copy is the log."""
        topic_partition, files = old.topic_partition, self._environment.files
        future = self._futures[topic_partition]
        log_directory = future.log_directory
        own_name = future.directory
        try:
            files.replace(f"{old.directory}/{SUPERSEDED}", b"")
        except OSError as error:
            self._take_back(old)
            old.log_directory.fail(error)
            raise KafkaStorageError(f"moving {topic_partition}: {error}") from error
        try:
            future.rename_to(f"{log_directory.path}/{topic_partition}")
            files.sync_directory(log_directory.path)
        except OSError as error:
            log_directory.fail(error)
            if log_directory.failure is None and future.directory != own_name:
                future.rename_to(own_name)
            self._take_back(old)
            raise KafkaStorageError(f"moving {topic_partition}: {error}") from error
        del self._futures[topic_partition]
        return future

    def _take_back(self, old: Log) -> None:
        """Remove the mark of a log that stays in use.

        With the mark, a start would prefer a copy that lacks all later appends."""
        files, directory = self._environment.files, old.directory
        try:
            duplicates.unmark(files, directory)
            files.sync_directory(directory)
        except OSError as error:
            old.log_directory.fail(error)
            keep_trying(self._environment, old.log_directory, lambda: files.sync_directory(directory))

    def release(self) -> None:
        for future in self._futures.values():
            future.release()
        self._futures.clear()
