"""Refusals of a SASL listener, on real sockets, frame by frame."""

from __future__ import annotations

import base64
import hashlib
import hmac
import random
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from barnabas.cli.main import cli
from barnabas.core.errors import InvalidConfig
from barnabas.testing.broker import RunningBroker, run_broker
from tests.scenario.security.sasl_broker import SETTINGS, confluent, sasl_broker
from tests.support.waiting import PATIENCE_S
from tests.support.wire import API_VERSIONS, METADATA, Reader, WireConnection, framed, request_header, string

SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
GOOD = b"\0bob\0builder"
ILLEGAL_SASL_STATE, AUTHENTICATION_FAILED = 34, 58


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with sasl_broker({"connection.failed.authentication.delay.ms": "0", "num.partitions": "1"}) as broker:
        yield broker


def connect(broker: RunningBroker) -> WireConnection:
    host, _, port = broker.bootstrap.rpartition(":")
    return WireConnection(host, int(port), timeout_s=PATIENCE_S)


def shake_hands(wire: WireConnection, mechanism: str = "PLAIN", version: int = 1) -> int:
    return wire.ask(SASL_HANDSHAKE, version, string(mechanism)).number("h")


def show(wire: WireConnection, token: bytes) -> tuple[int, str | None]:
    reader = wire.ask(SASL_AUTHENTICATE, 1, struct.pack(">i", len(token)) + token)
    return reader.number("h"), reader.string()


def is_closed(wire: WireConnection) -> bool:
    try:
        return wire.socket.recv(1) == b""
    except ConnectionError:
        return True


def ask_metadata(wire: WireConnection) -> Reader:
    return wire.ask(METADATA, 1, struct.pack(">i", 0))


def test_nothing_but_sasl_before_authentication(broker: RunningBroker) -> None:
    with connect(broker) as wire:
        wire.ask(API_VERSIONS, 0, b"")
        wire.send(METADATA, 1, struct.pack(">i", 0))
        assert is_closed(wire)


def test_no_client_acts_as_another_user(broker: RunningBroker) -> None:
    """CVE-2017-12610: the authorization id of PLAIN."""
    with connect(broker) as wire:
        assert shake_hands(wire) == 0
        assert show(wire, b"admin" + GOOD)[0] == AUTHENTICATION_FAILED
        assert is_closed(wire)


def test_a_wrong_user_and_a_wrong_password_hear_the_same(broker: RunningBroker) -> None:
    """CVE-2021-38153: nothing, the time of the comparison included, tells one from the other."""
    heard = set()
    for token in (b"\0bob\0wrong", b"\0nobody\0builder"):
        with connect(broker) as wire:
            shake_hands(wire)
            heard.add(show(wire, token))
    assert heard == {(AUTHENTICATION_FAILED, "Authentication failed: Invalid username or password")}


@pytest.mark.parametrize("size", [131_073, 524_289, 100_000_000, 0x7FFFFFFF, -1])
def test_no_large_frame_before_authentication(broker: RunningBroker, size: int) -> None:
    """CVE-2022-34917: no memory for a size that a stranger declares."""
    with connect(broker) as wire:
        shake_hands(wire)
        wire.send_raw(struct.pack(">i", size) + b"x" * 100)
        assert is_closed(wire)


@pytest.mark.parametrize("nonce", ["right", "own", "longer", "doubled"])
def test_a_proof_with_another_nonce(tmp_path: Path, nonce: str, caplog: pytest.LogCaptureFixture) -> None:
    """CVE-2024-56128. The proof is right, as it covers what the client itself says the nonce is."""
    with sasl_broker({"connection.failed.authentication.delay.ms": "0"}, data_dir=tmp_path) as broker:
        add_scram_user(broker, "carol", 4_096)
        with connect(broker) as wire:
            shake_hands(wire, "SCRAM-SHA-256")
            token = b"n,,n=carol,r=abc"
            reader = wire.ask(SASL_AUTHENTICATE, 1, struct.pack(">i", len(token)) + token)
            assert (reader.number("h"), reader.string()) == (0, "")
            challenge = reader.byte_string()
            assert challenge is not None
            both, salt, _ = challenge.split(b",")
            bare = (
                b"c=biws,"
                + {
                    "right": both,
                    "own": b"r=abc",
                    "longer": both + b"x",
                    "doubled": both.replace(b"r=abc", b"r=abcabc"),
                }[nonce]
            )
            salted = hashlib.pbkdf2_hmac("sha256", b"secret", base64.b64decode(salt[2:]), 4_096)
            client_key = hmac.digest(salted, b"Client Key", "sha256")
            stored_key = hashlib.sha256(client_key).digest()
            signature = hmac.digest(stored_key, b"n=carol,r=abc," + challenge + b"," + bare, "sha256")
            proof = bytes(x ^ y for x, y in zip(client_key, signature, strict=True))
            error, _ = show(wire, bare + b",p=" + base64.b64encode(proof))
            assert error == (0 if nonce == "right" else AUTHENTICATION_FAILED)
            assert nonce == "right" or is_closed(wire)
    assert ("as kcat and other clients with librdkafka before 2.6.1 do" in caplog.text) == (
        nonce == "doubled"
    )


def add_scram_user(broker: RunningBroker, name: str, iterations: int) -> None:
    mechanism = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, iterations)
    admin = AdminClient(confluent(broker))  # which lives until the answer is there
    change = UserScramCredentialUpsertion(name, mechanism, b"secret")
    admin.alter_user_scram_credentials([change])[name].result(60)


def challenge_for(broker: RunningBroker, user: bytes) -> tuple[bytes, bytes]:
    """The salt and the iterations."""
    with connect(broker) as wire:
        shake_hands(wire, "SCRAM-SHA-256")
        first = b"n,,n=" + user + b",r=abc"
        reader = wire.ask(SASL_AUTHENTICATE, 1, struct.pack(">i", len(first)) + first)
        assert (reader.number("h"), reader.string()) == (0, "")
        challenge = reader.byte_string()
        assert challenge is not None
        _, salt, iterations = challenge.split(b",")
        return base64.b64decode(salt[2:]), iterations


def test_an_unknown_user_has_the_same_salt_after_a_restart(tmp_path: Path) -> None:
    """As a known one has: otherwise who asks twice knows who there is."""
    seen = set()
    for _ in range(2):
        with sasl_broker(data_dir=tmp_path) as broker:
            seen.add(challenge_for(broker, b"nobody"))
    assert len(seen) == 1


@pytest.mark.parametrize("iterations", [5_000, 8_192])
def test_an_unknown_user_looks_like_those_that_there_are(tmp_path: Path, iterations: int) -> None:
    """Not only by the salt: tools differ in how long a salt they make, administrators in iterations."""
    with sasl_broker(data_dir=tmp_path) as broker:
        add_scram_user(broker, "carol", iterations)
        salt, shown = challenge_for(broker, b"carol")
        assert shown == b"i=%d" % iterations
        others = [challenge_for(broker, b"nobody-%d" % number) for number in range(5)]
        assert {(len(each), shown) for each, shown in others} == {(len(salt), shown)}


def test_bare_tokens_of_old_clients(broker: RunningBroker) -> None:
    with connect(broker) as wire:
        assert shake_hands(wire, version=0) == 0
        wire.send_raw(framed(GOOD))
        assert wire.socket.recv(4) == b"\0\0\0\0"
        ask_metadata(wire)


def test_a_bare_token_without_a_handshake(broker: RunningBroker) -> None:
    with connect(broker) as wire:
        wire.send_raw(framed(GOOD))
        assert is_closed(wire)


def test_who_is_authenticated_need_not_be_again(broker: RunningBroker) -> None:
    with connect(broker) as wire:
        shake_hands(wire)
        assert show(wire, GOOD)[0] == 0
        assert shake_hands(wire) == ILLEGAL_SASL_STATE
        ask_metadata(wire)


def test_no_order_of_frames_has_a_stranger_served(broker: RunningBroker) -> None:
    rng = random.Random(13)
    pieces = [
        framed(request_header(API_VERSIONS, 0, 1)),
        framed(request_header(METADATA, 1, 2) + struct.pack(">i", 0)),
        framed(request_header(SASL_HANDSHAKE, 1, 3) + string("PLAIN")),
        framed(request_header(SASL_HANDSHAKE, 0, 4) + string("SCRAM-SHA-512")),
        framed(request_header(SASL_AUTHENTICATE, 1, 5) + struct.pack(">i", 4) + b"\0a\0b"),
        framed(b"\0bob\0wrong"),
        struct.pack(">i", 1 << 30),
        b"\xff" * 20,
    ]
    for _ in range(60):
        with connect(broker) as wire:
            sent = b"".join(rng.choice(pieces) for _ in range(rng.randrange(1, 8)))
            wire.send_raw(sent[: rng.randrange(1, len(sent) + 1)])
            wire.socket.shutdown(1)
            received = bytearray()
            try:
                while data := wire.socket.recv(65_536):
                    received += data
            except ConnectionError:
                pass
            assert b"\0\0\0\x02" not in _correlation_ids(bytes(received))
    with connect(broker) as wire:
        shake_hands(wire)
        assert show(wire, GOOD)[0] == 0


def _correlation_ids(received: bytes) -> list[bytes]:
    found, at = [], 0
    while at + 8 <= len(received):
        size = struct.unpack_from(">i", received, at)[0]
        found.append(received[at + 4 : at + 8])
        at += 4 + size
    return found


@pytest.mark.parametrize(
    ("settings", "hint"),
    [
        ({"sasl.enabled.mechanisms": "PLAIN,GSSAPI"}, "GSSAPI, which is Kafka's default"),
        ({"listener.name.sasl_plaintext.plain.sasl.jaas.config": "a.PlainLoginModule required;"}, "no user"),
        ({"sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER"}, "no keys to verify"),
        (
            {
                "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
                "sasl.oauthbearer.jwks.endpoint.url": "http://issuer.example/keys",
            },
            "in the clear",
        ),
        (
            {
                "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
                "sasl.oauthbearer.jwks.endpoint.url": "file:///nowhere/keys.json",
                "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": "1",
            },
            "cannot be read",
        ),
        (
            {"listener.name.sasl_plaintext.plain.sasl.server.callback.handler.class": "com.example.Ldap"},
            "cannot run",
        ),
        (
            {
                "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
                    'a.PlainLoginModule required user_bob="${env:NOT_THERE}";'
                )
            },
            "a broker follows no references",
        ),
    ],
)
def test_a_broker_that_could_not_check_does_not_start(settings: dict[str, str], hint: str) -> None:
    """CVE-2026-33557: no token is believed without keys that verify it."""
    with pytest.raises(InvalidConfig, match=hint), run_broker({**SETTINGS, **settings}):
        pass


def test_an_unreachable_broker_says_so(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    mechanism = "SCRAM-SHA-256"
    settings = {
        "listeners": SETTINGS["listeners"],
        "sasl.enabled.mechanisms": mechanism,
        "sasl.mechanism.inter.broker.protocol": mechanism,
    }
    with run_broker(settings, data_dir=tmp_path):
        assert "no client can log in on SASL_PLAINTEXT" in caplog.text
    caplog.clear()
    added = CliRunner().invoke(cli, ["user", "add", "bob", "--data-dir", str(tmp_path)], input="builder\n")
    assert added.exit_code == 0, added.output
    with run_broker(settings, data_dir=tmp_path):
        assert "no client can log in" not in caplog.text
