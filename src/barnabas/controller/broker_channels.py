"""One ordered queue and one sender per live broker.

A request is sent until the broker has carried it out: a state change that got lost would leave a broker
with an old view of the cluster, and those behind it in the queue build on it. An answer that asks to try
again (the broker could not read the store, say) is none. Sending ends only when the broker is gone (then
its successor gets everything anew) or this controller has resigned. The controller's own broker is told in
the same way as the others, but its channel is a call.

A request may have to wait for what others are told (`after`): whoever is to lead a partition that somebody
else leads hears of it when that one has given it up, or is gone. But one that neither answers nor goes does
not keep a partition without a leader for ever: after HANDOVER_MS_MAX its heir is told all the same.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import suppress
from typing import Final, NamedTuple, Protocol, TypeVar

from barnabas.cluster.broker_znodes import BrokerInfo
from barnabas.controller.delivery import Delivery
from barnabas.core.clock import Clock
from barnabas.core.errors import NONE, KafkaError, error_for, name_of
from barnabas.core.metrics import Metrics
from barnabas.core.scheduler import Scheduler
from barnabas.core.sweeping import sweeping
from barnabas.core.tasks import Tasks
from barnabas.protocol.schema import Message

logger = logging.getLogger(__name__)

RETRY_BACKOFF_MS: Final = 100
HANDOVER_MS_MAX: Final = 5_000

Response = TypeVar("Response", bound=Message)


class BrokerChannel(Protocol):
    """A connection to a broker, or this broker itself."""

    async def send(self, request: Message, response_class: type[Response], /) -> Response: ...
    def close(self) -> None: ...


Connect = Callable[[BrokerInfo], Awaitable[BrokerChannel]]


class _Item(NamedTuple):
    request: Message
    response_class: type[Message]
    answered: Callable[[Message], None]
    queued_ms: float
    after: Collection[Delivery]
    delivery: Delivery


class BrokerChannels:
    def __init__(self, connect: Connect, clock: Clock, scheduler: Scheduler, metrics: Metrics) -> None:
        self._connect = connect
        self._clock = clock
        self._scheduler = scheduler
        self._metrics = metrics
        self._senders: dict[int, _Sender] = {}
        self._stopping = Tasks()

    def add(self, brokers: Iterable[BrokerInfo]) -> None:
        for broker in brokers:
            if broker.id not in self._senders:
                sender = _Sender(broker, self._connect, self._clock, self._scheduler, self._metrics)
                self._senders[broker.id] = sender

    def remove(self, broker_ids: Iterable[int]) -> None:
        for broker_id in broker_ids:
            sender = self._senders.pop(broker_id, None)
            if sender is not None:
                self._stopping.keep(sender.stop())

    def update(self, broker: BrokerInfo) -> None:
        """The broker moved to other endpoints: the next connection goes there."""
        sender = self._senders.get(broker.id)
        if sender is not None:
            sender.broker = broker

    def send(
        self,
        broker_id: int,
        request: Message,
        response_class: type[Message],
        answered: Callable[[Message], None],
        *,
        after: Collection[Delivery] = (),
    ) -> Delivery:
        """Queue a request, to be sent once those of `after` are over."""
        sender = self._senders.get(broker_id)
        if sender is not None:
            return sender.put(request, response_class, answered, after)
        logger.warning("broker %d is gone; nothing is sent to it", broker_id)
        delivery = Delivery()
        delivery.end()
        return delivery

    async def delivered(self, timeout_ms: float) -> None:
        """Wait until every broker has answered what was sent to it so far; not long for one that is gone."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_ms / 1_000):
                await asyncio.gather(*(sender.delivered() for sender in self._senders.values()))

    async def delivered_to(self, broker_id: int) -> None:
        """Wait until this broker has answered what was sent to it so far, or is gone."""
        sender = self._senders.get(broker_id)
        if sender is not None:
            await sender.delivered()

    def close(self) -> None:
        """Send nothing more, to nobody."""
        self.remove(list(self._senders))

    @property
    def is_closing(self) -> bool:
        return len(self._stopping) > 0

    async def wait_closed(self) -> None:
        """Until no sender runs any more."""
        await self._stopping.finished()


class _Sender:
    """The queue of one broker, and the coroutine that empties it."""

    def __init__(
        self, broker: BrokerInfo, connect: Connect, clock: Clock, scheduler: Scheduler, metrics: Metrics
    ) -> None:
        self.broker = broker
        self._connect = connect
        self._clock = clock
        self._scheduler = scheduler
        self._metrics = metrics
        self._queue: asyncio.Queue[_Item] = asyncio.Queue()
        self._unanswered: dict[Delivery, None] = {}
        self._channel: BrokerChannel | None = None
        label = str(broker.id)
        metrics.gauge(
            "kafka_controller_channel_queue_size",
            "Requests of the controller that wait for a broker.",
            self._queue.qsize,
            to_broker=label,
        )
        self._queue_time = metrics.histogram(
            "kafka_controller_channel_queue_time_ms",
            "How long requests of the controller waited for a broker.",
            to_broker=label,
        )
        self._task = asyncio.create_task(self._run(), name=f"controller-to-broker-{broker.id}")

    def put(
        self,
        request: Message,
        response_class: type[Message],
        answered: Callable[[Message], None],
        after: Collection[Delivery] = (),
    ) -> Delivery:
        delivery = Delivery()
        self._unanswered[delivery] = None
        now_ms = self._clock.monotonic_ms()
        self._queue.put_nowait(_Item(request, response_class, answered, now_ms, after, delivery))
        return delivery

    async def delivered(self) -> None:
        await self._queue.join()

    def stop(self) -> asyncio.Task[None]:
        self._task.cancel()
        self._disconnect()
        self._metrics.forget(to_broker=str(self.broker.id))
        for delivery in self._unanswered:
            delivery.end()
        return self._task

    async def _run(self) -> None:
        while True:
            item = await self._queue.get()
            self._queue_time.observe(self._clock.monotonic_ms() - item.queued_ms)
            await self._until_over(item.after)
            response = await self._send_until_answered(item)
            with sweeping("the answer of broker", self.broker.id):
                item.answered(response)
            del self._unanswered[item.delivery]
            item.delivery.end()
            self._queue.task_done()

    async def _until_over(self, deliveries: Collection[Delivery]) -> None:
        left = [delivery for delivery in deliveries if not delivery.is_over]
        if not left:
            return
        over = asyncio.Event()

        def one_is_over() -> None:
            if all(delivery.is_over for delivery in left):
                over.set()

        for delivery in left:
            delivery.when_over(one_is_over)
        await self._pause(HANDOVER_MS_MAX, over)
        if not all(delivery.is_over for delivery in left):
            logger.warning("broker %d takes over from one that does not answer", self.broker.id)

    async def _send_until_answered(self, item: _Item) -> Message:
        while True:
            try:
                if self._channel is None:
                    self._channel = await self._connect(self.broker)
                response = await self._channel.send(item.request, item.response_class)
                error_code = getattr(response, "error_code", NONE)
                if error_code == NONE or not error_for(error_code).retriable:
                    return response
                logger.info("broker %d says %s and is told again", self.broker.id, name_of(error_code))
                await self._pause(RETRY_BACKOFF_MS, asyncio.Event())
                continue
            except (KafkaError, OSError, TimeoutError) as error:
                logger.info("broker %d does not answer and is tried again: %s", self.broker.id, error)
            except Exception:
                logger.exception("a request to broker %d could not be sent", self.broker.id)
            self._disconnect()
            await self._pause(RETRY_BACKOFF_MS, asyncio.Event())

    def _disconnect(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()

    async def _pause(self, ms: float, over: asyncio.Event) -> None:
        """Until `over`, but not longer than this."""
        timer = self._scheduler.after(ms, over.set)
        try:
            await over.wait()
        finally:
            timer.cancel()
