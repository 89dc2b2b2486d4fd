"""What is said of a broker that does not start."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.cluster.coordination import ConnectionLoss, SessionExpired
from barnabas.node.main import StartupFailed, serve_broker


@pytest.fixture(autouse=True)
def _collector_as_before() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


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
        (ConnectionLoss("/consumers"), "the coordination store went out of reach while the broker started"),
        (SessionExpired(), "the coordination store went out of reach while the broker started"),
        (ConnectionLoss("no ZooKeeper answers at zk:2181"), "no ZooKeeper answers at zk:2181"),
        (OSError(), "OSError()"),
    ],
)
async def test_a_start_that_fails_says_why(error: Exception, said: str) -> None:
    broker: Any = Failing(error)
    with pytest.raises(StartupFailed) as failure:
        await serve_broker(broker, asyncio.Event())
    assert str(failure.value) == said
