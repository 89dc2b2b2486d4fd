"""Network metrics, each looked up once, and the reasons for which connections end."""

from __future__ import annotations

from enum import StrEnum

from barnabas.core.reporting.metrics import Metrics


class Closed(StrEnum):
    """Reasons for the end of a connection; few and fixed, because each is a label."""

    BY_PEER = "by_peer"
    IDLE = "idle"
    UNAUTHENTICATED = "unauthenticated"
    SLOW_REQUEST = "slow_request"
    STALLED_READER = "stalled_reader"
    OUTPUT_FULL = "output_full"
    BAD_FRAME = "bad_frame"
    REFUSED = "refused"
    SEND_FAILED = "send_failed"
    OWN_FAULT = "own_fault"
    SHUTDOWN = "shutdown"


class Rejected(StrEnum):
    """Reasons to close a connection as soon as it is accepted."""

    TOTAL = "max_connections"
    PER_LISTENER = "max_connections_of_the_listener"
    PER_IP = "max_connections_per_ip"
    RATE = "connection_creation_rate"


class HandshakeFailure(StrEnum):
    """Reasons for the failure of a TLS handshake."""

    NOT_TLS = "not_tls"
    GONE = "gone"
    TOO_SLOW = "too_slow"
    CROWDED_OUT = "crowded_out"
    NO_CERTIFICATE = "no_certificate"
    BAD_CERTIFICATE = "bad_certificate"
    UNKNOWN_NAME = "unknown_name"
    REFUSED_BY_PEER = "refused_by_peer"
    NOTHING_AGREED = "nothing_agreed"
    OTHER = "other"

    @property
    def in_words(self) -> str:
        return _FAILURES_IN_WORDS[self]


_FAILURES_IN_WORDS = {
    HandshakeFailure.NOT_TLS: "the client does not speak TLS, this listener does",
    HandshakeFailure.GONE: "the client closed the connection during the handshake",
    HandshakeFailure.TOO_SLOW: "the handshake took too long",
    HandshakeFailure.CROWDED_OUT: "too many handshakes are in progress and this is the oldest",
    HandshakeFailure.NO_CERTIFICATE: "the client sent no certificate",
    HandshakeFailure.BAD_CERTIFICATE: "the client's certificate is not accepted",
    HandshakeFailure.UNKNOWN_NAME: "no rule of ssl.principal.mapping.rules matches the client's certificate",
    HandshakeFailure.REFUSED_BY_PEER: "the client refused the handshake, probably this broker's certificate",
    HandshakeFailure.NOTHING_AGREED: "client and listener have no protocol or cipher suite in common",
    HandshakeFailure.OTHER: "the handshake failed",
}


class NetworkCounters:
    def __init__(self, metrics: Metrics) -> None:
        self.received = metrics.counter(
            "barnabas_network_received_bytes_total", "Bytes received from sockets."
        )
        self.sent = metrics.counter("barnabas_network_sent_bytes_total", "Bytes given to sockets.")
        self.accepted = metrics.counter(
            "barnabas_network_connections_accepted_total", "Connections accepted."
        )
        self.closed = {
            reason: metrics.counter(
                "barnabas_network_connections_closed_total", "Connections ended, by reason.", reason=reason
            )
            for reason in Closed
        }
        self.handshakes = metrics.counter(
            "barnabas_network_tls_handshakes_total", "TLS handshakes that succeeded."
        )
        self.handshake_failures = {
            reason: metrics.counter(
                "barnabas_network_tls_handshake_failures_total",
                "TLS handshakes that failed, by reason.",
                reason=reason,
            )
            for reason in HandshakeFailure
        }
        self.rejected = {
            reason: metrics.counter(
                "barnabas_network_connections_rejected_total",
                "Connections over a limit, closed at once.",
                reason=reason,
            )
            for reason in Rejected
        }
