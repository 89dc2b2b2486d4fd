"""Subscribers: records one by one, acknowledged by themselves, or in batches.

| a handler | a record | a batch |
|---|---|---|
| ack | is acknowledged individually (`Consumer.process`) | its end is committed |
| reject | goes to `dead_letters`; without them it is acknowledged | its end is committed |
| nack | is tried again after a pause (`retry`), the key waits; then `dead_letters` | is read again |

`AckPolicy` says which of them a handler's return and error mean. With MANUAL the handler calls them itself,
later if it likes: until then the record is unfinished. An error of such a handler is a nack. With ACK_FIRST
offsets are committed in the background, also those of records whose handlers fail.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from faststream._internal.configs import SubscriberUsecaseConfig
from faststream._internal.constants import EMPTY
from faststream._internal.endpoint.subscriber import SubscriberUsecase
from faststream._internal.endpoint.utils import process_msg
from faststream.exceptions import StopConsume
from faststream.message import AckStatus, StreamMessage
from faststream.middlewares import AckPolicy

from barnabas.client.consumer.consumer import Consumer
from barnabas.client.core.client_errors import ClientClosed
from barnabas.client.extensions.records import Record
from barnabas.client.processing.core.lanes import Order
from barnabas.client.processing.core.retry_policy import Retry
from barnabas.core.ids import TopicPartition
from barnabas.faststream.config import CLOSE_TIMEOUT_MS, KafkaBrokerConfig
from barnabas.faststream.message import (
    CURRENT,
    Settlement,
    decode_batch,
    decode_record,
    parse_batch,
    parse_record,
)
from barnabas.faststream.publishers import ReplyPublisher
from barnabas.faststream.schema import KafkaSubscriberSpecification

AGAIN_S = 1.0
"""Pause after an error of the cluster, and before a batch is read again."""


class Nacked(Exception):
    """The handler wants the record again."""


class Rejected(Exception):
    """The handler does not want the record."""


_AFTER_ERROR: Final = {
    AckPolicy.REJECT_ON_ERROR: AckStatus.REJECTED,
    AckPolicy.NACK_ON_ERROR: AckStatus.NACKED,
    AckPolicy.MANUAL: AckStatus.NACKED,
}
FOR_EVER = Retry(attempts=(1 << 63) - 1, on=(Nacked,))


@dataclass(kw_only=True)
class SubscriberOptions(SubscriberUsecaseConfig):
    _outer_config: KafkaBrokerConfig = field(default_factory=KafkaBrokerConfig)
    topics: Sequence[str] = ()
    pattern: str | None = None
    partitions: Sequence[TopicPartition] = ()
    group_id: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    polling_interval: float = 0.1
    max_records: int | None = None
    max_workers: int = 1
    order: Order = "key"
    retry: Retry = FOR_EVER
    dead_letters: str | None = None

    @property
    def ack_policy(self) -> AckPolicy:
        """Without a policy: a record whose handler fails is rejected, and without a group there is nothing
        to acknowledge.
        """
        if self._ack_policy is not EMPTY:
            return self._ack_policy
        if self._outer_config.ack_policy is not EMPTY:
            return self._outer_config.ack_policy
        return AckPolicy.ACK_FIRST if self.group_id is None else AckPolicy.REJECT_ON_ERROR

    @property
    def is_ack_first(self) -> bool:
        return self.ack_policy is AckPolicy.ACK_FIRST


class KafkaSubscriber(SubscriberUsecase[Any]):
    """Records one by one."""

    def __init__(
        self, options: SubscriberOptions, specification: KafkaSubscriberSpecification, calls: Any
    ) -> None:
        options.parser, options.decoder = self._parsing()
        super().__init__(options, specification, calls)  # type: ignore[arg-type]
        self._options = options
        self.group_id = options.group_id
        self.consumer: Consumer[Any, Any] | None = None
        self._stopping = asyncio.Event()
        self._reading: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None

    def _parsing(self) -> tuple[Any, Any]:
        return parse_record, decode_record

    @property
    def topics(self) -> list[str]:
        return [f"{self._outer_config.prefix}{topic}" for topic in self._options.topics]

    @property
    def partitions(self) -> list[TopicPartition]:
        prefix = self._outer_config.prefix
        return [TopicPartition(f"{prefix}{at.topic}", at.partition) for at in self._options.partitions]

    @property
    def pattern(self) -> str | None:
        return self._options.pattern

    # --- life ---

    async def start(self) -> None:
        await super().start()
        options = self._options
        own = {"enable.auto.commit": options.is_ack_first, **options.settings}
        if options.group_id is not None:
            own["group.id"] = options.group_id
        self._stopping.clear()
        self.consumer = consumer = options._outer_config.clients.consumer(**own)
        await consumer.start()
        if options.pattern is not None:
            await consumer.subscribe(pattern=options.pattern)
        elif options.topics and options.group_id is not None:
            await consumer.subscribe(self.topics)
        else:
            producer: Any = options._outer_config.producer
            named = [await producer.partitions_of(topic) for topic in self.topics]
            await consumer.assign(self.partitions or [at for each in named for at in each])
        self._post_start()
        if self.calls:
            self._reading = asyncio.create_task(self._read(consumer))

    async def stop(self) -> None:
        self._stopping.set()
        await super().stop()
        reading, self._reading = self._reading, None
        if reading is not None:
            await asyncio.wait((reading,), timeout=self._outer_config.graceful_timeout)
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        consumer, self.consumer = self.consumer, None
        if consumer is not None:
            await consumer.close(timeout_ms=CLOSE_TIMEOUT_MS)

    def _stop_soon(self) -> None:
        """Stop from within a handler, which cannot wait for its own end."""
        self.running = False
        self._stopping.set()
        self._closing = asyncio.create_task(self.stop())

    # --- reading ---

    async def _read(self, consumer: Consumer[Any, Any]) -> None:
        """Read until the end. An error is logged, and reading goes on after a pause: a subscriber that ended
        here would look like one whose topic is silent."""
        while not self._stopping.is_set():
            try:
                await self._handle_records(consumer)
            except ClientClosed:
                return
            except Exception as error:  # noqa: BLE001 - of the cluster, or of code of the application
                self._log(logging.ERROR, f"reading failed, trying again: {error}", exc_info=error)
                await self._pause()

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(AGAIN_S):
                await self._stopping.wait()
        except TimeoutError:
            pass

    async def _handle_records(self, consumer: Consumer[Any, Any]) -> None:
        options = self._options
        if options.is_ack_first:
            while not self._stopping.is_set():
                records = await consumer.poll(
                    timeout_ms=options.polling_interval * 1_000, max_records=options.max_workers
                )
                await asyncio.gather(*(self._outcome(record) for record in records))
            return
        await consumer.process(
            self._handle,
            concurrency=options.max_workers,
            order=options.order,
            retry=options.retry,
            dead_letters=options.dead_letters,
            stop=self._stopping,
        )

    async def _handle(self, record: Record[Any, Any]) -> None:
        """Handler of `process`: returns for an acknowledgement, raises for another attempt or a letter."""
        status, error = await self._outcome(record)
        reason = None if error is None else f"{type(error).__name__}: {error}"
        if status is AckStatus.NACKED:
            raise Nacked(reason) from error
        if status is AckStatus.REJECTED and self._options.dead_letters is not None:
            raise Rejected(reason) from error

    async def _outcome(self, raw: Any) -> tuple[AckStatus, Exception | None]:
        """Run FastStream's handlers; what became of the message, and the error."""
        settlement = Settlement()
        token = CURRENT.set(settlement)
        error: Exception | None = None
        try:
            await self.process_message(raw)
        except StopConsume:
            self._stop_soon()
        except SystemExit:
            self._stop_soon()
            if app := self._outer_config.context.get("app"):
                app.exit()
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            error = RuntimeError("the handler has met a cancelled task")
        except Exception as caught:  # noqa: BLE001 - of the application; FastStream's middleware has logged it
            error = caught
        finally:
            CURRENT.reset(token)
        if settlement.status is None and self.ack_policy is AckPolicy.MANUAL:
            if error is not None:
                settlement.settle(AckStatus.NACKED)
            await self._settled(settlement)
        return settlement.status or self._status_after(error), error

    def _status_after(self, error: Exception | None) -> AckStatus:
        """Status of a message that FastStream has not settled, as after a cancelled task."""
        if error is None:
            return AckStatus.ACKED
        return _AFTER_ERROR.get(self.ack_policy, AckStatus.ACKED)

    async def _settled(self, settlement: Settlement) -> None:
        """Wait for the handler's own acknowledgement. A stop leaves the record unfinished: it comes again."""
        waits = [asyncio.ensure_future(each.wait()) for each in (settlement, self._stopping)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()
        settlement.settle(AckStatus.NACKED)  # without effect where the handler has settled it

    # --- without handlers ---

    async def get_one(self, *, timeout: float = 5.0) -> StreamMessage[Any] | None:  # noqa: ASYNC109 - FastStream's
        """The next message of a subscriber without handlers; None after the timeout."""
        consumer = self._without_handlers()
        found = await consumer.poll(timeout_ms=timeout * 1_000, max_records=1)
        return await self._message(found[0]) if found else None

    async def __aiter__(self) -> AsyncIterator[StreamMessage[Any]]:
        consumer = self._without_handlers()
        async for record in consumer:
            yield await self._message(record)

    def _without_handlers(self) -> Consumer[Any, Any]:
        assert self.consumer is not None, "start the subscriber first"
        assert not self.calls, "this subscriber has handlers, which receive the messages"
        return self.consumer

    async def _message(self, raw: Any) -> StreamMessage[Any]:
        context = self._outer_config.context
        parser, decoder = self._get_parser_and_decoder()
        found: Any = await process_msg(
            msg=raw,
            middlewares=(each(raw, context=context) for each in self._broker_middlewares),
            parser=parser,
            decoder=decoder,
        )
        message: StreamMessage[Any] = found
        return message

    # --- what FastStream asks ---

    def _make_response_publisher(self, message: StreamMessage[Any]) -> Iterable[Any]:
        return (ReplyPublisher(self._outer_config.producer, message.reply_to),)

    def get_log_context(self, message: StreamMessage[Any] | None) -> dict[str, str]:
        raw = None if message is None else message.raw_message
        first = raw[0] if isinstance(raw, tuple) and not isinstance(raw, Record) else raw
        named = [*self.topics, *map(str, self.partitions), *([self.pattern] if self.pattern else [])]
        return {
            "topic": first.topic if isinstance(first, Record) else ",".join(named),
            "group_id": self.group_id or "",
            "message_id": getattr(message, "message_id", ""),
        }


class KafkaBatchSubscriber(KafkaSubscriber):
    """Records in tuples of up to `max_records`."""

    def _parsing(self) -> tuple[Any, Any]:
        return parse_batch, decode_batch

    async def _handle_records(self, consumer: Consumer[Any, Any]) -> None:
        options = self._options
        while not self._stopping.is_set():
            records = await consumer.poll(
                timeout_ms=options.polling_interval * 1_000, max_records=options.max_records
            )
            if not records:
                continue
            status, _ = await self._outcome(tuple(records))
            if options.is_ack_first:
                continue
            if status is AckStatus.NACKED:
                self._go_back(consumer, records)
                await self._pause()
            else:
                await consumer.commit()

    @staticmethod
    def _go_back(consumer: Consumer[Any, Any], records: Sequence[Record[Any, Any]]) -> None:
        firsts: dict[TopicPartition, int] = {}
        for record in records:
            firsts.setdefault(record.topic_partition, record.offset)
        for at, offset in firsts.items():
            if at in consumer.assignment:
                consumer.seek(at, offset)
