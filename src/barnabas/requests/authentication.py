"""SASL authentication of a connection, from its first byte to the end of its session.

Before it has authenticated, a client may send ApiVersions, name a mechanism (SaslHandshake) and answer
challenges. These arrive as SaslAuthenticate requests, or as bare tokens after a handshake of version 0. Any
other request closes the connection without being decoded. Frames are bounded by
`sasl.server.max.receive.size`, or by the largest token of any mechanism, if that is less. The network closes
connections that take too long.

A failed authentication is answered after a pause (`connection.failed.authentication.delay.ms`). The
connection takes no request meanwhile, and is closed afterwards.

A session may end: with the token that authenticated it, or after `connections.max.reauth.ms`, whichever is
first. The client learns the lifetime and re-authenticates on the same connection (KIP-368), by the same
mechanism and as the same principal. After the end of its session no other request is served.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from enum import Enum
from functools import partial
from math import inf
from typing import Any, NamedTuple

from barnabas.core.clock import Clock
from barnabas.core.errors import KafkaError, SaslAuthenticationFailed, UnsupportedSaslMechanism
from barnabas.core.reporting.metrics import Metrics
from barnabas.core.reporting.rate_limited_log import RateLimitedLogger
from barnabas.core.scheduler import Background, Scheduler
from barnabas.core.transitions import Transitions
from barnabas.network.transport.exchange import Dispatch, Exchange, ExchangeConnection, Part
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import LargeMessage, MalformedMessage
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from barnabas.protocol.schema.headers import RequestHeader, encode_response, read_request_header
from barnabas.requests.served_versions import SERVED_VERSIONS
from barnabas.security.identity.principal import KafkaPrincipal
from barnabas.security.sasl.outcome import Authentication, AuthenticationRefused, Challenge, Done, Reason

logger = logging.getLogger(__name__)

VERSION_WITH_BARE_TOKENS = 0
REAUTHENTICATION_INTERVAL_MS_MIN = 1_000.0
NO_MECHANISM = "none"


class SaslState(Enum):
    HANDSHAKE = "handshake"
    AUTHENTICATE = "authenticate"
    BARE_TOKENS = "bare_tokens"
    SERVED = "served"
    REFUSED = "refused"


TRANSITIONS = Transitions(
    {
        SaslState.HANDSHAKE: frozenset(),
        SaslState.AUTHENTICATE: frozenset({SaslState.HANDSHAKE, SaslState.SERVED}),
        SaslState.BARE_TOKENS: frozenset({SaslState.HANDSHAKE}),
        SaslState.SERVED: frozenset({SaslState.AUTHENTICATE, SaslState.BARE_TOKENS}),
        SaslState.REFUSED: frozenset(
            {SaslState.HANDSHAKE, SaslState.AUTHENTICATE, SaslState.BARE_TOKENS, SaslState.SERVED}
        ),
    }
)


class Mechanism(NamedTuple):
    start: Callable[[], Authentication]
    session_ms_max: int
    """0 where sessions do not expire."""
    blocks: bool = False
    """Whether a step may wait for a disk, and therefore runs in a thread."""


class SaslGate:
    """SASL settings of one listener; `mechanisms` are those that it offers, by name."""

    def __init__(
        self,
        listener_name: str,
        mechanisms: Mapping[str, Mechanism],
        dispatch: Dispatch,
        *,
        frame_bytes_max: int,
        refusal_delay_ms: int,
        clock: Clock,
        scheduler: Scheduler,
        background: Background,
        metrics: Metrics,
    ) -> None:
        self.listener_name = listener_name
        self.mechanisms = mechanisms
        self.dispatch = dispatch
        self.frame_bytes_max = frame_bytes_max
        self.refusal_delay_ms = refusal_delay_ms
        self.clock = clock
        self.scheduler = scheduler
        self.background = background
        self.limited_log = RateLimitedLogger(logger, clock)
        self._metrics = metrics

    def admit(self, connection: ExchangeConnection) -> Dispatch:
        session = connection.session = SaslSession(self)
        return session.dispatch

    def count_success(self, mechanism: str, *, again: bool) -> None:
        if again:
            self._metrics.counter(
                "kafka_successful_reauthentication_total",
                "Connections that re-authenticated.",
                listener=self.listener_name,
                mechanism=mechanism,
            ).value += 1
        else:
            self._metrics.counter(
                "kafka_successful_authentication_total",
                "Connections that authenticated.",
                listener=self.listener_name,
                mechanism=mechanism,
            ).value += 1

    def count_failure(self, mechanism: str, reason: Reason) -> None:
        self._metrics.counter(
            "kafka_failed_authentication_total",
            "Authentications that failed.",
            listener=self.listener_name,
            mechanism=mechanism,
            reason=reason.value,
        ).value += 1

    def count_expired(self) -> None:
        self._metrics.counter(
            "kafka_expired_connections_killed_total",
            "Connections that were used after the end of their session.",
            listener=self.listener_name,
        ).value += 1


class SaslSession:
    """Authentication state of one connection."""

    def __init__(self, gate: SaslGate) -> None:
        self._gate = gate
        self._serve = gate.dispatch
        self._state = SaslState.HANDSHAKE
        self._mechanism = NO_MECHANISM
        self._authentication: Authentication | None = None
        self._principal: KafkaPrincipal | None = None
        self._ends_ms = inf
        self._prolonging_ms = -inf
        self.by_delegation_token = False

    def dispatch(self, exchange: Exchange, frame: memoryview) -> None:
        if self._state is SaslState.SERVED:
            if self._ends_ms == inf:
                self._serve(exchange, frame)
            else:
                self._serve_in_session(exchange, frame)
            return
        try:
            self._authenticate(exchange, frame)
        except (MalformedMessage, LargeMessage):
            self._close(exchange, Reason.MALFORMED)

    def _serve_in_session(self, exchange: Exchange, frame: memoryview) -> None:
        now_ms = self._gate.clock.monotonic_ms()
        if (
            frame[:2] == ApiKey.SASL_HANDSHAKE.to_bytes(2)
            and now_ms - self._prolonging_ms >= REAUTHENTICATION_INTERVAL_MS_MIN
        ):
            try:
                self._shake_hands(exchange, frame, read_request_header(frame))
            except (MalformedMessage, LargeMessage):
                self._close(exchange, Reason.MALFORMED)
        elif now_ms >= self._ends_ms:
            self._gate.count_expired()
            self._move_to(SaslState.REFUSED)
            exchange.close("its SASL session expired and the client did not re-authenticate")
        else:
            self._serve(exchange, frame)

    def _authenticate(self, exchange: Exchange, frame: memoryview) -> None:
        if self._state is SaslState.REFUSED:
            exchange.close("its authentication failed before")
            return
        if len(frame) > self._gate.frame_bytes_max:
            self._close(exchange, Reason.TOO_LARGE)
            return
        if self._state is SaslState.BARE_TOKENS:
            self._step(exchange, bytes(frame), None)
            return
        header = read_request_header(frame)
        if self._state is SaslState.HANDSHAKE:
            if header.api_key == ApiKey.API_VERSIONS:
                self._serve(exchange, frame)
                return
            if header.api_key == ApiKey.SASL_HANDSHAKE:
                self._shake_hands(exchange, frame, header)
                return
        elif (
            header.api_key == ApiKey.SASL_AUTHENTICATE
            and header.api_version in SERVED_VERSIONS[ApiKey.SASL_AUTHENTICATE]
        ):
            decode = SaslAuthenticateRequest.bounded_decoder(header.api_version)
            request: Any = decode(frame, header.body_position)[0]
            self._step(exchange, bytes(request.auth_bytes), header)
            return
        self._close(exchange, Reason.ILLEGAL_STATE)

    def _shake_hands(self, exchange: Exchange, frame: memoryview, header: RequestHeader) -> None:
        if header.api_version not in SERVED_VERSIONS[ApiKey.SASL_HANDSHAKE]:
            self._close(exchange, Reason.ILLEGAL_STATE)
            return
        decode = SaslHandshakeRequest.bounded_decoder(header.api_version)
        request: Any = decode(frame, header.body_position)[0]
        mechanism = self._gate.mechanisms.get(request.mechanism)
        response = SaslHandshakeResponse(mechanisms=list(self._gate.mechanisms))
        again = self._principal is not None
        bare = header.api_version == VERSION_WITH_BARE_TOKENS
        if mechanism is None or (again and (request.mechanism != self._mechanism or bare)):
            response.error_code = UnsupportedSaslMechanism.code
            parts = encode_response(header.correlation_id, response, header.api_version)
            self._refuse(exchange, Reason.UNKNOWN_MECHANISM, parts)
            return
        self._mechanism = request.mechanism
        self._authentication = mechanism.start()
        if again:
            self._prolonging_ms = self._gate.clock.monotonic_ms()
        self._move_to(SaslState.BARE_TOKENS if bare else SaslState.AUTHENTICATE)
        exchange.respond(encode_response(header.correlation_id, response, header.api_version))

    def _step(self, exchange: Exchange, token: bytes, header: RequestHeader | None) -> None:
        """Process a token. `header` is the request's; a bare token has none, and is answered with one."""
        assert self._authentication is not None
        take_step = partial(self._authentication.step, token)
        if self._gate.mechanisms[self._mechanism].blocks:
            exchange.hold()
            self._gate.background.submit(
                take_step,
                lambda outcome: self._stepped(exchange, outcome, header),
                lambda error: self._step_failed(exchange, error, header),
            )
            return
        try:
            outcome = take_step()
        except AuthenticationRefused as refusal:
            self._step_refused(exchange, refusal, header)
        else:
            self._stepped(exchange, outcome, header)

    def _step_failed(self, exchange: Exchange, error: BaseException, header: RequestHeader | None) -> None:
        if isinstance(error, AuthenticationRefused):
            self._step_refused(exchange, error, header)
        else:
            self._gate.limited_log.error("step", "a step of %s failed", self._mechanism, cause=error)
            self._close(exchange, Reason.MALFORMED)

    def _step_refused(
        self, exchange: Exchange, refusal: AuthenticationRefused, header: RequestHeader | None
    ) -> None:
        error = SaslAuthenticationFailed(refusal.message)
        answer = None if header is None else _failure(error, header)
        self._refuse(exchange, refusal.reason, answer, refusal.hint)

    def _stepped(self, exchange: Exchange, outcome: Challenge | Done, header: RequestHeader | None) -> None:
        try:
            session_ms = self._complete(exchange, outcome) if isinstance(outcome, Done) else 0
        except AuthenticationRefused as refusal:
            self._step_refused(exchange, refusal, header)
            return
        if header is None:
            exchange.respond([outcome.token])
            return
        response = SaslAuthenticateResponse(auth_bytes=outcome.token, session_lifetime_ms=session_ms)
        exchange.respond(encode_response(header.correlation_id, response, header.api_version))

    def _complete(self, exchange: Exchange, done: Done) -> int:
        """Session lifetime, 0 if it does not expire. The client is authenticated from here on."""
        again = self._principal is not None
        if again and done.principal != self._principal:
            raise AuthenticationRefused(
                Reason.OTHER_PRINCIPAL, "Cannot change principals during re-authentication"
            )
        clock = self._gate.clock
        limits = []
        if done.expires_ms is not None:
            left_ms = done.expires_ms - clock.now_ms()
            if left_ms <= 0:
                raise AuthenticationRefused(
                    Reason.EXPIRED_TOKEN, "Authentication failed: the token has expired"
                )
            limits.append(left_ms)
        if session_ms_max := self._gate.mechanisms[self._mechanism].session_ms_max:
            limits.append(session_ms_max)
        session_ms = min(limits, default=0)
        self._ends_ms = clock.monotonic_ms() + session_ms if limits else inf
        self._authentication = None
        self._principal = done.principal
        self.by_delegation_token = done.by_delegation_token
        self._move_to(SaslState.SERVED)
        exchange.connection.authenticated(done.principal)
        self._gate.count_success(self._mechanism, again=again)
        return int(session_ms)

    def _refuse(self, exchange: Exchange, reason: Reason, answer: list[Part] | None, hint: str = "") -> None:
        """Fail the authentication after a pause, with a response if the mechanism has one."""
        self._move_to(SaslState.REFUSED)
        self._authentication = None
        self._gate.count_failure(self._mechanism, reason)
        why = f"authentication by {self._mechanism} failed: {reason.value}"
        if hint:
            why = f"{why}: {hint}"

        def end() -> None:
            if answer is None:
                exchange.close(why)
            else:
                exchange.respond_and_close(answer, why)

        exchange.hold()
        delay_ms = self._gate.refusal_delay_ms
        if delay_ms > 0:
            self._gate.scheduler.after(delay_ms, end)
        else:
            end()

    def _close(self, exchange: Exchange, reason: Reason) -> None:
        self._move_to(SaslState.REFUSED)
        self._authentication = None
        self._gate.count_failure(self._mechanism, reason)
        exchange.close(f"authentication by {self._mechanism} failed: {reason.value}")

    def _move_to(self, target: SaslState) -> None:
        TRANSITIONS.check(self._state, target)
        self._state = target


def _failure(error: KafkaError, header: RequestHeader) -> list[Part]:
    response = SaslAuthenticateResponse(error_code=error.code, error_message=error.message)
    return encode_response(header.correlation_id, response, header.api_version)
