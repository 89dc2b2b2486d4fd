"""Runs one case against one broker and keeps what was said.

The requests of the two runs must be the same bytes, but for the correlation id and for topic ids,
session ids, producer ids and member ids that the broker itself gave out: `Spoken.request` has those
masked, and the test compares it.
"""

from __future__ import annotations

import struct
import time
from dataclasses import dataclass
from typing import Any

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages import response_class
from barnabas.protocol.messages.end_txn import EndTxnResponse
from barnabas.protocol.messages.init_producer_id import InitProducerIdResponse
from barnabas.protocol.schema.headers import encode_request, read_response_header
from barnabas.protocol.schema.message import Message
from tests.differential.case import CLOSED, At, Closed, Frame, InVersion, Step, Triple, Unanswered, Until
from tests.differential.normalise import Tree, normalise
from tests.differential.world import Side, World, receive_frame
from tests.support import wire

UNTIL_TIMEOUT_S = 30.0
CLIENT_ID = "differential"


@dataclass(frozen=True)
class Spoken:
    """One step: what was sent and, normalised, what came back."""

    request: bytes
    answer: Tree


def run(triple: Triple, side: Side) -> list[Spoken]:
    world = World(
        side, triple.version, f"{triple.case.api.name.lower()}-{triple.case.name}-v{triple.version}"
    )
    side.producer_ids.clear()
    conversation = _Conversation(triple, side, world.given)
    generator = triple.case.run(world)
    spoken: list[Spoken] = []
    try:
        step = next(generator)
        while True:
            request, answer, version = conversation.take(step)
            sent = conversation.masked(request)
            conversation.remember(answer)
            spoken.append(Spoken(sent, normalise(answer, version, side, world.stem)))
            step = generator.send(answer)
    except StopIteration:
        return spoken
    finally:
        generator.close()
        conversation.close()


class _Conversation:
    """A connection that is opened again after the broker closed it."""

    def __init__(self, triple: Triple, side: Side, given: list[bytes]) -> None:
        self._triple = triple
        self._side = side
        self._connection: wire.WireConnection | None = None
        self._node: int | None = None
        self._correlation_id = 0
        self._given = given

    def remember(self, answer: object) -> None:
        """Numbers that the broker chose and that later requests may carry."""
        if getattr(answer, "session_id", 0):
            self._given.append(struct.pack(">i", answer.session_id))  # type: ignore[attr-defined]
        if isinstance(answer, InitProducerIdResponse | EndTxnResponse) and answer.producer_id >= 0:
            self._given.append(struct.pack(">q", answer.producer_id))
            if answer.producer_id not in self._side.producer_ids:
                self._side.producer_ids.append(answer.producer_id)
        member_id = getattr(answer, "member_id", None)
        if member_id:
            self._given.append(member_id.encode())

    def masked(self, frame: bytes) -> bytes:
        frame = frame[:4] + frame[8:]
        for given in (*self._side.topic_names, *self._given):
            frame = frame.replace(given, b"?" * len(given))
        return frame

    def close(self) -> None:
        if self._connection is not None:
            self._connection.socket.close()
            self._connection = None

    def take(self, step: Step) -> tuple[bytes, Any, int]:
        self._turn_to(step.node if isinstance(step, At) else None)
        match step.step if isinstance(step, At) else step:
            case Frame() as step:
                return self._frame(step)
            case Unanswered() as step:
                return self._unanswered(step.request)
            case Until() as step:
                return self._until(step)
            case InVersion() as step:
                return self._ask(step.request, step.version)
            case Message() as request:
                return self._ask(request, self._version_of(request))

    def _turn_to(self, node: int | None) -> None:
        if node != self._node:
            self.close()
            self._node = node

    def _version_of(self, request: Message) -> int:
        api = request.__schema__.api
        assert api is not None
        if api == self._triple.case.api:
            return self._triple.version
        return min(request.supported_versions()[-1], self._side.versions[api][-1], NEWEST.get(api, 99))

    def _ask(self, request: Message, version: int) -> tuple[bytes, Any, int]:
        api = request.__schema__.api
        assert api is not None
        body = self._send(api, version, request)
        return body, self._receive(api, version), version

    def _unanswered(self, request: Message) -> tuple[bytes, Any, int]:
        """A question that always has an answer follows: whichever comes first tells."""
        api = request.__schema__.api
        assert api is not None
        version = self._version_of(request)
        body = self._send(api, version, request)
        sent = self._correlation_id
        try:
            self._send_frame(struct.pack(">hhih", ApiKey.API_VERSIONS, 0, sent + 1, -1))
            self._correlation_id += 1
            frame = receive_frame(self._open())
        except (EOFError, ConnectionError):
            self.close()
            return body, CLOSED, version
        answered = int.from_bytes(frame[:4], signed=True)
        return body, b"an answer" if answered == sent else b"no answer", version

    def _until(self, step: Until) -> tuple[bytes, Any, int]:
        deadline = time.monotonic() + UNTIL_TIMEOUT_S
        while True:
            request, answer, version = self._ask(step.request, self._version_of(step.request))
            if answer is CLOSED or step.wished(answer) or time.monotonic() > deadline:
                return request, answer, version
            time.sleep(0.01)

    def _frame(self, step: Frame) -> tuple[bytes, Any, int]:
        self._correlation_id += 1
        header = struct.pack(">hhi", step.api_key, step.version, self._correlation_id)
        if step.header_version >= 1:
            header += wire.string(CLIENT_ID)
        if step.header_version >= 2:
            header += b"\x00"
        self._send_frame(header + step.body)
        try:
            frame = receive_frame(self._open())
        except (EOFError, ConnectionError):
            self.close()
            return step.body, CLOSED, step.version
        if step.answer is None:
            return step.body, frame[4:], step.version
        cls, version = step.answer
        return step.body, _decoded(frame, ApiKey(step.api_key), version, cls), version

    def _send(self, api: ApiKey, version: int, request: Message) -> bytes:
        self._correlation_id += 1
        parts = encode_request(api, version, self._correlation_id, CLIENT_ID, request)
        frame = b"".join(bytes(part) for part in parts)  # type: ignore[arg-type]
        self._send_frame(frame)
        return frame

    def _send_frame(self, frame: bytes) -> None:
        self._open().send_raw(wire.framed(frame))

    def _receive(self, api: ApiKey, version: int) -> Message | Closed:
        try:
            frame = receive_frame(self._open())
        except (EOFError, ConnectionError):
            self.close()
            return CLOSED
        assert int.from_bytes(frame[:4], signed=True) == self._correlation_id, "an answer to another request"
        return _decoded(frame, api, version, response_class(api))

    def _open(self) -> wire.WireConnection:
        if self._connection is None:
            self._connection = self._side.connect(self._node)
        return self._connection


NEWEST: dict[int, int] = {}
"""The newest version of each API that both brokers speak; filled in when both have said theirs."""


def _decoded(frame: bytes, api: ApiKey, version: int, cls: type[Message]) -> Message:
    _, position = read_response_header(memoryview(frame), api, version)
    answer, end = cls.decode(frame, version, position)
    assert end == len(frame), f"{len(frame) - end} bytes after the answer"
    return answer
