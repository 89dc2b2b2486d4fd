"""Inspection socket of a broker, and the pace at which it answers.

Only the user that runs the broker can connect: the socket has mode 0600, and the peer's user is checked. The
broker's clients come first. A question runs in slices of a quarter of a millisecond, one question at a time.
While clients send, a pause follows each slice, so that the pages of many viewers cost them next to nothing.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final, TypeVar

from barnabas.cluster.shared import unix_socket
from barnabas.core.clock import Clock
from barnabas.core.errors import InvalidRequest, KafkaError, UnknownServerError
from barnabas.core.reporting.error_isolation import complain
from barnabas.core.steps import Sliced, advance_until
from barnabas.inspection.inspected import Inspected
from barnabas.inspection.serving.questions import QUESTIONS
from barnabas.inspection.wire import (
    LENGTH,
    QUESTION_BYTES_MAX,
    decode_question,
    encode_answer,
    encode_error,
)

logger = logging.getLogger(__name__)

CONNECTIONS_MAX: Final = 64
SLICE_MS: Final = 0.25
PAUSE_S: Final = 0.002
WRITTEN_BYTES: Final = 256 * 1024
"""Of an answer at a time."""
VIEWER_MS_MAX: Final = 60_000.0
"""A viewer that asked this short a time ago is still there."""

T = TypeVar("T")


class InspectionServer:
    def __init__(
        self,
        inspected: Inspected,
        clock: Clock,
        *,
        received: Callable[[], int],
        viewer_arrived: Callable[[], None],
    ) -> None:
        """`received` counts what clients send. `viewer_arrived` is called with the first question after a
        pause.
        """
        self._received = received
        self._inspected = inspected
        self._clock = clock
        self._turn = asyncio.Lock()
        self._connections: set[asyncio.StreamWriter] = set()
        self._asked_ms = float("-inf")
        self._viewer_arrived = viewer_arrived

    @property
    def has_viewers(self) -> bool:
        """Whether a tool has asked a short time ago."""
        return self._clock.monotonic_ms() - self._asked_ms < VIEWER_MS_MAX

    @asynccontextmanager
    async def serving(self, path: Path) -> AsyncIterator[None]:
        """Serve inside this context. A directory that takes no socket costs the view, not the broker."""
        try:
            listening = unix_socket.listen(path)
        except OSError as error:
            logger.warning("no local view of this broker: cannot listen at %s: %s", path, error)
            yield
            return
        server = await asyncio.start_unix_server(self._serve, sock=listening, limit=QUESTION_BYTES_MAX)
        try:
            yield
        finally:
            server.close()
            for writer in tuple(self._connections):
                writer.transport.abort()
            _remove(path)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self._is_welcome(writer):
                self._connections.add(writer)
                while True:
                    await self._answer_next(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        except Exception as error:  # noqa: BLE001 - one connection ends
            complain("a connection of the inspection socket", "", error)
        finally:
            self._connections.discard(writer)
            writer.close()

    def _is_welcome(self, writer: asyncio.StreamWriter) -> bool:
        accepted: socket.socket = writer.get_extra_info("socket")
        try:
            unix_socket.check_peer(accepted)
        except (unix_socket.ForeignPeer, OSError) as error:
            logger.warning("inspection socket: a connection is refused: %s", error)
            return False
        return len(self._connections) < CONNECTIONS_MAX

    async def _answer_next(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
        if length > QUESTION_BYTES_MAX:
            raise ConnectionError(f"a question of {length} bytes")
        payload = await reader.readexactly(length)
        is_first = not self.has_viewers
        self._asked_ms = self._clock.monotonic_ms()
        if is_first:
            self._viewer_arrived()
        async with self._turn:
            answer = await self._answer(payload)
        for at in range(0, len(answer), WRITTEN_BYTES):  # the transport copies what the socket does not take
            writer.write(answer[at : at + WRITTEN_BYTES])
            await writer.drain()

    async def _answer(self, payload: bytes) -> bytes | bytearray:
        try:
            question = decode_question(payload)
            find = QUESTIONS.get(str(question.get("ask")))
            if find is None:
                raise InvalidRequest(f"no question {question.get('ask')!r}; one of {', '.join(QUESTIONS)}")
            answer = await self._paced(find(self._inspected, question))
            return await self._paced(encode_answer(answer))
        except KafkaError as error:
            return encode_error(error)
        except Exception as error:  # noqa: BLE001 - one question has no answer
            complain("a question of the inspection socket", "", error)
            return encode_error(UnknownServerError("an unexpected error occurred; see the broker's log"))

    async def _paced(self, work: Sliced[T]) -> T:
        now_ms, received = self._clock.monotonic_ms, self._received()
        while True:
            ended = advance_until(work, now_ms, now_ms() + SLICE_MS)
            if ended is not None:
                return ended.result
            before, received = received, self._received()
            await asyncio.sleep(PAUSE_S if received != before else 0)


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink()
