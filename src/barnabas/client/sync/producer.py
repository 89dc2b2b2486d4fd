"""Synchronous producer: the asyncio producer on the clients' loop thread.

    with Producer("127.0.0.1:9092") as producer:
        producer.publish("orders", b"value")                 # waits for the acknowledgement
        future = producer.send("orders", b"value")           # waits only while the buffer is full
        producer.send_many("orders", values)                 # crosses to the loop once

A call crosses to the loop and back, which costs some tens of microseconds: for many records use `send_many`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Generic, Self

from barnabas.client.config.settings import ProducerSettings
from barnabas.client.core.metadata import Partition
from barnabas.client.extensions.client_metrics import ClientMetrics
from barnabas.client.extensions.records import Headers, Key, RecordMetadata, Value
from barnabas.client.extensions.serializers import SerializeWith
from barnabas.client.producer import producer as asynchronous
from barnabas.client.producer.core.transaction_requests import CommittedOffset, GroupMember
from barnabas.client.producer.delivery import Delivery
from barnabas.client.sync.loop_thread import SHARED
from barnabas.core.ids import TopicPartition


class Producer(Generic[Key, Value]):
    def __init__(
        self,
        config: str | Sequence[str] | Mapping[str, Any] | None = None,
        /,
        *,
        key_serializer: SerializeWith[Key] | None = None,
        value_serializer: SerializeWith[Value] | None = None,
        **options: Any,
    ) -> None:
        """Options are those of the asyncio producer."""

        async def make() -> asynchronous.Producer[Key, Value]:
            made = asynchronous.Producer(
                config, key_serializer=key_serializer, value_serializer=value_serializer, **options
            )
            await made.start()
            return made

        self._runner = SHARED.runner()
        self._producer = self._runner.run(make())

    @property
    def metrics(self) -> ClientMetrics:
        return self._producer.metrics

    @property
    def settings(self) -> ProducerSettings:
        return self._producer.settings

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self, timeout_ms: float = asynchronous.CLOSE_TIMEOUT_MS) -> None:
        """Send what is left within `timeout_ms`, and close the connections."""
        self._runner.run(self._producer.close(timeout_ms))

    def send(
        self,
        topic: str,
        value: Value | None = None,
        *,
        key: Key | None = None,
        partition: int | None = None,
        headers: Headers | None = None,
        timestamp_ms: int | None = None,
    ) -> Future[RecordMetadata]:
        """Take a record to send; waits only while the buffer is full or the topic is unknown."""
        acknowledged: Future[RecordMetadata] = Future()
        acknowledged.set_running_or_notify_cancel()

        async def take() -> None:
            delivery = await self._producer.send(
                topic, value, key=key, partition=partition, headers=headers, timestamp_ms=timestamp_ms
            )
            delivery.add_done_callback(lambda done: _hand_over(done, acknowledged))

        self._runner.run(take())
        return acknowledged

    def publish(
        self,
        topic: str,
        value: Value | None = None,
        *,
        key: Key | None = None,
        partition: int | None = None,
        headers: Headers | None = None,
        timestamp_ms: int | None = None,
    ) -> RecordMetadata:
        """Send a record, and wait for its acknowledgement."""
        return self._runner.run(
            self._producer.publish(
                topic, value, key=key, partition=partition, headers=headers, timestamp_ms=timestamp_ms
            )
        )

    def send_many(
        self,
        topic: str,
        values: Iterable[Value | None],
        *,
        keys: Iterable[Key | None] | None = None,
        partition: int | None = None,
    ) -> list[RecordMetadata]:
        """Send many records of one topic, and wait for their acknowledgements."""

        async def send() -> list[RecordMetadata]:
            return await (await self._producer.send_many(topic, values, keys=keys, partition=partition))

        return self._runner.run(send())

    def flush(self) -> None:
        """Send everything now, and wait until each record is acknowledged or has failed."""
        self._runner.run(self._producer.flush())

    def partitions_for(self, topic: str) -> Sequence[Partition]:
        return self._runner.run(self._producer.partitions_for(topic))

    # --- transactions ---

    def init_transactions(self) -> None:
        self._runner.run(self._producer.init_transactions())

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """`with producer.transaction()`: commits at the end, and aborts on an exception."""
        block = self._producer.transaction()
        self._runner.run(block.__aenter__())
        try:
            yield
        except BaseException as error:
            self._runner.run(block.__aexit__(type(error), error, error.__traceback__))
            raise
        else:
            self._runner.run(block.__aexit__(None, None, None))

    def begin_transaction(self) -> None:
        self._runner.run(self._producer.begin_transaction())

    def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, CommittedOffset], group: str | GroupMember
    ) -> None:
        self._runner.run(self._producer.send_offsets_to_transaction(offsets, group))

    def commit_transaction(self) -> None:
        self._runner.run(self._producer.commit_transaction())

    def abort_transaction(self) -> None:
        self._runner.run(self._producer.abort_transaction())


def _hand_over(delivery: Delivery, acknowledged: Future[RecordMetadata]) -> None:
    error = delivery.exception()
    if error is None:
        acknowledged.set_result(delivery.result())
    else:
        acknowledged.set_exception(error)
