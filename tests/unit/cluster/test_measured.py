"""Metrics of the coordination store: latency of operations, state of the session, losses."""

from __future__ import annotations

from typing import Any, cast

import pytest
from tests.support.manual_time import ManualClock

from barnabas.cluster.coordination.contract import NoNode, SessionState
from barnabas.cluster.coordination.measured import MeasuredCoordination
from barnabas.cluster.coordination.session_status import SessionStatus
from barnabas.core.reporting.metrics import Metrics, render_prometheus


class SlowSession:
    """Every `get` takes 7 ms; there is no node."""

    def __init__(self, clock: ManualClock) -> None:
        self.status = SessionStatus(SessionState.CONNECTED)
        self.add_listener = self.status.add_listener
        self._clock = clock

    @property
    def state(self) -> SessionState:
        return self.status.state

    async def get(self, path: str, _: object) -> tuple[bytes, None]:
        self._clock.advance(ms=7)
        raise NoNode(path)


def samples(metrics: Metrics) -> dict[str, float]:
    lines = [each for each in render_prometheus(metrics).splitlines() if not each.startswith("#")]
    return {name: float(value) for name, value in (each.rsplit(" ", 1) for each in lines)}


async def test_an_operation_counts_with_its_time_also_when_it_fails() -> None:
    clock, metrics = ManualClock(), Metrics()
    session = MeasuredCoordination(cast("Any", SlowSession(clock)), clock, metrics)
    for _ in range(2):
        with pytest.raises(NoNode):
            await session.get("/nothing")
    seen = samples(metrics)
    assert seen["kafka_zookeeper_request_latency_ms_count"] == 2
    assert seen["kafka_zookeeper_request_latency_ms_sum"] == 14


def test_the_state_is_visible_and_losses_are_counted() -> None:
    clock, metrics = ManualClock(), Metrics()
    session = SlowSession(clock)
    MeasuredCoordination(cast("Any", session), clock, metrics)
    assert samples(metrics)['kafka_zookeeper_session_state{state="connected"}'] == 1
    for state in (SessionState.SUSPENDED, SessionState.CONNECTED, SessionState.SUSPENDED, SessionState.LOST):
        session.status.become(state)
    seen = samples(metrics)
    assert seen["kafka_zookeeper_disconnects_total"] == 2
    assert seen["kafka_zookeeper_expires_total"] == 1
    assert seen['kafka_zookeeper_session_state{state="lost"}'] == 1
    assert seen['kafka_zookeeper_session_state{state="connected"}'] == 0
