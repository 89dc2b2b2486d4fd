"""What replication needs of the loop: tasks that connect to other brokers, and wait for the store.

`replication` itself creates no task; it hands over what is to be done, and is called with the outcome.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol, TypeVar

from barnabas.cluster.isr_store import Joining
from barnabas.cluster.znodes import PartitionState
from barnabas.core.ids import BrokerId, TopicPartition
from barnabas.core.tasks import Tasks
from barnabas.replication.follower.connection import Connection

T = TypeVar("T")


class AsyncIsrStore(Protocol):
    async def write(
        self, topic_partition: TopicPartition, state: PartitionState, joining: Joining | None = None
    ) -> int: ...


class ReplicationTasks:
    """`leader.isr.IsrStore` and `follower.connection.OpenConnection` on what is awaited."""

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
        written: Callable[[int], None],
        failed: Callable[[Exception], None],
    ) -> None:
        write = partial(self._store.write, topic_partition, state, joining)
        self._tasks.start(_report(write, written, failed))

    async def close(self) -> None:
        await self._tasks.close()


async def _report(
    work: Callable[[], Awaitable[T]], done: Callable[[T], None], failed: Callable[[Exception], None]
) -> None:
    try:
        result = await work()
    except Exception as error:  # noqa: BLE001 - whoever asked for it decides
        failed(error)
    else:
        done(result)
