"""Publishers: one message, or a batch, of each result of a handler."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from faststream._internal.configs import PublisherUsecaseConfig
from faststream._internal.endpoint.publisher import PublisherUsecase
from faststream._internal.endpoint.publisher.fake import FakePublisher

from barnabas.faststream.commands import KafkaPublishCommand
from barnabas.faststream.config import KafkaBrokerConfig
from barnabas.faststream.schema import KafkaPublisherSpecification


@dataclass(kw_only=True)
class PublisherOptions(PublisherUsecaseConfig):
    _outer_config: KafkaBrokerConfig = field(default_factory=KafkaBrokerConfig)
    topic: str = ""
    key: bytes | str | None = None
    partition: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    reply_to: str = ""
    is_batch: bool = False


class KafkaPublisher(PublisherUsecase):
    """Writes results of handlers, and what `publish` is given, to its topic."""

    def __init__(self, options: PublisherOptions, specification: KafkaPublisherSpecification) -> None:
        super().__init__(options, specification)  # type: ignore[arg-type]
        self._options = options
        self.partition = options.partition
        self.is_batch = options.is_batch

    @property
    def topic(self) -> str:
        return f"{self._outer_config.prefix}{self._options.topic}"

    async def publish(
        self,
        *messages: Any,
        topic: str = "",
        key: bytes | str | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: dict[str, str] | None = None,
        correlation_id: str | None = None,
        reply_to: str = "",
        no_confirm: bool = False,
    ) -> Any:
        """Write a message, or several with `batch=True`."""
        if not self.is_batch and len(messages) != 1:
            raise ValueError(f"{len(messages)} messages: a publisher with batch=True takes several")
        cmd = KafkaPublishCommand(
            *messages,
            topic=topic or self.topic,
            key=key or self._options.key,
            partition=self.partition if partition is None else partition,
            timestamp_ms=timestamp_ms,
            headers=self._options.headers | (headers or {}),
            correlation_id=correlation_id or self._outer_config.id_generator(),
            reply_to=reply_to or self._options.reply_to,
            no_confirm=no_confirm,
        )
        return await self._write(cmd, ())

    async def request(self, message: Any, topic: str = "", **options: Any) -> Any:
        """For tests alone: Kafka has no requests."""
        cmd = KafkaPublishCommand(message, topic=topic or self.topic, **options)
        return await self._basic_request(cmd, producer=self._outer_config.producer)

    async def flush(self) -> None:
        producer: Any = self._outer_config.producer
        await producer.flush()

    async def _publish(self, cmd: Any, *, _extra_middlewares: Iterable[Any]) -> None:
        """Write the result of a handler."""
        own = KafkaPublishCommand.from_cmd(cmd, batch=self.is_batch)
        own.destination = self.topic
        own.add_headers(self._options.headers, override=False)
        own.reply_to = own.reply_to or self._options.reply_to
        own.partition = self.partition if own.partition is None else own.partition
        own.key = own.key or self._options.key
        await self._write(own, _extra_middlewares)

    async def _write(self, cmd: KafkaPublishCommand, middlewares: Iterable[Any]) -> Any:
        write = self._basic_publish_batch if self.is_batch else self._basic_publish
        return await write(cmd, producer=self._outer_config.producer, _extra_middlewares=middlewares)


class ReplyPublisher(FakePublisher):
    """Publisher of a reply, to the topic that the message names."""

    def __init__(self, producer: Any, topic: str) -> None:
        super().__init__(producer=producer)
        self._topic = topic

    def patch_command(self, cmd: Any) -> KafkaPublishCommand:
        own = KafkaPublishCommand.from_cmd(super().patch_command(cmd))
        own.destination = self._topic
        return own
