"""Messages of a broker that does not start."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from barnabas.cluster.coordination.contract import ConnectionLoss, SessionExpired
from barnabas.node.main import StartupFailed, serve_broker


class Failing:
    """A broker whose start ends so."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def startup(self) -> None:
        raise self._error

    async def shutdown(self) -> None: ...


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            ConnectionLoss("/consumers"),
            "lost the connection to the coordination store while the broker started",
        ),
        (SessionExpired(), "lost the connection to the coordination store while the broker started"),
        (ConnectionLoss("no ZooKeeper answers at zk:2181"), "no ZooKeeper answers at zk:2181"),
        (OSError(), "OSError()"),
    ],
)
async def test_a_start_that_fails_says_why(error: Exception, said: str) -> None:
    broker: Any = Failing(error)
    with pytest.raises(StartupFailed) as failure:
        await serve_broker(broker, asyncio.Event())
    assert str(failure.value) == said
