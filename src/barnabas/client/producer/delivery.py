"""Delivery: the future of one record, which `send` returns.

A delivery is a batch and a position in it, so a record costs no future of the event loop. One is made when a
caller awaits a delivery whose batch is not done yet. The sender logs a failed batch, so the errors of
deliveries that no caller awaits are not lost.

`Deliveries` is the same for all records of a `send_many`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterator
from copy import copy
from functools import partial
from typing import Any

from barnabas.client.extensions.records import RecordMetadata
from barnabas.client.producer.core.batch import NO_APPEND_TIME, ProducerBatch


class Delivery:
    """`await delivery` gives the `RecordMetadata`, or raises the reason of the failure."""

    __slots__ = ("_batch", "_index", "_timestamp_ms")

    def __init__(self, batch: ProducerBatch, index: int, timestamp_ms: int) -> None:
        self._batch = batch
        self._index = index
        self._timestamp_ms = timestamp_ms

    def done(self) -> bool:
        return self._batch.is_done

    def result(self) -> RecordMetadata:
        """Metadata of the record. InvalidStateError while it is not done."""
        if not self._batch.is_done:
            raise asyncio.InvalidStateError("the record is not acknowledged yet")
        outcome = self._batch.outcome(self._index)
        if isinstance(outcome, Exception):
            raise copy(outcome)  # a raised error keeps its traceback: each caller has its own
        return self._metadata(outcome)

    def exception(self) -> Exception | None:
        if not self._batch.is_done:
            raise asyncio.InvalidStateError("the record is not acknowledged yet")
        outcome = self._batch.outcome(self._index)
        return outcome if isinstance(outcome, Exception) else None

    def add_done_callback(self, callback: Callable[[Delivery], Any]) -> None:
        """Call a function on the loop when the record is acknowledged or has failed."""
        loop = asyncio.get_running_loop()
        if self._batch.is_done:
            loop.call_soon(callback, self)
        else:
            self._batch.waiters.append(partial(loop.call_soon, callback, self))

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        if not self._batch.is_done:
            yield from _future_of(self._batch)
        return self.result()

    @staticmethod
    async def until_done(batch: ProducerBatch) -> None:
        """Wait for a batch, also if it fails."""
        if not batch.is_done:
            await _future_of(batch)

    def _metadata(self, outcome: tuple[int, int]) -> RecordMetadata:
        offset, append_time_ms = outcome
        timestamp_ms = self._timestamp_ms if append_time_ms == NO_APPEND_TIME else append_time_ms
        topic, partition = self._batch.topic_partition
        return RecordMetadata(topic, partition, offset, timestamp_ms)


def _future_of(batch: ProducerBatch) -> asyncio.Future[None]:
    """Future of one caller: a caller that is cancelled takes nothing from the others."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    batch.waiters.append(partial(_wake, future))
    return future


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class Deliveries:
    """`await deliveries` gives the `RecordMetadata` of all records, or raises the first failure."""

    __slots__ = ("_each",)

    def __init__(self, each: list[Delivery]) -> None:
        self._each = each

    def __len__(self) -> int:
        return len(self._each)

    def __iter__(self) -> Iterator[Delivery]:
        return iter(self._each)

    def done(self) -> bool:
        return all(each.done() for each in self._each)

    def __await__(self) -> Generator[Any, None, list[RecordMetadata]]:
        found = []
        for each in self._each:
            found.append((yield from each.__await__()))  # noqa: PERF401 - a comprehension cannot yield
        return found
