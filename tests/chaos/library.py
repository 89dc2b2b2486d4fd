"""Clients of Barnabas' own library: a writer, a copier and a handler, each on a loop in a thread of its own.

They stand beside librdkafka's under the same faults. The copier is a member of the group of librdkafka's
copiers. The handler writes each record that it handles to a topic: every record of its input is there in the
end, and those of a partition came there in order for the first time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from barnabas.client import (
    ClusterUnreachable,
    CommitFailed,
    Consumer,
    IllegalState,
    KafkaError,
    Producer,
    Record,
    TransactionAborted,
)
from barnabas.client.producer.delivery import Delivery
from tests.chaos.history import History, Outcome, Transaction, Value, Write
from tests.chaos.workload import (
    BATCH_MAX,
    PAUSE_S,
    POLL_INTERVAL_MS,
    TRANSACTION_TIMEOUT_MS,
    WRITE_TIMEOUT_MS,
    Worker,
)
from tests.support.secured_cluster import Reach

FAILURES = (KafkaError, ClusterUnreachable, CommitFailed, IllegalState, TransactionAborted, TimeoutError)
SESSION_TIMEOUT_MS = 6_000
HANDLERS = "handlers"


class LibraryWorker(Worker):
    """A worker whose life is a coroutine. After an error that ends it, another life begins."""

    def __init__(self, name: str, reach: Reach) -> None:
        super().__init__(name)
        self._reach = reach

    def _work(self) -> None:
        asyncio.run(self._lives())

    async def _lives(self) -> None:
        while not self._stop.is_set():
            try:
                await self._live()
            except FAILURES as error:
                self._meet(error)
                await asyncio.sleep(0.2)
            left = asyncio.all_tasks() - {asyncio.current_task()}
            if left:
                raise AssertionError(f"{self.name} left {len(left)} tasks behind: {left}")

    async def _live(self) -> None:
        raise NotImplementedError

    def _producer(self, **settings: Any) -> Producer:
        return Producer(self._reach.own_properties, client_id=self.name, linger_ms=2, **settings)

    def _consumer(self, group: str, topic: str, **settings: Any) -> Consumer:
        return Consumer(
            self._reach.own_properties,
            client_id=self.name,
            group=group,
            topics=[topic],
            group_protocol="classic",
            auto_offset_reset="earliest",
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=1_000,
            max_poll_interval_ms=POLL_INTERVAL_MS,
            **settings,
        )


class LibraryWriting(LibraryWorker):
    """Writes numbered values to the partitions of a topic, in turn, with several requests in flight.

    What it finds written twice has no excuse (`checker.sent_again`)."""

    def __init__(self, name: str, reach: Reach, topic: str, partitions: int, history: History) -> None:
        super().__init__(name, reach)
        self._topic = topic
        self._partitions = partitions
        self._history = history
        self._number = 0

    async def _live(self) -> None:
        async with self._producer(
            delivery_timeout_ms=WRITE_TIMEOUT_MS, request_timeout_ms=10_000
        ) as producer:
            while not self._stop.is_set():
                number = self._number
                self._number += 1
                value, partition = Value(self.name, number), number % self._partitions
                write = Write(value, self._topic, partition, began_s=time.monotonic())
                self._history.writes.append(write)
                delivery = await producer.send(self._topic, value.encode(), partition=partition)
                delivery.add_done_callback(_settling(write))
                await asyncio.sleep(PAUSE_S)
            await producer.flush()


def _settling(write: Write) -> Any:
    def settle(delivery: Delivery) -> None:
        if delivery.exception() is None:
            write.answered_s = time.monotonic()
            write.outcome, write.offset = Outcome.ACKNOWLEDGED, delivery.result().offset

    return settle


class LibraryCopying(LibraryWorker):
    """Copies a topic to another, exactly once, beside librdkafka's copiers in their group."""

    def __init__(self, name: str, reach: Reach, source: str, target: str, history: History) -> None:
        super().__init__(name, reach)
        self._source = source
        self._target = target
        self._history = history
        self._attempts = 0

    async def _live(self) -> None:
        transactional = {"transactional_id": self.name, "transaction_timeout_ms": TRANSACTION_TIMEOUT_MS}
        settings = {"isolation_level": "read_committed", "enable_auto_commit": False}
        range_only = {"partition_assignment_strategy": ["range"]}
        async with (
            self._producer(**transactional) as producer,
            self._consumer("copiers", self._source, **settings, **range_only) as consumer,
        ):
            await producer.init_transactions()
            while not self._stop.is_set():
                records = await consumer.poll(timeout_ms=100, max_records=BATCH_MAX)
                if records:
                    await self._copy(producer, consumer, records)

    async def _copy(self, producer: Producer, consumer: Consumer, records: Sequence[Record]) -> None:
        self._attempts += 1
        transaction = Transaction(f"{self.name}/{self._attempts}/{time.monotonic_ns()}")
        is_ending = False
        try:
            async with producer.transaction():
                self._history.transactions.append(transaction)
                for record in records:
                    value = Value.decode(record.value)._replace(transaction=transaction.name)
                    transaction.values.append(value)
                    await producer.send(self._target, value.encode(), partition=record.partition)
                offsets = {record.topic_partition: record.offset + 1 for record in records}
                await producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
                is_ending = True
            transaction.outcome = Outcome.ACKNOWLEDGED
        except FAILURES:
            if not is_ending:
                transaction.outcome = Outcome.REFUSED  # it was never asked to commit
            raise


class LibraryHandling(LibraryWorker):
    """Handles a topic by `process`: a record is handled when its copy is acknowledged."""

    def __init__(self, name: str, reach: Reach, source: str, target: str) -> None:
        super().__init__(name, reach)
        self._source = source
        self._target = target

    async def _live(self) -> None:
        stop = asyncio.Event()
        settings = {"auto_commit_interval_ms": 500}
        async with (
            self._producer(delivery_timeout_ms=60_000, request_timeout_ms=10_000) as producer,
            self._consumer(HANDLERS, self._source, **settings) as consumer,
        ):

            async def handle(record: Record) -> None:
                await producer.publish(self._target, record.value, partition=record.partition)

            ending = asyncio.create_task(self._await_end(stop))
            try:
                await consumer.process(handle, order="partition", stop=stop)
            finally:
                ending.cancel()
                with suppress(asyncio.CancelledError):
                    await ending

    async def _await_end(self, stop: asyncio.Event) -> None:
        while not self._stop.is_set():  # noqa: ASYNC110 - the thread that sets it has no loop
            await asyncio.sleep(0.1)
        stop.set()


def handled_wrongly(
    history: History, source: str, handled: Mapping[int, Sequence[tuple[int, Value]]]
) -> Iterator[str]:
    """Records of a topic that were never handled, or first behind a later one of the partition.

    `handled` has the copies by partition: a restart may repeat the last ones."""
    for (topic, partition), rows in history.final.items():
        if topic != source:
            continue
        first: dict[Value, int] = {}
        for offset, value in handled[partition]:
            first.setdefault(value, offset)
        last = -1
        for offset, value in rows:
            at = first.pop(value, None)
            if at is None:
                if value not in {each for _, each in handled[partition]}:
                    yield f"not handled: {value} of {source}-{partition}@{offset}"
            elif at < last:
                yield f"handled out of order: {value} of {source}-{partition}@{offset}"
            else:
                last = at
