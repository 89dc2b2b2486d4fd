"""All logs of the broker, in all its log directories.

It opens them at start (`directory_opening`), puts a new log into the directory with the fewest and closes
everything in order. What happens from time to time is `log_maintenance`, and compaction the `cleaner`'s. A
directory whose disk fails goes offline with its logs; the others live on. A damaged log is out of service
alone (`damaged_log`), and one that could not be made is made where it was begun (`begun_log`). A log may move
to another directory (`future_logs`).

A deleted log is renamed at once, so that its name is free again, and its files go later.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from barnabas.config.broker_config import BrokerConfig
from barnabas.config.log_config import LogConfig
from barnabas.core.errors import KafkaStorageError
from barnabas.core.files import Held
from barnabas.core.ids import TopicPartition, Uuid, check_topic_name
from barnabas.core.metrics import Metrics
from barnabas.storage import checkpoints
from barnabas.storage.cleaner.log_cleaner import LogCleaner
from barnabas.storage.directory.begun_log import BegunLog
from barnabas.storage.directory.damaged_log import DamagedLog
from barnabas.storage.directory.directory_checkpoints import DirectoryCheckpoints
from barnabas.storage.directory.directory_closing import close_logs
from barnabas.storage.directory.directory_opening import open_logs, read_contents
from barnabas.storage.directory.directory_properties import write_clean_shutdown
from barnabas.storage.directory.disk_errors import offline_on_error
from barnabas.storage.directory.future_logs import FutureLogs, is_superseded, unmark
from barnabas.storage.directory.renaming import rename_aside
from barnabas.storage.environment import Environment, LogDirectory
from barnabas.storage.log.group_commit import GroupCommit
from barnabas.storage.log.log import Log
from barnabas.storage.log.log_loader import open_log
from barnabas.storage.log.truncation import truncate_fully_and_start_at, truncate_to
from barnabas.storage.log_maintenance import LogMaintenance
from barnabas.storage.names import DELETE_DIRECTORY, STRAY_DIRECTORY
from barnabas.storage.removal import remove_later

LOCK = ".lock"
_NONE_UNUSABLE: Mapping[str, OSError] = MappingProxyType({})

_log = logging.getLogger(__name__)


class DuplicateLog(Exception):
    """Two log directories hold a log of the same partition: only a person can say which is right."""


class LogManager:
    """Owned by the loop. `open` before serving, `start` when the scheduler runs, `close` last."""

    def __init__(
        self,
        settings: BrokerConfig,
        environment: Environment,
        config_of: Callable[[str], LogConfig],
        *,
        metrics: Metrics | None = None,
    ) -> None:
        self.directories: list[LogDirectory] = []
        self.had_clean_shutdown: dict[str, bool] = {}
        self.on_flushed: list[Callable[[Log], None]] = []
        """Are told of every log that has been flushed."""
        self.on_directory_failed: list[Callable[[LogDirectory], None]] = []
        """Are told of a directory that went offline, when its logs are gone."""
        self._settings = settings
        self._environment = environment
        self._config_of = config_of
        self._logs: dict[TopicPartition, Log] = {}
        self.damaged: dict[TopicPartition, DamagedLog] = {}
        """Out of service until somebody repairs, replaces or deletes them."""
        self._begun: dict[TopicPartition, BegunLog] = {}
        self._gone_offline: dict[TopicPartition, Log] = {}
        """Logs that were here until their directories failed."""
        self._locks: list[Held] = []
        self._futures = FutureLogs(environment)
        self._checkpoints = DirectoryCheckpoints(environment, self._logs, self.damaged)
        self._group_commit = GroupCommit(environment.background, self._flushed, environment.scheduler)
        self.cleaner = LogCleaner(
            settings,
            environment,
            self.logs,
            self._checkpoints.write_cleaned_soon,
            metrics or Metrics(),
        )
        self.maintenance = LogMaintenance(
            settings,
            environment,
            self._logs,
            self.directories,
            self.cleaner,
            self._checkpoints,
            self._group_commit,
        )

    # -- finding ------------------------------------------------------------------------------

    def get(self, topic_partition: TopicPartition) -> Log | None:
        return self._logs.get(topic_partition)

    def check_undamaged(self, topic_partition: TopicPartition) -> None:
        damaged = self.damaged.get(topic_partition)
        if damaged is not None:
            raise KafkaStorageError(f"the log of {topic_partition} is out of service: {damaged.reason}")

    def check_online(self, topic_partition: TopicPartition, topic_id: Uuid | None) -> None:
        """Whoever makes a log anew that lies in a directory which has failed has it twice at the next start.
        Of a topic that was deleted meanwhile, and made again, it is another log."""
        gone = self._gone_offline.get(topic_partition)
        if gone is not None and (None in (topic_id, gone.topic_id) or topic_id == gone.topic_id):
            raise KafkaStorageError(
                f"the log of {topic_partition} is in {gone.log_directory.path}, which is offline"
            )

    def is_found(self, topic_partition: TopicPartition) -> bool:
        """Whether it is known where the log lies: what was begun was nowhere else."""
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
        """The checkpointed high watermarks of every live directory."""
        found: dict[TopicPartition, int] = {}
        for directory in self.live_directories:
            path = f"{directory.path}/{checkpoints.HIGH_WATERMARKS}"
            found.update(checkpoints.read_offsets(self._environment.files, path))
        return found

    def largest_producer_id(self) -> int:
        """The largest id that any log remembers, -1 without one: new ids must lie above it."""
        ids = (producer_id for log in self._logs.values() for producer_id in log.producers.producers)
        return max(ids, default=-1)

    # -- opening ------------------------------------------------------------------------------

    def open(self, unusable: Mapping[str, OSError] = _NONE_UNUSABLE) -> None:
        """Lock the directories and open every log in them; blocks until recovery is done.

        Directories of which somebody else knows already that they are `unusable` stay offline."""
        for path in map(str, self._settings.log_dirs):
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
            raise KafkaStorageError("none of the log directories can be used")
        for directory in self.live_directories:
            self._open_directory(directory)
        if not self.live_directories:
            raise KafkaStorageError("none of the log directories could be opened; the log says why")
        if len(self.directories) > 1:
            for log in self.logs():
                with offline_on_error(log.log_directory):
                    unmark(self._environment.files, log.directory)

    def _open_directory(self, directory: LogDirectory) -> None:
        with offline_on_error(directory):
            contents = read_contents(self._environment.files, directory)
            self.had_clean_shutdown[directory.path] = contents.is_clean
            for name in contents.leftover_names:
                remove_later(self._environment, f"{directory.path}/{name}", delay_ms=0)
            if contents.has_former_logs:
                self._checkpoints.has_former_logs(directory)
            self.cleaner.load(contents.checkpointed[checkpoints.CLEANED_OFFSETS])
            threads = self._settings.num_recovery_threads_per_data_dir
            for log in open_logs(directory, contents, self._config_of, self._environment, threads=threads):
                self._take(log)
            self._settle_damaged_duplicates()

    def _take(self, log: Log | DamagedLog) -> None:
        if isinstance(log, DamagedLog):
            _log.error("%s is damaged and out of service: %s", log.directory, log.reason)
            self.damaged[log.topic_partition] = log
            return
        other = self._logs.get(log.topic_partition)
        if other is None:
            self._add(log)
        elif not self._settle_interrupted_move(other, log):
            raise DuplicateLog(
                f"{log.topic_partition} is in {log.log_directory.path} and in {other.log_directory.path}"
            )

    def _settle_damaged_duplicates(self) -> None:
        """A damaged log whose whole copy is in its place already is not missed."""
        for both in self.damaged.keys() & self._logs.keys():
            damaged, whole = self.damaged[both], self._logs[both]
            if not is_superseded(self._environment.files, damaged.directory):
                raise DuplicateLog(f"{both} is in {damaged.directory}, damaged, and in {whole.directory}")
            del self.damaged[both]

    def _settle_interrupted_move(self, one: Log, other: Log) -> bool:
        """Keep the copy, and put away the log that it was made from, if one of them is marked so."""
        for old, new in ((one, other), (other, one)):
            if is_superseded(self._environment.files, old.directory):
                self._logs[old.topic_partition] = old
                self._set_aside(old.topic_partition, DELETE_DIRECTORY)
                self._add(new)
                return True
        return False

    def _add(self, log: Log) -> None:
        log.flush_by(self._group_commit.request)
        self._logs[log.topic_partition] = log

    def get_or_create(
        self, topic_partition: TopicPartition, topic_id: Uuid | None = None, *, directory: str | None = None
    ) -> Log:
        """The log of the partition; a new one goes where the fewest logs are."""
        log = self._logs.get(topic_partition)
        if log is None:
            check_topic_name(topic_partition.topic)
            self.check_undamaged(topic_partition)
            self.check_online(topic_partition, topic_id)
            begun = self._begun.get(topic_partition)
            home = self._home_for_new_log(directory if begun is None else begun.log_directory.path)
            self._checkpoints.forget_former_logs(home)
            place = f"{home.path}/{topic_partition}"
            self._begun[topic_partition] = BegunLog(topic_partition, home, place)
            try:
                log = open_log(
                    topic_partition, home, place, self._config_of(topic_partition.topic), self._environment
                )
            except OSError as error:
                home.fail(error)
                raise KafkaStorageError(f"creating the log of {topic_partition}: {error}") from error
            del self._begun[topic_partition]
            self.cleaner.forget(log)  # a crash may have left the checkpoint of a deleted namesake
            self._add(log)
        if topic_id is not None:
            log.assign_topic_id(topic_id)
        return log

    def _home_for_new_log(self, wanted: str | None) -> LogDirectory:
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

    # -- changing -----------------------------------------------------------------------------

    def update_config(self, topic: str, config: LogConfig) -> None:
        for log in self.logs_of(topic):
            log.update_config(config)

    def lower_recovery_points(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Have it on disk that logs are not to be trusted from these offsets on.

        Before they are cut: after a crash, recovery would otherwise trust what has been written anew. One
        write serves all logs of a directory; where recovery points lie below already there is none."""
        found = [(log, offset) for each, offset in offsets.items() if (log := self._logs.get(each))]
        for directory in self.live_directories:
            former = {
                log: log.recovery_point
                for log, offset in found
                if log.log_directory is directory and offset < log.recovery_point
            }
            for log, offset in found:
                if log in former:
                    log.flush_state.set_recovery_point(offset)
            if not former:
                continue
            try:
                self._checkpoints.write_now(directory, checkpoints.RECOVERY_POINTS)
            except KafkaStorageError:
                for log, recovery_point in former.items():
                    log.flush_state.set_recovery_point(recovery_point)
                raise

    def truncate_to(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Cut logs. What has been cut (`Log.unsynced_cut`) may be synced elsewhere, all of it together; a
        log of which that is not done syncs before its next append."""
        self.lower_recovery_points(offsets)
        for topic_partition, offset in offsets.items():
            log = self._logs.get(topic_partition)
            if log is not None and truncate_to(log, offset, is_sync_deferred=True):
                self.cleaner.truncated(log)

    def truncate_fully_and_start_at(self, topic_partition: TopicPartition, offset: int) -> None:
        self.lower_recovery_points({topic_partition: offset})
        log = self._logs.get(topic_partition)
        if log is not None:
            truncate_fully_and_start_at(log, offset)
            self.cleaner.truncated(log)

    def delete(self, topic_partition: TopicPartition) -> None:
        """Take the log away: by name at once, from the disk after `file.delete.delay.ms`."""
        self._set_aside(topic_partition, DELETE_DIRECTORY)

    def set_aside_stray(self, topic_partition: TopicPartition) -> None:
        """Keep the files of a log that the cluster does not know, under another name."""
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
        home = log.log_directory
        self._checkpoints.has_former_logs(home)
        delay_ms = self._config_of(topic_partition.topic).file_delete_delay_ms
        if isinstance(log, Log):
            log.release()
            self.cleaner.forget(log)
            delay_ms = log.config.file_delete_delay_ms
        if home.failure is None:
            rename_aside(self._environment, log, suffix, delay_ms=delay_ms)

    def _take_begun(self, topic_partition: TopicPartition) -> BegunLog | None:
        """What there is of a log that was not made. It stays on a failed disk, to come back with it."""
        begun = self._begun.get(topic_partition)
        if begun is None or begun.log_directory.failure is not None:
            return None
        del self._begun[topic_partition]
        return begun if self._environment.files.exists(begun.directory) else None

    # -- moving -------------------------------------------------------------------------------

    def future(self, topic_partition: TopicPartition) -> Log | None:
        return self._futures.get(topic_partition)

    def futures(self) -> list[Log]:
        return self._futures.all()

    def create_future(self, topic_partition: TopicPartition, directory: str) -> Log:
        """An empty log in another directory, to be filled from the present one."""
        log = self._logs[topic_partition]
        self.drop_future(topic_partition)
        home = self._home_for_new_log(directory)
        self._checkpoints.forget_former_logs(home)
        return self._futures.create(log, home)

    def drop_future(self, topic_partition: TopicPartition) -> None:
        self._futures.drop(topic_partition)

    def promote_future(self, topic_partition: TopicPartition) -> Log:
        """Put the copy, which must be complete, into the place of the log."""
        log = self._futures.rename_into_place(self._logs[topic_partition])
        self._set_aside(topic_partition, DELETE_DIRECTORY)
        self._add(log)
        # Without them a crash would verify all of it, and bring back what was deleted by its start offset.
        self._checkpoints.write_soon(checkpoints.RECOVERY_POINTS, [log.log_directory])
        self._checkpoints.write_soon(checkpoints.LOG_START_OFFSETS, [log.log_directory])
        return log

    def _flushed(self, log: Log) -> None:
        for tell in self.on_flushed:
            tell(log)

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
        for tell in self.on_directory_failed:
            tell(directory)

    # -- running and the end --------------------------------------------------------------------

    def start(self) -> None:
        """Begin what happens from time to time."""
        self.maintenance.start()
        self.cleaner.start()

    def close(self, broker_epoch: int = -1) -> None:
        """Flush and close every log, write the checkpoints and the marker of a clean shutdown."""
        self._stop()
        for directory in self.live_directories:
            with offline_on_error(directory):
                close_logs(
                    [log for log in self._logs.values() if log.log_directory is directory],
                    threads=self._settings.num_recovery_threads_per_data_dir,
                )
                if directory.failure is not None:
                    continue  # its logs are gone, and were not closed: the next start must not trust them
                self._checkpoints.write_last(directory)
                write_clean_shutdown(self._environment.files, directory.path, broker_epoch)
        self.abandon()

    def abandon(self) -> None:
        """Let go of everything without writing: what a crash does, but for the locks."""
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
