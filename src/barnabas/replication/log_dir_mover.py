"""Moves replicas between log directories of this broker while they are in use.

A copy (the *future* log) is filled from the current log, slice by slice between other work. At intervals, and
once it is complete, it is synced off the loop. Records that arrive during a sync are copied and synced again,
until they are few. Then the copy replaces the log in one step, as clients see it. If the log is truncated
meanwhile, the copy starts over.

Gap: the speed cannot be limited (`replica.alter.log.dirs.io.max.bytes.per.second`).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from barnabas.core.errors import KafkaError, KafkaStorageError, LogDirNotFound, ReplicaNotAvailable
from barnabas.core.ids import TopicPartition
from barnabas.core.regions import FileRegion
from barnabas.core.scheduler import Background, Scheduler
from barnabas.replication.partition.partition import Partition, begin_inside_batch
from barnabas.storage.log.log import Log
from barnabas.storage.log.truncation import truncate_fully_and_start_at
from barnabas.storage.log_manager import LogManager

logger = logging.getLogger(__name__)

SLICE_BYTES = 1024 * 1024
SYNC_EVERY_BYTES = 64 * 1024 * 1024
"""Bytes copied between two syncs. A segment may be a gigabyte, and one sync of it at the end would hold up
every other write to that disk."""
SYNCED_ON_THE_LOOP_BYTES_MAX = 4 * 1024 * 1024
"""Bytes left for the final sync, which runs on the loop."""
LAST_SYNCS_MAX = 20
"""Syncs of a complete copy that are repeated because much was written meanwhile."""


class _Move:
    """One replica on the move."""

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.key = partition.topic_partition
        self.old = partition.log
        self.generation = partition.log.flush_state.generation
        self.unsynced_bytes = 0
        """Bytes copied since the last sync."""
        self.last_syncs = 0
        """Number of syncs of a complete copy."""

    @property
    def may_take_place(self) -> bool:
        """Whether a complete copy is synced but for a little. A producer that writes faster than the disk
        syncs would keep this False for ever, so the number of syncs is limited."""
        return self.last_syncs > 0 and (
            self.unsynced_bytes <= SYNCED_ON_THE_LOOP_BYTES_MAX or self.last_syncs >= LAST_SYNCS_MAX
        )

    def start_over(self) -> None:
        self.generation = self.old.flush_state.generation
        self.unsynced_bytes = self.last_syncs = 0


class LogDirMover:
    def __init__(
        self,
        log_manager: LogManager,
        partitions: Mapping[TopicPartition, Partition],
        scheduler: Scheduler,
        background: Background,
    ) -> None:
        self._log_manager = log_manager
        self._partitions = partitions
        self._scheduler = scheduler
        self._background = background
        self._moves: dict[TopicPartition, _Move] = {}

    def move(self, topic_partition: TopicPartition, path: str) -> None:
        """Start moving a replica to the directory `path`; a replica already there stays."""
        directory = next(
            (each for each in self._log_manager.directories if Path(each.path).absolute() == Path(path)), None
        )
        if directory is None:
            raise LogDirNotFound(f"{path} is not a log directory of this broker; write one of log.dirs")
        if directory.failure is not None:
            raise KafkaStorageError(f"{path} is offline")
        partition = self._partitions.get(topic_partition)
        if partition is None:
            raise ReplicaNotAvailable(f"{topic_partition} is not on this broker")
        if partition.log.log_directory.failure is not None:
            raise KafkaStorageError(f"the log directory of {topic_partition} is offline")
        future = self._log_manager.future(topic_partition)
        if future is not None and future.log_directory is directory:
            return
        self._give_up(topic_partition)
        if partition.log.log_directory is not directory:
            self._log_manager.create_future(topic_partition, directory.path)
            self._moves[topic_partition] = move = _Move(partition)
            self._go_on_later(move)

    def close(self) -> None:
        self._moves.clear()

    def _give_up(self, topic_partition: TopicPartition) -> None:
        self._moves.pop(topic_partition, None)
        self._log_manager.drop_future(topic_partition)

    def _go_on_later(self, move: _Move) -> None:
        self._scheduler.after(0, partial(self._go_on, move))

    def _go_on(self, move: _Move) -> None:
        if self._moves.get(move.key) is move:
            try:
                self._copy_some(move)
            except Exception as error:  # noqa: BLE001 - `_fail` logs it
                self._failed(move, error)

    def _failed(self, move: _Move, error: BaseException) -> None:
        is_expected = isinstance(error, KafkaError | OSError)
        logger.error(
            "partition %s: moving to another log directory failed: %s",
            move.key,
            error,
            exc_info=None if is_expected else error,
        )
        self._give_up(move.key)

    def _copy_some(self, move: _Move) -> None:
        old, future = move.old, self._log_manager.future(move.key)
        if future is None or not self._is_current(move.partition, old, future):
            del self._moves[move.key]
            return
        if move.generation != old.flush_state.generation or future.log_end_offset < old.log_start_offset:
            move.start_over()
            truncate_fully_and_start_at(future, old.log_start_offset)
        copied_bytes = self._copy_slice(old, future)
        move.unsynced_bytes += copied_bytes
        if copied_bytes and move.unsynced_bytes >= SYNC_EVERY_BYTES:
            self._sync(move, future)
        elif copied_bytes:
            self._go_on_later(move)
        elif not move.may_take_place:
            move.last_syncs += 1
            self._sync(move, future)
        else:
            # The write in progress is copied at once: by the next turn another one would be in progress.
            # Appends queued behind it get a retriable error.
            old.settle()
            while self._copy_slice(old, future):
                pass
            if future.flush_state.unwritten_snapshots:  # to be rendered by a thread
                self._sync(move, future)
                return
            del self._moves[move.key]
            move.partition.replace_log(self._log_manager.promote_future(move.key))
            logger.info(
                "partition %s: moved to log directory %s", move.key, move.partition.log.log_directory.path
            )

    def _sync(self, move: _Move, future: Log) -> None:
        work = future.plan_flush()
        move.unsynced_bytes = 0

        def synced(_: object = None) -> None:
            if self._moves.get(move.key) is move:
                future.flush_completed(work)
                self._go_on(move)

        def failed(error: BaseException) -> None:
            if self._moves.get(move.key) is move:
                if isinstance(error, OSError):
                    future.fail(error)
                self._failed(move, error)

        if work is None:
            synced()
        else:
            self._background.submit(work, synced, failed)

    def _is_current(self, partition: Partition, old: Log, future: Log) -> bool:
        """Whether neither the partition nor the copy has been given up."""
        key = partition.topic_partition
        return (
            self._partitions.get(key) is partition
            and partition.log is old
            and not old.is_closed
            and self._log_manager.future(key) is future
        )

    @staticmethod
    def _copy_slice(old: Log, future: Log) -> int:
        """Copy a part of what is missing; returns its bytes, 0 when nothing is missing."""
        data = old.read(future.log_end_offset, SLICE_BYTES, upper_offset=old.log_end_offset)
        if not isinstance(data.records, FileRegion):
            return 0
        records = memoryview(bytearray(data.records.read()))
        if future.log_end_offset == future.log_start_offset:
            begin_inside_batch(future, records)
        return future.append_as_follower(records).size_bytes
