"""The network's metrics, each looked up once, and the reasons for which connections end."""

from __future__ import annotations

from enum import StrEnum

from barnabas.core.metrics import Metrics


class Closed(StrEnum):
    """Why a connection ended; few and fixed, because each is a label."""

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
    """Why a connection was closed as soon as it was accepted."""

    TOTAL = "max_connections"
    PER_IP = "max_connections_per_ip"


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
        self.rejected = {
            reason: metrics.counter(
                "barnabas_network_connections_rejected_total",
                "Connections over a limit, closed at once.",
                reason=reason,
            )
            for reason in Rejected
        }
