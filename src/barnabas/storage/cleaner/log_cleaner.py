"""The cleaner: which log is compacted next, and what becomes of a run.

There are `log.cleaner.threads` places. A free one takes the log with the highest dirty ratio
among those that are due; when none is, it looks again after `log.cleaner.backoff.ms`. How far
each log is clean is kept in `cleaner-offset-checkpoint`, one file per log directory. A log
that cannot be compacted because its records are damaged is left alone until the next start.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping

from barnabas.config.broker_config import BrokerConfig
from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.core.metrics import Metrics
from barnabas.core.scheduler import Cancellable
from barnabas.storage.cleaner.cleanable import LogToClean, log_to_clean
from barnabas.storage.cleaner.cleaning import Cleaning, CleaningAborted, Tools
from barnabas.storage.cleaner.course import Course
from barnabas.storage.cleaner.pacing import Pace, Throttle
from barnabas.storage.environment import Environment, LogDirectory
from barnabas.storage.failures import Reach, reach_of
from barnabas.storage.log.log import Log
from barnabas.storage.log.retention import delete_old_segments

IO_BUFFER_BYTES_MIN = 64 * 1024

_log = logging.getLogger(__name__)


class LogCleaner:
    """Owned by the log manager, on the loop. `save` writes the checkpoint of a directory."""

    def __init__(
        self,
        settings: BrokerConfig,
        environment: Environment,
        logs: Callable[[], Iterator[Log]],
        save: Callable[[LogDirectory, Mapping[TopicPartition, int]], None],
        metrics: Metrics,
    ) -> None:
        self._settings = settings
        self._environment = environment
        self._logs = logs
        self._save = save
        self._throttle = Throttle(environment.clock, settings)
        self._clean_to: dict[TopicPartition, int] = {}
        self._running: dict[Log, Cleaning] = {}
        self._uncleanable: set[Log] = set()
        self._is_filling = False
        self._is_stopped = False
        self._timer: Cancellable | None = None
        self._period_ms = 0
        self._max_dirty_ratio = 0.0
        self._map_utilization = 0.0
        self._last_run_ms = environment.clock.monotonic_ms()
        self._report(metrics)

    def _report(self, metrics: Metrics) -> None:
        self._read_bytes = metrics.counter("kafka_log_cleaner_read_bytes_total", "Bytes read by compaction.")
        self._written_bytes = metrics.counter(
            "kafka_log_cleaner_written_bytes_total", "Bytes written by compaction."
        )
        self._cleaned_bytes = metrics.counter(
            "kafka_log_cleaner_cleaned_bytes_total", "Bytes by which compaction has made logs smaller."
        )
        self._runs = metrics.counter("kafka_log_cleaner_runs_total", "Logs compacted.")
        clock = self._environment.clock
        for name, doc, read in (
            ("max_dirty_percent", "The largest uncompacted share of any log, when last looked.",
             lambda: 100 * self._max_dirty_ratio),
            ("map_utilization_percent",
             "How full the map of keys was in the last compaction; when it is full, a log takes several.",
             lambda: 100 * self._map_utilization),
            ("time_since_last_run_ms", "Since a log was last compacted.",
             lambda: clock.monotonic_ms() - self._last_run_ms),
            ("uncleanable_partitions", "Logs that cannot be compacted because they are damaged.",
             lambda: float(len(self._uncleanable))),
            ("running", "Logs being compacted.", lambda: float(len(self._running))),
        ):  # fmt: skip
            metrics.gauge(f"kafka_log_cleaner_{name}", doc, read)

    # -- what the log manager tells -----------------------------------------------------------

    def load(self, clean_to: Mapping[TopicPartition, int]) -> None:
        """What a directory's checkpoint says."""
        self._clean_to.update(clean_to)

    def start(self) -> None:
        self._is_stopped = False
        if self._settings.log_cleaner_enable:
            self._period_ms = max(1, self._settings.log_cleaner_backoff_ms)
            self._timer = self._environment.scheduler.every(self._period_ms, self.clean_what_is_due)

    def stop(self) -> None:
        """Begin nothing more; a run under way ends with its slice, and leaves nothing visible."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
        for cleaning in self._running.values():
            cleaning.is_stopped = True

    def reconfigure(self) -> None:
        """The settings may have changed. Runs under way end with what they have begun with, but for the
        throttle."""
        if self._timer is not None and self._period_ms != max(1, self._settings.log_cleaner_backoff_ms):
            self._timer.cancel()
            self.start()

    def truncated(self, log: Log) -> None:
        """What is appended from here on is dirty, also where something clean has been before."""
        clean_to = self._clean_to.get(log.topic_partition)
        if clean_to is not None and clean_to > log.log_end_offset:
            self._clean_to[log.topic_partition] = log.log_end_offset
            self._checkpoint(log.log_directory)

    def forget(self, log: Log) -> None:
        """The log is gone, or is new."""
        self._uncleanable.discard(log)
        if self._clean_to.pop(log.topic_partition, None) is not None and log.log_directory.failure is None:
            self._checkpoint(log.log_directory)

    def is_cleaning(self, log: Log) -> bool:
        return log in self._running

    def clean_to(self, topic_partition: TopicPartition) -> int | None:
        """Where the last run over this log ended."""
        return self._clean_to.get(topic_partition)

    # -- runs ---------------------------------------------------------------------------------

    def clean_what_is_due(self) -> None:
        """Fill the free places. A run that has ended calls this again."""
        if self._is_filling:
            return
        self._is_filling = True
        try:
            while not self._is_stopped and len(self._running) < self._settings.log_cleaner_threads:
                filthiest = self._filthiest()
                if filthiest is None:
                    return
                if not self._clean(filthiest):
                    return
        finally:
            self._is_filling = False

    def _filthiest(self) -> LogToClean | None:
        now_ms = self._environment.clock.now_ms()
        best: LogToClean | None = None
        self._max_dirty_ratio = 0.0
        for log in self._logs():
            # A log of one segment has nothing but the active one.
            if not log.config.is_compacted or len(log.segments) == 1 or log.is_closed:
                continue
            if log in self._running or log in self._uncleanable:
                continue
            try:
                found = log_to_clean(log, self._clean_to.get(log.topic_partition), now_ms)
            except Exception as error:  # noqa: BLE001 - the other logs have their turn
                self._failed(log, error)
                continue
            self._max_dirty_ratio = max(self._max_dirty_ratio, found.dirty_ratio)
            if found.is_due and (best is None or found.dirty_ratio > best.dirty_ratio):
                best = found
        return best

    def _clean(self, target: LogToClean) -> bool:
        """Begin a run; False when it has already ended, and badly."""
        settings, environment = self._settings, self._environment
        threads = max(1, settings.log_cleaner_threads)
        tools = Tools(
            environment,
            self._throttle,
            Pace(environment.clock),
            dedupe_buffer_bytes=settings.log_cleaner_dedupe_buffer_size // threads,
            io_buffer_bytes=max(IO_BUFFER_BYTES_MIN, settings.log_cleaner_io_buffer_size // threads // 2),
            load_factor=settings.log_cleaner_io_buffer_load_factor,
            on_progress=self._progressed,
        )
        cleaning = Cleaning(target, tools)
        self._running[target.log] = cleaning
        outcome: list[Exception | None] = []

        def done(error: Exception | None) -> None:
            outcome.append(error)
            self._ended(cleaning, error)

        Course(cleaning.steps(), environment.background, environment.scheduler, done).start()
        return not outcome or outcome[0] is None

    def _progressed(self, read_bytes: int, written_bytes: int) -> None:
        self._read_bytes.value += read_bytes
        self._written_bytes.value += written_bytes

    def _ended(self, cleaning: Cleaning, error: Exception | None) -> None:
        log = cleaning.target.log
        del self._running[log]
        if error is not None:
            self._failed(log, error)
            return
        before_bytes = cleaning.target.clean_bytes + cleaning.target.cleanable_bytes
        after_bytes = sum(
            segment.size_bytes
            for segment in log.segments
            if segment.base_offset < cleaning.target.first_uncleanable_offset
        )
        _log.info(
            "compacted %s up to %d: %d bytes have become %d",
            log.topic_partition,
            cleaning.end_offset,
            before_bytes,
            after_bytes,
        )
        self._runs.value += 1
        self._map_utilization = cleaning.stats.map_utilization
        self._cleaned_bytes.value += max(0, before_bytes - after_bytes)
        self._last_run_ms = self._environment.clock.monotonic_ms()
        self._clean_to[log.topic_partition] = cleaning.end_offset
        self._checkpoint(log.log_directory)
        try:
            delete_old_segments(log)  # retention has left this log out while it was being compacted
        except KafkaError as failure:
            _log.warning("retention of %s: %s", log.topic_partition, failure)
        self.clean_what_is_due()

    def _failed(self, log: Log, error: Exception) -> None:
        is_gone = log.is_closed or log.log_directory.failure is not None
        if isinstance(error, CleaningAborted) or is_gone:
            _log.info("compaction of %s was given up: %s", log.topic_partition, error)
        elif isinstance(error, OSError) or reach_of(error) is Reach.REQUEST:
            log.fail(error)
        else:
            self._uncleanable.add(log)
            _log.error("%s cannot be compacted", log.topic_partition, exc_info=error)

    def _checkpoint(self, directory: LogDirectory) -> None:
        self._save(
            directory,
            {
                log.topic_partition: self._clean_to[log.topic_partition]
                for log in self._logs()
                if log.log_directory is directory and log.topic_partition in self._clean_to
            },
        )
