"""The administrative handlers over a real store and fake replicas."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.unit.handlers.support import Broker


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with AsyncExitStack() as stack:
        broker = Broker(tmp_path, stack)
        await broker.start()
        await broker.load()
        yield broker
