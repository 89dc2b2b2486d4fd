"""Hostile requests: the broker answers, or closes the connection with one log line, and serves other clients.

Each API is sent in each served version: with hostile values, and with some of the bytes changed. A failure
names the seed; `--hostile-seed` and `--hostile-rounds` try others, and more of them.
"""

from __future__ import annotations

import logging
import socket
import struct
from collections.abc import Iterator
from random import Random
from typing import Any

import psutil
import pytest
from tests.support import wire
from tests.support.hostile import TOPIC, frame_of, mutated, pieces, well_formed

from barnabas.handlers import APIS
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages import response_class
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.schema.headers import read_response_header
from barnabas.protocol.schema.message import Message
from barnabas.testing.broker import run_broker

UNKNOWN_SERVER_ERROR = -1
ANSWER_S_MAX = 60.0
MUTATED_ANSWER_S_MAX = 1.0
"""A changed byte may ask for a long wait, which only its own client suffers."""
GROWTH_BYTES_MAX = 200 << 20
MAY_WAIT = frozenset({ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP})
"""Wait for other members, which never come."""
LAST = 77
CASES = [(api.key, version) for api in APIS.for_clients() for version in api.versions]
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "num.partitions": "1",
    "socket.request.max.bytes": str(10 << 20),
}


class Attacker:
    """One connection at a time; each frame is followed by a question that is always answered."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._socket: socket.socket | None = None
        self._last = wire.framed(frame_of(ApiKey.API_VERSIONS, 0, ApiVersionsRequest(), LAST))

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket = None

    def leave_within(self, payload: bytes, random: Random) -> None:
        """The connection ends where the frame does not."""
        frame = wire.framed(payload)
        with socket.create_connection(("127.0.0.1", self._port), ANSWER_S_MAX) as leaving:
            leaving.sendall(frame[: random.randrange(len(frame))])

    def send(self, payload: bytes, random: Random, timeout_s: float) -> tuple[str, list[bytes]]:
        """ "answered", "closed" or "waiting", and the answers before the last."""
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self._port), ANSWER_S_MAX)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.settimeout(timeout_s)
        answers: list[bytes] = []
        try:
            for piece in pieces(wire.framed(payload) + self._last, random):
                self._socket.sendall(piece)
            while True:
                size = struct.unpack(">i", self._exactly(4))[0]
                answer = self._exactly(size)
                if struct.unpack_from(">i", answer)[0] == LAST:
                    return "answered", answers
                answers.append(answer)
        except TimeoutError:
            self.close()
            return "waiting", answers
        except (ConnectionError, EOFError):
            self.close()
            return "closed", answers

    def _exactly(self, count: int) -> bytes:
        assert self._socket is not None
        received = bytearray()
        while len(received) < count:
            some = self._socket.recv(count - len(received))
            if not some:
                raise EOFError
            received += some
        return bytes(received)


class Bystander:
    """Another client, which must never notice."""

    def __init__(self, port: int) -> None:
        self._connection = wire.WireConnection("127.0.0.1", port, timeout_s=ANSWER_S_MAX)
        assert self._connection.create_topic("bystander") == 0

    def is_served(self) -> None:
        self._connection.produce("bystander", wire.batch([b"still here"]))
        assert self._connection.latest_offset("bystander") > 0

    def close(self) -> None:
        self._connection.socket.close()


def codes_in(message: Any) -> Iterator[int]:
    for field in message.__schema__.fields:
        value = getattr(message, field.name)
        if field.name.endswith("error_code"):
            yield value
        for each in value if isinstance(value, list) else (value,):
            if isinstance(each, Message):
                yield from codes_in(each)


def check_answer(key: ApiKey, version: int, answer: bytes, asked: str) -> None:
    view = memoryview(answer)
    _, position = read_response_header(view, key, version)
    response, end = response_class(key).decode(view, version, position)
    assert end == len(view), asked
    assert UNKNOWN_SERVER_ERROR not in codes_in(response), f"{asked}\n{response}"


def check_log(caplog: pytest.LogCaptureFixture, asked: str) -> None:
    for record in caplog.records:
        assert record.exc_info is None, f"{asked}\n{caplog.text}"
        assert record.levelno < logging.ERROR, f"{asked}\n{caplog.text}"
        assert "\n" not in record.getMessage(), asked
    caplog.clear()


@pytest.fixture
def port() -> Iterator[int]:
    with run_broker(SETTINGS) as broker:
        yield int(broker.bootstrap.rpartition(":")[2])


@pytest.mark.timeout(3_600)
def test_no_request_harms_the_broker(
    port: int, caplog: pytest.LogCaptureFixture, request: pytest.FixtureRequest
) -> None:
    seed, rounds = request.config.getoption("--hostile-seed"), request.config.getoption("--hostile-rounds")
    random = Random(seed)
    bystander, attacker = Bystander(port), Attacker(port)
    with wire.WireConnection("127.0.0.1", port) as own:
        own.create_topic(TOPIC)
    before_bytes = psutil.Process().memory_info().rss
    caplog.set_level(logging.WARNING)
    former = b"\0" * 50
    for turn in range(rounds):
        cases = random.sample(CASES, len(CASES))
        for number, (key, version) in enumerate(cases):
            asked = well_formed(key, version, random)
            said = f"seed {seed}, round {turn}, {asked.what}"
            outcome, answers = attacker.send(
                asked.payload, random, ANSWER_S_MAX if key not in MAY_WAIT else 0.3
            )
            assert outcome != "waiting" or key in MAY_WAIT, f"no answer: {said}"
            for answer in answers:
                check_answer(key, version, answer, said)
            check_log(caplog, said)
            changed = mutated(asked.payload, former, random)
            attacker.send(changed, random, MUTATED_ANSWER_S_MAX)
            check_log(caplog, f"{said}\nas {changed.hex()}")
            attacker.leave_within(asked.payload, random)
            former = asked.payload
            if number % 50 == 0:
                bystander.is_served()
    bystander.is_served()
    attacker.close()
    bystander.close()
    assert psutil.Process().memory_info().rss - before_bytes < GROWTH_BYTES_MAX
