"""Bulk reads and writes under the guard of a term."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from barnabas.cluster.coordination.contract import (
    OPERATION_RETRY_MS,
    Check,
    ConnectionLoss,
    Operation,
    Result,
    SessionExpired,
)
from barnabas.cluster.coordination.store_retry import StoreRetry
from barnabas.cluster.embedded.session import EmbeddedSession, EmbeddedStore
from barnabas.cluster.stores.registration import make_persistent_paths
from barnabas.cluster.stores.topics import create_topic
from barnabas.cluster.znodes.layout import PartitionState, ReplicaAssignment, TopicZnode
from barnabas.controller.state import store as module
from barnabas.controller.state.store import ControllerStore
from barnabas.core.errors import StaleControllerEpoch, UnknownTopicOrPartition
from barnabas.core.files import RealFiles
from barnabas.core.ids import TopicPartition, Uuid
from barnabas.core.scheduler import InlineBackground
from tests.support.embedded_sessions import resume_session, suspend_session
from tests.support.manual_time import ManualClock, ManualScheduler
from tests.unit.controller.scripted_cluster import set_partition_state

COUNT = 7
PARTITIONS = [TopicPartition("t", number) for number in range(COUNT)]
FIRST = PartitionState(1, 0, (1, 2), 1)
TOPIC_ID = Uuid(bytes(range(16)))


class Fixture:
    def __init__(self, embedded: EmbeddedStore, clock: ManualClock) -> None:
        self.clock = clock
        self.scheduler = ManualScheduler(clock)
        self.znodes: EmbeddedSession = embedded.connect()
        self.other: EmbeddedSession = embedded.connect()
        self.transactions: list[int] = []
        self.multi = self.znodes.multi

    async def start(self, monkeypatch: pytest.MonkeyPatch) -> None:
        await make_persistent_paths(self.other)
        await self.other.create("/controller_epoch", b"1")
        await create_topic(self.other, "t", TOPIC_ID, dict.fromkeys(range(COUNT), (1, 2)), {})
        monkeypatch.setattr(self.znodes, "multi", self._count)
        self.store = ControllerStore(
            self.znodes, StoreRetry(self.znodes, self.scheduler), [Check("/controller_epoch", 0)]
        )

    async def _count(self, operations: Sequence[Operation]) -> list[Result]:
        self.transactions.append(len(operations))
        return await self.multi(operations)

    async def make_states(self) -> dict[TopicPartition, PartitionState]:
        return (await self.store.create_states(dict.fromkeys(PARTITIONS, FIRST))).done


@pytest.fixture
async def fixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Fixture]:
    clock = ManualClock()
    embedded = EmbeddedStore.open(RealFiles(), str(tmp_path), clock, InlineBackground())
    fixture = Fixture(embedded, clock)
    await fixture.start(monkeypatch)
    yield fixture
    await embedded.close()


async def test_states_are_created_with_the_nodes_above_them(fixture: Fixture) -> None:
    assert await fixture.make_states() == dict.fromkeys(PARTITIONS, FIRST)
    assert await fixture.store.read_states(PARTITIONS) == dict.fromkeys(PARTITIONS, FIRST)


async def test_states_that_exist_are_not_created(fixture: Fixture) -> None:
    await fixture.store.create_states({PARTITIONS[2]: FIRST._replace(leader=2)})
    await fixture.other.create("/brokers/topics/t/partitions/3")
    written = await fixture.store.create_states(dict.fromkeys(PARTITIONS, FIRST))
    assert written.stale == [PARTITIONS[2]]
    assert set(written.done) == set(PARTITIONS) - {PARTITIONS[2]}
    assert (await fixture.store.read_states(PARTITIONS))[PARTITIONS[2]].leader == 2


async def test_states_of_a_topic_that_is_gone_are_not_created(fixture: Fixture) -> None:
    gone = TopicPartition("gone", 0)
    written = await fixture.store.create_states({gone: FIRST, PARTITIONS[0]: FIRST})
    assert (written.stale, set(written.done)) == ([gone], {PARTITIONS[0]})


async def test_states_are_replaced_on_condition_of_their_version(fixture: Fixture) -> None:
    states = await fixture.make_states()
    await set_partition_state(fixture.other, "t", 3, states[PARTITIONS[3]]._replace(isr=(1,)))
    wanted = {each: state._replace(leader=2, leader_epoch=1) for each, state in states.items()}
    fixture.transactions.clear()
    written = await fixture.store.update_states(wanted)
    assert written.stale == [PARTITIONS[3]]
    assert len(fixture.transactions) == 2, "the rest goes in one more transaction"
    found = await fixture.store.read_states(PARTITIONS)
    assert {each: found[each] for each in written.done} == written.done
    assert found[PARTITIONS[3]].isr == (1,)


async def test_transactions_are_bounded(fixture: Fixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "OPERATIONS_PER_TRANSACTION_MAX", 3)
    states = await fixture.make_states()
    written = await fixture.store.update_states({p: s._replace(leader=2) for p, s in states.items()})
    assert len(written.done) == COUNT
    await fixture.store.delete_topic("t")
    assert max(fixture.transactions) == 3 + 1, "three operations and the guard"
    assert await fixture.other.exists(TopicZnode.path("t")) is None
    monkeypatch.setattr(module, "BYTES_PER_TRANSACTION_MAX", 1)
    fixture.transactions.clear()
    await fixture.store.delete_all(["/a", "/b"])
    assert len(fixture.transactions) == 2


async def test_nothing_is_written_after_another_controller_was_elected(fixture: Fixture) -> None:
    states = await fixture.make_states()
    await fixture.other.set("/controller_epoch", b"2")
    with pytest.raises(StaleControllerEpoch):
        await fixture.store.update_states({p: s._replace(leader=2) for p, s in states.items()})
    with pytest.raises(StaleControllerEpoch):
        await fixture.store.create_states({TopicPartition("t", 99): FIRST})
    with pytest.raises(StaleControllerEpoch):
        await fixture.store.delete_all(["/brokers/topics/t"])
    with pytest.raises(StaleControllerEpoch):
        await fixture.store.set_assignments("t", None, lambda _: {})
    assert await fixture.store.read_states(PARTITIONS) == states


async def test_an_assignment_is_changed_as_it_stands(fixture: Fixture) -> None:
    def change(now: object) -> dict[int, ReplicaAssignment]:
        return {**now, 0: ReplicaAssignment((9,))}  # type: ignore[dict-item]

    info = await fixture.store.set_assignments("t", None, change)
    assert info.topic_id == TOPIC_ID
    assert info.assignment[0].replicas == (9,)
    assert info.assignment[1].replicas == (1, 2)
    with pytest.raises(UnknownTopicOrPartition):
        await fixture.store.set_assignments("nothing", None, change)


@pytest.mark.parametrize("took_effect", [True, False])
async def test_a_write_whose_answer_was_lost_is_repeated_and_recognised(
    fixture: Fixture, monkeypatch: pytest.MonkeyPatch, took_effect: bool
) -> None:
    states = await fixture.make_states()
    lost: list[int] = []

    async def lose(operations: Sequence[Operation]) -> list[Result]:
        if not lost:
            lost.append(1)
            if took_effect:
                await fixture.multi(operations)
            raise ConnectionLoss
        return await fixture.multi(operations)

    monkeypatch.setattr(fixture.znodes, "multi", lose)
    wanted = {each: state._replace(leader=2, leader_epoch=1) for each, state in states.items()}
    writing = asyncio.ensure_future(fixture.store.update_states(wanted))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not writing.done()
    fixture.clock.advance(OPERATION_RETRY_MS)
    fixture.scheduler.run_due()
    written = await writing
    assert set(written.done) == set(PARTITIONS)
    assert written.done == await fixture.store.read_states(PARTITIONS)
    assert all(state.state_version == 1 for state in written.done.values())


async def test_reading_waits_for_a_store_that_is_away(fixture: Fixture) -> None:
    states = await fixture.make_states()
    suspend_session(fixture.znodes)
    reading = asyncio.ensure_future(fixture.store.read_states(PARTITIONS))
    await asyncio.sleep(0)
    assert not reading.done()
    resume_session(fixture.znodes)
    assert await reading == states


async def test_the_end_of_the_session_ends_the_waiting(fixture: Fixture) -> None:
    suspend_session(fixture.znodes)
    reading = asyncio.ensure_future(fixture.store.children("/brokers"))
    await asyncio.sleep(0)
    fixture.znodes.lose()
    with pytest.raises(SessionExpired):
        await reading


async def test_what_another_program_spoilt_is_left_out(fixture: Fixture) -> None:
    await fixture.make_states()
    await fixture.other.set("/brokers/topics/t/partitions/1/state", b"{}")
    assert set(await fixture.store.read_states(PARTITIONS)) == set(PARTITIONS) - {PARTITIONS[1]}


@pytest.mark.parametrize("path", ["/config/topics/t/x/y", "/admin/delete_topics/t/x"])
async def test_a_topic_is_deleted_with_foreign_nodes_below_its_nodes(fixture: Fixture, path: str) -> None:
    await fixture.other.create(path, make_parents=True)
    async with asyncio.timeout(5):
        await fixture.store.delete_topic("t")
    for gone in ("/brokers/topics/t", "/config/topics/t", "/admin/delete_topics/t"):
        assert await fixture.other.exists(gone) is None
