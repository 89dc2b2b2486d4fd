"""All logs of the broker, in all its log directories.

It opens them at start (in threads: recovery reads the disk, and nothing else runs yet), puts
a new log into the directory with the fewest, runs what happens from time to time (retention,
compaction, flushes, checkpoints, expired producers) and closes everything in order. A
directory whose disk fails goes offline with its logs; the others live on.
 A
damaged log is out of service alone (`damaged_log`).

A deleted log is renamed at once, so that its name is free again, and its files go later.

A log moves to another directory as a copy, the *future* log, that takes its place once it is
complete. For a moment both have the log's name: the old one is marked before, so that a start
after a crash knows which of them is right. Copies that were not complete are thrown away.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from types import MappingProxyType

from barnabas.core.errors import KafkaStorageError
from barnabas.core.ids import TopicPartition, Uuid, check_topic_name
from barnabas.core.metrics import Metrics
from barnabas.core.scheduler import Cancellable
from barnabas.storage import checkpoints
from barnabas.storage.batch_scan import GarbledLog
from barnabas.storage.checkpoint_write import CheckpointWrite
from barnabas.storage.cleaner.log_cleaner import CleanerSettings, LogCleaner
from barnabas.storage.damaged_log import DamagedLog, is_damage
from barnabas.storage.directory_properties import (
    read_clean_shutdown,
    remove_clean_shutdown,
    write_clean_shutdown,
)
from barnabas.storage.environment import Environment, LogDirectory
from barnabas.storage.failures import logged, offline_on_error
from barnabas.storage.files import Held
from barnabas.storage.group_commit import GroupCommit
from barnabas.storage.log import Log
from barnabas.storage.log_config import LogConfig
from barnabas.storage.log_loader import open_log
from barnabas.storage.names import (
    DELETE_DIRECTORY,
    FUTURE_DIRECTORY,
    STRAY_DIRECTORY,
    SUPERSEDED,
    is_half_moved,
    is_marked_for_deletion,
    parse_log_directory,
    renamed_directory,
)

LOCK = ".lock"
_NONE_UNUSABLE: Mapping[str, OSError] = MappingProxyType({})

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LogManagerSettings:
    """The broker's settings that bear on all logs."""

    log_directories: tuple[str, ...]
    recovery_threads_per_directory: int = 2
    retention_check_interval_ms: int = 300_000
    flush_check_interval_ms: int = 3_000
    recovery_checkpoint_interval_ms: int = 60_000
    start_offset_checkpoint_interval_ms: int = 60_000
    high_watermark_checkpoint_interval_ms: int = 5_000
    producer_expiration_check_interval_ms: int = 600_000
    initial_delay_ms: int = 30_000
    cleaner: CleanerSettings = field(default_factory=CleanerSettings)


class DuplicateLog(Exception):
    """Two log directories hold a log of the same partition: only a person can say which is right."""


class LogManager:
    """Owned by the loop. `open` before serving, `start` when the scheduler runs, `close` last."""

    def __init__(
        self,
        settings: LogManagerSettings,
        environment: Environment,
        config_of: Callable[[str], LogConfig],
        *,
        on_flushed: Callable[[Log], None] = lambda _: None,
        on_directory_failed: Callable[[LogDirectory], None] = lambda _: None,
        metrics: Metrics | None = None,
    ) -> None:
        self.directories: list[LogDirectory] = []
        self.had_clean_shutdown: dict[str, bool] = {}
        self.last_broker_epoch = -1
        """What the last clean shutdown left; -1 when a directory has none, or they disagree."""
        self._settings = settings
        self._environment = environment
        self._config_of = config_of
        self._on_directory_failed = on_directory_failed
        self._logs: dict[TopicPartition, Log] = {}
        self._futures: dict[TopicPartition, Log] = {}
        self.damaged: dict[TopicPartition, DamagedLog] = {}
        """Out of service until somebody repairs, replaces or deletes them."""
        self._locks: list[Held] = []
        self._timers: list[Cancellable] = []
        self._with_former_logs: set[str] = set()
        """Directories whose checkpoints may still speak of logs that are no longer there."""
        self._group_commit = GroupCommit(environment.background, on_flushed)
        self.cleaner = LogCleaner(
            settings.cleaner, environment, self.logs, self._checkpoint_cleaned, metrics or Metrics()
        )

    # -- finding ------------------------------------------------------------------------------

    def get(self, topic_partition: TopicPartition) -> Log | None:
        return self._logs.get(topic_partition)

    def check_undamaged(self, topic_partition: TopicPartition) -> None:
        damaged = self.damaged.get(topic_partition)
        if damaged is not None:
            raise KafkaStorageError(f"the log of {topic_partition} is out of service: {damaged.reason}")

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
        for path in self._settings.log_directories:
            directory = LogDirectory(path)
            directory.when_failed.append(self._directory_failed)
            self.directories.append(directory)
            try:
                if path in unusable:
                    raise unusable[path]
                self._environment.files.make_directory(path)
                self._locks.append(self._environment.files.lock(f"{path}/{LOCK}"))
            except OSError as error:
                directory.fail(error)
        if not self.live_directories:
            raise KafkaStorageError("none of the log directories can be used")
        epochs = {self._open_directory(directory) for directory in self.live_directories}
        if not self.live_directories:
            raise KafkaStorageError("none of the log directories could be opened; the log says why")
        self.last_broker_epoch = epochs.pop() if len(epochs) == 1 else -1
        if len(self.directories) > 1:
            self._unmark_logs_that_stay()

    def _unmark_logs_that_stay(self) -> None:
        """A crash came before the copy had the log's name: the log is still the right one."""
        files = self._environment.files
        for log in self.logs():
            with offline_on_error(log.log_directory):
                if files.exists(f"{log.directory}/{SUPERSEDED}"):
                    files.unlink(f"{log.directory}/{SUPERSEDED}")

    def _open_directory(self, directory: LogDirectory) -> int:
        """Open the logs of one directory; the broker epoch in its clean-shutdown marker, or -1."""
        files = self._environment.files
        broker_epoch: int | None = None
        with offline_on_error(directory):
            broker_epoch = read_clean_shutdown(files, directory.path)
            if broker_epoch is not None:
                remove_clean_shutdown(files, directory.path)
            self.had_clean_shutdown[directory.path] = broker_epoch is not None
            names = [entry.name for entry in files.list(directory.path) if entry.is_directory]
            for name in (each for each in names if is_marked_for_deletion(each) or is_half_moved(each)):
                self._remove_later(f"{directory.path}/{name}", delay_ms=0)
            self._open_logs(directory, names, is_clean=broker_epoch is not None)
        return -1 if broker_epoch is None else broker_epoch

    def _open_logs(self, directory: LogDirectory, names: list[str], *, is_clean: bool) -> None:
        files, path = self._environment.files, directory.path
        recovery_points = checkpoints.read_offsets(files, f"{path}/{checkpoints.RECOVERY_POINTS}")
        start_offsets = checkpoints.read_offsets(files, f"{path}/{checkpoints.LOG_START_OFFSETS}")
        high_watermarks = checkpoints.read_offsets(files, f"{path}/{checkpoints.HIGH_WATERMARKS}")
        self.cleaner.load(checkpoints.read_offsets(files, f"{path}/{checkpoints.CLEANED_OFFSETS}"))
        found = [(name, partition) for name in names if (partition := parse_log_directory(name))]
        if (recovery_points.keys() | start_offsets.keys()) - {partition for _, partition in found}:
            self._with_former_logs.add(path)

        def load(name: str, partition: TopicPartition) -> Log | DamagedLog:
            try:
                return open_log(
                    partition,
                    directory,
                    f"{path}/{name}",
                    self._config_of(partition.topic),
                    self._environment,
                    is_clean=is_clean,
                    recovery_point=recovery_points.get(partition, 0),
                    log_start_offset=start_offsets.get(partition, 0),
                )
            except (GarbledLog, KafkaStorageError) as error:
                if not is_damage(error):
                    raise
                known = (
                    (checkpoints.RECOVERY_POINTS, recovery_points),
                    (checkpoints.LOG_START_OFFSETS, start_offsets),
                    (checkpoints.HIGH_WATERMARKS, high_watermarks),
                )
                checkpointed = {file: offsets[partition] for file, offsets in known if partition in offsets}
                return DamagedLog(partition, directory, f"{path}/{name}", str(error), checkpointed)

        if is_clean:
            opened: Iterable[Log | DamagedLog] = (load(name, partition) for name, partition in found)
        else:
            opened = _in_threads(load, found, self._settings.recovery_threads_per_directory)
        for log in opened:
            if isinstance(log, DamagedLog):
                _log.error("%s is damaged and out of service: %s", log.directory, log.reason)
                self.damaged[log.topic_partition] = log
                continue
            other = self._logs.get(log.topic_partition)
            if other is not None and not self._settle_interrupted_move(other, log):
                raise DuplicateLog(f"{log.topic_partition} is in {path} and in {other.log_directory.path}")
            if other is None:
                self._add(log)
        self._settle_damaged_duplicates()

    def _settle_damaged_duplicates(self) -> None:
        """A damaged log whose whole copy is in its place already is not missed."""
        for both in self.damaged.keys() & self._logs.keys():
            damaged, whole = self.damaged[both], self._logs[both]
            if not self._environment.files.exists(f"{damaged.directory}/{SUPERSEDED}"):
                raise DuplicateLog(f"{both} is in {damaged.directory}, damaged, and in {whole.directory}")
            del self.damaged[both]

    def _settle_interrupted_move(self, one: Log, other: Log) -> bool:
        """Keep the copy, and put away the log that it was made from, if one of them is marked so."""
        files = self._environment.files
        for old, new in ((one, other), (other, one)):
            if files.exists(f"{old.directory}/{SUPERSEDED}"):
                self._logs[old.topic_partition] = old
                self._set_aside(old.topic_partition, DELETE_DIRECTORY)
                self._add(new)
                return True
        return False

    def _add(self, log: Log) -> None:
        log.request_flush = self._group_commit.request
        self._logs[log.topic_partition] = log

    def get_or_create(
        self, topic_partition: TopicPartition, topic_id: Uuid | None = None, *, directory: str | None = None
    ) -> Log:
        """The log of the partition; a new one goes where the fewest logs are."""
        log = self._logs.get(topic_partition)
        if log is None:
            check_topic_name(topic_partition.topic)
            self.check_undamaged(topic_partition)
            home = self._home_for_new_log(directory)
            self._forget_former_logs(home)
            try:
                log = open_log(
                    topic_partition,
                    home,
                    f"{home.path}/{topic_partition}",
                    self._config_of(topic_partition.topic),
                    self._environment,
                )
            except OSError as error:
                home.fail(error)
                raise KafkaStorageError(f"creating the log of {topic_partition}: {error}") from error
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

    def _forget_former_logs(self, directory: LogDirectory) -> None:
        """Before a log is made: after a crash, a checkpoint of a deleted namesake would be taken for
        its own, and a log that ends before its start offset loses everything."""
        if directory.path not in self._with_former_logs:
            return
        try:
            for name, value in (
                (checkpoints.RECOVERY_POINTS, _recovery_point),
                (checkpoints.LOG_START_OFFSETS, _moved_start_offset),
            ):
                self._checkpoint_write(directory, name, value)()
        except OSError as error:
            directory.fail(error)
            raise KafkaStorageError(f"writing the checkpoints of {directory.path}: {error}") from error
        self._with_former_logs.discard(directory.path)

    # -- changing -----------------------------------------------------------------------------

    def update_config(self, topic: str, config: LogConfig) -> None:
        for log in self.logs_of(topic):
            log.update_config(config)

    def truncate_to(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Truncate logs, and record their recovery points before anything is appended again:
        otherwise recovery would trust what has been rewritten."""
        touched = {}
        for topic_partition, offset in offsets.items():
            log = self._logs.get(topic_partition)
            if log is not None and log.truncate_to(offset):
                touched[log.log_directory.path] = log.log_directory
                self.cleaner.truncated(log)
        self._checkpoint_recovery_points_now(touched.values())

    def truncate_fully_and_start_at(self, topic_partition: TopicPartition, offset: int) -> None:
        log = self._logs.get(topic_partition)
        if log is not None:
            log.truncate_fully_and_start_at(offset)
            self.cleaner.truncated(log)
            self._checkpoint_recovery_points_now([log.log_directory])

    def delete(self, topic_partition: TopicPartition) -> None:
        """Take the log away: by name at once, from the disk after `file.delete.delay.ms`."""
        self._set_aside(topic_partition, DELETE_DIRECTORY)

    def set_aside_stray(self, topic_partition: TopicPartition) -> None:
        """Keep the files of a log that the cluster does not know, under another name."""
        self._set_aside(topic_partition, STRAY_DIRECTORY)

    def _set_aside(self, topic_partition: TopicPartition, suffix: str) -> None:
        self.drop_future(topic_partition)
        log = self._logs.pop(topic_partition, None) or self.damaged.pop(topic_partition, None)
        if log is None:
            return
        home = log.log_directory
        self._with_former_logs.add(home.path)
        delay_ms = self._config_of(topic_partition.topic).file_delete_delay_ms
        if isinstance(log, Log):
            log.release()
            self.cleaner.forget(log)
            delay_ms = log.config.file_delete_delay_ms
        if home.failure is not None:
            return
        unique = self._environment.randomness.randbytes(16).hex()
        new = f"{home.path}/{renamed_directory(topic_partition, unique, suffix)}"
        try:
            if isinstance(log, Log):
                log.rename_to(new)
            else:
                self._environment.files.rename(log.directory, new)
            self._environment.files.sync_directory(home.path)
        except OSError as error:
            home.fail(error)
            raise KafkaStorageError(f"deleting {topic_partition}: {error}") from error
        if suffix == DELETE_DIRECTORY:
            self._remove_later(new, delay_ms=delay_ms)

    # -- moving -------------------------------------------------------------------------------

    def future(self, topic_partition: TopicPartition) -> Log | None:
        return self._futures.get(topic_partition)

    def futures(self) -> list[Log]:
        return list(self._futures.values())

    def create_future(self, topic_partition: TopicPartition, directory: str) -> Log:
        """An empty log in another directory, to be filled from the present one."""
        log = self._logs[topic_partition]
        self.drop_future(topic_partition)
        home = self._home_for_new_log(directory)
        self._forget_former_logs(home)
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
            future.truncate_fully_and_start_at(log.log_start_offset)
        self._futures[topic_partition] = future
        return future

    def drop_future(self, topic_partition: TopicPartition) -> None:
        future = self._futures.pop(topic_partition, None)
        if future is not None:
            future.release()
            if future.log_directory.failure is None:
                self._remove_later(future.directory, delay_ms=0)

    def promote_future(self, topic_partition: TopicPartition) -> Log:
        """Put the copy, which must be complete, into the place of the log."""
        old, future = self._logs[topic_partition], self._futures[topic_partition]
        assert future.log_end_offset == old.log_end_offset, "the copy is not complete"
        future.flush()
        future.update_config(old.config)
        future.update_high_watermark(old.high_watermark)
        future.maybe_increment_log_start_offset(old.log_start_offset, "as in the log it was made from")
        files, home = self._environment.files, future.log_directory
        try:
            files.replace(f"{old.directory}/{SUPERSEDED}", b"")
        except OSError as error:
            old.log_directory.fail(error)
            raise KafkaStorageError(f"moving {topic_partition}: {error}") from error
        try:
            future.rename_to(f"{home.path}/{topic_partition}")
            files.sync_directory(home.path)
        except OSError as error:
            home.fail(error)
            raise KafkaStorageError(f"moving {topic_partition}: {error}") from error
        del self._futures[topic_partition]
        self._set_aside(topic_partition, DELETE_DIRECTORY)
        self._add(future)
        self._checkpoint_recovery_points_now([home])
        return future

    def _remove_later(self, path: str, *, delay_ms: int) -> None:
        environment = self._environment

        def failed(error: BaseException) -> None:
            _log.warning("%s is still there: %s", path, error)

        environment.scheduler.after(
            delay_ms,
            lambda: environment.background.submit(
                lambda: environment.files.remove_tree(path), lambda _: None, failed
            ),
        )

    def _directory_failed(self, directory: LogDirectory) -> None:
        gone = [log for log in self._logs.values() if log.log_directory is directory]
        for log in gone:
            del self._logs[log.topic_partition]
            log.release()
            self.cleaner.forget(log)
            self.drop_future(log.topic_partition)
        for future in self.futures():
            if future.log_directory is directory:
                self.drop_future(future.topic_partition)
        self._on_directory_failed(directory)

    # -- from time to time --------------------------------------------------------------------

    def start(self) -> None:
        settings, every = self._settings, self._environment.scheduler.every
        for period_ms, task in (
            (settings.retention_check_interval_ms, self.apply_retention),
            (settings.flush_check_interval_ms, self.flush_dirty_logs),
            (settings.recovery_checkpoint_interval_ms, self.checkpoint_recovery_points),
            (settings.start_offset_checkpoint_interval_ms, self.checkpoint_log_start_offsets),
            (settings.high_watermark_checkpoint_interval_ms, self.checkpoint_high_watermarks),
            (settings.producer_expiration_check_interval_ms, self.remove_expired_producers),
        ):
            self._timers.append(every(period_ms, task, delay_ms=settings.initial_delay_ms))
        self.cleaner.start()

    def apply_retention(self) -> None:
        """Delete old segments of every log, and close the files of those that no longer grow."""
        for log in self.logs():
            if self.cleaner.is_cleaning(log):
                continue  # the segments being rewritten must stay; the cleaner comes back to this
            with logged(f"retention of {log.topic_partition}"):
                log.delete_old_segments()
                log.release_idle_segments()

    def flush_dirty_logs(self) -> None:
        """Flush the logs whose `flush.ms` has passed."""
        now_ms = self._environment.clock.now_ms()
        for log in self.logs():
            if log.unflushed_messages and now_ms - log.last_flush_ms >= log.config.flush_ms:
                self._group_commit.request(log)

    def remove_expired_producers(self) -> None:
        for log in self.logs():
            log.remove_expired_producers()

    def checkpoint_recovery_points(self) -> None:
        """Recovery points, and the epoch files that lag behind."""
        for log in self.logs():
            if log.leader_epochs.is_dirty:
                log.write_epochs_soon()
        self._checkpoint(checkpoints.RECOVERY_POINTS, _recovery_point)

    def checkpoint_log_start_offsets(self) -> None:
        self._checkpoint(checkpoints.LOG_START_OFFSETS, _moved_start_offset)

    def checkpoint_high_watermarks(self) -> None:
        self._checkpoint(checkpoints.HIGH_WATERMARKS, lambda log: log.high_watermark)

    def _checkpoint_cleaned(self, directory: LogDirectory, offsets: Mapping[TopicPartition, int]) -> None:
        content = checkpoints.render_offsets(offsets)
        write = CheckpointWrite(self._environment.files, directory, checkpoints.CLEANED_OFFSETS, content)
        self._environment.background.submit(write, lambda _: None, directory.fail)

    def _checkpoint(self, name: str, value: Callable[[Log], int | None]) -> None:
        for directory in self.live_directories:
            write = self._checkpoint_write(directory, name, value)
            self._environment.background.submit(write, lambda _: None, directory.fail)

    def _checkpoint_write(
        self, directory: LogDirectory, name: str, value: Callable[[Log], int | None]
    ) -> CheckpointWrite:
        offsets = {}
        for log in self._logs.values():
            if log.log_directory is directory and (offset := value(log)) is not None:
                offsets[log.topic_partition] = offset
        for damaged in self.damaged.values():
            if damaged.log_directory is directory and name in damaged.checkpointed:
                offsets[damaged.topic_partition] = damaged.checkpointed[name]
        content = checkpoints.render_offsets(offsets)
        return CheckpointWrite(self._environment.files, directory, name, content)

    def _checkpoint_recovery_points_now(self, directories: Iterable[LogDirectory]) -> None:
        for directory in directories:
            with offline_on_error(directory):
                self._checkpoint_write(directory, checkpoints.RECOVERY_POINTS, _recovery_point)()

    # -- the end ------------------------------------------------------------------------------

    def close(self, broker_epoch: int = -1) -> None:
        """Flush and close every log, write the checkpoints and the marker of a clean shutdown."""
        self._stop_timers()
        for directory in self.live_directories:
            with offline_on_error(directory):
                self._close_logs(directory)
                self._write_last_checkpoints(directory)
                write_clean_shutdown(self._environment.files, directory.path, broker_epoch)
        self.abandon()

    def _stop_timers(self) -> None:
        """A checkpoint of no logs at all must not replace the last good one."""
        self.cleaner.stop()
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    def _close_logs(self, directory: LogDirectory) -> None:
        """Close them in threads: syncing many files takes long, and syncs at the same time share
        their way to the disk."""
        logs = [log for log in self._logs.values() if log.log_directory is directory]
        threads = self._settings.recovery_threads_per_directory
        with ThreadPoolExecutor(threads, thread_name_prefix="log-close") as pool:
            futures = [(log, pool.submit(work)) for log in logs if (work := log.plan_close()) is not None]
            for log, future in futures:
                log.flush_completed(future.result())
        for log in logs:
            log.release()

    def _write_last_checkpoints(self, directory: LogDirectory) -> None:
        for name, value in (
            (checkpoints.RECOVERY_POINTS, _recovery_point),
            (checkpoints.LOG_START_OFFSETS, lambda log: log.log_start_offset),
            (checkpoints.HIGH_WATERMARKS, lambda log: log.high_watermark),
        ):
            self._checkpoint_write(directory, name, value)()

    def abandon(self) -> None:
        """Let go of everything without writing: what a crash does, but for the locks."""
        self._stop_timers()
        for log in (*self.logs(), *self.futures()):
            log.release()
        self._logs.clear()
        self.damaged.clear()
        self._futures.clear()
        for lock in self._locks:
            lock.release()
        self._locks.clear()


def _recovery_point(log: Log) -> int:
    return log.recovery_point


def _moved_start_offset(log: Log) -> int | None:
    """The log start offset where it differs from where the first segment starts."""
    return log.log_start_offset if log.log_start_offset > log.segments.first.base_offset else None


def _in_threads(
    load: Callable[[str, TopicPartition], Log | DamagedLog],
    found: list[tuple[str, TopicPartition]],
    threads: int,
) -> Iterator[Log | DamagedLog]:
    if not found:
        return
    with ThreadPoolExecutor(threads, thread_name_prefix="log-recovery") as pool:
        futures: list[Future[Log | DamagedLog]] = [pool.submit(load, *each) for each in found]
        for future in futures:
            yield future.result()
