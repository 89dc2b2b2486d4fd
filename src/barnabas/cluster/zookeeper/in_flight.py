"""Requests of a ZooKeeper session that wait for their response, in order.

Only a few are handed to kazoo at a time. Each request wakes its thread by a byte through a pipe that holds
some hundreds, and the event loop must never wait for that pipe. The others queue here.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from barnabas.cluster.coordination.contract import CoordinationError
from barnabas.cluster.zookeeper import wire

IN_FLIGHT_MAX = 100

Effect = Callable[[Any], None]


class _Asked:
    """One request with the callback interface that kazoo's thread expects."""

    __slots__ = ("_deliver", "_post", "effect", "future", "path", "request")

    def __init__(
        self,
        request: Any,
        path: str,
        future: asyncio.Future[Any],
        effect: Effect | None,
        post: wire.Post,
        deliver: Callable[[_Asked, Any, Exception | None], None],
    ) -> None:
        self.request = request
        self.path = path
        self.future = future
        self.effect = effect
        self._post = post
        self._deliver = deliver

    def set(self, value: Any) -> None:
        self._post(self._deliver, self, value, None)

    def set_exception(self, error: Exception) -> None:
        self._post(self._deliver, self, None, error)


class InFlight:
    """Requests of one session."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, send: Callable[[Any, wire.Asked], None], post: wire.Post
    ) -> None:
        self._loop = loop
        self._hand_over = send
        self._post = post
        self._sent: dict[_Asked, None] = {}
        self._queue: deque[_Asked] = deque()

    def ask(
        self, request: Any, path: str, effect: Effect | None = None, *, is_urgent: bool = False
    ) -> asyncio.Future[Any]:
        """Send or queue a request; returns the future of its response.

        `effect` runs when the response arrives, before any later message is delivered. An urgent request does
        not queue, and its future need not be awaited.
        """
        future: asyncio.Future[Any] = self._loop.create_future()
        asked = _Asked(request, path, future, effect, self._post, self._deliver)
        if is_urgent:
            future.add_done_callback(_forget)
        if is_urgent or len(self._sent) < IN_FLIGHT_MAX:
            self._send(asked)
        else:
            self._queue.append(asked)
        return future

    def fail(self, error: type[CoordinationError]) -> None:
        """Fail all requests; later responses are dropped."""
        given_up = [*self._sent, *self._queue]
        self._sent.clear()
        self._queue.clear()
        for asked in given_up:
            if not asked.future.done():
                asked.future.set_exception(error(asked.path))

    def fail_queue(self, error: type[CoordinationError]) -> None:
        """Fail the requests that were not sent."""
        sent, self._sent = self._sent, {}
        self.fail(error)
        self._sent = sent

    def _send(self, asked: _Asked) -> None:
        self._sent[asked] = None
        self._hand_over(asked.request, asked)

    def _deliver(self, asked: _Asked, value: Any, error: Exception | None) -> None:
        if asked not in self._sent:
            return
        del self._sent[asked]
        if self._queue:
            self._send(self._queue.popleft())
        if asked.future.done():
            return
        if error is not None:
            asked.future.set_exception(wire.translate(error, asked.path))
            return
        if asked.effect is not None:
            asked.effect(value)
        asked.future.set_result(value)


def _forget(future: asyncio.Future[Any]) -> None:
    """Retrieve the error, so that asyncio does not warn that it was never retrieved."""
    if not future.cancelled():
        future.exception()
