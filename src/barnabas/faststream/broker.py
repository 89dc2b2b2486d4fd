"""Broker and router of FastStream."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any

from fast_depends import dependency_provider
from faststream._internal.broker import BrokerUsecase
from faststream._internal.broker.router import BrokerRouter, SubscriberRoute
from faststream._internal.constants import EMPTY
from faststream._internal.context.repository import ContextRepo
from faststream._internal.di import FastDependsConfig
from faststream._internal.logger import make_logger_state
from faststream.message import gen_cor_id
from faststream.middlewares import AckPolicy
from faststream.specification.schema import BrokerSpec

from barnabas.client.extensions.interceptors import ConsumerInterceptor, ProducerInterceptor
from barnabas.faststream.commands import KafkaPublishCommand
from barnabas.faststream.config import Clients, KafkaBrokerConfig, KafkaProducer, LoggerStorage
from barnabas.faststream.registrator import KafkaRegistrator

PING_S = 10.0


class KafkaBroker(KafkaRegistrator, BrokerUsecase[Any, Any, KafkaBrokerConfig]):
    def __init__(
        self,
        bootstrap_servers: str | Sequence[str] = "127.0.0.1:9092",
        *,
        config: Mapping[str, Any] | None = None,
        producer_interceptors: Sequence[ProducerInterceptor] = (),
        consumer_interceptors: Sequence[ConsumerInterceptor] = (),
        ack_policy: AckPolicy = EMPTY,
        graceful_timeout: float | None = 15.0,
        id_generator: Any = gen_cor_id,
        parser: Any = None,
        decoder: Any = None,
        codec: Any = None,
        dependencies: Sequence[Any] = (),
        middlewares: Sequence[Any] = (),
        routers: Iterable[KafkaRegistrator] = (),
        specification_url: str | Iterable[str] | None = None,
        description: str | None = None,
        tags: Iterable[Any] = (),
        logger: Any = EMPTY,
        log_level: int = logging.INFO,
        apply_types: bool = True,
        provider: Any = None,
        serializer: Any = EMPTY,
        context: ContextRepo | None = None,
    ) -> None:
        """`config` has properties of the producer and the consumers, under Kafka's names."""
        given = bootstrap_servers
        servers = given.split(",") if isinstance(given, str) else list(given)
        urls = [specification_url] if isinstance(specification_url, str) else specification_url
        is_secure = str((config or {}).get("security.protocol", "PLAINTEXT")) != "PLAINTEXT"
        super().__init__(
            routers=routers,
            config=KafkaBrokerConfig(
                clients=Clients(servers, dict(config or {}), producer_interceptors, consumer_interceptors),
                producer=KafkaProducer(parser, decoder),  # type: ignore[arg-type]
                broker_parser=parser,
                broker_decoder=decoder,
                broker_codec=codec,
                broker_middlewares=middlewares,
                broker_dependencies=dependencies,
                logger=make_logger_state(
                    logger=logger, log_level=log_level, default_storage_cls=LoggerStorage
                ),
                fd_config=FastDependsConfig(
                    use_fastdepends=apply_types,
                    serializer=serializer,
                    provider=provider or dependency_provider,
                    context=context or ContextRepo(),
                ),
                graceful_timeout=graceful_timeout,
                ack_policy=ack_policy,
                id_generator=id_generator,
                extra_context={"broker": self},
            ),
            specification=BrokerSpec(
                url=servers if urls is None else list(urls),
                protocol="kafka-secure" if is_secure else "kafka",
                protocol_version="auto",
                description=description,
                tags=list(tags),
                security=None,
            ),
        )

    async def _connect(self) -> Any:
        await self.config.connect()
        return self.config.broker_config

    async def start(self) -> None:
        await self.connect()
        await super().start()

    async def stop(
        self,
        exc_type: type[BaseException] | None = None,
        exc_val: BaseException | None = None,
        exc_tb: TracebackType | None = None,
    ) -> None:
        try:
            await super().stop(exc_type, exc_val, exc_tb)
        finally:
            await self.config.disconnect()
            self._connection = None

    async def publish(
        self,
        message: Any,
        topic: str,
        *,
        key: bytes | str | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: dict[str, str] | None = None,
        correlation_id: str | None = None,
        reply_to: str = "",
        no_confirm: bool = False,
    ) -> Any:
        """Write a message. Returns its `RecordMetadata`, or its delivery with `no_confirm`."""
        cmd = KafkaPublishCommand(
            message,
            topic=topic,
            key=key,
            partition=partition,
            timestamp_ms=timestamp_ms,
            headers=headers,
            correlation_id=correlation_id or self.config.id_generator(),
            reply_to=reply_to,
            no_confirm=no_confirm,
        )
        return await self._basic_publish(cmd, producer=self.config.producer)

    async def publish_batch(  # type: ignore[override]
        self,
        *messages: Any,
        topic: str,
        key: bytes | str | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: dict[str, str] | None = None,
        correlation_id: str | None = None,
        reply_to: str = "",
        no_confirm: bool = False,
    ) -> Any:
        """Write messages to one topic, each with its own key where it is a `KafkaResponse`."""
        cmd = KafkaPublishCommand(
            *messages,
            topic=topic,
            key=key,
            partition=partition,
            timestamp_ms=timestamp_ms,
            headers=headers,
            correlation_id=correlation_id or self.config.id_generator(),
            reply_to=reply_to,
            no_confirm=no_confirm,
        )
        return await self._basic_publish_batch(cmd, producer=self.config.producer)

    async def request(self, message: Any, topic: str, **options: Any) -> Any:  # type: ignore[override]
        """For tests alone: Kafka has no requests."""
        cmd = KafkaPublishCommand(message, topic=topic, **options)
        return await self._basic_request(cmd, producer=self.config.producer)

    async def ping(self, timeout: float | None) -> bool:  # noqa: ASYNC109 - FastStream's
        producer: Any = self.config.producer
        return bool(producer) and await producer.ping(None, timeout or PING_S)


class KafkaRouter(KafkaRegistrator, BrokerRouter[Any, KafkaBrokerConfig]):
    """Subscribers and publishers of a module, for `broker.include_router`."""

    def __init__(
        self,
        prefix: str = "",
        handlers: Iterable[SubscriberRoute] = (),
        *,
        dependencies: Sequence[Any] = (),
        middlewares: Sequence[Any] = (),
        routers: Iterable[KafkaRegistrator] = (),
        parser: Any = None,
        decoder: Any = None,
        include_in_schema: bool | None = None,
    ) -> None:
        super().__init__(
            handlers=handlers,
            routers=routers,
            config=KafkaBrokerConfig(
                prefix=prefix,
                broker_middlewares=middlewares,
                broker_dependencies=dependencies,
                broker_parser=parser,
                broker_decoder=decoder,
                include_in_schema=include_in_schema,
            ),
        )
