"""Moves replicas from one log directory of this broker to another while they are in use.

A copy (the *future* log) is filled from the present log, slice by slice between other work. Once
it has everything it is synced off the loop, gets what came meanwhile, and takes the log's place:
from one moment to the next, for whoever reads or writes the partition. If the log is truncated
during the copying, the copying starts over.

Gap: the speed cannot be limited (`replica.alter.log.dirs.io.max.bytes.per.second`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path

from barnabas.core.errors import KafkaError, KafkaStorageError, LogDirNotFound, ReplicaNotAvailable
from barnabas.core.ids import TopicPartition
from barnabas.core.regions import FileRegion
from barnabas.replication.partition import Partition, begin_inside_batch
from barnabas.storage.log.log import Log
from barnabas.storage.log_manager import LogManager

logger = logging.getLogger(__name__)

SLICE_BYTES = 1024 * 1024


class LogDirMover:
    def __init__(self, log_manager: LogManager, partitions: Mapping[TopicPartition, Partition]) -> None:
        self._log_manager = log_manager
        self._partitions = partitions
        self._moves: dict[TopicPartition, asyncio.Task[None]] = {}

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
            self._moves[topic_partition] = asyncio.get_running_loop().create_task(self._run(partition))

    async def close(self) -> None:
        moves = list(self._moves.values())
        for move in moves:
            move.cancel()
        await asyncio.gather(*moves, return_exceptions=True)

    def _give_up(self, topic_partition: TopicPartition) -> None:
        move = self._moves.pop(topic_partition, None)
        if move is not None:
            move.cancel()
        self._log_manager.drop_future(topic_partition)

    async def _run(self, partition: Partition) -> None:
        key = partition.topic_partition
        try:
            await self._copy(partition)
        except (KafkaError, OSError) as error:
            logger.error("%s stays where it is: %s", key, error)
            self._log_manager.drop_future(key)
        except Exception:
            logger.exception("%s stays where it is", key)
            self._log_manager.drop_future(key)
        finally:
            if self._moves.get(key) is asyncio.current_task():
                del self._moves[key]

    async def _copy(self, partition: Partition) -> None:
        key, old = partition.topic_partition, partition.log
        future = self._log_manager.future(key)
        is_synced = False
        generation = old.generation
        while future is not None and self._is_current(partition, old, future):
            if generation != old.generation or future.log_end_offset < old.log_start_offset:
                generation, is_synced = old.generation, False
                future.truncate_fully_and_start_at(old.log_start_offset)
            if self._copy_slice(old, future):
                await asyncio.sleep(0)
            elif not is_synced:
                await self._sync(future)
                is_synced = True
            else:
                partition.replace_log(self._log_manager.promote_future(key))
                logger.info("%s is now in %s", key, partition.log.log_directory.path)
                return

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

    @staticmethod
    async def _sync(future: Log) -> None:
        work = future.plan_flush()
        if work is not None:
            try:
                await asyncio.to_thread(work)
            except OSError as error:
                future.fail(error)
                raise
        future.flush_completed(work)
