"""One connection of the shared store: frames in, answers out, with bounds on both."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, Protocol, cast

from barnabas.cluster.coordination.contract import (
    CoordinationError,
    DataTooLarge,
    SessionExpired,
    StoreFailed,
    WatchEvent,
)
from barnabas.cluster.shared.fields import MalformedMessage
from barnabas.cluster.shared.frames import ANSWER_BYTES_MAX, REQUEST_BYTES_MAX, FrameBuffer, frame
from barnabas.cluster.shared.messages import (
    EVENT_NUMBER,
    Answer,
    Request,
    decode_request,
    encode_answer,
    event_of,
    failed,
)
from barnabas.cluster.shared.unix_socket import ForeignPeer, check_peer

logger = logging.getLogger(__name__)

IN_FLIGHT_MAX: Final = 1_000
"""Requests of one connection at a time; the store reads no more until some are answered."""


class PeerOwner(Protocol):
    """The server, as far as a connection knows it."""

    @property
    def zxid(self) -> int:
        """Last committed transaction, whose events are all sent."""
        ...

    def entered(self, peer: Peer) -> bool:
        """Whether there is room for the connection."""
        ...

    def received(self, peer: Peer, number: int, request: Request) -> None: ...
    def left(self, peer: Peer) -> None: ...
    def failed(self) -> None:
        """The store cannot write."""
        ...


class Peer(asyncio.Protocol):
    """Connection to one process, with the session that it has attached."""

    def __init__(self, owner: PeerOwner) -> None:
        self.session_id: int | None = None
        self.is_greeting = False
        """Whether a new session for it is being written."""
        self._owner = owner
        self._frames = FrameBuffer(REQUEST_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        self._answering: dict[asyncio.Task[None], None] = {}
        self._is_held = False
        self._is_full = False

    # --- asyncio.Protocol ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        try:
            if (connected := transport.get_extra_info("socket")) is not None:
                check_peer(connected)
        except ForeignPeer as error:
            logger.warning("coordination store: a connection is refused: %s", error)
            self.drop()
            return
        if not self._owner.entered(self):
            logger.warning("coordination store: too many connections; one is refused")
            self.drop()

    def data_received(self, data: bytes) -> None:
        try:
            for payload in self._frames.feed(data):
                number, request = decode_request(payload)
                if self._transport is None:
                    return
                self._owner.received(self, number, request)
        except MalformedMessage as error:
            logger.warning("coordination store: a connection is closed: %s", error)
            self.drop()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - every loss is the same
        self.drop()

    def pause_writing(self) -> None:
        """Read nothing from a process that does not read its answers."""
        self._is_full = True
        self._throttle()

    def resume_writing(self) -> None:
        self._is_full = False
        self._throttle()

    # --- answers ---

    def answer_when(self, number: int, work: Callable[[], Awaitable[Answer]]) -> None:
        """Answer a request once its work is done."""
        task = asyncio.ensure_future(self._answer(number, work))
        self._answering[task] = None
        task.add_done_callback(self._answered)
        self._throttle()

    def answer(self, number: int, answer: Answer) -> None:
        if self._transport is None:
            return
        payload = encode_answer(number, self._owner.zxid, answer)
        if len(payload) > ANSWER_BYTES_MAX:
            too_large = DataTooLarge(f"an answer of {len(payload)} bytes, the limit is {ANSWER_BYTES_MAX}")
            payload = encode_answer(number, self._owner.zxid, failed(too_large))
        self._transport.write(frame(payload))

    def on_event(self, event: WatchEvent) -> None:
        """The watch of every node that this process watches.

        An event names no zxid: others of the same transaction may follow it.
        """
        if self._transport is not None:
            self._transport.write(frame(encode_answer(EVENT_NUMBER, 0, event_of(event))))

    def drop(self) -> None:
        """Close the connection and forget its requests. Writes that were begun take effect."""
        transport, self._transport = self._transport, None
        if transport is None:
            return
        transport.close()
        for task in tuple(self._answering):
            task.cancel()
        self._owner.left(self)

    async def _answer(self, number: int, work: Callable[[], Awaitable[Answer]]) -> None:
        try:
            self.answer(number, await work())
        except (StoreFailed, SessionExpired):
            # An embedded session is lost only with its store. The broker's session lives.
            self._owner.failed()
        except CoordinationError as error:
            self.answer(number, failed(error))
        except Exception:
            logger.exception("coordination store: a request failed; its connection is closed")
            self.drop()

    def _answered(self, task: asyncio.Task[None]) -> None:
        self._answering.pop(task, None)
        self._throttle()

    def _throttle(self) -> None:
        is_held = self._is_full or len(self._answering) >= IN_FLIGHT_MAX
        if self._transport is None or is_held == self._is_held:
            return
        self._is_held = is_held
        change: Callable[[], None] = (
            self._transport.pause_reading if is_held else self._transport.resume_reading
        )
        change()
