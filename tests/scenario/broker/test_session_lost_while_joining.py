"""A session that ends while a broker joins its cluster delays the start, and does not end it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from barnabas.administration.config_notifications import ConfigNotifications
from barnabas.cluster.embedded.session import EmbeddedStore
from barnabas.controller.controller import KafkaController
from barnabas.core.errors import NotController
from barnabas.node.lifecycle import BrokerState
from tests.support.embedded_cluster import cluster_broker, shared_store
from tests.support.embedded_sessions import expire_session, renew_session


def losing_the_session(
    monkeypatch: pytest.MonkeyPatch, store: EmbeddedStore, owner: type, name: str
) -> list[str]:
    """Before the first call of `owner.name` goes on, the session ends and another one follows."""
    original: Callable[..., Awaitable[Any]] = getattr(owner, name)
    lost: list[str] = []

    async def lose_first(self: Any, *arguments: Any) -> Any:
        if not lost:
            lost.append(name)
            session = store._sessions[-1]
            await expire_session(session)
            asyncio.get_running_loop().call_later(0.02, renew_session, session)
        return await original(self, *arguments)

    monkeypatch.setattr(owner, name, lose_first)
    return lost


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (ConfigNotifications, "_process"),
        (KafkaController, "start"),
        (KafkaController, "_elect"),
        (KafkaController, "_become_controller"),
        (KafkaController, "_begin_term"),
        (KafkaController, "until_told"),
    ],
)
@pytest.mark.parametrize("brokers", [1, 2])
async def test_a_session_lost_while_joining_delays_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, brokers: int
) -> None:
    async with shared_store(tmp_path, monkeypatch) as store, asyncio.timeout(60):
        started = []
        for broker_id in range(1, brokers):
            started.append(cluster_broker(tmp_path / str(broker_id), broker_id))
            await started[-1].start()
        with monkeypatch.context() as losing:
            lost = losing_the_session(losing, store, owner, name)
            last = cluster_broker(tmp_path / "last", brokers)
            await last.start()
        assert lost or name in ("_become_controller", "_begin_term")
        assert last.broker.lifecycle.state is BrokerState.RUNNING
        controller = (*started, last)[0]
        while await controller.create_topic("topic") == NotController.code:  # noqa: ASYNC110
            await asyncio.sleep(0.02)  # its own election may be under way
        assert (await controller.metadata("topic")).error_code == 0
        for broker in (last, *started):
            await broker.stop()
