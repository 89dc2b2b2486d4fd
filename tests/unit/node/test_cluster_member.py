"""Under which epoch a broker is present, session after session."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import pytest
from tests.support.embedded_sessions import expire_session, renew_session
from tests.support.manual_time import ManualClock, ManualScheduler
from tests.unit.cluster.simulated_disk import STORE, SimulatedDisk

from barnabas.cluster.embedded.session import EmbeddedSession, EmbeddedStore
from barnabas.cluster.metadata.cache import MetadataCache
from barnabas.cluster.stores.config_store import ZnodeConfigStore
from barnabas.cluster.stores.registration import make_persistent_paths
from barnabas.cluster.znodes.brokers import BrokerIdZnode, BrokerInfo
from barnabas.config.broker_config import BrokerConfig
from barnabas.config.dynamic.repository import ConfigRepository
from barnabas.core.addressing.endpoints import Endpoint, ListenerEndpoint
from barnabas.core.ids import BrokerId
from barnabas.core.reporting.metrics import Metrics
from barnabas.core.scheduler import InlineBackground
from barnabas.node.membership.cluster_member import ClusterMember

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
        ConfigRepository(ZnodeConfigStore(znodes), ME, BrokerConfig.load({})),
        MetadataCache("cluster"),
        clock=clock,
        scheduler=scheduler,
        randomness=random.Random(1),
        metrics=Metrics(),
    )
    yield made
    await made.close()


async def test_an_epoch_counts_only_in_the_session_that_registered_it(
    member: ClusterMember, znodes: EmbeddedSession
) -> None:
    assert member.registration.registered_epoch() is None
    first = await member.registration.register(BROKER)
    assert member.registration.registered_epoch() == first
    await expire_session(znodes)
    heard: list[int | None] = []
    znodes.add_listener(lambda _: heard.append(member.registration.registered_epoch()))
    renew_session(znodes)
    assert heard == [None], "the new session has a lease at once, and registers later"
    await member.registration._returns.finished()
    _, stat = await znodes.get(BrokerIdZnode.path(1))
    assert member.registration.registered_epoch() == stat.czxid > first
    await member.registration.unregister()
    assert member.registration.registered_epoch() is None


async def lose_a_session_at_once(znodes: EmbeddedSession) -> None:
    """One that was the broker's only for a moment: it goes on trying to register."""
    await expire_session(znodes)
    renew_session(znodes)
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
    await member.registration.register(BROKER)
    await lose_a_session_at_once(znodes)
    await member.registration.unregister()
    renew_session(znodes)
    await let_it_try_again(clock, scheduler)
    assert await znodes.exists(BrokerIdZnode.path(1)) is None
    assert member.registration.registered_epoch() is None


async def test_a_broker_returns_once_in_each_session(
    member: ClusterMember,
    znodes: EmbeddedSession,
    clock: ManualClock,
    scheduler: ManualScheduler,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await member.registration.register(BROKER)
    renewals: list[int] = []
    monkeypatch.setattr(member.controller, "session_renewed", lambda: renewals.append(znodes.session_id))
    await lose_a_session_at_once(znodes)
    renew_session(znodes)
    await let_it_try_again(clock, scheduler)
    assert renewals == [znodes.session_id]
    stat = await znodes.exists(BrokerIdZnode.path(1))
    assert stat is not None
    assert (stat.ephemeral_owner, stat.czxid) == (znodes.session_id, member.registration.registered_epoch())
