"""A broker that is stopped while it starts: at every step it ends, releases everything, and can be started
again."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

import barnabas.node.broker as wiring
from barnabas.administration.config_notifications import ConfigNotifications
from barnabas.administration.disk_import import DiskImport
from barnabas.cluster.stores.registration import Registration
from barnabas.config.broker_config import BrokerConfig
from barnabas.config.dynamic.repository import ConfigRepository
from barnabas.controller.controller import KafkaController
from barnabas.controller.term import Term
from barnabas.network.server import Server
from barnabas.node import coordinators
from barnabas.node.broker import Broker, StartAbandoned
from barnabas.node.lifecycle import BrokerState
from barnabas.node.main import serve_broker
from barnabas.node.membership import identity
from barnabas.node.membership.cluster_member import ClusterMember
from barnabas.storage.log_manager import LogManager
from tests.support.embedded_cluster import cluster_broker, shared_store
from tests.support.in_process import InProcessBroker

MEMBER: list[tuple[object, str]] = [
    (wiring, "make_persistent_paths"),
    (identity, "get_or_create_cluster_id"),
    (ConfigRepository, "load"),
    (LogManager, "open"),
    (Server, "bind"),
    (wiring, "ReplicaManager"),
    (Registration, "register"),
    (coordinators, "make_group_coordinator"),
    (coordinators, "make_transaction_coordinator"),
    (wiring, "Dispatcher"),
    (Broker, "_metrics_page"),
    (Server, "start"),
    (ClusterMember, "join"),
    (ConfigNotifications, "start"),
    (KafkaController, "start"),
    (Term, "take_over"),
    (KafkaController, "until_told"),
    (ClusterMember, "until_introduced"),
]
ALONE: list[tuple[object, str]] = [*MEMBER, (DiskImport, "run")]


class Interruption:
    """Tells the broker to stop when a step is reached, which then goes on or, if it can, never ends."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: object, name: str, *, hangs: bool) -> None:
        self.stopping: asyncio.Task[None] | None = None
        self.broker: Broker | None = None
        original: Callable[..., Any] = getattr(owner, name)
        monkeypatch.setattr(owner, name, self._wrapped(original, hangs=hangs))

    def _wrapped(self, original: Callable[..., Any], *, hangs: bool) -> Callable[..., Any]:
        if not inspect.iscoroutinefunction(original):

            def reached(*arguments: Any, **keywords: Any) -> Any:
                self._tell()
                return original(*arguments, **keywords)

            return reached

        async def awaited(*arguments: Any, **keywords: Any) -> Any:
            if self._tell() and hangs:
                await asyncio.Event().wait()
            return await original(*arguments, **keywords)

        return awaited

    def _tell(self) -> bool:
        if self.broker is None or self.stopping is not None:
            return False
        self.stopping = asyncio.get_running_loop().create_task(self.broker.shutdown())
        return True


def steps(some: list[tuple[object, str]]) -> list[Any]:
    return [
        pytest.param(owner, name, hangs, id=f"{name}-{'hangs' if hangs else 'goes-on'}")
        for owner, name in some
        for hangs in (False, True)
        if not hangs or inspect.iscoroutinefunction(getattr(owner, name))
    ]


async def assert_stops_and_starts_again(each: InProcessBroker, interruption: Interruption) -> None:
    before = asyncio.all_tasks()
    interruption.broker = each.broker
    async with asyncio.timeout(60):
        with suppress(StartAbandoned):  # a step that is the last to wait is followed by the end of the start
            await each.broker.startup()
        assert interruption.stopping is not None
        await interruption.stopping
    assert each.broker.lifecycle.state is BrokerState.NOT_RUNNING
    assert asyncio.all_tasks() - before <= {interruption.stopping}, "nothing goes on"
    interruption.broker = None
    async with asyncio.timeout(60):
        await each.start()
        assert await each.create_topic("topic") == 0
        assert (await each.produce("topic", b"kept")).error_code == 0
        await each.stop()
    assert asyncio.all_tasks() - before <= {interruption.stopping}


@pytest.mark.parametrize(("owner", "name", "hangs"), steps(ALONE))
async def test_a_broker_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, owner: object, name: str, hangs: bool
) -> None:
    interruption = Interruption(monkeypatch, owner, name, hangs=hangs)
    await assert_stops_and_starts_again(InProcessBroker([tmp_path]), interruption)


@pytest.mark.parametrize(("owner", "name", "hangs"), steps(MEMBER))
async def test_a_member_of_a_cluster(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, owner: object, name: str, hangs: bool
) -> None:
    async with shared_store(tmp_path, monkeypatch) as store:
        interruption = Interruption(monkeypatch, owner, name, hangs=hangs)
        await assert_stops_and_starts_again(cluster_broker(tmp_path / "1", 1), interruption)
        assert not [path for path, node in store.nodes.items() if node.owner], "no presence is left"


async def test_a_second_broker_of_the_same_id_can_be_stopped_while_it_waits(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Registration waits for the end of a session that has the id; the first broker goes on."""
    async with shared_store(tmp_path, monkeypatch), AsyncExitStack() as stack:
        first = cluster_broker(tmp_path / "1", 1)
        await first.start()
        stack.push_async_callback(first.stop)
        waits = asyncio.Event()
        wait_until_gone = Registration._wait_until_gone

        async def waiting(registration: Registration, path: str, deadline_ms: float) -> None:
            waits.set()
            await wait_until_gone(registration, path, deadline_ms)

        monkeypatch.setattr(Registration, "_wait_until_gone", waiting)
        second = cluster_broker(tmp_path / "2", 1)
        starting = asyncio.create_task(second.broker.startup())
        async with asyncio.timeout(60):
            await waits.wait()
            await second.broker.shutdown()
        with pytest.raises(StartAbandoned):
            await starting
        assert await first.create_topic("topic") == 0


async def test_a_signal_ends_a_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`barnabas start` says nothing on its standard output and is gone."""
    reached = asyncio.Event()

    async def hang(*_: object) -> None:
        reached.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(ConfigRepository, "load", hang)
    properties = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path)}
    broker = Broker(BrokerConfig.load(properties))
    stopped = asyncio.Event()
    serving = asyncio.create_task(serve_broker(broker, stopped))
    await reached.wait()
    stopped.set()
    async with asyncio.timeout(60):
        await serving
    assert broker.lifecycle.state is BrokerState.NOT_RUNNING
