"""Log cleaner: it selects the log to compact next and handles the outcome of each run.

Up to `log.cleaner.threads` runs take place at once. Each takes the log with the highest dirty ratio among
those that are due. If none is due, the cleaner looks again after `log.cleaner.backoff.ms`. The clean end of
each log is in `cleaner-offset-checkpoint`, one file per log directory. A log whose records are damaged is
uncleanable until the next start.

As in Apache Kafka, a log that moves to another log directory is not compacted. The copy is made from front to
back: it could already have a value when compaction removes the later tombstone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping

from barnabas.config.broker_config import BrokerConfig
from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.core.reporting.metrics import Metrics
from barnabas.core.scheduler import Cancellable
from barnabas.core.steps import Course
from barnabas.storage.cleaner.cleanable import LogToClean, log_to_clean
from barnabas.storage.cleaner.cleaning import Cleaning, CleaningAborted, Tools
from barnabas.storage.files.environment import Environment, LogDirectory
from barnabas.storage.files.failures import Reach, reach_of
from barnabas.storage.files.pacing import Pace, Throttle
from barnabas.storage.log.log import Log
from barnabas.storage.log.retention import delete_old_segments

IO_BUFFER_BYTES_MIN = 64 * 1024
SEGMENTS_DELETED_MAX = 50

logger = logging.getLogger(__name__)


class LogCleaner:
    """Owned by the log manager, on the loop. `save` writes the cleaner checkpoint of a directory."""

    def __init__(
        self,
        config: BrokerConfig,
        environment: Environment,
        logs: Callable[[], Iterator[Log]],
        save: Callable[[LogDirectory, Mapping[TopicPartition, int]], None],
        metrics: Metrics,
        *,
        is_moving: Callable[[Log], bool] = lambda _: False,
    ) -> None:
        self._is_moving = is_moving
        self._config = config
        self._environment = environment
        self._logs = logs
        self._save = save
        self._throttle = Throttle(environment.clock, config)
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
            ("kafka_log_cleaner_max_dirty_percent", "Largest dirty ratio of any log at the last check.",
             lambda: 100 * self._max_dirty_ratio),
            ("kafka_log_cleaner_map_utilization_percent",
             "Utilization of the offset map in the last run; a log that fills the map needs several runs.",
             lambda: 100 * self._map_utilization),
            ("kafka_log_cleaner_time_since_last_run_ms", "Time since the last compaction of a log.",
             lambda: clock.monotonic_ms() - self._last_run_ms),
            ("kafka_log_cleaner_uncleanable_partitions",
             "Logs that cannot be compacted because their records are damaged.",
             lambda: float(len(self._uncleanable))),
            ("kafka_log_cleaner_running", "Logs being compacted.", lambda: float(len(self._running))),
        ):  # fmt: skip
            metrics.gauge(name, doc, read)

    # --- events from the log manager ---

    def load(self, clean_to: Mapping[TopicPartition, int]) -> None:
        """Add the offsets of a directory's checkpoint."""
        self._clean_to.update(clean_to)

    def start(self) -> None:
        self._is_stopped = False
        if self._config.log_cleaner_enable:
            self._period_ms = max(1, self._config.log_cleaner_backoff_ms)
            self._timer = self._environment.scheduler.every(self._period_ms, self.clean_what_is_due)

    def stop(self) -> None:
        """Start no more runs. Each run in progress ends with its slice, without visible effect."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
        for cleaning in self._running.values():
            cleaning.is_stopped = True

    def reconfigure(self) -> None:
        """Apply a changed broker config. Runs in progress keep theirs, except for the throttle."""
        if self._timer is not None and self._period_ms != max(1, self._config.log_cleaner_backoff_ms):
            self._timer.cancel()
            self.start()

    def lower(self, log: Log, offset: int) -> bool:
        """Lower the clean end before a truncation to `offset`: later appends are dirty. True if it was above;
        the caller writes the checkpoint."""
        clean_to = self._clean_to.get(log.topic_partition)
        if clean_to is None or clean_to <= offset:
            return False
        self._clean_to[log.topic_partition] = offset
        return True

    def forget(self, log: Log) -> None:
        """Drop the state of a log that was deleted or has just been created."""
        self._uncleanable.discard(log)
        if self._clean_to.pop(log.topic_partition, None) is not None and log.log_directory.failure is None:
            self._checkpoint(log.log_directory)

    def is_cleaning(self, log: Log) -> bool:
        return log in self._running

    def clean_to(self, topic_partition: TopicPartition) -> int | None:
        """End of the last run over this log."""
        return self._clean_to.get(topic_partition)

    # --- runs ---

    def clean_what_is_due(self) -> None:
        """Start runs up to `log.cleaner.threads`. The end of a run calls this again."""
        if self._is_filling:
            return
        self._is_filling = True
        try:
            while not self._is_stopped and len(self._running) < self._config.log_cleaner_threads:
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
            # A log of one segment has only the active one.
            if not log.config.is_compacted or len(log.segments) == 1 or log.is_closed:
                continue
            if log in self._running or log in self._uncleanable or self._is_moving(log):
                continue
            try:
                found = log_to_clean(log, self._clean_to.get(log.topic_partition), now_ms)
            except Exception as error:  # noqa: BLE001 - an error of one log does not stop the others
                self._failed(log, error)
                continue
            self._max_dirty_ratio = max(self._max_dirty_ratio, found.dirty_ratio)
            if found.is_due and (best is None or found.dirty_ratio > best.dirty_ratio):
                best = found
        return best

    def _clean(self, target: LogToClean) -> bool:
        """Start a run; False if it has already failed."""
        config, environment = self._config, self._environment
        threads = max(1, config.log_cleaner_threads)
        tools = Tools(
            environment,
            self._throttle,
            Pace(environment.clock),
            dedupe_buffer_bytes=config.log_cleaner_dedupe_buffer_size // threads,
            io_buffer_bytes=max(IO_BUFFER_BYTES_MIN, config.log_cleaner_io_buffer_size // threads // 2),
            load_factor=config.log_cleaner_io_buffer_load_factor,
            on_progress=self._progressed,
            is_moving=self._is_moving,
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
        logger.info(
            "partition %s: cleaned the log up to offset %d: %d bytes before, %d bytes after",
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
            # Retention skips a log while it is being compacted. It deletes the rest of many segments.
            delete_old_segments(log, SEGMENTS_DELETED_MAX)
        except KafkaError as failure:
            logger.warning(
                "partition %s: retention failed, the next check tries again: %s", log.topic_partition, failure
            )
        self.clean_what_is_due()

    def _failed(self, log: Log, error: Exception) -> None:
        is_gone = log.is_closed or log.log_directory.failure is not None
        if isinstance(error, CleaningAborted) or is_gone:
            logger.info("partition %s: cleaning aborted: %s", log.topic_partition, error)
        elif isinstance(error, MemoryError):
            logger.warning(
                "partition %s: cleaning is tried again later: %s. "
                "Give the broker more memory, or lower log.cleaner.dedupe.buffer.size",
                log.topic_partition,
                error,
            )
        elif isinstance(error, OSError) or reach_of(error) is Reach.REQUEST:
            log.fail(error)
        else:
            self._uncleanable.add(log)
            logger.error(
                "partition %s: the log is uncleanable until the next start",
                log.topic_partition,
                exc_info=error,
            )

    def cleaned_offsets(self, directory: LogDirectory) -> dict[TopicPartition, int]:
        """Ends of the last runs over the logs of this directory, for its checkpoint."""
        return {
            log.topic_partition: self._clean_to[log.topic_partition]
            for log in self._logs()
            if log.log_directory is directory and log.topic_partition in self._clean_to
        }

    def _checkpoint(self, directory: LogDirectory) -> None:
        self._save(directory, self.cleaned_offsets(directory))
