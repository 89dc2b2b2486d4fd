"""Registration of subscribers and publishers, for the broker and for routers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from faststream._internal.broker.registrator import Registrator
from faststream._internal.constants import EMPTY
from faststream._internal.endpoint.subscriber.call_item import CallsCollection
from faststream.exceptions import SetupError
from faststream.middlewares import AckPolicy

from barnabas.client.config.consumer_keys import CONSUMER_KEYS
from barnabas.client.processing.core.lanes import Order
from barnabas.client.processing.core.retry_policy import Retry
from barnabas.core.ids import TopicPartition
from barnabas.faststream.config import KafkaBrokerConfig
from barnabas.faststream.publishers import KafkaPublisher, PublisherOptions
from barnabas.faststream.schema import (
    KafkaPublisherSpecification,
    KafkaSubscriberSpecification,
    PublisherSchemaConfig,
    SubscriberSchemaConfig,
)
from barnabas.faststream.subscribers import (
    FOR_EVER,
    KafkaBatchSubscriber,
    KafkaSubscriber,
    Nacked,
    SubscriberOptions,
)


class KafkaRegistrator(Registrator[Any, KafkaBrokerConfig]):
    def subscriber(  # type: ignore[override]
        self,
        *topics: str,
        pattern: str | None = None,
        partitions: Sequence[TopicPartition] = (),
        group_id: str | None = None,
        auto_offset_reset: str = "latest",
        ack_policy: AckPolicy = EMPTY,
        max_workers: int = 1,
        order: Order = "key",
        retry: Retry | int | None = None,
        dead_letters: str | None = None,
        batch: bool = False,
        max_records: int | None = None,
        polling_interval: float = 0.1,
        config: Mapping[str, Any] | None = None,
        parser: Any = None,
        decoder: Any = None,
        codec: Any = None,
        dependencies: Sequence[Any] = (),
        no_reply: bool = False,
        title: str | None = None,
        description: str | None = None,
        include_in_schema: bool = True,
        persistent: bool = True,
    ) -> KafkaSubscriber:
        """Subscribe a handler to topics, to a pattern or to partitions.

        Up to `max_workers` records are handled at a time, those of one key in order (`order`: key, partition,
        none). A nacked record is tried again by `retry`, and then goes to the topic `dead_letters`.
        `config` has properties of the consumer, under Kafka's names.
        """
        for name in config or {}:
            CONSUMER_KEYS.key(name)
        options = SubscriberOptions(
            _outer_config=self.config,  # type: ignore[arg-type]
            _ack_policy=ack_policy,
            no_reply=no_reply,
            topics=topics,
            pattern=pattern,
            partitions=partitions,
            group_id=group_id,
            settings={"auto.offset.reset": auto_offset_reset, **(config or {})},
            polling_interval=polling_interval,
            max_records=max_records,
            max_workers=max_workers,
            order=order,
            retry=_of_nacks(retry),
            dead_letters=dead_letters,
        )
        _check(options, is_batch=batch, has_retry=retry is not None)
        calls: CallsCollection[Any] = CallsCollection()
        specification = KafkaSubscriberSpecification(
            _outer_config=self.config,  # type: ignore[arg-type]
            calls=calls,
            specification_config=SubscriberSchemaConfig(
                topics=[*topics, *([pattern] if pattern else []), *(at.topic for at in partitions)],
                title_=title,
                description_=description,
                include_in_schema=include_in_schema,
            ),
        )
        kind = KafkaBatchSubscriber if batch else KafkaSubscriber
        made = kind(options, specification, calls)
        super().subscriber(made, persistent=persistent)
        return made.add_call(parser_=parser, decoder_=decoder, dependencies_=dependencies, codec_=codec)

    def publisher(  # type: ignore[override]
        self,
        topic: str,
        *,
        key: bytes | str | None = None,
        partition: int | None = None,
        headers: dict[str, str] | None = None,
        reply_to: str = "",
        batch: bool = False,
        title: str | None = None,
        description: str | None = None,
        schema: Any = None,
        include_in_schema: bool = True,
        persistent: bool = True,
    ) -> KafkaPublisher:
        """Publish to a topic: results of the handlers that it decorates, and what `publish` is given."""
        options = PublisherOptions(
            _outer_config=self.config,  # type: ignore[arg-type]
            topic=topic,
            key=key,
            partition=partition,
            headers=headers or {},
            reply_to=reply_to,
            is_batch=batch,
        )
        specification = KafkaPublisherSpecification(
            _outer_config=self.config,  # type: ignore[arg-type]
            specification_config=PublisherSchemaConfig(
                topic=topic,
                schema_=schema,
                title_=title,
                description_=description,
                include_in_schema=include_in_schema,
            ),
        )
        made = KafkaPublisher(options, specification)
        super().publisher(made, persistent=persistent)
        return made


def _of_nacks(retry: Retry | int | None) -> Retry:
    """Retries are for nacked records: a rejected one is not tried again."""
    if retry is None:
        return FOR_EVER
    wanted = Retry(retry) if isinstance(retry, int) else retry
    return Retry(wanted.attempts, wanted.first_ms, wanted.max_ms, on=(Nacked,))


def _check(options: SubscriberOptions, *, is_batch: bool, has_retry: bool) -> None:
    given = (bool(options.topics), options.pattern is not None, bool(options.partitions))
    if sum(given) != 1:
        raise SetupError("a subscriber has topics, or a pattern, or partitions")
    if options.group_id is None and options.pattern is not None:
        raise SetupError("a pattern needs a group: give group_id")
    if options.group_id is None and not options.is_ack_first:
        raise SetupError(
            f"{options.ack_policy.name} needs a group, which keeps what is acknowledged: give group_id"
        )
    if options.max_workers < 1:
        raise SetupError(f"max_workers is {options.max_workers}, but one record at a time is the least")
    if is_batch and (options.max_workers > 1 or options.dead_letters is not None or has_retry):
        raise SetupError("max_workers, retry and dead_letters are for single records, not for batches")
    if has_retry and options.dead_letters is None:
        raise SetupError("a record that was tried often enough has to go somewhere: name dead_letters")
