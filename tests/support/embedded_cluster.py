"""Brokers of a cluster in the test's own process, on one embedded store instead of a ZooKeeper.

    async with shared_store(tmp_path, monkeypatch) as store:
        broker = cluster_broker(tmp_path / "1", broker_id=1)

Each broker has a session of its own, which ends with it. So what a member of a cluster does at its start
and its end can be watched step by step, and no JVM is needed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import barnabas.node.broker as wiring
from barnabas.cluster.coordination.contract import Coordination
from barnabas.cluster.embedded.session import EmbeddedStore
from barnabas.core.clock import SystemClock
from barnabas.core.files import RealFiles
from barnabas.core.scheduler import InlineBackground
from tests.support.in_process import InProcessBroker


@asynccontextmanager
async def shared_store(path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[EmbeddedStore]:
    directory = path / "store"
    directory.mkdir(parents=True)
    store = EmbeddedStore.open(RealFiles(), str(directory), SystemClock(), InlineBackground())

    @asynccontextmanager
    async def open_session(*_: object) -> AsyncIterator[Coordination]:
        session = store.connect()
        try:
            yield session
        finally:
            await session.close()
            await store.end_session(session.session_id)

    monkeypatch.setattr(wiring, "open_coordination", open_session)
    try:
        yield store
    finally:
        await store.close()


def cluster_broker(path: Path, broker_id: int, **settings: Any) -> InProcessBroker:
    return InProcessBroker([path], broker_id=broker_id, zookeeper_connect="the-store-of-the-test", **settings)
