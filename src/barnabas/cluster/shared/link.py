"""Connection of a broker to the shared store: requests out, answers in, in the order of the wire."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, cast

from barnabas.cluster.coordination.contract import CoordinationError, DataTooLarge
from barnabas.cluster.shared.fields import MalformedMessage
from barnabas.cluster.shared.frames import ANSWER_BYTES_MAX, REQUEST_BYTES_MAX, FrameBuffer, frame
from barnabas.cluster.shared.messages import (
    Answer,
    Event,
    Failed,
    Request,
    decode_answer,
    encode_request,
    error_of,
)

logger = logging.getLogger(__name__)

Effect = Callable[[Any], None]


class Link(asyncio.Protocol):
    """One connection. `on_event` is called for events, `on_lost` once, when the connection is gone."""

    def __init__(self, on_event: Callable[[Event], None], on_lost: Callable[[], None]) -> None:
        self.last_zxid = 0
        """The store has sent all events up to here."""
        self._on_event = on_event
        self._on_lost = on_lost
        self._frames = FrameBuffer(ANSWER_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        self._number = 0
        self._asked: dict[int, tuple[asyncio.Future[Any], str, Effect | None]] = {}

    def ask(self, request: Request, path: str = "/", effect: Effect | None = None) -> asyncio.Future[Any]:
        """Send a request; returns the future of its answer.

        `effect` runs when the answer arrives, before any later message is delivered: an event right behind
        the answer must find its watch.
        """
        self._number += 1
        payload = encode_request(self._number, request)
        if len(payload) > REQUEST_BYTES_MAX:
            raise DataTooLarge(f"{path}: a request of {len(payload)} bytes, the limit is {REQUEST_BYTES_MAX}")
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        future.add_done_callback(_retrieve)
        self._asked[self._number] = future, path, effect
        if self._transport is not None:
            self._transport.write(frame(payload))
        return future

    def fail(self, error: type[CoordinationError]) -> None:
        """Fail the requests without an answer."""
        asked, self._asked = self._asked, {}
        for future, path, _ in asked.values():
            if not future.done():
                future.set_exception(error(path))

    def drop(self) -> None:
        """Close the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    # --- asyncio.Protocol ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        try:
            for payload in self._frames.feed(data):
                self._deliver(*decode_answer(payload))
        except MalformedMessage as error:
            logger.warning("coordination store: the connection is closed: %s", error)
            self.drop()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - every loss is the same
        self._transport = None
        self._on_lost()

    def _deliver(self, number: int, zxid: int, answer: Answer) -> None:
        self.last_zxid = max(zxid, self.last_zxid)
        if isinstance(answer, Event):
            self._on_event(answer)
            return
        asked = self._asked.pop(number, None)
        if asked is None:
            return
        future, _, effect = asked
        error = error_of(answer) if isinstance(answer, Failed) else None
        # A watch is left even if the caller has given up: the store has it, and it fires once.
        if error is None and effect is not None:
            effect(answer)
        if future.done():
            return
        if error is None:
            future.set_result(answer)
        else:
            future.set_exception(error)


def _retrieve(future: asyncio.Future[Any]) -> None:
    """Retrieve the error, so that asyncio does not warn about a request without a waiter."""
    if not future.cancelled():
        future.exception()
