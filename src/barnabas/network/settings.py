"""What an operator may set about sockets. The object is shared and read at each use, so a
dynamic change takes effect by assignment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from barnabas.core import limits

UNLIMITED = 2**31 - 1


@dataclass(slots=True)
class NetworkSettings:
    request_bytes_max: int = 100 * 1024 * 1024
    """`socket.request.max.bytes`"""
    idle_ms_max: float = 600_000
    """`connections.max.idle.ms`"""
    connections_max: int = UNLIMITED
    """`max.connections`"""
    connections_per_ip_max: int = UNLIMITED
    """`max.connections.per.ip`"""
    connections_per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    """`max.connections.per.ip.overrides`, by address as the peer shows it."""
    send_buffer_bytes: int = -1
    """`socket.send.buffer.bytes`; -1 leaves it to the kernel, which adapts it to the connection."""
    receive_buffer_bytes: int = -1
    """`socket.receive.buffer.bytes`, likewise."""
    backlog: int = 511
    """`socket.listen.backlog.size`"""
    requests_in_flight_max: int = limits.REQUESTS_IN_FLIGHT_MAX
    output_bytes_max: int = limits.OUTPUT_BUFFERED_BYTES_MAX
    output_stalled_ms_max: float = limits.OUTPUT_STALLED_MS_MAX
    frame_arrival_ms_max: float = limits.FRAME_ARRIVAL_MS_MAX
    half_closed_ms_max: float = limits.HALF_CLOSED_MS_MAX
