"""Logs on their way from one log directory to another.

A log moves as a copy, the *future* log, that takes its place once it is complete; somebody else fills it
(`replication.log_dir_mover`). Until then it lies under a name of its own, and a start throws it away.

For a moment both have the log's name, in two directories, and a crash may come then. So the old one is marked
as superseded before: a start that finds both keeps the copy, and one that finds only the marked log (the
copy did not get its name) takes the mark off again.
"""

from __future__ import annotations

from barnabas.core.errors import KafkaStorageError
from barnabas.core.files import Files
from barnabas.core.ids import TopicPartition
from barnabas.storage.directory.disk_errors import keep_trying
from barnabas.storage.environment import Environment, LogDirectory
from barnabas.storage.log.log import Log
from barnabas.storage.log.log_loader import open_log
from barnabas.storage.log.truncation import truncate_fully_and_start_at
from barnabas.storage.names import FUTURE_DIRECTORY, SUPERSEDED, renamed_directory
from barnabas.storage.removal import remove_later


class FutureLogs:
    """The copies under way, at most one for a log."""

    __slots__ = ("_environment", "_futures")

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._futures: dict[TopicPartition, Log] = {}

    def get(self, topic_partition: TopicPartition) -> Log | None:
        return self._futures.get(topic_partition)

    def all(self) -> list[Log]:
        return list(self._futures.values())

    def create(self, log: Log, home: LogDirectory) -> Log:
        """An empty log in another directory, to be filled from the present one."""
        topic_partition = log.topic_partition
        unique = self._environment.randomness.randbytes(16).hex()
        name = renamed_directory(topic_partition, unique, FUTURE_DIRECTORY)
        try:
            future = open_log(topic_partition, home, f"{home.path}/{name}", log.config, self._environment)
        except OSError as error:
            home.fail(error)
            raise KafkaStorageError(f"creating a copy of {topic_partition}: {error}") from error
        if log.topic_id is not None:
            future.assign_topic_id(log.topic_id)
        if log.log_start_offset:
            truncate_fully_and_start_at(future, log.log_start_offset)
        self._futures[topic_partition] = future
        return future

    def drop(self, topic_partition: TopicPartition) -> None:
        future = self._futures.pop(topic_partition, None)
        if future is not None:
            future.release()
            if future.log_directory.failure is None:
                remove_later(self._environment, future.directory, delay_ms=0)

    def rename_into_place(self, old: Log) -> Log:
        """Give the copy, which must be complete, the name of the log; from here on the copy is the log."""
        topic_partition, files = old.topic_partition, self._environment.files
        future = self._futures[topic_partition]
        home = future.log_directory
        assert future.log_end_offset == old.log_end_offset, "the copy is not complete"
        future.flush()
        future.update_config(old.config)
        future.update_high_watermark(old.high_watermark)
        future.maybe_increment_log_start_offset(old.log_start_offset, "as in the log it was made from")
        own_name = future.directory
        try:
            files.replace(f"{old.directory}/{SUPERSEDED}", b"")
        except OSError as error:
            self._take_back(old)
            old.log_directory.fail(error)
            raise KafkaStorageError(f"moving {topic_partition}: {error}") from error
        try:
            future.rename_to(f"{home.path}/{topic_partition}")
            files.sync_directory(home.path)
        except OSError as error:
            home.fail(error)
            if home.failure is None and future.directory != own_name:
                future.rename_to(own_name)
            self._take_back(old)
            raise KafkaStorageError(f"moving {topic_partition}: {error}") from error
        del self._futures[topic_partition]
        return future

    def _take_back(self, old: Log) -> None:
        """The log stays what it is, and goes on: were its mark to stay, a start would prefer a copy to it
        that lacks whatever is written from here on."""
        files, directory = self._environment.files, old.directory
        try:
            unmark(files, directory)
            files.sync_directory(directory)
        except OSError as error:
            old.log_directory.fail(error)
            keep_trying(self._environment, old.log_directory, lambda: files.sync_directory(directory))

    def release(self) -> None:
        for future in self._futures.values():
            future.release()
        self._futures.clear()


def is_superseded(files: Files, directory: str) -> bool:
    return files.exists(f"{directory}/{SUPERSEDED}")


def unmark(files: Files, directory: str) -> None:
    """A crash came before the copy had the log's name: the log is still the right one."""
    if is_superseded(files, directory):
        files.unlink(f"{directory}/{SUPERSEDED}")
