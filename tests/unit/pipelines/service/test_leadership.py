"""Leadership of a pipeline service: its end."""

from __future__ import annotations

import logging

import pytest
from tests.support.manual_time import ManualClock

from barnabas.core.errors import RequestTimedOut
from barnabas.pipelines.service.leadership import Leadership


class AwayStore:
    """A store whose brokers have gone since the claim."""

    service_id = "one"

    async def claim(self, worker_id: str) -> None: ...

    async def heartbeat(self) -> None: ...

    async def release(self) -> None:
        raise RequestTimedOut("a record was not acknowledged")


async def test_a_service_stops_without_its_brokers(caplog: pytest.LogCaptureFixture) -> None:
    leadership = Leadership(AwayStore(), "127.0.0.1:8083", ManualClock())
    await leadership.open()
    assert leadership.is_leader
    with caplog.at_level(logging.WARNING):
        await leadership.close()
    (line,) = caplog.messages
    assert line.startswith("the claim on the pipelines stays, until 20 s after the last heartbeat")
