"""Real settings, rules and topics on a real embedded store; fake replicas and disks."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.support.manual_time import ManualClock
from tests.unit.controller.scripted_cluster import Cluster
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


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    """Three brokers, of which the first is the controller."""
    async with AsyncExitStack() as stack:
        cluster = Cluster(tmp_path / "store", stack)
        await cluster.start(1, 2, 3)
        yield cluster
