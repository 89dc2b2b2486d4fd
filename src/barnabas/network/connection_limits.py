"""What one connection, and all of them together, may take; nothing of it is a setting."""

from __future__ import annotations

import resource
from dataclasses import dataclass, field

from barnabas.config.rows.words import INT_MAX
from barnabas.core import limits


def connections_allowed() -> int:
    """What connections may take of the process's descriptors: logs must be able to open files,
    however many clients there are."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return INT_MAX if limit == resource.RLIM_INFINITY else max(limit // 2, 64)


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    connections_max: int = field(default_factory=connections_allowed)
    requests_in_flight_max: int = limits.REQUESTS_IN_FLIGHT_MAX
    output_bytes_max: int = limits.OUTPUT_BUFFERED_BYTES_MAX
    output_stalled_ms_max: float = limits.OUTPUT_STALLED_MS_MAX
    frame_arrival_ms_max: float = limits.FRAME_ARRIVAL_MS_MAX
    authentication_ms_max: float = limits.AUTHENTICATION_MS_MAX
    half_closed_ms_max: float = limits.HALF_CLOSED_MS_MAX
