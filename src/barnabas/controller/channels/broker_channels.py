"""Broker channels: one ordered queue of controller requests per live broker.

A request is sent again until the broker has carried it out. A lost state change would leave a broker with an
old view of the cluster, and later requests in the queue build on it. A retriable error (for example: the
broker could not read the store) counts as no response. Sending ends only when the broker is gone or this
controller has resigned. A restarted broker gets the full state. The controller's own broker gets its requests
in the same way.

A request may have to wait for other requests (`after`). The new leader of a partition receives its
LeaderAndIsr after the previous leader has given the partition up, or is gone. A previous leader that neither
answers nor fails does not keep a partition without a leader for ever. After HANDOVER_MS_MAX the new leader's
request is sent.

This module decides what to send when, without I/O. The `Sender` of each queue
(`node.membership.controller_channels`) owns the connection and the pauses. It asks for the next step when it
is woken, when a rest is over, and when the last request was answered or failed.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import Final, NamedTuple, Protocol

from barnabas.cluster.znodes.brokers import BrokerInfo
from barnabas.controller.channels.delivery import Delivery
from barnabas.core.clock import Clock
from barnabas.core.errors import NONE, KafkaError, error_for, name_of
from barnabas.core.reporting.error_isolation import sweeping
from barnabas.core.reporting.metrics import Metrics
from barnabas.protocol.schema.message import Message

logger = logging.getLogger(__name__)

RETRY_BACKOFF_MS: Final = 100
REPORT_INTERVAL_MS: Final = 10_000
"""Pause between two log lines about a broker that does not answer."""
SILENT_MS_MIN: Final = 1_000
HANDOVER_MS_MAX: Final = 10_000
"""Longer than a connection takes to recover after an outage of a few seconds."""


class Send(NamedTuple):
    """Send the request to `BrokerQueue.broker` and return its response."""

    request: Message
    response_class: type[Message]


class Rest(NamedTuple):
    """Wait until `until_ms`."""

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
    """Queue of requests for one broker."""

    def __init__(self, broker: BrokerInfo, clock: Clock, metrics: Metrics) -> None:
        self.broker = broker
        """Endpoint of the next connection."""
        self._now_ms = clock.monotonic_ms
        self._metrics = metrics
        self._waiting: deque[_Item] = deque()
        self._current: _Item | None = None
        self._rest_until_ms = -math.inf
        self._next_report_ms = -math.inf
        label = str(broker.id)
        metrics.gauge(
            "kafka_controller_channel_queue_size",
            "Controller requests that wait to be sent to the broker.",
            lambda: len(self._waiting),
            to_broker=label,
        )
        self._queue_time = metrics.histogram(
            "kafka_controller_channel_queue_time_ms",
            "Time that controller requests waited to be sent to the broker.",
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
            logger.warning(
                "broker %d: LeaderAndIsr is sent although the previous leader does not answer", self.broker.id
            )
        self._current = item._replace(after=())
        return Send(item.request, item.response_class)

    def answered(self, response: Message) -> None:
        error_code = getattr(response, "error_code", NONE)
        if error_code != NONE and error_for(error_code).retriable:
            logger.info(
                "broker %d: controller request is sent again after error %s",
                self.broker.id,
                name_of(error_code),
            )
            self._rest_until_ms = self._now_ms() + RETRY_BACKOFF_MS
            return
        item, self._current = self._current, None
        self._next_report_ms = -math.inf
        assert item is not None, "response without a request"
        with sweeping("processing the response of broker", self.broker.id):
            item.answered(response)
        item.delivery.end()

    def failed(self, error: Exception) -> None:
        """Retry after a request that could not be sent, or got no response."""
        now_ms = self._now_ms()
        if isinstance(error, KafkaError | OSError | TimeoutError):
            if now_ms >= self._next_report_ms:
                self._next_report_ms = now_ms + REPORT_INTERVAL_MS
                logger.info(
                    "broker %d does not answer; the controller request is sent again until it does: %s",
                    self.broker.id,
                    error,
                )
        else:
            logger.error("broker %d: controller request could not be sent", self.broker.id, exc_info=error)
        self._rest_until_ms = now_ms + RETRY_BACKOFF_MS

    @property
    def oldest_ms(self) -> float:
        """Time since which the oldest request waits for its response, or to be sent."""
        item = self._current or (self._waiting[0] if self._waiting else None)
        return math.inf if item is None else item.queued_ms

    def last_delivery(self) -> Delivery | None:
        """Delivery of the last unanswered request; when it is over, so are all before it."""
        item = self._waiting[-1] if self._waiting else self._current
        return None if item is None else item.delivery

    def close(self) -> None:
        """Drop all requests of a broker that is gone and will act on none."""
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
        """Use the broker's new endpoints for the next connection."""
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
        """Queue a request, to be sent once the deliveries in `after` are over."""
        queue = self._queues.get(broker_id)
        if queue is None:
            logger.warning("broker %d is not live; the controller request is dropped", broker_id)
            delivery = Delivery()
            delivery.end()
            return delivery
        delivery = queue.put(request, response_class, answered, after)
        sender = self._senders[broker_id]
        for earlier in after:
            earlier.when_over(sender.wake)
        sender.wake()
        return delivery

    def is_silent(self, broker_id: int) -> bool:
        """Whether a request has waited longer for the broker's response than any normal one."""
        queue = self._queues.get(broker_id)
        return queue is not None and self._clock.monotonic_ms() - queue.oldest_ms > SILENT_MS_MIN

    def undelivered(self, broker_id: int | None = None) -> list[Delivery]:
        """Deliveries of the last unanswered request of this broker, or of each live one."""
        queues = self._queues.values() if broker_id is None else filter(None, [self._queues.get(broker_id)])
        return [last for queue in queues if (last := queue.last_delivery()) is not None]

    def close(self) -> None:
        """Stop all queues."""
        self.remove(list(self._queues))
