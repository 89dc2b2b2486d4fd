"""Deadlines of a connection: which one closes it, and which state suspends it."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from barnabas.core.limits import FRAME_ARRIVAL_BYTES_PER_MS_MIN
from barnabas.network.connection_limits import ConnectionDeadlines, ConnectionLimits
from barnabas.network.counters import Closed

LIMITS = ConnectionLimits(
    output_stalled_ms_max=20.0,
    frame_arrival_ms_max=30.0,
    authentication_ms_max=40.0,
    half_closed_ms_max=50.0,
)
IDLE_MS_MAX = 100.0


class State(NamedTuple):
    closing: Closed | None = None
    is_blocked: bool = False
    is_busy: bool = False
    is_paused: bool = False
    arrived_bytes: int = 0


IDLE = State()


def overdue(deadlines: ConnectionDeadlines, now_ms: float, state: State = IDLE) -> Closed | None:
    return deadlines.overdue(
        now_ms,
        state.closing,
        is_blocked=state.is_blocked,
        is_busy=state.is_busy,
        is_paused=state.is_paused,
        arrived_bytes=state.arrived_bytes,
        idle_ms_max=IDLE_MS_MAX,
    )


@pytest.fixture
def deadlines() -> ConnectionDeadlines:
    return ConnectionDeadlines(LIMITS, 0.0, authenticates=False)


def test_authentication_has_a_deadline_until_it_succeeds() -> None:
    deadlines = ConnectionDeadlines(LIMITS, 0.0, authenticates=True)
    assert overdue(deadlines, 40.0) is None
    assert overdue(deadlines, 40.1) is Closed.UNAUTHENTICATED
    deadlines.authenticated()
    assert not deadlines.awaits_authentication
    assert overdue(deadlines, 40.1) is None


def test_a_connection_without_requests_is_idle(deadlines: ConnectionDeadlines) -> None:
    assert overdue(deadlines, 100.0) is None
    assert overdue(deadlines, 100.1) is Closed.IDLE
    assert overdue(deadlines, 100.1, State(is_busy=True)) is None


def test_a_slow_request_gets_time_for_the_bytes_that_arrived(deadlines: ConnectionDeadlines) -> None:
    deadlines.frame_since_ms = 10.0
    assert overdue(deadlines, 40.1) is Closed.SLOW_REQUEST
    assert overdue(deadlines, 40.1, State(is_paused=True)) is None
    arrived_bytes = int(FRAME_ARRIVAL_BYTES_PER_MS_MIN * 5)
    assert overdue(deadlines, 45.0, State(arrived_bytes=arrived_bytes)) is None
    assert overdue(deadlines, 45.1, State(arrived_bytes=arrived_bytes)) is Closed.SLOW_REQUEST


def test_a_client_that_reads_no_responses_is_closed_though_busy(deadlines: ConnectionDeadlines) -> None:
    deadlines.blocked_since_ms = 10.0
    assert overdue(deadlines, 30.0, State(is_blocked=True, is_busy=True)) is None
    assert overdue(deadlines, 30.1, State(is_blocked=True, is_busy=True)) is Closed.STALLED_READER


def test_draining_ends_without_progress_except_at_shutdown(deadlines: ConnectionDeadlines) -> None:
    deadlines.draining_since_ms = 10.0
    assert overdue(deadlines, 60.0, State(closing=Closed.BY_PEER, is_busy=True)) is None
    assert overdue(deadlines, 60.1, State(closing=Closed.BY_PEER, is_busy=True)) is Closed.BY_PEER
    deadlines.active_ms = 20.0
    assert overdue(deadlines, 60.1, State(closing=Closed.BY_PEER, is_busy=True)) is None
    assert overdue(deadlines, 99.0, State(closing=Closed.SHUTDOWN, is_busy=True)) is None
