"""Path of a record from `send` into a batch: topic, partition, memory.

`append` is the path of every record: no task, no lock and no await while the topic is known and there is
room. Otherwise it returns None, and `append_later` waits for the missing part, at most max.block.ms in all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from operator import index
from typing import Final

from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.config.settings import ProducerSettings
from barnabas.client.core.client_errors import ClientClosed
from barnabas.client.extensions.records import Header
from barnabas.client.extensions.serializers import SerializationError
from barnabas.client.producer.core.accumulator import Accumulator
from barnabas.client.producer.core.batch import ProducerBatch
from barnabas.client.producer.core.buffer_memory import Waiter
from barnabas.client.producer.delivery import Delivery
from barnabas.client.producer.sending import Sending
from barnabas.client.producer.topics import TargetTopic
from barnabas.client.producer.transactions import Transactions
from barnabas.core.clock import Clock
from barnabas.core.errors import InvalidPartitions, KafkaError, MessageTooLarge, RequestTimedOut
from barnabas.core.ids import Randomness
from barnabas.records.appender import RECORD_OVERHEAD_BYTES_MAX, record_bytes_max
from barnabas.records.varint import Buffer

TIMESTAMP_MAX: Final = 2**63 - 1


class Appending:
    def __init__(
        self,
        settings: ProducerSettings,
        cluster: ClusterClient,
        accumulator: Accumulator,
        sending: Sending,
        transactions: Transactions | None,
        clock: Clock,
        randomness: Randomness,
    ) -> None:
        self._settings = settings
        self._cluster = cluster
        self._accumulator = accumulator
        self._memory = accumulator.memory
        self._sending = sending
        self._transactions = transactions
        self._clock = clock
        self._randomness = randomness
        self._record_bytes_max = settings.max_request_size
        self._targets: dict[str, TargetTopic] = {}
        self._blocked: set[asyncio.Future[None]] = set()
        """Calls that wait for memory."""
        self._is_closed = False
        self.owes_turn = False
        """True when a batch is full: the caller lets the loop send it before it takes more records."""

    def metadata_changed(self) -> None:
        for name, target in list(self._targets.items()):
            target.refresh()
            if not target.partition_count:
                del self._targets[name]  # expired, or deleted

    def close(self) -> None:
        """Refuse further records, and end the waits for memory."""
        self._is_closed = True
        self._targets.clear()
        for future in self._blocked:
            if not future.done():
                future.set_exception(_closed())

    def append(  # noqa: C901, PLR0912 - the path of every record: a call less
        self,
        topic: str,
        key: Buffer | None,
        value: Buffer | None,
        partition: int | None,
        headers: Sequence[Header],
        timestamp_ms: int | None,
    ) -> Delivery | None:
        """Add a record to a batch at once; None where the caller must wait."""
        if timestamp_ms is not None:
            _check_timestamp(timestamp_ms)
        target = self._targets.get(topic)
        if target is None:
            return None
        if self._transactions is not None:
            self._transactions.state.check_can_send()
        is_chosen = partition is None
        if key is not None and type(key) is not bytes:
            key = _as_bytes(key, "key")
        if value is not None and type(value) is not bytes:
            value = _as_bytes(value, "value")
        if headers:
            size_bytes = record_bytes_max(key, value, headers)
        else:
            size_bytes = RECORD_OVERHEAD_BYTES_MAX
            if key is not None:
                size_bytes += len(key)
            if value is not None:
                size_bytes += len(value)
        if partition is None:
            partition = target.choose(key)
        elif not 0 <= partition < target.partition_count:
            return None
        batch = self._accumulator.open_batch(target.queues[partition], size_bytes)
        if batch is None:
            self._check(size_bytes)
            reserved_bytes = self._accumulator.batch_bytes_for(size_bytes)
            if not self._memory.take(reserved_bytes):
                return None
            batch = self._open(target, partition, reserved_bytes)
        return self._add(target, batch, key, value, headers, timestamp_ms, size_bytes, is_chosen)

    def _add(
        self,
        target: TargetTopic,
        batch: ProducerBatch,
        key: Buffer | None,
        value: Buffer | None,
        headers: Sequence[Header],
        timestamp_ms: int | None,
        size_bytes: int,
        is_chosen: bool,
    ) -> Delivery:
        if timestamp_ms is None:
            timestamp_ms = self._clock.now_ms()
        try:
            position = self._accumulator.append(batch, key, value, headers, timestamp_ms)
        except Exception:
            self._accumulator.drop_empty(batch)
            raise
        if batch.is_closed:
            self.owes_turn = True
            self._sending.wake()
        sticky = target.sticky
        if is_chosen and sticky is not None and sticky.partition == batch.topic_partition.partition:
            sticky.produced(size_bytes, batch_is_full=batch.is_closed)
        return Delivery(batch, position, timestamp_ms)

    def _open(self, target: TargetTopic, partition: int, reserved_bytes: int) -> ProducerBatch:
        queue = target.queues[partition]
        if queue.batches:
            self.owes_turn = True  # the batch before is full
        transactions = self._transactions
        batch = self._accumulator.add_batch(queue, reserved_bytes, is_transactional=transactions is not None)
        if transactions is not None:
            transactions.about_to_write(queue.topic_partition)
        self._want(target.name)
        self._sending.opened_batch()
        return batch

    def _check(self, size_bytes: int) -> None:
        """Check a record that opens a batch. A record that fits into an open one is not too large."""
        if size_bytes > self._record_bytes_max:
            raise MessageTooLarge(
                f"the record has up to {size_bytes} bytes, and max.request.size is {self._record_bytes_max}"
            )

    # --- waits ---

    async def append_later(
        self,
        topic: str,
        key: Buffer | None,
        value: Buffer | None,
        partition: int | None,
        headers: Sequence[Header],
        timestamp_ms: int | None,
    ) -> Delivery:
        """Wait for the topic and for memory, then add the record."""
        if self._is_closed:
            raise _closed()
        if self._transactions is not None:
            self._transactions.state.check_can_send()
        if partition is not None and partition < 0:
            raise InvalidPartitions(f"topic {topic} has no partition {partition}: they begin with 0")
        key = None if key is None else _as_bytes(key, "key")
        value = None if value is None else _as_bytes(value, "value")
        size_bytes = record_bytes_max(key, value, headers)
        self._check(size_bytes)
        deadline_ms = self._clock.monotonic_ms() + self._settings.max_block_ms
        target = await self.known(topic, partition)
        delivery = self.append(topic, key, value, partition, headers, timestamp_ms)
        if delivery is not None:
            return delivery
        wanted_bytes = self._accumulator.batch_bytes_for(size_bytes)
        waiter = await self._room(wanted_bytes, deadline_ms)
        least = 1 if partition is None else partition + 1
        if target.partition_count < least or self._is_closed:  # deleted or closed meanwhile
            self._memory.leave(waiter)
            return await self.append_later(topic, key, value, partition, headers, timestamp_ms)
        try:
            chosen = target.choose(key) if partition is None else partition
        except BaseException:  # code of an application
            self._memory.leave(waiter)
            raise
        batch = self._accumulator.open_batch(target.queues[chosen], size_bytes)
        if batch is None:
            batch = self._open(target, chosen, wanted_bytes)
        else:
            self._memory.leave(waiter)  # another sender has opened a batch with room meanwhile
        return self._add(target, batch, key, value, headers, timestamp_ms, size_bytes, partition is None)

    async def _room(self, wanted_bytes: int, deadline_ms: float) -> Waiter:
        """Wait in line for memory, which is reserved then."""
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiter = self._memory.wait(wanted_bytes, partial(_set_done, woken))
        self._blocked.add(woken)
        self._sending.wake()  # while a sender waits, no batch lingers
        try:
            async with asyncio.timeout(max(0.0, deadline_ms - self._clock.monotonic_ms()) / 1_000):
                await woken
            if self._transactions is not None:
                self._transactions.state.check_can_send()
        except TimeoutError:
            self._memory.leave(waiter)
            raise RequestTimedOut(
                f"buffer.memory was full for {self._settings.max_block_ms} ms (max.block.ms): the brokers"
                " take records more slowly than this producer sends them"
            ) from None
        except BaseException:
            self._memory.leave(waiter)
            raise
        finally:
            self._blocked.discard(woken)
        return waiter

    async def known(self, topic: str, partition: int | None) -> TargetTopic:
        """Topic with its partitions, from the cluster if need be."""
        metadata = self._cluster.metadata
        target = self._targets.get(topic)
        if target is None or (partition is not None and partition >= target.partition_count):
            self._want(topic)
            needed = 0 if partition is None else partition
            subject = f"topic {topic}" if partition is None else f"partition {topic}-{partition}"

            def is_known() -> bool:
                return metadata.partition_count(topic) > needed or self._refusal(topic) is not None

            await self._cluster.updates.until(is_known, self._settings.max_block_ms, subject)
            refusal = self._refusal(topic)
            if refusal is not None:
                raise refusal
            if self._is_closed:
                raise _closed()
            target = self._targets.get(topic)
            if target is None:
                target = self._targets[topic] = self._target(topic)
            target.refresh()
        return target

    def _refusal(self, topic: str) -> KafkaError | None:
        """Reason for which no update makes a topic known."""
        error = self._cluster.metadata.errors.get(topic)
        return error if error is not None and not error.retriable else None

    def _want(self, topic: str) -> None:
        idle_ms = self._settings.metadata_max_idle_ms
        self._cluster.metadata.want(topic, self._clock.monotonic_ms() + idle_ms)

    def _target(self, topic: str) -> TargetTopic:
        return TargetTopic(
            topic,
            self._cluster.metadata,
            self._accumulator,
            self._randomness,
            partitioner=self._settings.partitioner_class,
            ignores_keys=self._settings.partitioner_ignore_keys,
            adaptive=self._settings.partitioner_adaptive_partitioning_enable,
        )


def _closed() -> ClientClosed:
    return ClientClosed("the producer is closed")


def _set_done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _check_timestamp(timestamp_ms: int) -> None:
    """Refuse a time before a batch has it: a batch that cannot be encoded fails all of its records."""
    if not 0 <= index(timestamp_ms) <= TIMESTAMP_MAX:
        raise ValueError(f"the timestamp is {timestamp_ms}, not between 0 and {TIMESTAMP_MAX}")


def _as_bytes(content: object, name: str) -> bytes:
    """Bytes of a buffer. The length of a memoryview may count items instead of bytes."""
    if isinstance(content, bytes | bytearray | memoryview):
        return bytes(content)
    raise SerializationError(f"the {name} is {type(content).__name__}, not bytes: set {name}.serializer")
