from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import pytest
from tests.support.embedded_sessions import expire_session, renew_session
from tests.support.manual_time import ManualClock, ManualScheduler

from barnabas.cluster.coordination.contract import ConnectionLoss, Operation, Result
from barnabas.cluster.embedded.session import EmbeddedSession, EmbeddedStore
from barnabas.cluster.stores.registration import (
    Registration,
    generate_broker_id,
    get_or_create_cluster_id,
    make_persistent_paths,
)
from barnabas.cluster.znodes.brokers import BrokerIdZnode, BrokerInfo
from barnabas.cluster.znodes.layout import PERSISTENT_PATHS
from barnabas.core.addressing.endpoints import Endpoint, ListenerEndpoint
from barnabas.core.errors import DuplicateBrokerRegistration
from barnabas.core.ids import Uuid

BROKER = BrokerInfo(1, (ListenerEndpoint("PLAINTEXT", Endpoint("localhost", 9092)),))


@pytest.fixture
def scheduler(clock: ManualClock) -> ManualScheduler:
    return ManualScheduler(clock)


@pytest.fixture
async def registration(
    znodes: EmbeddedSession, clock: ManualClock, scheduler: ManualScheduler
) -> Registration:
    await make_persistent_paths(znodes)
    return Registration(znodes, clock, scheduler)


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_persistent_paths_are_made_once(znodes: EmbeddedSession) -> None:
    await make_persistent_paths(znodes)
    await make_persistent_paths(znodes)
    for path in PERSISTENT_PATHS:
        assert await znodes.exists(path) is not None


async def test_the_cluster_id_is_made_once_and_then_read(store: EmbeddedStore) -> None:
    made = await get_or_create_cluster_id(store.connect(), random.Random(1), None)
    assert len(made) == 22
    assert str(Uuid.parse(made)) == made
    assert await get_or_create_cluster_id(store.connect(), random.Random(2), None) == made


async def test_racing_brokers_agree_on_the_cluster_id(store: EmbeddedStore) -> None:
    found = await asyncio.gather(
        *(get_or_create_cluster_id(store.connect(), random.Random(seed), None) for seed in range(5))
    )
    assert len(set(found)) == 1


async def test_generated_broker_ids_follow_the_reserved_ones(znodes: EmbeddedSession) -> None:
    assert await generate_broker_id(znodes, 1000) == 1001
    assert await generate_broker_id(znodes, 1000) == 1002


async def test_a_broker_is_present_with_an_epoch(
    registration: Registration, znodes: EmbeddedSession, clock: ManualClock
) -> None:
    registered = await registration.register(BROKER)
    data, stat = await znodes.get("/brokers/ids/1")
    assert registered.epoch == stat.czxid > 0
    assert stat.ephemeral_owner == znodes.session_id
    found = BrokerIdZnode.decode(1, data, stat.czxid)
    assert found.endpoints == BROKER.endpoints
    assert found.timestamp_ms == clock.now_ms()
    await registration.unregister(1)
    assert await znodes.exists("/brokers/ids/1") is None


async def test_each_registration_has_a_higher_epoch(registration: Registration) -> None:
    first = await registration.register(BROKER)
    await registration.unregister(1)
    second = await registration.register(BROKER)
    assert second.epoch > first.epoch


class LosingReplies:
    """Passes everything on, but the answers to the first few transactions do not come back."""

    def __init__(self, session: EmbeddedSession, losses: int) -> None:
        self._session = session
        self.losses = losses

    def __getattr__(self, name: str) -> object:
        return getattr(self._session, name)

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        results = await self._session.multi(operations)
        if self.losses:
            self.losses -= 1
            raise ConnectionLoss
        return results


async def test_a_lost_reply_does_not_wedge_the_registration(
    znodes: EmbeddedSession, clock: ManualClock, scheduler: ManualScheduler
) -> None:
    await make_persistent_paths(znodes)
    lossy = LosingReplies(znodes, losses=1)
    registration = Registration(lossy, clock, scheduler)  # type: ignore[arg-type]
    task = asyncio.create_task(registration.register(BROKER))
    await settle()
    assert not task.done()
    clock.advance(ms=100)
    scheduler.run_due()
    registered = await task
    _, stat = await znodes.get("/brokers/ids/1")
    assert (registered.epoch, stat.ephemeral_owner) == (stat.czxid, znodes.session_id)


async def test_a_session_that_is_lost_on_the_way_is_followed_by_another(
    registration: Registration, znodes: EmbeddedSession, clock: ManualClock, scheduler: ManualScheduler
) -> None:
    """Logs are opened between the session's beginning and the registration, which may take longer."""
    await make_persistent_paths(znodes)
    znodes.lose()
    task = asyncio.create_task(registration.register(BROKER))
    for _ in range(100):
        await settle()
        clock.advance(ms=1_000)
        scheduler.run_due()
    assert not task.done()
    renew_session(znodes)
    await settle()
    clock.advance(ms=100)
    scheduler.run_due()
    registered = await task
    _, stat = await znodes.get("/brokers/ids/1")
    assert (registered.epoch, stat.ephemeral_owner) == (stat.czxid, znodes.session_id)


async def test_a_previous_session_is_waited_for_again_when_the_store_was_away(
    registration: Registration,
    store: EmbeddedStore,
    znodes: EmbeddedSession,
    clock: ManualClock,
    scheduler: ManualScheduler,
) -> None:
    former = store.connect()
    await former.create("/brokers/ids/1", b"{}", ephemeral=True)
    znodes.lose()
    task = asyncio.create_task(registration.register(BROKER))
    await settle()
    clock.advance(ms=100 * znodes.session_timeout_ms)
    renew_session(znodes)
    scheduler.run_due()
    await settle()
    assert not task.done()
    await expire_session(former)
    assert (await task).epoch > 0


async def test_the_node_of_an_earlier_session_of_this_broker_is_replaced(
    registration: Registration, znodes: EmbeddedSession
) -> None:
    """The store has not noticed yet that the previous session ended."""
    first = await registration.register(BROKER)
    znodes.lose()
    renew_session(znodes)
    second = await registration.register(BROKER)
    _, stat = await znodes.get("/brokers/ids/1")
    assert stat.ephemeral_owner == znodes.session_id
    assert second.epoch == stat.czxid > first.epoch


async def test_the_node_of_a_killed_process_is_waited_for(
    registration: Registration, store: EmbeddedStore
) -> None:
    former = store.connect()
    await former.create("/brokers/ids/1", b"{}", ephemeral=True)
    task = asyncio.create_task(registration.register(BROKER))
    await settle()
    assert not task.done()
    await expire_session(former)
    assert (await task).epoch > 0


async def test_a_live_broker_with_the_same_id_keeps_it(
    registration: Registration,
    store: EmbeddedStore,
    znodes: EmbeddedSession,
    clock: ManualClock,
    scheduler: ManualScheduler,
) -> None:
    other = store.connect()
    await other.create("/brokers/ids/1", b"{}", ephemeral=True)
    task = asyncio.create_task(registration.register(BROKER))
    await settle()
    clock.advance(ms=znodes.session_timeout_ms * 1.5 + 1)
    scheduler.run_due()
    with pytest.raises(DuplicateBrokerRegistration):
        await task
    stat = await znodes.exists("/brokers/ids/1")
    assert stat is not None
    assert stat.ephemeral_owner == other.session_id


class LosingSessions:
    """A session that is replaced by another just before the response to the registration arrives."""

    def __init__(self, session: EmbeddedSession) -> None:
        self._session = session
        self._is_lost = False

    def __getattr__(self, name: str) -> object:
        return getattr(self._session, name)

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        results = await self._session.multi(operations)
        if not self._is_lost:
            self._is_lost = True
            self._session.lose()
            renew_session(self._session)
        return results


async def test_a_registration_of_a_session_that_is_gone_is_made_again(
    znodes: EmbeddedSession, clock: ManualClock, scheduler: ManualScheduler
) -> None:
    """Its epoch would be taken for one of the session that came after it."""
    await make_persistent_paths(znodes)
    registration = Registration(LosingSessions(znodes), clock, scheduler)  # type: ignore[arg-type]
    registered = await asyncio.wait_for(registration.register(BROKER), 5)
    _, stat = await znodes.get("/brokers/ids/1")
    assert (registered.epoch, stat.ephemeral_owner) == (stat.czxid, znodes.session_id)


async def test_a_registration_whose_answer_was_lost_is_not_made_again(
    znodes: EmbeddedSession, clock: ManualClock, scheduler: ManualScheduler
) -> None:
    """The controller has seen it by then: another epoch would be a broker that was gone in between."""
    await make_persistent_paths(znodes)
    registration = Registration(LosingReplies(znodes, losses=1), clock, scheduler)  # type: ignore[arg-type]
    task = asyncio.create_task(registration.register(BROKER))
    await settle()
    _, first = await znodes.get("/brokers/ids/1")
    clock.advance(ms=100)
    scheduler.run_due()
    assert (await task).epoch == first.czxid


async def test_the_presence_of_another_session_is_left_to_it(
    registration: Registration, store: EmbeddedStore, znodes: EmbeddedSession
) -> None:
    other = store.connect()
    await other.create("/brokers/ids/1", b"{}", ephemeral=True)
    await registration.unregister(1)
    assert await znodes.exists("/brokers/ids/1") is not None
