"""Under which epoch a broker is present, session after session."""

from __future__ import annotations

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
async def member(znodes: EmbeddedSession) -> AsyncIterator[ClusterMember]:
    clock = ManualClock()
    made = ClusterMember(
        ME,
        BrokerConfig.load({}),
        znodes,
        ConfigRepository(ZnodeConfigStore(znodes), ME, BrokerConfig.load({}), LoopRunner()),
        MetadataCache("cluster"),
        clock=clock,
        scheduler=ManualScheduler(clock),
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
    await member._tasks.finished()
    _, stat = await znodes.get(BrokerIdZnode.path(1))
    assert member.registered_epoch() == stat.czxid > first
    await member.unregister()
    assert member.registered_epoch() is None
