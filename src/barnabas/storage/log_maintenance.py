"""Periodic work on all logs: retention, flushes, checkpoints, expiry of producers.

An error of one log does not keep the others from their turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from barnabas.config.broker_config import BrokerConfig
from barnabas.core.ids import TopicPartition
from barnabas.core.limits import TURN_MS_MAX
from barnabas.core.reporting.error_isolation import sweeping
from barnabas.core.scheduler import Cancellable
from barnabas.storage.cleaner.log_cleaner import LogCleaner
from barnabas.storage.directory.directory_checkpoints import DirectoryCheckpoints
from barnabas.storage.files import checkpoints
from barnabas.storage.files.environment import Environment, LogDirectory
from barnabas.storage.log.group_commit import GroupCommit
from barnabas.storage.log.log import Log
from barnabas.storage.log.producer_expiry import remove_expired_producers
from barnabas.storage.log.retention import delete_old_segments

SEGMENTS_DELETED_PER_STEP: Final = 50
"""The files of each are renamed."""


class LogMaintenance:
    """Owned by the log manager; `logs` and `directories` are its live tables."""

    def __init__(
        self,
        config: BrokerConfig,
        environment: Environment,
        logs: Mapping[TopicPartition, Log],
        directories: Sequence[LogDirectory],
        cleaner: LogCleaner,
        directory_checkpoints: DirectoryCheckpoints,
        group_commit: GroupCommit,
    ) -> None:
        self._config = config
        self._environment = environment
        self._logs = logs
        self._directories = directories
        self._cleaner = cleaner
        self._checkpoints = directory_checkpoints
        self._group_commit = group_commit
        self._timers: list[Cancellable] = []
        self._retention: Cancellable | None = None
        """Rest of a retention run, for the next turn of the loop."""

    def start(self) -> None:
        config, every = self._config, self._environment.scheduler.every
        for period_ms, task in (
            (config.log_retention_check_interval_ms, self.apply_retention),
            (config.log_flush_scheduler_interval_ms, self.flush_dirty_logs),
            (config.log_flush_offset_checkpoint_interval_ms, self.checkpoint_recovery_points),
            (config.log_flush_start_offset_checkpoint_interval_ms, self.checkpoint_log_start_offsets),
            (config.replica_high_watermark_checkpoint_interval_ms, self.checkpoint_high_watermarks),
            (config.producer_id_expiration_check_interval_ms, self.remove_expired_producers),
        ):
            self._timers.append(every(period_ms, task, delay_ms=config.log_initial_task_delay_ms))

    def stop(self) -> None:
        """Cancel all timers, so that no checkpoint without logs replaces the last good one."""
        self._stop_retention()
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    def apply_retention(self) -> None:
        """Delete old segments of every log, and close the files of closed segments.

        A thousand logs that are due together take a third of a second, thousands of segments of one as long.
        So the work is divided into turns, and no request waits for all of it.
        """
        self._stop_retention()
        self._retain(deque(self._all_logs()))

    def _stop_retention(self) -> None:
        if self._retention is not None:
            self._retention.cancel()

    def _retain(self, logs: deque[Log]) -> None:
        monotonic_ms = self._environment.clock.monotonic_ms
        end_ms = monotonic_ms() + TURN_MS_MAX
        while logs:
            log = logs.popleft()
            if self._logs.get(log.topic_partition) is not log:
                continue  # it was deleted between two turns
            if self._cleaner.is_cleaning(log):
                continue  # segments being rewritten must stay; the cleaner applies retention afterwards
            with sweeping("retention of", log.topic_partition):
                if delete_old_segments(log, SEGMENTS_DELETED_PER_STEP) == SEGMENTS_DELETED_PER_STEP:
                    logs.appendleft(log)
                else:
                    log.segments.release_idle()
            if monotonic_ms() > end_ms:
                self._retention = self._environment.scheduler.after(0, lambda: self._retain(logs))
                return

    def flush_dirty_logs(self) -> None:
        """Flush the logs whose `flush.ms` has passed."""
        now_ms = self._environment.clock.now_ms()
        for log in self._all_logs():
            if log.unflushed_messages and now_ms - log.flush_state.last_flush_ms >= log.config.flush_ms:
                with sweeping("the flush of", log.topic_partition):
                    self._group_commit.request(log)

    def remove_expired_producers(self) -> None:
        for log in self._all_logs():
            with sweeping("the expiry of producers in", log.topic_partition):
                remove_expired_producers(log)

    def checkpoint_recovery_points(self) -> None:
        """Checkpoint recovery points, and update outdated epoch files."""
        for log in self._all_logs():
            if log.leader_epochs.is_dirty:
                with sweeping("the leader epochs of", log.topic_partition):
                    log.write_epochs_soon()
        self._write_soon(checkpoints.RECOVERY_POINTS)

    def checkpoint_log_start_offsets(self) -> None:
        self._write_soon(checkpoints.LOG_START_OFFSETS)

    def checkpoint_high_watermarks(self) -> None:
        self._write_soon(checkpoints.HIGH_WATERMARKS)

    def _write_soon(self, checkpoint: str) -> None:
        live = [directory for directory in self._directories if directory.failure is None]
        self._checkpoints.write_soon(checkpoint, live)

    def _all_logs(self) -> Iterator[Log]:
        """Current logs; some may be deleted during the iteration."""
        return iter(list(self._logs.values()))
