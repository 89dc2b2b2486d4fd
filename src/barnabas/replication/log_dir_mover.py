"""Moves replicas from one log directory of this broker to another while they are in use.

A copy (the *future* log) is filled from the present log, slice by slice between other work. Once
it has everything it is synced off the loop, gets what came meanwhile, and takes the log's place:
from one moment to the next, for whoever reads or writes the partition. If the log is truncated
during the copying, the copying starts over.

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
from barnabas.replication.partition import Partition, begin_inside_batch
from barnabas.storage.log.log import Log
from barnabas.storage.log.truncation import truncate_fully_and_start_at
from barnabas.storage.log_manager import LogManager

logger = logging.getLogger(__name__)

SLICE_BYTES = 1024 * 1024


class _Move:
    """One replica on its way."""

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.key = partition.topic_partition
        self.old = partition.log
        self.generation = partition.log.flush_state.generation
        self.is_synced = False


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
        """Begin to move a replica to the directory `path`; one that is there already stays."""
        directory = next(
            (each for each in self._log_manager.directories if Path(each.path).absolute() == Path(path)), None
        )
        if directory is None:
            raise LogDirNotFound(f"{path} is no log directory of this broker")
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
            except Exception as error:  # noqa: BLE001 - said there, whatever it is
                self._failed(move, error)

    def _failed(self, move: _Move, error: BaseException) -> None:
        is_expected = isinstance(error, KafkaError | OSError)
        logger.error("%s stays where it is: %s", move.key, error, exc_info=None if is_expected else error)
        self._give_up(move.key)

    def _copy_some(self, move: _Move) -> None:
        old, future = move.old, self._log_manager.future(move.key)
        if future is None or not self._is_current(move.partition, old, future):
            del self._moves[move.key]
            return
        if move.generation != old.flush_state.generation or future.log_end_offset < old.log_start_offset:
            move.generation, move.is_synced = old.flush_state.generation, False
            truncate_fully_and_start_at(future, old.log_start_offset)
        if self._copy_slice(old, future):
            self._go_on_later(move)
        elif not move.is_synced:
            self._sync(move, future)
        else:
            # What is being written comes along at once: by the next turn something else would be. Who waits
            # behind it is told to try again.
            old.settle()
            while self._copy_slice(old, future):
                pass
            del self._moves[move.key]
            move.partition.replace_log(self._log_manager.promote_future(move.key))
            logger.info("%s is now in %s", move.key, move.partition.log.log_directory.path)

    def _sync(self, move: _Move, future: Log) -> None:
        work = future.plan_flush()

        def synced(_: object = None) -> None:
            if self._moves.get(move.key) is move:
                future.flush_completed(work)
                move.is_synced = True
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
        """Neither the partition nor the copy has been given up meanwhile."""
        key = partition.topic_partition
        return (
            self._partitions.get(key) is partition
            and partition.log is old
            and not old.is_closed
            and self._log_manager.future(key) is future
        )

    @staticmethod
    def _copy_slice(old: Log, future: Log) -> bool:
        """Copy some of what is missing; False when nothing is."""
        data = old.read(future.log_end_offset, SLICE_BYTES, upper_offset=old.log_end_offset)
        if not isinstance(data.records, FileRegion):
            return False
        records = memoryview(bytearray(data.records.read()))
        if future.log_end_offset == future.log_start_offset:
            begin_inside_batch(future, records)
        future.append_as_follower(records)
        return True
