"""Asker of one broker's inspection socket. It connects again after the broker has restarted."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from barnabas.cluster.shared import unix_socket
from barnabas.core.errors import error_for
from barnabas.inspection.wire import ANSWER_BYTES_MAX, LENGTH, encode_question

TIMEOUT_S: Final = 30.0


class BrokerAway(ConnectionError):
    """The broker does not answer at its socket."""


class InspectionClient:
    """One question at a time; concurrent ones wait for their turn."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._turn = asyncio.Lock()

    async def ask(self, name: str, principal: str | None, **parameters: Any) -> dict[str, Any]:
        """The broker's answer. KafkaError is the broker's refusal; BrokerAway, that it does not answer."""
        question = encode_question({"ask": name, "principal": principal, **parameters})
        async with self._turn:
            try:
                async with asyncio.timeout(TIMEOUT_S):
                    payload = await self._exchange(question)
            except (OSError, EOFError, TimeoutError) as error:
                await self.close()
                raise BrokerAway(f"no broker answers at {self.path}: {error}") from error
            except BaseException:
                await self.close()  # the answer would be taken for that of the next question
                raise
        answer = json.loads(payload)
        if "error" in answer:
            raise error_for(answer["error"], answer["message"])
        found: dict[str, Any] = answer["ok"]
        return found

    async def close(self) -> None:
        streams, self._streams = self._streams, None
        if streams is not None:
            streams[1].close()
            with suppress(OSError):
                await streams[1].wait_closed()

    async def _exchange(self, question: bytes) -> bytes:
        was_open = self._streams is not None
        try:
            return await self._exchange_once(question)
        except (OSError, EOFError):
            if not was_open:
                raise
        await self.close()  # the broker has restarted since the last question
        return await self._exchange_once(question)

    async def _exchange_once(self, question: bytes) -> bytes:
        if self._streams is None:
            self._streams = await asyncio.open_unix_connection(sock=unix_socket.connect(self.path))
        reader, writer = self._streams
        writer.write(question)
        await writer.drain()
        (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
        if length > ANSWER_BYTES_MAX + 1_024:
            raise ConnectionError(f"an answer of {length} bytes")
        return await reader.readexactly(length)
