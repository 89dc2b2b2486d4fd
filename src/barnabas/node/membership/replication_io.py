"""Tasks for replication: connections to other brokers, and writes to the store.

`replication` creates no task. It passes the work here, and is called back with the outcome.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol, TypeVar

from barnabas.cluster.stores.isr_store import Joining
from barnabas.cluster.znodes.layout import PartitionState
from barnabas.core.ids import BrokerId, TopicPartition
from barnabas.core.tasks import Tasks
from barnabas.replication.follower.connection import Connection

T = TypeVar("T")


class AsyncIsrStore(Protocol):
    async def write(
        self,
        topic_partition: TopicPartition,
        state: PartitionState,
        joining: Joining | None = None,
        withdrawn: PartitionState | None = None,
    ) -> int: ...


class ReplicationTasks:
    """`leader.isr_changes.IsrStore` and `follower.connection.OpenConnection` on coroutines."""

    def __init__(
        self, store: AsyncIsrStore, open_channel: Callable[[BrokerId], Awaitable[Connection]]
    ) -> None:
        self._store = store
        self._open_channel = open_channel
        self._tasks = Tasks()

    def connect(
        self,
        broker_id: BrokerId,
        connected: Callable[[Connection], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self._tasks.start(_report(partial(self._open_channel, broker_id), connected, failed))

    def write(
        self,
        topic_partition: TopicPartition,
        state: PartitionState,
        joining: Joining | None,
        withdrawn: PartitionState | None,
        done: Callable[[int], None],
        failed: Callable[[Exception], None],
    ) -> None:
        write = partial(self._store.write, topic_partition, state, joining, withdrawn)
        self._tasks.start(_report(write, done, failed))

    async def close(self) -> None:
        await self._tasks.close()


async def _report(
    work: Callable[[], Awaitable[T]], done: Callable[[T], None], failed: Callable[[Exception], None]
) -> None:
    try:
        result = await work()
    except Exception as error:  # noqa: BLE001 - the caller decides
        failed(error)
    else:
        done(result)
