"""Settings of the broker's clients, and the producer that all publishers share."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from faststream._internal.configs import BrokerConfig
from faststream._internal.endpoint.utils import ParserComposition
from faststream._internal.logger import DefaultLoggerStorage
from faststream._internal.logger.logging import get_broker_logger
from faststream._internal.parser import BatchCodecProto, DefaultCodec
from faststream.exceptions import FeatureNotSupportedException, IncorrectState

from barnabas.client.config.consumer_keys import CONSUMER_KEYS
from barnabas.client.config.producer_keys import PRODUCER_KEYS
from barnabas.client.consumer.consumer import Consumer
from barnabas.client.extensions.interceptors import ConsumerInterceptor, ProducerInterceptor
from barnabas.client.producer.delivery import Delivery
from barnabas.client.producer.producer import Producer
from barnabas.config.definitions.keys import Definition
from barnabas.core.ids import TopicPartition
from barnabas.faststream.commands import KafkaPublishCommand
from barnabas.faststream.message import decode_record, parse_record

CLOSE_TIMEOUT_MS = 10_000


@dataclass(frozen=True)
class Clients:
    """Kafka's properties of both kinds of client. Each takes its own; a key of neither is refused."""

    servers: Sequence[str]
    settings: Mapping[str, Any] = field(default_factory=dict)
    producer_interceptors: Sequence[ProducerInterceptor] = ()
    consumer_interceptors: Sequence[ConsumerInterceptor] = ()

    def __post_init__(self) -> None:
        for name in self.settings:
            if name not in PRODUCER_KEYS and name not in CONSUMER_KEYS:
                Definition({**CONSUMER_KEYS, **PRODUCER_KEYS}.values()).key(name)

    def producer(self) -> Producer:
        return Producer(self._of(PRODUCER_KEYS), interceptors=self.producer_interceptors)

    def consumer(self, **own: Any) -> Consumer[Any, Any]:
        config = {**self._of(CONSUMER_KEYS), **own}
        return Consumer(config, interceptors=self.consumer_interceptors)

    def _of(self, definition: Definition) -> dict[str, Any]:
        found = {name: value for name, value in self.settings.items() if name in definition}
        return {**found, "bootstrap.servers": list(self.servers)}


class KafkaProducer:
    """FastStream's producer: encodes messages, and writes them by the client of the broker."""

    def __init__(self, parser: Any = None, decoder: Any = None) -> None:
        self._producer: Producer | None = None
        self._serializer: Any = None
        self.codec: Any = DefaultCodec()
        self._parser = ParserComposition(parser, parse_record)
        self._decoder = ParserComposition(decoder, decode_record)

    async def connect(self, clients: Clients, serializer: Any, codec: Any) -> None:
        if self._producer is None:
            self._producer = clients.producer()
            await self._producer.start()
        self._serializer, self.codec = serializer, codec or DefaultCodec()

    async def disconnect(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.close(CLOSE_TIMEOUT_MS)

    def __bool__(self) -> bool:
        return self._producer is not None

    async def flush(self) -> None:
        await self._started().flush()

    async def ping(self, topic: str | None, timeout_s: float) -> bool:
        """True when a broker answers."""
        del topic
        try:
            async with asyncio.timeout(timeout_s):
                await self._started()._cluster.refresh(())
        except Exception:  # noqa: BLE001 - any reason means no
            return False
        return True

    async def partitions_of(self, topic: str) -> list[TopicPartition]:
        """Partitions of a topic, which the broker may create now."""
        return [TopicPartition(topic, each.index) for each in await self._started().partitions_for(topic)]

    async def publish(self, cmd: KafkaPublishCommand) -> Any:
        """Write a message. Returns its metadata, or the delivery with `no_confirm`."""
        data, content_type = (None, None) if cmd.body is None else await self._encoded(cmd.body)
        delivery = await self._send(cmd, data, content_type, cmd.key)
        return delivery if cmd.no_confirm else await delivery

    async def publish_batch(self, cmd: KafkaPublishCommand) -> Any:
        """Write messages to one topic. Returns their metadata, or the deliveries with `no_confirm`."""
        bodies, keys = bodies_and_keys(cmd)
        if isinstance(self.codec, BatchCodecProto):
            encoded: list[Any] = list(await self.codec.encode_batch(bodies, self._serializer))
        else:
            encoded = [await self._encoded(body) for body in bodies]
        deliveries = [
            await self._send(cmd, data, content_type, key)
            for (data, content_type), key in zip(encoded, keys, strict=True)
        ]
        return deliveries if cmd.no_confirm else [await each for each in deliveries]

    async def request(self, cmd: KafkaPublishCommand) -> Any:
        del cmd
        raise FeatureNotSupportedException(
            "Kafka has no requests: publish with reply_to, and subscribe to it"
        )

    async def _encoded(self, body: Any) -> tuple[bytes | None, str | None]:
        found: tuple[bytes | None, str | None] = await self.codec.encode(body, self._serializer)
        return found

    async def _send(
        self, cmd: KafkaPublishCommand, data: bytes | None, content_type: str | None, key: Any
    ) -> Delivery:
        headers = ({"content-type": content_type} if content_type else {}) | cmd.own_headers()
        return await self._started().send(
            cmd.destination,
            data,
            key=key.encode() if isinstance(key, str) else key,
            partition=cmd.partition,
            timestamp_ms=cmd.timestamp_ms,
            headers=headers,
        )

    def _started(self) -> Producer:
        if self._producer is None:
            raise IncorrectState("connect the broker first: await broker.start()")
        return self._producer


def bodies_and_keys(cmd: KafkaPublishCommand) -> tuple[list[Any], list[Any]]:
    """Bodies of a batch, and the key of each: its own (`KafkaResponse`), or that of the command."""
    from faststream.response.response import Response  # noqa: PLC0415 - only batches have it

    bodies, keys = [], []
    for each in cmd.batch_bodies:
        own = each.get_publish_key() if isinstance(each, Response) else None
        bodies.append(each.body if isinstance(each, Response) else each)
        keys.append(cmd.key if own is None else own)
    return bodies, keys


@dataclass(kw_only=True)
class KafkaBrokerConfig(BrokerConfig):
    clients: Clients = field(default_factory=lambda: Clients(()))

    async def connect(self) -> None:
        producer: Any = self.producer
        await producer.connect(self.clients, self.fd_config._serializer, self.broker_codec)

    async def disconnect(self) -> None:
        producer: Any = self.producer
        await producer.disconnect()


class LoggerStorage(DefaultLoggerStorage):
    """Columns of FastStream's log lines: topic, group, message."""

    def __init__(self) -> None:
        super().__init__()
        self._topic_width, self._group_width = 4, 0
        self._level = logging.INFO

    def set_level(self, level: int) -> None:
        self._level = level

    def register_subscriber(self, params: dict[str, Any]) -> None:
        self._topic_width = max(self._topic_width, len(params.get("topic", "")))
        self._group_width = max(self._group_width, len(params.get("group_id", "")))

    def get_logger(self, *, context: Any) -> Any:
        found = self._get_logger_ref()
        if not found:
            group = f"%(group_id)-{self._group_width}s | " if self._group_width else ""
            found = get_broker_logger(
                name="barnabas",
                default_context={"topic": "", "group_id": ""},
                message_id_ln=10,
                fmt=f"%(asctime)s %(levelname)-8s - %(topic)-{self._topic_width}s | {group}%(message_id)-10s "
                "- %(message)s",
                context=context,
                log_level=self._level,
            )
            self._logger_ref.add(found)
        return found
