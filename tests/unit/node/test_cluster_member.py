"""Under which epoch a broker is present, session after session."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import pytest
from tests.unit.cluster.simulated_disk import STORE, SimulatedDisk

from barnabas.cluster.broker_znodes import BrokerIdZnode, BrokerInfo
from barnabas.cluster.config_store import ZnodeConfigStore
from barnabas.cluster.embedded import EmbeddedSession, EmbeddedStore
from barnabas.cluster.metadata_cache import MetadataCache
from barnabas.cluster.registration import make_persistent_paths
from barnabas.config.broker_config import BrokerConfig
from barnabas.config.repository import ConfigRepository
from barnabas.core.clock import ManualClock
from barnabas.core.endpoints import Endpoint, ListenerEndpoint
from barnabas.core.ids import BrokerId
from barnabas.core.metrics import Metrics
from barnabas.core.scheduler import InlineBackground, ManualScheduler
from barnabas.node.cluster_member import ClusterMember
from barnabas.node.runtime import LoopRunner

ME = BrokerId(1)
BROKER = BrokerInfo(1, (ListenerEndpoint("PLAINTEXT", Endpoint("localhost", 9092)),))


@pytest.fixture
async def znodes() -> AsyncIterator[EmbeddedSession]:
    store = EmbeddedStore.open(SimulatedDisk(), STORE, ManualClock(), InlineBackground())
    session = store.connect()
    await make_persistent_paths(session)
    yield session
    await store.close()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def scheduler(clock: ManualClock) -> ManualScheduler:
    return ManualScheduler(clock)


@pytest.fixture
async def member(
    znodes: EmbeddedSession, clock: ManualClock, scheduler: ManualScheduler
) -> AsyncIterator[ClusterMember]:
    made = ClusterMember(
        ME,
        BrokerConfig.load({}),
        znodes,
        ConfigRepository(ZnodeConfigStore(znodes), ME, BrokerConfig.load({}), LoopRunner()),
        MetadataCache("cluster"),
        clock=clock,
        scheduler=scheduler,
        runner=LoopRunner(),
        randomness=random.Random(1),
        metrics=Metrics(),
    )
    yield made
    await made.close()


async def test_an_epoch_counts_only_in_the_session_that_registered_it(
    member: ClusterMember, znodes: EmbeddedSession
) -> None:
    assert member.registered_epoch() is None
    first = await member.register(BROKER)
    assert member.registered_epoch() == first
    await znodes.expire()
    heard: list[int | None] = []
    znodes.add_listener(lambda _: heard.append(member.registered_epoch()))
    znodes.renew()
    assert heard == [None], "the new session has a lease at once, and registers later"
    await member._returns.finished()
    _, stat = await znodes.get(BrokerIdZnode.path(1))
    assert member.registered_epoch() == stat.czxid > first
    await member.unregister()
    assert member.registered_epoch() is None


async def lose_a_session_at_once(znodes: EmbeddedSession) -> None:
    """One that was the broker's only for a moment: it goes on trying to register."""
    await znodes.expire()
    znodes.renew()
    znodes.lose()
    await turns()


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def let_it_try_again(clock: ManualClock, scheduler: ManualScheduler) -> None:
    clock.advance(ms=1_000)
    scheduler.run_due()
    await turns()


async def test_a_broker_that_leaves_does_not_come_back_in_the_next_session(
    member: ClusterMember, znodes: EmbeddedSession, clock: ManualClock, scheduler: ManualScheduler
) -> None:
    await member.register(BROKER)
    await lose_a_session_at_once(znodes)
    await member.unregister()
    znodes.renew()
    await let_it_try_again(clock, scheduler)
    assert await znodes.exists(BrokerIdZnode.path(1)) is None
    assert member.registered_epoch() is None


async def test_a_broker_returns_once_in_each_session(
    member: ClusterMember,
    znodes: EmbeddedSession,
    clock: ManualClock,
    scheduler: ManualScheduler,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await member.register(BROKER)
    renewals: list[int] = []
    monkeypatch.setattr(member.controller, "session_renewed", lambda: renewals.append(znodes.session_id))
    await lose_a_session_at_once(znodes)
    znodes.renew()
    await let_it_try_again(clock, scheduler)
    assert renewals == [znodes.session_id]
    stat = await znodes.exists(BrokerIdZnode.path(1))
    assert stat is not None
    assert (stat.ephemeral_owner, stat.czxid) == (znodes.session_id, member.registered_epoch())
