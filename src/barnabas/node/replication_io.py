"""What replication needs of the loop: tasks that wait for the coordination store.

`replication` itself creates no task; it hands over what is to be done, and is called with the outcome.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Protocol, TypeVar

from barnabas.cluster.isr_store import Joining
from barnabas.cluster.znodes import PartitionState
from barnabas.core.ids import TopicPartition

T = TypeVar("T")


class AsyncIsrStore(Protocol):
    async def write(
        self, topic_partition: TopicPartition, state: PartitionState, joining: Joining | None = None
    ) -> int: ...


class IsrStoreTasks:
    """`replication.leader.isr.IsrStore` over a store that is awaited."""

    def __init__(self, store: AsyncIsrStore) -> None:
        self._store = store
        self._tasks: set[asyncio.Task[None]] = set()

    def write(
        self,
        topic_partition: TopicPartition,
        state: PartitionState,
        joining: Joining | None,
        written: Callable[[int], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        work = self._store.write(topic_partition, state, joining)
        task = asyncio.get_running_loop().create_task(_report(work, written, failed))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _report(
    work: Coroutine[None, None, T], done: Callable[[T], None], failed: Callable[[BaseException], None]
) -> None:
    try:
        result = await work
    except Exception as error:  # noqa: BLE001 - whoever asked for it decides
        failed(error)
    else:
        done(result)
