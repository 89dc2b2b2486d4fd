"""Replay of a recording against a broker: a bug report that runs.

    report = replay(Path("traffic.jsonl"), broker.bootstrap)
    assert report.differences == []

Requests are sent in the recorded order, each on a connection like its own. The replay waits for an answer
where the recording has one, so what happened before a request has happened before it again. Ids that the
broker has invented are put into later requests (`comparison`).

One broker answers for all brokers of the recording.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.errors import KafkaError, ThrottlingQuotaExceeded
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.schema.headers import encode_request
from barnabas.protocol.schema.message import Message
from barnabas.records.batch import ATTRIBUTES_AT, CRC_AT, PRODUCER_ID_AT, iterate_batches
from barnabas.records.checksum import crc32c
from barnabas.testing.broker import run_broker
from barnabas.testing.traffic.comparison import (
    COUNTED,
    LEARNED,
    PASSING,
    Difference,
    Learned,
    Owners,
    compare,
    owners_in,
)
from barnabas.testing.traffic.frames import Request, decode_request, framed, joined, read_frame
from barnabas.testing.traffic.recording import Event, read_recording

__all__ = ["Mismatch", "Report", "replay"]

ANSWER_TIMEOUT_S: Final = 40.0
"""Longer than a consumer waits in a fetch or in a rebalance."""
_LEFT_OUT: Final = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
"""A replay does not authenticate: the recording has no passwords."""
_NOT_COMPARED: Final = frozenset({ApiKey.API_VERSIONS})
"""Two brokers may differ in the versions that they serve, and clients choose among them."""
_RETRY_S: Final = 0.05
_PRODUCER: Final = struct.Struct(">qh")


class Mismatch(NamedTuple):
    """A request whose answer differs."""

    number: int
    """Its place among the requests of the recording, from 1."""
    request: str
    differences: tuple[Difference, ...]

    def __str__(self) -> str:
        return f"request {self.number}, {self.request}: {'; '.join(map(str, self.differences))}"


@dataclass
class Report:
    """Differences that a replay has found."""

    requests: int = 0
    compared: int = 0
    skipped: int = 0
    """Requests that were not sent, or whose answers cannot be compared."""
    differences: list[Mismatch] = field(default_factory=list)

    def __str__(self) -> str:
        counts = f"{self.requests} requests, {self.compared} answers compared, {self.skipped} skipped"
        return "\n".join([counts, *map(str, self.differences)])


def replay(path: Path, bootstrap: str, *, timeout_s: float = ANSWER_TIMEOUT_S) -> Report:
    """Replay a recording. Raises BadRecording, and OSError if there is no broker."""
    return asyncio.run(replay_events(read_recording(path), Endpoint.parse(bootstrap), timeout_s))


def replay_recording(path: Path, to: str | None, *, timeout_s: float = ANSWER_TIMEOUT_S) -> Report:
    """`replay` against a broker of its own, unless one is named."""
    if to is not None:
        return replay(path, to, timeout_s=timeout_s)
    with run_broker() as broker:
        return replay(path, broker.bootstrap, timeout_s=timeout_s)


async def replay_events(events: Iterable[Event], to: Endpoint, timeout_s: float = ANSWER_TIMEOUT_S) -> Report:
    player = _Player(to, timeout_s)
    try:
        for event in events:
            if event.is_answer:
                await player.expect(event)
            else:
                await player.send(event)
    finally:
        await player.close()
    return player.report


class _Connection(NamedTuple):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    asked: deque[tuple[int, Request | None, Owners]]
    """Requests without an answer yet, with their number and their recorded ids; None for one that was not
    sent."""


class _Player:
    def __init__(self, to: Endpoint, timeout_s: float) -> None:
        self.report = Report()
        self._to = to
        self._timeout_s = timeout_s
        self._learned = Learned()
        self._connections: dict[int, _Connection] = {}

    async def send(self, event: Event) -> None:
        self.report.requests += 1
        connection = await self._connection(event.connection)
        request = decode_request(event.frame)
        if request.message is None or request.api in _LEFT_OUT:
            self.report.skipped += 1
            connection.asked.append((self.report.requests, None, {}))
            return
        owners = owners_in(request.message)
        _substitute(request.message, self._learned)
        if request.has_answer:
            connection.asked.append((self.report.requests, request, owners))
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._write(connection, request)
        except TimeoutError:  # the recording lacks answers, and the broker waits for a reader of its own
            connection.writer.transport.abort()
            late = Difference("request", "was read", f"not in {self._timeout_s:g} s")
            self._mismatch(self.report.requests, request, late)
        except OSError:
            pass  # a closed connection shows with the answer

    async def expect(self, event: Event) -> None:
        connection = self._connections.get(event.connection)
        if connection is None or not connection.asked:
            self.report.skipped += 1
            return
        number, request, owners = connection.asked.popleft()
        if request is None:
            return
        recorded = request.decoded_answer(event.frame)
        found, replayed = await self._answer(connection, request, owners, recorded)
        if found and replayed is None:
            connection.asked.clear()
            self._mismatch(number, request, *found)
        elif (
            recorded is None
            or replayed is None
            or request.api in _NOT_COMPARED
            or _depends_on_time(recorded, replayed)
        ):
            self.report.skipped += 1
        else:
            self.report.compared += 1
            if found:
                self._mismatch(number, request, *found)

    async def _answer(
        self, connection: _Connection, request: Request, owners: Owners, recorded: Any
    ) -> tuple[list[Difference], Any]:
        """The differences, and the answer; None if there is none. A request that only meets errors that pass
        by themselves is sent again."""
        try:
            async with asyncio.timeout(self._timeout_s):
                while True:
                    frame = await read_frame(connection.reader)
                    if frame is None:
                        return [Difference("connection", "stays open", "closed")], None
                    replayed = request.decoded_answer(frame)
                    if recorded is None or replayed is None or _depends_on_time(recorded, replayed):
                        return [], replayed
                    found = compare(recorded, replayed, self._learned, owners)
                    serious = [each for each in found if not each.may_pass]
                    if serious or not found or connection.asked or _passes(recorded):
                        return serious, replayed
                    await asyncio.sleep(_RETRY_S)
                    await self._write(connection, request)
        except TimeoutError:
            return [Difference("answer", "came", f"none in {self._timeout_s:g} s")], None
        except OSError:
            return [Difference("connection", "stays open", "closed")], None

    async def _write(self, connection: _Connection, request: Request) -> None:
        assert request.api is not None
        parts = encode_request(
            request.api, request.version, request.correlation_id, request.client_id, request.message
        )
        connection.writer.write(framed(joined(parts)))
        await connection.writer.drain()

    def _mismatch(self, number: int, request: Request, *differences: Difference) -> None:
        self.report.differences.append(Mismatch(number, request.name, differences))

    async def _connection(self, number: int) -> _Connection:
        found = self._connections.get(number)
        if found is None:
            reader, writer = await asyncio.open_connection(self._to.host, self._to.port)
            found = self._connections[number] = _Connection(reader, writer, deque())
        return found

    async def close(self) -> None:
        for each in self._connections.values():
            each.writer.close()
            with suppress(OSError):
                await each.writer.wait_closed()


def _passes(answer: Any) -> bool:
    """Whether the recorded answer is a transient error."""
    return getattr(answer, "error_code", 0) in PASSING


def _depends_on_time(recorded: Any, replayed: Any) -> bool:
    """Whether a request came too early, as when a client pushes its metrics before the interval is over. A
    replay does not wait between requests as the client did."""
    return ThrottlingQuotaExceeded.code in {getattr(each, "error_code", 0) for each in (recorded, replayed)}


def _substitute(message: Any, learned: Learned) -> None:
    """Put the ids of the replay into a request of the recording."""
    owners = owners_in(message)
    for row in type(message).__schema__.fields:
        name, value = row.name, getattr(message, row.name)
        if name in LEARNED:
            setattr(message, name, learned.value_for(LEARNED[name], value))
        elif name in COUNTED:
            kind, owner = COUNTED[name]
            setattr(message, name, learned.value_for(kind, value, owners.get(owner)))
        elif name == "records" and value is not None:
            setattr(message, name, _with_producer(value, learned))
        elif isinstance(value, Message):
            _substitute(value, learned)
        elif isinstance(value, list) and value and isinstance(value[0], Message):
            for each in value:
                _substitute(each, learned)


def _with_producer(data: Any, learned: Learned) -> Any:
    """Batches with the producer's new id and epoch. Data that is not a batch is sent as it was."""
    changed = bytearray(data)
    view = memoryview(changed)
    try:
        batches = list(iterate_batches(view))
    except KafkaError:
        return data
    for batch in batches:
        if not batch.has_producer_id:
            continue
        producer_id = learned.value_for("producer", batch.producer_id)
        epoch = learned.value_for("producer epoch", batch.producer_epoch, batch.producer_id)
        _PRODUCER.pack_into(view, batch.position + PRODUCER_ID_AT, producer_id, epoch)
        end = batch.position + batch.size_bytes
        crc = crc32c(view[batch.position + ATTRIBUTES_AT : end])
        struct.pack_into(">I", view, batch.position + CRC_AT, crc)
    return changed
