"""Real settings, rules and topics on a real embedded store; fake replicas and disks."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from barnabas.core.clock import ManualClock
from tests.unit.controller.support import Admin


@pytest.fixture
async def admin(tmp_path: Path) -> AsyncIterator[Admin]:
    async with AsyncExitStack() as stack:
        admin = Admin(tmp_path, stack)
        await admin.start()
        yield admin


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def randomness() -> random.Random:
    return random.Random(7)
