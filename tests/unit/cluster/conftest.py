from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.support.manual_time import ManualClock
from tests.unit.cluster.simulated_disk import STORE, SimulatedDisk

from barnabas.cluster.embedded.session import EmbeddedSession, EmbeddedStore
from barnabas.core.scheduler import InlineBackground


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def store(clock: ManualClock) -> AsyncIterator[EmbeddedStore]:
    opened = EmbeddedStore.open(SimulatedDisk(), STORE, clock, InlineBackground())
    yield opened
    await opened.close()


@pytest.fixture
def znodes(store: EmbeddedStore) -> EmbeddedSession:
    return store.connect()
