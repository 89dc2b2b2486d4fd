"""Connections of the controller: one task per live broker, which sends the requests of its queue.

`controller.channels.broker_channels` decides what to send, and when.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from barnabas.cluster.znodes.brokers import BrokerInfo
from barnabas.controller.channels.broker_channels import BrokerQueue, Rest, Send
from barnabas.core.clock import Clock
from barnabas.core.scheduler import Scheduler
from barnabas.core.tasks import Tasks
from barnabas.protocol.schema.message import Message

Response = TypeVar("Response", bound=Message)


class BrokerChannel(Protocol):
    """A connection to a broker, or the controller's own broker."""

    async def send(self, request: Message, response_class: type[Response], /) -> Response: ...
    def close(self) -> None: ...


Connect = Callable[[BrokerInfo], Awaitable[BrokerChannel]]


class ControllerChannels:
    """Starts senders, and waits for their end at the close."""

    def __init__(self, connect: Connect, clock: Clock, scheduler: Scheduler) -> None:
        self._connect = connect
        self._clock = clock
        self._scheduler = scheduler
        self._tasks = Tasks()

    def start_sender(self, queue: BrokerQueue) -> BrokerSender:
        sender = BrokerSender(queue, self._connect, self._clock, self._scheduler)
        self._tasks.keep(sender.task)
        return sender

    async def close(self) -> None:
        await self._tasks.close()


class BrokerSender:
    """A `controller.channels.broker_channels.Sender`."""

    def __init__(self, queue: BrokerQueue, connect: Connect, clock: Clock, scheduler: Scheduler) -> None:
        self._queue = queue
        self._connect = connect
        self._now_ms = clock.monotonic_ms
        self._scheduler = scheduler
        self._channel: BrokerChannel | None = None
        self._woken = asyncio.Event()
        self.task = asyncio.create_task(self._run(), name=f"controller-to-broker-{queue.broker.id}")

    def wake(self) -> None:
        self._woken.set()

    def stop(self) -> None:
        self.task.cancel()
        self._disconnect()

    async def _run(self) -> None:
        while True:
            self._woken.clear()
            step = self._queue.next_step()
            if isinstance(step, Rest):
                await self._rest(step.until_ms)
            else:
                await self._send(step)

    async def _send(self, step: Send) -> None:
        try:
            if self._channel is None:
                self._channel = await self._connect(self._queue.broker)
            response = await self._channel.send(step.request, step.response_class)
        except Exception as error:  # noqa: BLE001 - the queue decides what becomes of it
            self._disconnect()
            self._queue.failed(error)
        else:
            self._queue.answered(response)

    async def _rest(self, until_ms: float) -> None:
        if until_ms == math.inf:
            await self._woken.wait()
            return
        timer = self._scheduler.after(until_ms - self._now_ms(), self._woken.set)
        try:
            await self._woken.wait()
        finally:
            timer.cancel()

    def _disconnect(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()
