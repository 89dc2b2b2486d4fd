"""One ordered queue of requests per live broker.

A request is sent until the broker has carried it out: a state change that got lost would leave a broker
with an old view of the cluster, and those behind it in the queue build on it. An answer that asks to try
again (the broker could not read the store, say) is none. Sending ends only when the broker is gone (then
its successor gets everything anew) or this controller has resigned. The controller's own broker is told in
the same way as the others.

A request may have to wait for what others are told (`after`): whoever is to lead a partition that somebody
else leads hears of it when that one has given it up, or is gone. But one that neither answers nor goes does
not keep a partition without a leader for ever: after HANDOVER_MS_MAX its heir is told all the same.

What to send when is decided here, without I/O. A `Sender` of each queue (`node.controller_channels`) owns
the connection and the pauses: it asks for the next step whenever it is woken, a rest is over, or the last
request was answered or failed.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import Final, NamedTuple, Protocol

from barnabas.cluster.broker_znodes import BrokerInfo
from barnabas.controller.delivery import Delivery
from barnabas.core.clock import Clock
from barnabas.core.errors import NONE, KafkaError, error_for, name_of
from barnabas.core.metrics import Metrics
from barnabas.core.sweeping import sweeping
from barnabas.protocol.schema import Message

logger = logging.getLogger(__name__)

RETRY_BACKOFF_MS: Final = 100
SILENT_MS_MIN: Final = 1_000
HANDOVER_MS_MAX: Final = 10_000
"""Longer than a connection takes to notice that a link of a few seconds' outage is back."""


class Send(NamedTuple):
    """Send the request to `BrokerQueue.broker`, and bring its answer."""

    request: Message
    response_class: type[Message]


class Rest(NamedTuple):
    """Wait."""

    until_ms: float
    """`math.inf`: until woken."""


class _Item(NamedTuple):
    request: Message
    response_class: type[Message]
    answered: Callable[[Message], None]
    queued_ms: float
    after: Collection[Delivery]
    delivery: Delivery


class BrokerQueue:
    """What one broker is to be told."""

    def __init__(self, broker: BrokerInfo, clock: Clock, metrics: Metrics) -> None:
        self.broker = broker
        """Where the next connection goes."""
        self._now_ms = clock.monotonic_ms
        self._metrics = metrics
        self._waiting: deque[_Item] = deque()
        self._current: _Item | None = None
        self._rest_until_ms = -math.inf
        label = str(broker.id)
        metrics.gauge(
            "kafka_controller_channel_queue_size",
            "Requests of the controller that wait for a broker.",
            lambda: len(self._waiting),
            to_broker=label,
        )
        self._queue_time = metrics.histogram(
            "kafka_controller_channel_queue_time_ms",
            "How long requests of the controller waited for a broker.",
            to_broker=label,
        )

    def put(
        self,
        request: Message,
        response_class: type[Message],
        answered: Callable[[Message], None],
        after: Collection[Delivery],
    ) -> Delivery:
        item = _Item(request, response_class, answered, self._now_ms(), after, Delivery())
        self._waiting.append(item)
        return item.delivery

    def next_step(self) -> Send | Rest:
        now_ms = self._now_ms()
        if self._current is None:
            if not self._waiting:
                return Rest(math.inf)
            self._current = self._waiting.popleft()
            self._queue_time.observe(now_ms - self._current.queued_ms)
            self._rest_until_ms = now_ms + HANDOVER_MS_MAX if self._current.after else now_ms
        item = self._current
        is_awaited = all(delivery.is_over for delivery in item.after)
        if now_ms < self._rest_until_ms and not (item.after and is_awaited):
            return Rest(self._rest_until_ms)
        if not is_awaited:
            logger.warning("broker %d takes over from one that does not answer", self.broker.id)
        self._current = item._replace(after=())
        return Send(item.request, item.response_class)

    def answered(self, response: Message) -> None:
        error_code = getattr(response, "error_code", NONE)
        if error_code != NONE and error_for(error_code).retriable:
            logger.info("broker %d says %s and is told again", self.broker.id, name_of(error_code))
            self._rest_until_ms = self._now_ms() + RETRY_BACKOFF_MS
            return
        item, self._current = self._current, None
        assert item is not None, "an answer to nothing"
        with sweeping("the answer of broker", self.broker.id):
            item.answered(response)
        item.delivery.end()

    def failed(self, error: Exception) -> None:
        """The request could not be sent, or no answer came."""
        if isinstance(error, KafkaError | OSError | TimeoutError):
            logger.info("broker %d does not answer and is tried again: %s", self.broker.id, error)
        else:
            logger.error("a request to broker %d could not be sent", self.broker.id, exc_info=error)
        self._rest_until_ms = self._now_ms() + RETRY_BACKOFF_MS

    @property
    def oldest_ms(self) -> float:
        """Since when the oldest request waits for its answer, or to be sent."""
        item = self._current or (self._waiting[0] if self._waiting else None)
        return math.inf if item is None else item.queued_ms

    def last_delivery(self) -> Delivery | None:
        """Of what the broker has not answered; when it is over, so are all before it."""
        item = self._waiting[-1] if self._waiting else self._current
        return None if item is None else item.delivery

    def close(self) -> None:
        """The broker is gone: it will act on nothing."""
        self._metrics.forget(to_broker=str(self.broker.id))
        for item in (self._current, *self._waiting):
            if item is not None:
                item.delivery.end()


class Sender(Protocol):
    """Performs the steps of one queue, until it is stopped."""

    def wake(self) -> None: ...
    def stop(self) -> None: ...


StartSender = Callable[[BrokerQueue], Sender]


class BrokerChannels:
    def __init__(self, start_sender: StartSender, clock: Clock, metrics: Metrics) -> None:
        self._start_sender = start_sender
        self._clock = clock
        self._metrics = metrics
        self._queues: dict[int, BrokerQueue] = {}
        self._senders: dict[int, Sender] = {}

    def add(self, brokers: Iterable[BrokerInfo]) -> None:
        for broker in brokers:
            if broker.id not in self._queues:
                queue = self._queues[broker.id] = BrokerQueue(broker, self._clock, self._metrics)
                self._senders[broker.id] = self._start_sender(queue)

    def remove(self, broker_ids: Iterable[int]) -> None:
        for broker_id in broker_ids:
            queue = self._queues.pop(broker_id, None)
            if queue is not None:
                self._senders.pop(broker_id).stop()
                queue.close()

    def update(self, broker: BrokerInfo) -> None:
        """The broker moved to other endpoints: the next connection goes there."""
        queue = self._queues.get(broker.id)
        if queue is not None:
            queue.broker = broker

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
        queue = self._queues.get(broker_id)
        if queue is None:
            logger.warning("broker %d is gone; nothing is sent to it", broker_id)
            delivery = Delivery()
            delivery.end()
            return delivery
        delivery = queue.put(request, response_class, answered, after)
        sender = self._senders[broker_id]
        for former in after:
            former.when_over(sender.wake)
        sender.wake()
        return delivery

    def is_silent(self, broker_id: int) -> bool:
        """Whether a broker has left a request without an answer for longer than any takes."""
        queue = self._queues.get(broker_id)
        return queue is not None and self._clock.monotonic_ms() - queue.oldest_ms > SILENT_MS_MIN

    def undelivered(self, broker_id: int | None = None) -> list[Delivery]:
        """The last request that this broker, or each, has not answered; none of a broker that is gone."""
        queues = self._queues.values() if broker_id is None else filter(None, [self._queues.get(broker_id)])
        return [last for queue in queues if (last := queue.last_delivery()) is not None]

    def close(self) -> None:
        """Send nothing more, to nobody."""
        self.remove(list(self._queues))
