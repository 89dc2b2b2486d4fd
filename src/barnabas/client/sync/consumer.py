"""Synchronous consumer: the asyncio consumer on the clients' loop thread.

    with Consumer("127.0.0.1:9092", group="billing", topics=["orders"]) as consumer:
        for record in consumer:
            ...

Iteration crosses to the loop once for a batch of records (`max.poll.records`). Records of the batch that the
loop body has not received yet are not committed: `commit` and `close` go back to them first. `process` runs
its handler in threads, `concurrency` of them at most.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self

from barnabas.client.config.settings import ConsumerSettings
from barnabas.client.consumer import consumer as asynchronous
from barnabas.client.consumer.arrow_decoding import ARROW_BYTES, arrow_decoder
from barnabas.client.consumer.core.handing_out import BatchesOfPartition
from barnabas.client.consumer.engine import CLOSE_TIMEOUT_MS
from barnabas.client.core.offsets import CommittedOffset, GroupMetadata, OffsetAndTime
from barnabas.client.extensions.records import Key, Record, Value
from barnabas.client.extensions.serializers import DeserializeWith
from barnabas.client.processing.core.lanes import Order
from barnabas.client.processing.core.retry_policy import NO_RETRY, Retry
from barnabas.client.sync.loop_thread import SHARED
from barnabas.core.ids import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

WAIT_MS = 1_000
"""Iteration waits in steps of this length, so that Ctrl-C is noticed between two."""


class Consumer(Generic[Key, Value]):
    def __init__(
        self,
        config: str | Sequence[str] | Mapping[str, Any] | None = None,
        /,
        *,
        key_deserializer: DeserializeWith[Key] | None = None,
        value_deserializer: DeserializeWith[Value] | None = None,
        **options: Any,
    ) -> None:
        """Options are those of the asyncio consumer."""

        async def make() -> asynchronous.Consumer[Key, Value]:
            made = asynchronous.Consumer(
                config,
                key_deserializer=key_deserializer,
                value_deserializer=value_deserializer,
                **options,
            )
            await made.start()
            return made

        self._runner = SHARED.runner()
        self._consumer = self._runner.run(make())
        self._batch: list[Record[Key, Value]] = []
        self._index = 0

    @property
    def settings(self) -> ConsumerSettings:
        return self._consumer.settings

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        in_hand = self._index > 0
        if error is not None and in_hand:
            self._index -= 1  # the record in hand failed; those before it are done

        async def leave() -> None:
            self._give_back()
            if in_hand:
                await self._consumer.close()
            else:
                await self._consumer.__aexit__(kind, error, trace)  # the last batch failed

        self._runner.run(leave())

    def close(self, *, timeout_ms: float = CLOSE_TIMEOUT_MS) -> None:
        """Commit what was handed out, leave the group, and close all connections."""

        async def close() -> None:
            self._give_back()
            await self._consumer.close(timeout_ms=timeout_ms)

        self._runner.run(close())

    def _give_back(self) -> None:
        """Go back to the first record of the batch that was not handed out."""
        firsts: dict[TopicPartition, int] = {}
        for record in self._batch[self._index :]:
            firsts.setdefault(record.topic_partition, record.offset)
        self._batch, self._index = [], 0
        for at, offset in firsts.items():
            if at in self._consumer.assignment:
                self._consumer.seek(at, offset)

    # --- records ---

    def __iter__(self) -> Iterator[Record[Key, Value]]:
        while True:
            while self._index < len(self._batch):
                self._index += 1
                yield self._batch[self._index - 1]
            self._batch, self._index = [], 0  # all of them are done, even if the next call fails
            self._batch = self._runner.run(self._consumer.poll(timeout_ms=WAIT_MS))

    def get_one(self) -> Record[Key, Value]:
        """The next record."""
        return next(iter(self))

    def poll(self, *, timeout_ms: float = 0, max_records: int | None = None) -> list[Record[Key, Value]]:
        async def poll() -> list[Record[Key, Value]]:
            self._give_back()
            return await self._consumer.poll(timeout_ms=timeout_ms, max_records=max_records)

        return self._runner.run(poll())

    def get_many(
        self, *, timeout_ms: float = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[Record[Key, Value]]]:
        found: dict[TopicPartition, list[Record[Key, Value]]] = {}
        for record in self.poll(timeout_ms=timeout_ms, max_records=max_records):
            found.setdefault(record.topic_partition, []).append(record)
        return found

    def arrow(
        self,
        *,
        columns: Sequence[str] | None = None,
        max_bytes: int = ARROW_BYTES,
        timeout_ms: float = math.inf,
    ) -> Iterator[pa.RecordBatch]:
        """Records as Arrow batches, each of one partition, of about `max_bytes`. It ends after `timeout_ms`
        without records. Needs the extra `tables`.
        """
        decode = arrow_decoder(columns)
        clock = self._consumer.clock

        async def take(wait_ms: float) -> BatchesOfPartition | None:
            self._give_back()
            return await self._consumer.take_batches(max_bytes, wait_ms)

        deadline_ms = clock.monotonic_ms() + timeout_ms
        while True:
            left_ms = max(0.0, deadline_ms - clock.monotonic_ms())
            taken = self._runner.run(take(min(WAIT_MS, left_ms)))
            if taken is not None:
                yield from decode(taken)
                deadline_ms = clock.monotonic_ms() + timeout_ms
            elif left_ms <= 0:
                return

    def process(
        self,
        handler: Callable[[Record[Key, Value]], object],
        *,
        concurrency: int = 16,
        order: Order = "key",
        retry: Retry | int = NO_RETRY,
        dead_letters: str | None = None,
        stop: threading.Event | None = None,
    ) -> None:
        """Give each record to `handler`, in threads, and acknowledge it individually, until `stop`."""

        async def process(pool: ThreadPoolExecutor) -> None:
            self._give_back()
            loop = asyncio.get_running_loop()
            stopped = asyncio.Event()

            async def handle(record: Record[Key, Value]) -> None:
                await loop.run_in_executor(pool, handler, record)

            async def watch() -> None:
                while stop is not None and not stop.is_set():  # noqa: ASYNC110 - an event of threads
                    await asyncio.sleep(WAIT_MS / 10_000)
                stopped.set()

            watching = None if stop is None else loop.create_task(watch())
            try:
                await self._consumer.process(
                    handle,
                    concurrency=concurrency,
                    order=order,
                    retry=retry,
                    dead_letters=dead_letters,
                    stop=stopped,
                )
            finally:
                if watching is not None:
                    watching.cancel()

        with ThreadPoolExecutor(concurrency, "barnabas-process") as pool:
            self._runner.run(process(pool))

    # --- subscription ---

    def subscribe(self, topics: Collection[str] = (), **options: Any) -> None:
        self._runner.run(self._consumer.subscribe(topics, **options))

    def unsubscribe(self) -> None:
        async def unsubscribe() -> None:
            self._give_back()
            await self._consumer.unsubscribe()

        self._runner.run(unsubscribe())

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        self._runner.run(self._consumer.assign(partitions))

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        return self._consumer.assignment

    @property
    def subscription(self) -> frozenset[str]:
        return self._consumer.subscription

    def group_metadata(self) -> GroupMetadata:
        return self._consumer.group_metadata()

    # --- offsets ---

    def commit(
        self, offsets: Mapping[TopicPartition, int | CommittedOffset] | None = None
    ) -> dict[TopicPartition, CommittedOffset]:
        async def commit() -> dict[TopicPartition, CommittedOffset]:
            self._give_back()
            return await self._consumer.commit(offsets)

        return self._runner.run(commit())

    def committed(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, CommittedOffset | None]:
        return self._runner.run(self._consumer.committed(partitions))

    def position(self, at: TopicPartition) -> int:
        async def position() -> int:
            self._give_back()
            return await self._consumer.position(at)

        return self._runner.run(position())

    def positions(self) -> dict[TopicPartition, CommittedOffset]:
        async def positions() -> dict[TopicPartition, CommittedOffset]:
            self._give_back()
            return self._consumer.positions()

        return self._runner.run(positions())

    def seek(self, at: TopicPartition, offset: int) -> None:
        async def seek() -> None:
            self._give_back()
            self._consumer.seek(at, offset)

        self._runner.run(seek())

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        self._after_giving_back(lambda: self._consumer.seek_to_beginning(*partitions))

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        self._after_giving_back(lambda: self._consumer.seek_to_end(*partitions))

    def seek_to_time(self, timestamp_ms: int, *partitions: TopicPartition) -> None:
        self._after_giving_back(lambda: self._consumer.seek_to_time(timestamp_ms, *partitions))

    def _after_giving_back(self, call: Callable[[], Any]) -> None:
        async def run() -> None:
            self._give_back()
            await call()

        self._runner.run(run())

    def pause(self, *partitions: TopicPartition) -> None:
        async def pause() -> None:
            self._give_back()
            self._consumer.pause(*partitions)

        self._runner.run(pause())

    def resume(self, *partitions: TopicPartition) -> None:
        async def resume() -> None:
            self._consumer.resume(*partitions)

        self._runner.run(resume())

    @property
    def paused(self) -> frozenset[TopicPartition]:
        return self._consumer.paused

    def lag(self, at: TopicPartition) -> int:
        async def lag() -> int:
            self._give_back()
            return await self._consumer.lag(at)

        return self._runner.run(lag())

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self._runner.run(self._consumer.beginning_offsets(partitions))

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self._runner.run(self._consumer.end_offsets(partitions))

    def offsets_for_times(
        self, times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTime | None]:
        return self._runner.run(self._consumer.offsets_for_times(times))

    def partitions_for(self, topic: str) -> list[TopicPartition]:
        return self._runner.run(self._consumer.partitions_for(topic))

    def topics(self) -> set[str]:
        return self._runner.run(self._consumer.topics())
