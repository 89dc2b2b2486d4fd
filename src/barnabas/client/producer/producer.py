"""Producer: sends records to topics, batched, in order and without duplicates.

    async with Producer("127.0.0.1:9092") as producer:
        delivery = await producer.send("orders", b"value", key=b"key")  # waits only while the buffer is full
        metadata = await delivery                                       # waits for the acknowledgement
        metadata = await producer.publish("orders", b"value")           # both in one

Records of one partition, sent one after the other, are in this order in the log. A lost connection or a new
leader changes nothing about it: batches carry sequence numbers, unless `enable.idempotence` is false.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Generic, Self

from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.aio.connections import Connect, connect_by_socket
from barnabas.client.config.settings import ProducerSettings
from barnabas.client.core.client_errors import ClientClosed, IllegalState, SendCancelled
from barnabas.client.core.metadata import Partition
from barnabas.client.core.steps import ClusterUnreachable
from barnabas.client.extensions.client_metrics import ClientMetrics
from barnabas.client.extensions.interceptors import ProducerInterceptor, ProducerInterceptors
from barnabas.client.extensions.records import (
    Headers,
    Key,
    ProducerRecord,
    RecordMetadata,
    Value,
    header_pairs,
)
from barnabas.client.extensions.serializers import SerializeWith, serializer_of
from barnabas.client.producer.appending import Appending
from barnabas.client.producer.core.partitioners import check_partitioner
from barnabas.client.producer.core.transaction_requests import CommittedOffset, GroupMember
from barnabas.client.producer.core.transaction_state import TransactionStatus
from barnabas.client.producer.delivery import Deliveries, Delivery
from barnabas.client.producer.machines import Machines
from barnabas.client.producer.sending import Sending
from barnabas.client.producer.transaction_block import TransactionBlock
from barnabas.client.producer.transactions import Transactions
from barnabas.core.backoff import Backoff
from barnabas.core.clock import Clock, SystemClock
from barnabas.core.errors import KafkaError
from barnabas.core.ids import Randomness, TopicPartition

CLOSE_TIMEOUT_MS: Final = 30_000


class Producer(Generic[Key, Value]):
    def __init__(
        self,
        config: str | Sequence[str] | Mapping[str, Any] | None = None,
        /,
        *,
        file: str | Path | None = None,
        environment: Mapping[str, str] | None = None,
        interceptors: Sequence[ProducerInterceptor] = (),
        key_serializer: SerializeWith[Key] | None = None,
        value_serializer: SerializeWith[Value] | None = None,
        clock: Clock | None = None,
        randomness: Randomness | None = None,
        connect: Connect = connect_by_socket,
        **keywords: Any,
    ) -> None:
        """`config` has the bootstrap servers, or Kafka's properties. Settings come as keywords too, with `_`
        for each dot, from a properties `file`, or from variables (`environment=os.environ`). The types of key
        and value follow the serializers that are functions or objects.
        """
        if key_serializer is not None:
            keywords["key_serializer"] = key_serializer
        if value_serializer is not None:
            keywords["value_serializer"] = value_serializer
        settings = ProducerSettings.given(config, file=file, environment=environment, keywords=keywords)
        check_partitioner(settings.partitioner_class)
        self.settings = settings
        self.metrics = ClientMetrics()
        clock, randomness = clock or SystemClock(), randomness or random.SystemRandom()
        self._key_serializer = serializer_of(settings.key_serializer, "key.serializer")
        self._value_serializer = serializer_of(settings.value_serializer, "value.serializer")
        self._interceptors = ProducerInterceptors(interceptors)
        self._is_plain = not (self._interceptors or self._key_serializer or self._value_serializer)
        self._cluster = ClusterClient.of(
            settings,
            clock=clock,
            randomness=randomness,
            retry_timeout_ms=settings.max_block_ms,
            allow_auto_topic_creation=True,
            connect=connect,
        )
        machines = Machines.of(settings, self._cluster.metadata, clock, randomness, self.metrics.registry)
        self._accumulator, self._sender = machines.accumulator, machines.sender
        self._sending = Sending(
            self._cluster,
            machines.sender,
            machines.state,
            acks=settings.required_acks,
            request_timeout_ms=settings.request_timeout_ms,
            backoff=Backoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms),
            linger_ms=settings.linger_ms,
        )
        self._transactions: Transactions | None = None
        if machines.state.transaction is not None:
            self._transactions = Transactions(
                machines.state.transaction,
                machines.state,
                self._cluster,
                machines.sender,
                self._sending,
                timeout_ms=settings.transaction_timeout_ms,
                finish=self.flush,
            )
        self._appending = Appending(
            settings,
            self._cluster,
            machines.accumulator,
            self._sending,
            self._transactions,
            clock,
            randomness,
        )
        # Without serializers, key and value are bytes or refused there.
        self._append: Callable[..., Delivery | None] = self._appending.append
        self._append_later = self._appending.append_later
        self._is_started = self._is_closed = False

    # --- life ---

    async def start(self) -> None:
        """Start the background work. Connections are opened when they are needed."""
        if self._is_closed:
            raise ClientClosed("the producer is closed")
        if not self._is_started:
            self._is_started = True
            self._cluster.updates.on_update.append(self._appending.metadata_changed)
            self._cluster.updates.start()
            self._sending.start()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self, timeout_ms: float = CLOSE_TIMEOUT_MS) -> None:
        """Send what is left, abort an open transaction, and close the connections. Records that are not
        acknowledged within `timeout_ms` fail with `ClientClosed`, as do calls of other tasks that still wait.
        """
        if self._is_closed:
            return
        self._is_closed = True
        self._appending.close()
        try:
            if self._is_started and timeout_ms > 0:
                async with asyncio.timeout(timeout_ms / 1_000):
                    await self._finish()
        except (TimeoutError, KafkaError, ClusterUnreachable):
            pass  # the records fail below, and the coordinator aborts the transaction by its timeout
        finally:
            await self._sending.stop()
            if self._transactions is not None:
                await self._transactions.close()
            self._sender.abort_all(ClientClosed("the producer was closed before the record was acknowledged"))
            await self._cluster.close()

    async def _finish(self) -> None:
        transactions = self._transactions
        if transactions is not None:
            await transactions.until_ended()
            if transactions.state.status in (
                TransactionStatus.IN_TRANSACTION,
                TransactionStatus.ABORTABLE_ERROR,
            ):
                await transactions.abort()
        await self.flush()

    # --- records ---

    async def send(
        self,
        topic: str,
        value: Value | None = None,
        *,
        key: Key | None = None,
        partition: int | None = None,
        headers: Headers | None = None,
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """Take a record to send. It waits only while the buffer is full or the topic is unknown, at most
        max.block.ms. The result is a future of the record's metadata.
        """
        if self._is_plain and headers is None:
            delivery = self._append(topic, key, value, partition, (), timestamp_ms)
            if delivery is not None:
                if self._appending.owes_turn:
                    await self._take_turns()
                return delivery
        return await self._send(ProducerRecord(topic, value, key, headers, partition, timestamp_ms))

    async def publish(
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
        sent = await self.send(
            topic, value, key=key, partition=partition, headers=headers, timestamp_ms=timestamp_ms
        )
        return await sent

    async def send_many(
        self,
        topic: str,
        values: Iterable[Value | None],
        *,
        keys: Iterable[Key | None] | None = None,
        partition: int | None = None,
    ) -> Deliveries:
        """Take many records of one topic. `keys` are in the order of the values."""
        found: list[Delivery] = []
        append = self._append
        pairs = zip(values, keys, strict=True) if keys is not None else ((value, None) for value in values)
        for value, key in pairs:
            delivery = append(topic, key, value, partition, (), None) if self._is_plain else None
            if delivery is None:
                delivery = await self._send(ProducerRecord(topic, value, key, None, partition))
            elif self._appending.owes_turn:
                await self._take_turns()
            found.append(delivery)
        return Deliveries(found)

    async def flush(self) -> None:
        """Send everything now, and wait until each record is acknowledged or has failed."""
        batches = self._accumulator.begin_flush()
        try:
            if batches:
                self._sending.wake()
            for batch in batches:
                await Delivery.until_done(batch)
        finally:
            self._accumulator.end_flush()

    async def partitions_for(self, topic: str) -> Sequence[Partition]:
        """Partitions of a topic, with leaders and replicas."""
        await self.start()
        await self._appending.known(topic, None)
        found = self._cluster.metadata.topic(topic)
        assert found is not None
        return found.partitions

    async def _send(self, record: ProducerRecord) -> Delivery:
        """Send through interceptors and serializers, and wait where that is needed."""
        await self.start()
        if self._interceptors:
            record = self._interceptors.on_send(record)
        topic, value, key, given, partition, timestamp_ms = record
        headers = header_pairs(given)
        try:
            if self._key_serializer is not None:
                headers = list(headers)
                key = self._key_serializer.serialize(topic, key, headers)
                headers = header_pairs(headers)
            if self._value_serializer is not None:
                headers = list(headers)
                value = self._value_serializer.serialize(topic, value, headers)
                headers = header_pairs(headers)
            delivery = self._append(topic, key, value, partition, headers, timestamp_ms)
            if delivery is None:
                delivery = await self._append_later(topic, key, value, partition, headers, timestamp_ms)
        except Exception as error:
            self._interceptors.on_outcome(record, None, error)
            raise
        except BaseException as error:
            self._interceptors.on_outcome(record, None, SendCancelled(f"the send was given up: {error!r}"))
            raise
        if self._interceptors:
            delivery.add_done_callback(partial(self._intercept, record))
        if self._appending.owes_turn:
            await self._take_turns()
        return delivery

    async def _take_turns(self) -> None:
        """Let the loop send a full batch. A caller that sends in a loop would never let it."""
        self._appending.owes_turn = False
        await asyncio.sleep(0)

    def _intercept(self, record: ProducerRecord, delivery: Delivery) -> None:
        error = delivery.exception()
        self._interceptors.on_outcome(record, None if error else delivery.result(), error)

    # --- transactions ---

    async def init_transactions(self) -> None:
        """Get the producer id, and fence older producers of this transactional id. `begin_transaction` does
        it by itself.
        """
        await self._started().init()

    def transaction(self) -> TransactionBlock:
        """`async with producer.transaction()`: commits at the end, and aborts on an exception."""
        return TransactionBlock(self._started())

    async def begin_transaction(self) -> None:
        await self._started().begin()

    async def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, CommittedOffset], group: str | GroupMember
    ) -> None:
        """Make offsets of a consumer group part of the transaction. `group` is `consumer.group_metadata()`,
        whose generation fences zombies, or the name of a group.
        """
        await self._started().send_offsets(offsets, group)

    async def commit_transaction(self) -> None:
        """Wait until every record has an outcome, and commit. Abort when it raises the error of a record."""
        await self._started().commit()

    async def abort_transaction(self) -> None:
        await self._started().abort()

    def _started(self) -> Transactions:
        if self._transactions is None:
            raise IllegalState("transactions need the setting transactional.id")
        if self._is_closed:
            raise ClientClosed("the producer is closed")
        if not self._is_started:
            raise IllegalState("start the producer first: async with producer, or await producer.start()")
        return self._transactions
