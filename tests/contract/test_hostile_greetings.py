"""Hostile TLS and SASL greetings: the client is refused, and others are served.

Greetings are a real client's, and SASL messages those of each mechanism, with some of their bytes changed,
cut or doubled, and in any order. A failure names the seed; `--hostile-seed` and `--hostile-rounds` try
others, and more of them.
"""

from __future__ import annotations

import logging
import socket
import ssl
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest
import trustme
from tests.support import wire
from tests.support.hostile import mutated, pieces

from barnabas.testing.broker import run_broker

GREETINGS_A_ROUND = 100
CONVERSATIONS_A_ROUND = 60
SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
ANSWER_S_MAX = 60.0
SECRET = "wonder-of-secrets"
METADATA_ID = 0x5EC2E7
"""Correlation id of a request that only an authenticated client may send."""
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI", "", "plain", "\0")
TOKENS = (
    b"\0alice\0wrong",
    b"admin\0alice\0" + SECRET.encode(),
    b"\0\0",
    b"\0alice\0" + b"x" * 5_000,
    b"n,,n=alice,r=abcdef",
    b"n,a=admin,n=alice,r=abcdef",
    b"y,,n=alice,r=",
    b"p=tls-unique,,n=alice,r=abcdef",
    b"c=biws,r=abcdef,p=" + b"A" * 43 + b"=",
    b"n,,\x01auth=Bearer a.b.c\x01\x01",
    b"\x01",
    b"",
)


def say_no_more(sock: socket.socket) -> None:
    """End of the client's stream; the broker may have closed the connection already."""
    with suppress(OSError):
        sock.shutdown(socket.SHUT_WR)


class TlsClient:
    """TLS by hand on a socket of which one half can be closed."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        self._socket = sock
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="127.0.0.1")

    def greeting(self) -> bytes:
        """The first flight."""
        with suppress(ssl.SSLWantReadError):
            self._tls.do_handshake()
        return self._outgoing.read()

    def shake_hands(self) -> None:
        self._socket.sendall(self.greeting())
        while True:
            self._incoming.write(self._socket.recv(65_536))
            try:
                self._tls.do_handshake()
                return
            except ssl.SSLWantReadError:
                self._socket.sendall(self._outgoing.read())

    def send(self, data: bytes) -> None:
        if data:
            self._tls.write(data)
        self._socket.sendall(self._outgoing.read())

    def heard(self) -> bytes:
        """All remaining bytes, after the end of the client's stream."""
        received = bytearray()
        with suppress(ConnectionError):
            say_no_more(self._socket)
            while some := self._socket.recv(65_536):
                self._incoming.write(some)
        with suppress(ssl.SSLError):
            while some := self._tls.read(65_536):
                received += some
        return bytes(received)


@dataclass
class Served:
    port: int
    context: ssl.SSLContext

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), ANSWER_S_MAX)

    def converse(self, stream: Iterable[bytes]) -> list[int]:
        """Inside TLS; the correlation ids of what was answered."""
        with self.connect() as sock:
            client = TlsClient(sock, self.context)
            client.shake_hands()
            with suppress(ConnectionError):
                for piece in stream:
                    client.send(piece)
            return ids_in(client.heard())

    def serves_who_knows_the_password(self) -> None:
        token = b"\0alice\0" + SECRET.encode()
        messages = (
            asked(SASL_HANDSHAKE, 1, wire.string("PLAIN")),
            asked(SASL_AUTHENTICATE, 1, struct.pack(">i", len(token)) + token),
            asked(wire.METADATA, 1, struct.pack(">i", 0), METADATA_ID),
        )
        assert METADATA_ID in self.converse(messages)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    directory: Path = tmp_path_factory.mktemp("greetings")
    authority = trustme.CA()
    store = directory / "broker.pem"
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(store))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.configure_trust(context)
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    settings = {
        "listeners": "SASL_SSL://127.0.0.1:0",
        "ssl.keystore.location": str(store),
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": (
            f'{module} username="alice" password="{SECRET}" user_alice="{SECRET}";'
        ),
        "connection.failed.authentication.delay.ms": "0",
    }
    with run_broker(settings) as broker:
        yield Served(int(broker.bootstrap.rpartition(":")[2]), context)


def asked(key: int, version: int, body: bytes, correlation_id: int = 1) -> bytes:
    return wire.framed(wire.request_header(key, version, correlation_id) + body)


def ids_in(received: bytes) -> list[int]:
    """The correlation ids of the whole frames."""
    found, at = [], 0
    while at + 8 <= len(received):
        size, correlation_id = struct.unpack_from(">ii", received, at)
        at += 4 + size
        if at <= len(received):
            found.append(correlation_id)
    return found


def check_log(caplog: pytest.LogCaptureFixture, said: str) -> None:
    for record in caplog.records:
        assert record.exc_info is None, f"{said}\n{caplog.text}"
        assert record.levelno < logging.ERROR, f"{said}\n{caplog.text}"
        assert "\n" not in record.getMessage(), said
        assert SECRET not in record.getMessage(), said
    caplog.clear()


def seed_and_rounds(request: pytest.FixtureRequest) -> tuple[int, int]:
    return request.config.getoption("--hostile-seed"), request.config.getoption("--hostile-rounds")


def test_no_greeting_harms_the_broker(
    served: Served, caplog: pytest.LogCaptureFixture, request: pytest.FixtureRequest
) -> None:
    seed, rounds = seed_and_rounds(request)
    random = Random(seed)
    caplog.set_level(logging.WARNING)
    former = b"\x16\x03\x01\x02\x00"
    for number in range(rounds * GREETINGS_A_ROUND):
        with served.connect() as stranger, suppress(ConnectionError):
            greeting = TlsClient(stranger, served.context).greeting()
            stream = mutated(greeting, former, random)
            said = f"seed {seed}, greeting {number}: {stream.hex()}"
            for piece in pieces(stream, random):
                stranger.sendall(piece)
            say_no_more(stranger)
            while stranger.recv(65_536):
                pass
        check_log(caplog, said)
        former = greeting
    served.serves_who_knows_the_password()


def message(random: Random) -> bytes:
    """A step of an authentication, or a request that needs one."""
    token = random.choice(TOKENS)
    return random.choice(
        (
            asked(wire.API_VERSIONS, random.choice((0, 3)), b""),
            asked(SASL_HANDSHAKE, random.choice((0, 1, 1, 1)), wire.string(random.choice(MECHANISMS))),
            asked(SASL_HANDSHAKE, 1, wire.string(random.choice(MECHANISMS[:4]))),
            asked(SASL_AUTHENTICATE, random.choice((0, 1)), struct.pack(">i", len(token)) + token),
            asked(SASL_AUTHENTICATE, 2, b"\0" + bytes([min(len(token) + 1, 127)]) + token + b"\0"),
            wire.framed(token),
            asked(wire.METADATA, 1, struct.pack(">i", 0), METADATA_ID),
        )
    )


def test_no_order_of_sasl_messages_has_a_stranger_served(
    served: Served, caplog: pytest.LogCaptureFixture, request: pytest.FixtureRequest
) -> None:
    seed, rounds = seed_and_rounds(request)
    random = Random(seed)
    caplog.set_level(logging.WARNING)
    for number in range(rounds * CONVERSATIONS_A_ROUND):
        messages = [message(random) for _ in range(random.randrange(1, 9))]
        if random.random() < 0.5:
            place = random.randrange(len(messages))
            messages[place] = mutated(messages[place], random.choice(messages), random)
        stream = b"".join(messages)
        said = f"seed {seed}, conversation {number}: {stream.hex()}"
        assert METADATA_ID not in served.converse(pieces(stream, random)), said
        check_log(caplog, said)
    served.serves_who_knows_the_password()
