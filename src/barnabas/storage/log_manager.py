"""Log manager: all logs of the broker, in all its log directories.

The manager opens the logs at the start (`directory_opening`), and closes them at the end. A new log goes to
the directory with the fewest logs.

- `log_maintenance` does the periodic work, `cleaner` the compaction.
- A directory whose disk fails goes offline with its logs. The other directories stay in service.
- A damaged log goes out of service alone. A log that could not be created is retried in the same directory
  (`unusable_logs`).
- A log may move to another directory (`future_logs`).
- A deleted log is renamed at once, so that its name is free again. Its files are removed later.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType

from barnabas.config.broker_config import BrokerConfig
from barnabas.config.log_config import LogConfig
from barnabas.core.errors import KafkaStorageError
from barnabas.core.files import Held
from barnabas.core.ids import TopicPartition, Uuid, check_topic_name
from barnabas.core.regions import FileRegion
from barnabas.core.reporting.metrics import Metrics
from barnabas.storage.cleaner.log_cleaner import LogCleaner
from barnabas.storage.directory import duplicates
from barnabas.storage.directory.directory_checkpoints import DirectoryCheckpoints
from barnabas.storage.directory.directory_opening import open_logs, read_contents
from barnabas.storage.directory.directory_properties import write_clean_shutdown
from barnabas.storage.directory.disk_errors import offline_on_error
from barnabas.storage.directory.future_logs import FutureLogs
from barnabas.storage.directory.kraft_metadata import KraftMetadata, note_adopted, read_kraft_metadata
from barnabas.storage.directory.renaming import rename_aside
from barnabas.storage.directory.unusable_logs import BegunLog, DamagedLog
from barnabas.storage.files import checkpoints
from barnabas.storage.files.delayed_delete import remove_later
from barnabas.storage.files.environment import Environment, LogDirectory
from barnabas.storage.files.names import DELETE_DIRECTORY, STRAY_DIRECTORY
from barnabas.storage.loading.log_loader import open_log
from barnabas.storage.log.group_commit import GroupCommit
from barnabas.storage.log.log import Log
from barnabas.storage.log.retention import is_past_retention
from barnabas.storage.log.truncation import truncate_fully_and_start_at, truncate_to
from barnabas.storage.log_maintenance import LogMaintenance

LOCK = ".lock"
CLOSED_AT_ONCE = 100
"""Logs that are closed at the same time: each has open files until it is synced."""
_NONE_UNUSABLE: Mapping[str, OSError] = MappingProxyType({})

logger = logging.getLogger(__name__)


class DuplicateLog(Exception):
    """Two log directories hold a log of the same partition, and only an operator can choose one."""


class LogManager:
    """Owned by the loop. `open` before serving, `start` when the scheduler runs, `close` last."""

    def __init__(
        self,
        config: BrokerConfig,
        environment: Environment,
        config_of: Callable[[str], LogConfig],
        *,
        metrics: Metrics,
    ) -> None:
        self.directories: list[LogDirectory] = []
        self.had_clean_shutdown: dict[str, bool] = {}
        self.on_flushed: list[Callable[[Log], None]] = []
        """Callbacks after the flush of a log."""
        self.on_directory_failed: list[Callable[[LogDirectory], None]] = []
        """Callbacks after a directory went offline and its logs were released."""
        self.on_log_failed: list[Callable[[TopicPartition], None]] = []
        """Callbacks after a log alone went out of service."""
        self._config = config
        self._environment = environment
        self._config_of = config_of
        self._logs: dict[TopicPartition, Log] = {}
        self.damaged: dict[TopicPartition, DamagedLog] = {}
        """Damaged logs, out of service until an operator repairs, replaces or deletes them."""
        self._begun: dict[TopicPartition, BegunLog] = {}
        self._gone_offline: dict[TopicPartition, Log] = {}
        """Released logs of directories that have failed."""
        self._unclean: set[str] = set()
        """Directories with a log that cannot be closed cleanly. The next start recovers them."""
        self._locks: list[Held] = []
        self._futures = FutureLogs(environment)
        self._checkpoints = DirectoryCheckpoints(environment, self._logs, self.damaged)
        self._group_commit = GroupCommit(environment.background, self._flushed, environment.scheduler)
        self.cleaner = LogCleaner(
            config,
            environment,
            self.logs,
            self._checkpoints.write_cleaned_soon,
            metrics,
            is_moving=lambda log: self._futures.get(log.topic_partition) is not None,
        )
        self.maintenance = LogMaintenance(
            config,
            environment,
            self._logs,
            self.directories,
            self.cleaner,
            self._checkpoints,
            self._group_commit,
        )

    # --- lookup ---

    def get(self, topic_partition: TopicPartition) -> Log | None:
        return self._logs.get(topic_partition)

    def check_undamaged(self, topic_partition: TopicPartition) -> None:
        damaged = self.damaged.get(topic_partition)
        if damaged is not None:
            raise KafkaStorageError(f"the log of {topic_partition} is out of service: {damaged.reason}")

    def check_online(self, topic_partition: TopicPartition, topic_id: Uuid | None) -> None:
        """Raise if the log is in an offline directory: creating it again would leave two copies.

        The log of a topic that was deleted and created again has another topic id and may be created."""
        gone = self._gone_offline.get(topic_partition)
        if gone is not None and (None in (topic_id, gone.topic_id) or topic_id == gone.topic_id):
            raise KafkaStorageError(
                f"the log of {topic_partition} is in {gone.log_directory.path}, which is offline"
            )

    def is_found(self, topic_partition: TopicPartition) -> bool:
        """Whether the directory of the log is known. A begun log has no other copy."""
        begun = self._begun.get(topic_partition)
        return (
            topic_partition in self._logs
            or topic_partition in self.damaged
            or (begun is not None and begun.log_directory.failure is None)
        )

    def logs(self) -> Iterator[Log]:
        return iter(list(self._logs.values()))

    def logs_of(self, topic: str) -> list[Log]:
        return [log for log in self._logs.values() if log.topic_partition.topic == topic]

    @property
    def live_directories(self) -> list[LogDirectory]:
        return [directory for directory in self.directories if directory.failure is None]

    @property
    def offline_directories(self) -> list[LogDirectory]:
        return [directory for directory in self.directories if directory.failure is not None]

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """Checkpointed high watermarks of all live directories."""
        found: dict[TopicPartition, int] = {}
        for directory in self.live_directories:
            path = f"{directory.path}/{checkpoints.HIGH_WATERMARKS}"
            found.update(checkpoints.read_offsets(self._environment.files, path))
        return found

    def largest_producer_id(self) -> int:
        """Largest producer id in any log, -1 without one. New ids must be above it."""
        ids = (producer_id for log in self._logs.values() for producer_id in log.producers.producers)
        return max(ids, default=-1)

    # --- files of Apache Kafka ---

    def kraft_metadata(self) -> KraftMetadata | None:
        """Read the metadata log of Apache Kafka, unless its settings were imported before."""
        for directory in self.live_directories:
            metadata = read_kraft_metadata(self._environment.files, directory.path)
            if metadata is not None:
                return metadata
        return None

    def note_kraft_metadata_adopted(self, metadata: KraftMetadata) -> None:
        (directory,) = (each for each in self.directories if each.path == metadata.log_directory)
        with offline_on_error(directory):
            note_adopted(self._environment.files, metadata)

    def would_delete(self, topic: str, retention_ms: int) -> bool:
        """Whether retention by age would now delete segments of the topic."""
        return any(is_past_retention(log, retention_ms) for log in self.logs_of(topic))

    # --- open and create ---

    def open(self, unusable: Mapping[str, OSError] = _NONE_UNUSABLE) -> None:
        """Lock the directories and open every log in them; blocks until recovery is done.

        The `unusable` directories, which the caller has checked, stay offline."""
        for path in map(str, self._config.log_dirs):
            directory = LogDirectory(path)
            directory.when_failed.append(self._directory_failed)
            self.directories.append(directory)
            try:
                if path in unusable:
                    raise unusable[path]
                self._environment.files.make_lasting_directory(path)
                self._locks.append(self._environment.files.lock(f"{path}/{LOCK}"))
            except OSError as error:
                directory.take_offline(error)
        if not self.live_directories:
            raise KafkaStorageError(
                "no log directory is usable; the log has the reason for each. Check log.dirs"
            )
        for directory in self.live_directories:
            self._open_directory(directory)
        if not self.live_directories:
            raise KafkaStorageError("no log directory could be opened; the log has the reason for each")
        if len(self.directories) > 1:
            for log in self.logs():
                with offline_on_error(log.log_directory):
                    duplicates.unmark(self._environment.files, log.directory)
                    if not self.offline_directories:
                        duplicates.unmark_made_anew(self._environment.files, [log.directory])

    def _open_directory(self, directory: LogDirectory) -> None:
        with offline_on_error(directory):
            contents = read_contents(self._environment.files, directory)
            self.had_clean_shutdown[directory.path] = contents.is_clean
            for name in contents.leftover_names:
                remove_later(self._environment, f"{directory.path}/{name}", delay_ms=0)
            if contents.has_deleted_logs:
                self._checkpoints.has_deleted_logs(directory)
            self.cleaner.load(contents.checkpointed[checkpoints.CLEANED_OFFSETS])
            threads = self._config.num_recovery_threads_per_data_dir
            for log in open_logs(directory, contents, self._config_of, self._environment, threads=threads):
                self._take(log)
            self._settle_damaged_duplicates()

    def _take(self, log: Log | DamagedLog) -> None:
        if isinstance(log, DamagedLog):
            logger.error(
                "partition %s: its log in %s is damaged and out of service: %s. "
                "Restore its files and restart the broker, or reassign the replica",
                log.topic_partition,
                log.directory,
                log.reason,
            )
            self.damaged[log.topic_partition] = log
            return
        other = self._logs.get(log.topic_partition)
        if other is None:
            self._add(log)
        else:
            self._settle_duplicates(other, log)

    def _settle_damaged_duplicates(self) -> None:
        """Drop damaged logs that another log has replaced."""
        for both in self.damaged.keys() & self._logs.keys():
            damaged, whole = self.damaged[both], self._logs[both]
            verdict = duplicates.verdict(self._environment.files, damaged.directory, whole.directory)
            if verdict is None or verdict.directory != damaged.directory:
                raise DuplicateLog(
                    f"{both} is in {damaged.directory}, damaged, and in {whole.directory}. "
                    "Move one of the two directories away"
                )
            del self.damaged[both]
            if verdict.suffix == STRAY_DIRECTORY:
                rename_aside(self._environment, damaged, verdict.suffix, delay_ms=0)

    def _settle_duplicates(self, one: Log, other: Log) -> None:
        """Keep the log that counts, and set the other one aside."""
        verdict = duplicates.verdict(self._environment.files, one.directory, other.directory)
        if verdict is None:
            raise DuplicateLog(
                f"{one.topic_partition} is in {other.log_directory.path} and in {one.log_directory.path}. "
                "Move one of the two directories away"
            )
        old, new = (one, other) if verdict.directory == one.directory else (other, one)
        if verdict.suffix == STRAY_DIRECTORY:
            logger.warning(
                "partition %s: its log in %s was created while %s was offline. "
                "The log there is set aside as a stray",
                new.topic_partition,
                new.log_directory.path,
                old.log_directory.path,
            )
        self._logs[old.topic_partition] = old
        self._set_aside(old.topic_partition, verdict.suffix)
        self._add(new)

    def _add(self, log: Log) -> None:
        log.flush_by(self._group_commit.request)
        log.on_unreadable = self._read_failed
        self._logs[log.topic_partition] = log

    def get_or_create(
        self, topic_partition: TopicPartition, topic_id: Uuid | None = None, *, directory: str | None = None
    ) -> Log:
        """Log of the partition with its topic's current config; a new one goes to the emptiest directory."""
        log = self._logs.get(topic_partition)
        if log is not None:
            # Since the start, the topic may have been imported, or its config may have changed.
            log.update_config(self._config_of(topic_partition.topic))
        else:
            check_topic_name(topic_partition.topic)
            self.check_undamaged(topic_partition)
            self.check_online(topic_partition, topic_id)
            begun = self._begun.get(topic_partition)
            wanted = directory if begun is None else begun.log_directory.path
            log_directory = self._directory_for_new_log(wanted)
            self._checkpoints.forget_deleted_logs(log_directory)
            path = f"{log_directory.path}/{topic_partition}"
            self._begun[topic_partition] = BegunLog(topic_partition, log_directory, path)
            try:
                if self.offline_directories:
                    duplicates.mark_made_anew(self._environment.files, path)
                config = self._config_of(topic_partition.topic)
                log = open_log(topic_partition, log_directory, path, config, self._environment)
            except OSError as error:
                log_directory.fail(error)
                raise KafkaStorageError(f"creating the log of {topic_partition}: {error}") from error
            del self._begun[topic_partition]
            self.cleaner.forget(log)  # a crash may leave the checkpoint of a deleted log of this name
            self._add(log)
        if topic_id is not None:
            log.assign_topic_id(topic_id)
        return log

    def _directory_for_new_log(self, wanted: str | None) -> LogDirectory:
        live = self.live_directories
        if wanted is not None:
            live = [directory for directory in live if directory.path == wanted]
        if not live:
            raise KafkaStorageError(
                "no log directory is online" if wanted is None else f"{wanted} is offline"
            )
        load = dict.fromkeys((directory.path for directory in live), 0)
        if len(live) > 1:
            for log in self._logs.values():
                if log.log_directory.path in load:
                    load[log.log_directory.path] += 1
        return min(live, key=lambda directory: load[directory.path])

    # --- truncate and delete ---

    def update_config(self, topic: str, config: LogConfig) -> None:
        for log in self.logs_of(topic):
            log.update_config(config)

    def lower_recovery_points(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Lower recovery points on disk to these offsets, before the logs are truncated.

        After a crash, recovery would otherwise trust records that were written after the truncation. One
        write serves all logs of a directory. It is skipped if all recovery points are low enough."""
        found = [(log, offset) for each, offset in offsets.items() if (log := self._logs.get(each))]
        for directory in self.live_directories:
            previous = {
                log: log.flush_state.recovery_point
                for log, offset in found
                if log.log_directory is directory and offset < log.flush_state.recovery_point
            }
            for log, offset in found:
                if log in previous:
                    log.flush_state.set_recovery_point(offset)
            if not previous:
                continue
            try:
                self._checkpoints.write_now(directory, checkpoints.RECOVERY_POINTS)
            except KafkaStorageError:
                for log, recovery_point in previous.items():
                    log.flush_state.set_recovery_point(recovery_point)
                raise

    def truncate_to(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Truncate logs. The caller may sync them together (`FlushState.unsynced_cut`).

        A log that the caller does not sync syncs before its next append."""
        self.lower_recovery_points(offsets)
        self._lower_cleaned_offsets(offsets)
        for topic_partition, offset in offsets.items():
            log = self._logs.get(topic_partition)
            if log is not None:
                truncate_to(log, offset, is_sync_deferred=True)

    def truncate_fully_and_start_at(self, topic_partition: TopicPartition, offset: int) -> None:
        self.lower_recovery_points({topic_partition: offset})
        self._lower_cleaned_offsets({topic_partition: offset})
        log = self._logs.get(topic_partition)
        if log is not None:
            truncate_fully_and_start_at(log, offset)

    def _lower_cleaned_offsets(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Lower cleaned offsets on disk, before the logs are truncated.

        After a crash, records that were written after the truncation would otherwise count as compacted:
        their tombstones would go before their values. Only an unclean election truncates so far."""
        found = [(log, offset) for each, offset in offsets.items() if (log := self._logs.get(each))]
        lowered = {log.log_directory.path for log, offset in found if self.cleaner.lower(log, offset)}
        for directory in self.live_directories:
            if directory.path in lowered:
                self._checkpoints.write_cleaned_now(directory, self.cleaner.cleaned_offsets(directory))

    def delete(self, topic_partition: TopicPartition) -> None:
        """Rename the log for deletion; its files are removed after `file.delete.delay.ms`."""
        self._set_aside(topic_partition, DELETE_DIRECTORY)

    def set_aside_stray(self, topic_partition: TopicPartition) -> None:
        """Keep the files of a log whose partition the cluster does not have, under another name."""
        self._set_aside(topic_partition, STRAY_DIRECTORY)

    def _set_aside(self, topic_partition: TopicPartition, suffix: str) -> None:
        self.drop_future(topic_partition)
        log = (
            self._logs.pop(topic_partition, None)
            or self.damaged.pop(topic_partition, None)
            or self._take_begun(topic_partition)
        )
        if log is None:
            return
        log_directory = log.log_directory
        self._checkpoints.has_deleted_logs(log_directory)
        delay_ms = self._config_of(topic_partition.topic).file_delete_delay_ms
        if isinstance(log, Log):
            log.release()
            self.cleaner.forget(log)
            delay_ms = log.config.file_delete_delay_ms
        if log_directory.failure is None:
            rename_aside(self._environment, log, suffix, delay_ms=delay_ms)

    def _take_begun(self, topic_partition: TopicPartition) -> BegunLog | None:
        """Remove and return a begun log. One on a failed disk stays, and comes back with the disk."""
        begun = self._begun.get(topic_partition)
        if begun is None or begun.log_directory.failure is not None:
            return None
        del self._begun[topic_partition]
        return begun if self._environment.files.exists(begun.directory) else None

    # --- move to another directory ---

    def future(self, topic_partition: TopicPartition) -> Log | None:
        return self._futures.get(topic_partition)

    def futures(self) -> list[Log]:
        return self._futures.all()

    def create_future(self, topic_partition: TopicPartition, directory: str) -> Log:
        """Create an empty log in another directory, to be filled from the current one."""
        log = self._logs[topic_partition]
        self.drop_future(topic_partition)
        log_directory = self._directory_for_new_log(directory)
        self._checkpoints.forget_deleted_logs(log_directory)
        return self._futures.create(log, log_directory)

    def drop_future(self, topic_partition: TopicPartition) -> None:
        self._futures.drop(topic_partition)

    def promote_future(self, topic_partition: TopicPartition) -> Log:
        """Replace the log by its copy, which must be complete."""
        old, future = self._logs[topic_partition], self._futures.complete(self._logs[topic_partition])
        # Only the checkpoint holds a start offset inside a segment: a crash would undo DeleteRecords.
        self._checkpoints.write_start_offset_of_copy(future)
        log = self._futures.rename_into_place(old)
        self._set_aside(topic_partition, DELETE_DIRECTORY)
        self._add(log)
        # Without these, recovery after a crash would verify the whole log.
        self._checkpoints.write_soon(checkpoints.RECOVERY_POINTS, [log.log_directory])
        self._checkpoints.write_soon(checkpoints.LOG_START_OFFSETS, [log.log_directory])
        return log

    # --- flushes and failures ---

    def _flushed(self, log: Log) -> None:
        for callback in self.on_flushed:
            callback(log)

    def region_unreadable(self, region: FileRegion, error: OSError) -> None:
        """Report that the network could not send a region of a log, because its read failed."""
        for log in self.logs():
            if log.segments.holds(region.file):
                log.read_failed(error)
                return

    def _read_failed(self, log: Log, error: OSError) -> None:
        """Take the log out of service. Its files stay, and the next start tries to open it again."""
        key, directory = log.topic_partition, log.log_directory
        if self._logs.get(key) is not log:
            return
        logger.error(
            "partition %s: its log in %s cannot be read and is out of service: %s. "
            "Restore its files and restart the broker, or reassign the replica",
            key,
            log.directory,
            error,
        )
        self._unclean.add(directory.path)
        self.damaged[key] = DamagedLog(
            key, directory, log.directory, f"it cannot be read: {error}", self._checkpoints.of(log)
        )
        del self._logs[key]
        log.release()
        self.cleaner.forget(log)
        self.drop_future(key)
        for callback in self.on_log_failed:
            callback(key)

    def _directory_failed(self, directory: LogDirectory) -> None:
        gone = [log for log in self._logs.values() if log.log_directory is directory]
        for log in gone:
            del self._logs[log.topic_partition]
            self._gone_offline[log.topic_partition] = log
            log.release()
            self.cleaner.forget(log)
            self.drop_future(log.topic_partition)
        for future in self.futures():
            if future.log_directory is directory:
                self.drop_future(future.topic_partition)
        for callback in self.on_directory_failed:
            callback(directory)

    # --- start and close ---

    def start(self) -> None:
        """Start the periodic work and the cleaner."""
        self.maintenance.start()
        self.cleaner.start()

    def close(self, broker_epoch: int = -1) -> None:
        """Flush and close every log, then write the checkpoints and the clean-shutdown marker."""
        self._stop()
        for directory in self.live_directories:
            with offline_on_error(directory):
                _close_logs(
                    [log for log in self._logs.values() if log.log_directory is directory],
                    threads=self._config.num_recovery_threads_per_data_dir,
                )
                if directory.failure is not None:
                    continue  # its logs were released without a close: the next start must not trust them
                self._checkpoints.write_last(directory)
                if directory.path not in self._unclean:
                    write_clean_shutdown(self._environment.files, directory.path, broker_epoch)
        self.abandon()

    def abandon(self) -> None:
        """Release everything without a write, as a crash does, and release the locks."""
        self._stop()
        for log in self.logs():
            log.release()
        self._logs.clear()
        self.damaged.clear()
        self._begun.clear()
        self._futures.release()
        for lock in self._locks:
            lock.release()
        self._locks.clear()

    def _stop(self) -> None:
        self.cleaner.stop()
        self.maintenance.stop()


def _close_logs(logs: Sequence[Log], *, threads: int) -> None:
    """Close logs in threads: a sync of many files takes long, and concurrent syncs share disk writes."""
    with ThreadPoolExecutor(threads, thread_name_prefix="log-close") as pool:
        for first in range(0, len(logs), CLOSED_AT_ONCE):
            some = logs[first : first + CLOSED_AT_ONCE]
            works = [(log, work) for log in some if (work := log.plan_close()) is not None]
            for log, future in [(log, pool.submit(work)) for log, work in works]:
                log.flush_completed(future.result())
            for log in some:
                log.release()
