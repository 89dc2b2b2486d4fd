"""A connection on a listener with SASL: what it may send before, during and after it authenticates."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from barnabas.core.reporting.metrics import Metrics, render_prometheus
from barnabas.core.scheduler import InlineBackground
from barnabas.network.transport.exchange import UNKNOWN_SOFTWARE, Exchange
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeResponse
from barnabas.requests.authentication import Mechanism, SaslGate
from barnabas.security.identity.principal import ANONYMOUS, KafkaPrincipal
from barnabas.security.sasl.outcome import AuthenticationRefused, Challenge, Done, Reason
from barnabas.security.sasl.plain import PlainAuthentication, PlainUsers
from tests.support.manual_time import ManualClock, ManualScheduler

API_VERSIONS, HANDSHAKE, AUTHENTICATE, METADATA, PRODUCE = 18, 17, 36, 3, 0
USERS = PlainUsers({"alice": "wonder", "bob": "builder"})
GOOD, OTHER, BAD = b"\0alice\0wonder", b"\0bob\0builder", b"\0alice\0wrong"
FRAME_BYTES_MAX = 1_000


class Connection:
    """Answers in the order in which they come."""

    connection_id = "c"
    listener_name = "SASL_PLAINTEXT"
    security_protocol = "SASL_PLAINTEXT"
    peer_host = local_host = "127.0.0.1"
    local_port = 9092

    def __init__(self) -> None:
        self.session: object = None
        self.software = UNKNOWN_SOFTWARE
        self.principal = ANONYMOUS
        self.closed = False
        self.reason = ""
        self.is_held = False
        self.answers: list[bytes] = []

    def authenticated(self, principal: KafkaPrincipal) -> None:
        self.principal = principal

    def throttle(self, delay_ms: float) -> None:
        raise AssertionError

    def answered(self, exchange: Exchange) -> None:
        self.is_held = False
        if self.closed:
            return
        assert exchange.parts is not None
        self.answers.append(b"".join(bytes(part) for part in exchange.parts))  # type: ignore[arg-type]
        if exchange.close_reason is not None:
            self.closed, self.reason = True, exchange.close_reason

    def hold(self) -> None:
        self.is_held = True

    def keep(self, frame: memoryview) -> memoryview:
        return frame

    def when_closed(self, action: Callable[[], None]) -> None: ...

    def others_served_since_last_call(self) -> bool:
        return False

    def lend(self) -> None:
        return None

    def refuse(self, reason: str) -> None:
        self.is_held = False
        self.closed, self.reason = True, reason


class ByToken:
    """Takes two steps, and its session expires."""

    def __init__(self, expires_ms: int | None) -> None:
        self._expires_ms = expires_ms
        self._challenged = False

    def step(self, token: bytes) -> Challenge | Done:
        if self._challenged:
            return Done(b"v", KafkaPrincipal.user(token.decode()), self._expires_ms)
        self._challenged = True
        return Challenge(b"c")


class Later:
    """Background whose work ends when the test decides."""

    def __init__(self) -> None:
        self.work: list[Callable[[], None]] = []

    def submit(self, work: Any, then: Any, failed: Any) -> None:
        self.work.append(lambda: InlineBackground().submit(work, then, failed))

    def do(self) -> None:
        (work,) = self.work
        self.work.clear()
        work()


class Listener:
    def __init__(
        self, session_ms_max: int = 0, token_expires_ms: int | None = None, delay_ms: int = 100
    ) -> None:
        self.clock = ManualClock()
        self.scheduler = ManualScheduler(self.clock)
        self.metrics = Metrics()
        self.background = Later()
        self.served: list[bytes] = []
        self.gate = SaslGate(
            "SASL_PLAINTEXT",
            {
                "PLAIN": Mechanism(lambda: PlainAuthentication(USERS), session_ms_max),
                "TOKEN": Mechanism(lambda: ByToken(token_expires_ms), session_ms_max),
                "SLOW": Mechanism(lambda: ByToken(None), session_ms_max, blocks=True),
            },
            self._serve,
            frame_bytes_max=FRAME_BYTES_MAX,
            refusal_delay_ms=delay_ms,
            clock=self.clock,
            scheduler=self.scheduler,
            background=self.background,
            metrics=self.metrics,
        )
        self.connection = Connection()
        self.dispatch = self.gate.admit(self.connection)

    def _serve(self, exchange: Exchange, frame: memoryview) -> None:
        self.served.append(bytes(frame))
        exchange.respond([b"served"])

    def send(self, frame: bytes) -> None:
        """As the network does: nothing is dispatched on a connection that is held or closed."""
        if not self.connection.is_held and not self.connection.closed:
            self.dispatch(Exchange(self.connection, 0.0), memoryview(bytearray(frame)))

    def wait(self, ms: float) -> None:
        self.clock.advance(ms=ms)
        self.scheduler.run_due()

    def shake_hands(self, mechanism: str = "PLAIN", version: int = 1) -> Any:
        self.send(handshake(mechanism, version))
        return decoded(SaslHandshakeResponse, self.connection.answers[-1], version)

    def show(self, token: bytes, version: int = 1) -> Any:
        self.send(authenticate(token, version))
        return decoded(SaslAuthenticateResponse, self.connection.answers[-1], version)

    def log_in(self) -> None:
        self.shake_hands()
        assert self.show(GOOD).error_code == 0

    def failures(self) -> str:
        return "\n".join(
            line for line in render_prometheus(self.metrics).splitlines() if "failed_auth" in line
        )


def header(api_key: int, version: int) -> bytes:
    return struct.pack(">hhih", api_key, version, 7, -1)


def handshake(mechanism: str, version: int = 1) -> bytes:
    return header(HANDSHAKE, version) + struct.pack(">h", len(mechanism)) + mechanism.encode()


def authenticate(token: bytes, version: int = 1) -> bytes:
    return header(AUTHENTICATE, version) + struct.pack(">i", len(token)) + token


def decoded(response: type[Any], answer: bytes, version: int) -> Any:
    return response.bounded_decoder(version)(memoryview(answer), 4)[0]


def test_versions_then_a_handshake_then_a_token() -> None:
    listener = Listener()
    listener.send(header(API_VERSIONS, 0))
    assert listener.shake_hands().error_code == 0
    assert listener.show(GOOD).session_lifetime_ms == 0
    assert listener.connection.principal == KafkaPrincipal.user("alice")
    listener.send(header(METADATA, 1))
    assert listener.served == [header(API_VERSIONS, 0), header(METADATA, 1)]
    assert 'kafka_successful_authentication_total{listener="SASL_PLAINTEXT",mechanism="PLAIN"} 1' in (
        render_prometheus(listener.metrics)
    )


def test_bare_tokens_after_a_handshake_of_version_0() -> None:
    listener = Listener()
    assert listener.shake_hands(version=0).error_code == 0
    listener.send(GOOD)
    assert listener.connection.answers[-1] == b""
    assert listener.connection.principal.name == "alice"


@pytest.mark.parametrize(
    "frames",
    [
        [header(METADATA, 1)],
        [header(PRODUCE, 3)],
        [authenticate(GOOD)],
        [header(API_VERSIONS, 0), authenticate(GOOD)],
        [GOOD],
        [b""],
        [b"\x60\x82\x01\x00kerberos"],
        [handshake("PLAIN"), header(METADATA, 1)],
        [handshake("PLAIN"), header(API_VERSIONS, 0)],
        [handshake("PLAIN"), handshake("PLAIN")],
        [handshake("PLAIN"), GOOD],
        [handshake("PLAIN", 2)],
        [handshake("PLAIN"), authenticate(GOOD, 3)],
        [handshake("PLAIN")[:-1]],
        [handshake("PLAIN"), authenticate(GOOD)[:-1]],
        [handshake("PLAIN"), authenticate(b"x" * FRAME_BYTES_MAX)],
    ],
)
def test_anything_else_closes_the_connection_unread(frames: Sequence[bytes]) -> None:
    listener = Listener()
    for frame in frames:
        assert not listener.connection.closed
        listener.send(frame)
    assert listener.connection.closed
    assert listener.connection.principal == ANONYMOUS
    assert all(frame[:2] == header(API_VERSIONS, 0)[:2] for frame in listener.served)


def test_a_mechanism_that_is_not_offered() -> None:
    listener = Listener()
    listener.send(handshake("GSSAPI"))
    assert listener.connection.answers == []
    listener.wait(100)
    answer = decoded(SaslHandshakeResponse, listener.connection.answers[0], 1)
    assert (answer.error_code, answer.mechanisms) == (33, ["PLAIN", "TOKEN", "SLOW"])
    assert listener.connection.closed
    assert 'mechanism="none",reason="unknown_mechanism"} 1' in listener.failures()


def test_a_step_that_blocks_is_taken_elsewhere_and_nothing_else_meanwhile() -> None:
    listener = Listener()
    listener.shake_hands("SLOW")
    for token in (b"x", b"alice"):
        before = len(listener.connection.answers)
        listener.send(authenticate(token))
        listener.send(header(METADATA, 1))
        assert len(listener.connection.answers) == before
        listener.background.do()
        assert decoded(SaslAuthenticateResponse, listener.connection.answers[-1], 1).error_code == 0
    assert listener.connection.principal.name == "alice"
    listener.send(header(METADATA, 1))
    assert listener.served == [header(METADATA, 1)]


@pytest.mark.parametrize("error", [AuthenticationRefused(Reason.BAD_CREDENTIALS, "no"), RuntimeError("ours")])
def test_a_step_that_fails_elsewhere_serves_no_request(error: Exception) -> None:
    class Failing:
        def step(self, token: bytes) -> Done:
            raise error

    listener = Listener(delay_ms=0)
    listener.gate.mechanisms = {"SLOW": Mechanism(Failing, 0, blocks=True)}
    listener.shake_hands("SLOW")
    listener.send(authenticate(b"x"))
    listener.background.do()
    assert listener.connection.closed
    assert listener.connection.principal == ANONYMOUS


def test_a_refusal_waits_and_then_closes() -> None:
    listener = Listener(delay_ms=100)
    listener.shake_hands()
    listener.send(authenticate(BAD))
    listener.send(authenticate(GOOD))
    listener.send(header(METADATA, 1))
    assert len(listener.connection.answers) == 1
    listener.wait(99)
    assert not listener.connection.closed
    listener.wait(1)
    answer = decoded(SaslAuthenticateResponse, listener.connection.answers[-1], 1)
    assert answer.error_code == 58
    assert "wrong" not in answer.error_message + listener.connection.reason
    assert listener.connection.closed
    assert listener.served == []
    assert 'mechanism="PLAIN",reason="bad_credentials"} 1' in listener.failures()


def test_a_hint_is_in_the_log_and_not_in_the_answer() -> None:
    class Refusing:
        def step(self, token: bytes) -> Done:
            raise AuthenticationRefused(Reason.DOUBLED_NONCE, "invalid", "upgrade the client")

    listener = Listener(delay_ms=0)
    listener.gate.mechanisms = {"PLAIN": Mechanism(Refusing, 0)}
    listener.shake_hands()
    assert listener.show(GOOD).error_message == "invalid"
    assert listener.connection.reason == "authentication by PLAIN failed: doubled_nonce: upgrade the client"


def test_a_refused_bare_token_closes_without_an_answer() -> None:
    listener = Listener(delay_ms=0)
    listener.shake_hands(version=0)
    listener.send(BAD)
    assert len(listener.connection.answers) == 1
    assert listener.connection.closed


def test_a_session_is_prolonged() -> None:
    listener = Listener(session_ms_max=60_000)
    listener.shake_hands()
    assert listener.show(GOOD).session_lifetime_ms == 60_000
    listener.wait(50_000)
    assert listener.shake_hands().error_code == 0
    assert listener.show(GOOD).session_lifetime_ms == 60_000
    listener.wait(59_000)
    listener.send(header(METADATA, 1))
    assert listener.served == [header(METADATA, 1)]


def test_a_session_that_is_over_serves_nothing_but_a_handshake() -> None:
    listener = Listener(session_ms_max=60_000)
    listener.log_in()
    listener.wait(60_000)
    assert listener.shake_hands().error_code == 0
    assert listener.show(GOOD).error_code == 0
    listener.wait(60_000)
    listener.send(header(METADATA, 1))
    assert listener.connection.closed
    assert listener.served == []
    assert 'kafka_expired_connections_killed_total{listener="SASL_PLAINTEXT"} 1' in render_prometheus(
        listener.metrics
    )


@pytest.mark.parametrize(
    ("session_ms_max", "expires_in_ms", "lifetime_ms"),
    [(0, 30_000, 30_000), (10_000, 30_000, 10_000), (60_000, 30_000, 30_000), (0, None, 0)],
)
def test_what_was_shown_bounds_the_session(
    session_ms_max: int, expires_in_ms: int | None, lifetime_ms: int
) -> None:
    now_ms = ManualClock().now_ms()
    listener = Listener(session_ms_max, None if expires_in_ms is None else now_ms + expires_in_ms)
    listener.shake_hands("TOKEN")
    listener.show(b"alice")
    assert listener.show(b"alice").session_lifetime_ms == lifetime_ms
    listener.wait(lifetime_ms)
    listener.send(header(METADATA, 1))
    assert listener.connection.closed == (expires_in_ms is not None)


@pytest.mark.parametrize("expires_in_ms", [0, -5])
def test_what_is_over_when_it_is_proved_begins_no_session(expires_in_ms: int) -> None:
    """A session of 0 ms would be one without an end, for the client."""
    listener = Listener(0, ManualClock().now_ms() + expires_in_ms, delay_ms=0)
    listener.shake_hands("TOKEN")
    listener.show(b"alice")
    assert listener.show(b"alice").error_code == 58
    assert listener.connection.principal == ANONYMOUS
    assert 'reason="expired_token"} 1' in listener.failures()


@pytest.mark.parametrize("mechanism", ["TOKEN", "OTHER"])
def test_another_mechanism_cannot_prolong_it(mechanism: str) -> None:
    listener = Listener(session_ms_max=60_000)
    listener.log_in()
    listener.wait(2_000)
    listener.send(handshake(mechanism))
    listener.wait(100)
    assert listener.connection.closed


def test_another_principal_cannot_prolong_it() -> None:
    listener = Listener(session_ms_max=60_000)
    listener.log_in()
    listener.wait(2_000)
    listener.shake_hands()
    listener.send(authenticate(OTHER))
    listener.wait(100)
    assert listener.connection.closed
    assert listener.connection.principal.name == "alice"
    assert 'reason="other_principal"} 1' in listener.failures()


def test_nothing_is_served_while_it_is_prolonged() -> None:
    listener = Listener(session_ms_max=60_000)
    listener.log_in()
    listener.wait(2_000)
    listener.shake_hands()
    listener.send(header(METADATA, 1))
    assert listener.connection.closed
    assert listener.served == []


def test_at_most_once_a_second() -> None:
    """A handshake that comes sooner is handed on, and answered ILLEGAL_SASL_STATE there. The first time
    may be at once, as in Apache Kafka."""
    listener = Listener(session_ms_max=60_000)
    listener.log_in()
    assert listener.shake_hands().error_code == 0
    assert listener.show(GOOD).error_code == 0
    assert listener.served == []
    listener.wait(999)
    listener.send(handshake("PLAIN"))
    assert listener.served == [handshake("PLAIN")]
    listener.wait(1)
    assert listener.shake_hands().error_code == 0
    assert listener.served == [handshake("PLAIN")]


def test_a_session_without_end_needs_no_prolonging() -> None:
    listener = Listener()
    listener.log_in()
    listener.wait(10_000)
    listener.send(handshake("PLAIN"))
    assert listener.served == [handshake("PLAIN")]


def _pieces(rng: random.Random) -> Callable[[], bytes]:
    whole = [
        header(API_VERSIONS, 0),
        header(METADATA, 1) + b"\0\0\0\0",
        header(PRODUCE, 3),
        handshake("PLAIN"),
        handshake("PLAIN", 0),
        handshake("NONE"),
        authenticate(BAD),
        authenticate(b"\0alice"),
        BAD,
        authenticate(b"x" * 2_000),
        b"",
    ]

    def piece() -> bytes:
        frame = rng.choice(whole)
        match rng.randrange(6):
            case 0:
                return frame[: rng.randrange(len(frame) + 1)]
            case 1:
                return frame + frame
            case 2:
                spoiled = bytearray(frame)
                for _ in range(rng.randrange(1, 4)):
                    if spoiled:
                        spoiled[rng.randrange(len(spoiled))] = rng.randrange(256)
                return bytes(spoiled)
        return frame

    return piece


@pytest.mark.parametrize("seed", range(40))
def test_no_order_of_frames_has_a_stranger_served(seed: int) -> None:
    rng = random.Random(seed)
    piece = _pieces(rng)
    for _ in range(50):
        listener = Listener(session_ms_max=rng.choice([0, 5_000]), delay_ms=rng.choice([0, 100]))
        for _ in range(rng.randrange(1, 12)):
            listener.send(piece())
            if rng.random() < 0.2:
                listener.wait(rng.choice([1, 100, 6_000]))
        assert all(frame[:2] == struct.pack(">h", API_VERSIONS) for frame in listener.served)
        assert listener.connection.principal == ANONYMOUS
