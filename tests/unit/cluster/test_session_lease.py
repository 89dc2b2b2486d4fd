"""The lease on a clock that is moved by hand."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from tests.support.manual_time import ManualClock, ManualScheduler

from barnabas.cluster.coordination.session_lease import SessionLease
from barnabas.core.scheduler import Cancellable

TIMEOUT_MS = 6_000


class Loop:
    """Event loop on a manual clock, with as much of it as a lease needs."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.scheduler = ManualScheduler(clock)

    def call_later(self, delay_s: float, call: Callable[[], None]) -> Cancellable:
        return self.scheduler.after(delay_s * 1_000, call)

    def pass_time(self, ms: float) -> None:
        self.clock.advance(ms)
        self.scheduler.run_due()


class Server:
    """Takes questions; a test answers them."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.loop = Loop(self.clock)
        self.questions: list[Callable[[], None]] = []
        self.drops = 0
        self.lease = SessionLease(self.loop, self.clock, self.questions.append, self._drop)  # type: ignore[arg-type]

    def _drop(self) -> None:
        self.drops += 1


@pytest.fixture
def server() -> Server:
    return Server()


def test_there_is_no_lease_before_a_session(server: Server) -> None:
    assert server.lease.expires_ms == -math.inf


def test_the_handshake_counts_from_when_it_was_sent(server: Server) -> None:
    server.clock.advance(500)
    server.lease.begin(sent_ms=200, timeout_ms=TIMEOUT_MS)
    assert server.lease.expires_ms == 200 + TIMEOUT_MS


def test_an_answer_extends_from_when_the_question_was_sent(server: Server) -> None:
    server.lease.begin(0, TIMEOUT_MS)
    server.questions.pop()()
    server.loop.pass_time(2_000)
    question = server.questions.pop()
    server.loop.pass_time(1_500)
    assert server.lease.expires_ms == TIMEOUT_MS
    question()
    assert server.lease.expires_ms == 2_000 + TIMEOUT_MS


def test_a_process_that_stood_still_finds_it_expired(server: Server) -> None:
    server.lease.begin(0, TIMEOUT_MS)
    server.questions.pop()()
    server.clock.advance(TIMEOUT_MS + 1)
    assert server.lease.expires_ms < server.clock.monotonic_ms()
    server.loop.scheduler.run_due()
    assert server.lease.expires_ms < server.clock.monotonic_ms()


def test_silence_drops_the_connection_with_a_third_left(server: Server) -> None:
    server.lease.begin(0, TIMEOUT_MS)
    server.loop.pass_time(2_000)
    assert server.drops == 0
    server.loop.pass_time(2_000)
    assert server.drops == 1
    assert len(server.questions) == 1
    assert server.clock.monotonic_ms() <= server.lease.expires_ms - TIMEOUT_MS / 3


def test_without_a_connection_nothing_is_asked_and_the_lease_runs_out(server: Server) -> None:
    server.lease.begin(0, TIMEOUT_MS)
    server.lease.pause()
    server.questions.clear()
    server.loop.pass_time(10_000)
    assert server.questions == []
    assert server.drops == 0
    assert server.lease.expires_ms == TIMEOUT_MS


def test_a_new_connection_asks_again(server: Server) -> None:
    server.lease.begin(0, TIMEOUT_MS)
    server.lease.pause()
    server.loop.pass_time(3_000)
    server.lease.begin(3_000, TIMEOUT_MS)
    assert len(server.questions) == 2
    server.questions.pop()()
    assert server.lease.expires_ms == 3_000 + TIMEOUT_MS


def test_a_session_that_ended_has_no_lease(server: Server) -> None:
    server.lease.begin(0, TIMEOUT_MS)
    server.lease.end()
    assert server.lease.expires_ms == -math.inf
