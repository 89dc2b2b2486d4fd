"""Broker of tests: messages go from publishers to subscribers in memory, by FastStream's own means."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from faststream._internal.testing.broker import TestBroker, change_producer
from faststream.exceptions import SubscriberNotFound

from barnabas.client.extensions.records import Record
from barnabas.core.clock import SystemClock
from barnabas.faststream.broker import KafkaBroker
from barnabas.faststream.commands import KafkaPublishCommand
from barnabas.faststream.config import KafkaProducer, bodies_and_keys
from barnabas.faststream.publishers import KafkaPublisher
from barnabas.faststream.subscribers import KafkaBatchSubscriber, KafkaSubscriber


class TestKafkaBroker(TestBroker[KafkaBroker, Any], broker=KafkaBroker):
    """`async with TestKafkaBroker(broker): ...` needs no Kafka; `with_real=True` uses the real one."""

    @contextmanager
    def _patch_producer(self, broker: KafkaBroker) -> Iterator[None]:
        with change_producer(broker.config.broker_config, InMemoryProducer(broker, self.brokers)):
            yield

    async def _fake_connect(self, broker: KafkaBroker, *args: Any, **kwargs: Any) -> None:
        del broker, args, kwargs

    def create_publisher_fake_subscriber(
        self, broker: KafkaBroker, publisher: KafkaPublisher
    ) -> tuple[KafkaSubscriber, bool]:
        for subscriber in _subscribers(self.brokers):
            if _receives(subscriber, publisher.topic, publisher.partition):
                return subscriber, True
        return broker.subscriber(publisher.topic, batch=publisher.is_batch, persistent=False), False


class InMemoryProducer(KafkaProducer):
    def __init__(self, broker: KafkaBroker, brokers: Iterable[KafkaBroker]) -> None:
        super().__init__(broker._parser, broker._decoder)
        self._brokers = tuple(brokers)
        self._serializer = broker.config.fd_config._serializer
        self.codec = broker.config.broker_codec or self.codec

    def __bool__(self) -> bool:
        return True

    async def flush(self) -> None:
        """Nothing is left: each message was handled when it was published."""

    async def publish(self, cmd: KafkaPublishCommand) -> Any:
        record = await self._record(cmd, cmd.body, cmd.key)
        for subscriber in self._matching(cmd):
            await self._give(subscriber, (record,))

    async def publish_batch(self, cmd: KafkaPublishCommand) -> Any:
        bodies, keys = bodies_and_keys(cmd)
        records = [await self._record(cmd, body, key) for body, key in zip(bodies, keys, strict=True)]
        for subscriber in self._matching(cmd):
            if isinstance(subscriber, KafkaBatchSubscriber):
                await self._give(subscriber, tuple(records))
            else:
                for record in records:
                    await self._give(subscriber, (record,))

    async def request(self, cmd: KafkaPublishCommand) -> Any:
        record = await self._record(cmd, cmd.body, cmd.key)
        for subscriber in self._matching(cmd):
            async with asyncio.timeout(cmd.timeout):
                answer = await self._give(subscriber, (record,))
            own = KafkaPublishCommand(
                answer.body,
                topic=cmd.destination,
                headers=answer.headers,
                correlation_id=answer.correlation_id,
            )
            return await self._record(own, answer.body, None)
        raise SubscriberNotFound

    async def _give(self, subscriber: KafkaSubscriber, records: tuple[Record[Any, Any], ...]) -> Any:
        """Handle records now. The error of a handler is the publisher's, so that a test sees it."""
        is_batch = isinstance(subscriber, KafkaBatchSubscriber)
        return await subscriber.process_message(records if is_batch else records[0])

    async def _record(self, cmd: KafkaPublishCommand, body: Any, key: Any) -> Record[Any, Any]:
        data, content_type = (None, None) if body is None else await self._encoded(body)
        headers = ({"content-type": content_type} if content_type else {}) | cmd.own_headers()
        return Record(
            cmd.destination,
            cmd.partition or 0,
            0,
            SystemClock().now_ms() if cmd.timestamp_ms is None else cmd.timestamp_ms,
            key.encode() if isinstance(key, str) else key,
            data,
            tuple((name, text.encode()) for name, text in headers.items()),
        )

    def _matching(self, cmd: KafkaPublishCommand) -> Iterator[KafkaSubscriber]:
        """Subscribers of a topic: one of each group, as in Kafka."""
        groups: set[str] = set()
        for subscriber in _subscribers(self._brokers):
            if not _receives(subscriber, cmd.destination, cmd.partition) or subscriber.group_id in groups:
                continue
            if subscriber.group_id is not None:
                groups.add(subscriber.group_id)
            yield subscriber


def _subscribers(brokers: Iterable[KafkaBroker]) -> Iterator[KafkaSubscriber]:
    for broker in brokers:
        for subscriber in broker.subscribers:
            assert isinstance(subscriber, KafkaSubscriber)
            yield subscriber


def _receives(subscriber: KafkaSubscriber, topic: str, partition: int | None) -> bool:
    if subscriber.pattern is not None:
        return re.fullmatch(subscriber.pattern, topic) is not None
    return topic in subscriber.topics or any(
        at.topic == topic and partition in (None, at.partition) for at in subscriber.partitions
    )
