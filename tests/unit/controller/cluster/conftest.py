from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.unit.controller.cluster.support import Cluster


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    """Three brokers, of which the first is the controller."""
    async with AsyncExitStack() as stack:
        cluster = Cluster(tmp_path / "store", stack)
        await cluster.start(1, 2, 3)
        yield cluster
