"""ISRs in the store, and the notifications that name them to the controller."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.manual_time import ManualClock, ManualScheduler

from barnabas.cluster.coordination.contract import BadVersion, ConnectionLoss, Coordination, NoNode, Stat
from barnabas.cluster.embedded.session import open_embedded
from barnabas.cluster.stores.isr_store import (
    CHECK_INTERVAL_MS,
    DELAY_MS_MAX,
    QUIET_MS,
    IneligibleReplica,
    Joining,
    ZnodeIsrStore,
    report_failed_log_dir,
)
from barnabas.cluster.stores.registration import Registration, make_persistent_paths
from barnabas.cluster.znodes.brokers import BrokerInfo
from barnabas.cluster.znodes.layout import PartitionState, PartitionStateZnode
from barnabas.cluster.znodes.notifications import IsrChangeZnode, LogDirEventZnode
from barnabas.core.addressing.endpoints import Endpoint, ListenerEndpoint
from barnabas.core.ids import TopicPartition
from barnabas.core.scheduler import InlineBackground
from barnabas.core.tasks import Tasks

ZERO = TopicPartition("topic", 0)
STATE = PartitionState(leader=1, leader_epoch=4, isr=(1, 2, 3), controller_epoch=9)


@pytest.fixture
async def znodes(tmp_path: Path) -> AsyncIterator[Coordination]:
    async with open_embedded(tmp_path, ManualClock(), InlineBackground()) as opened:
        await make_persistent_paths(opened)
        path = PartitionStateZnode.path(*ZERO)
        await opened.create(path, PartitionStateZnode.encode(STATE), make_parents=True)
        yield opened


class Rig:
    def __init__(self, znodes: Coordination) -> None:
        self.clock = ManualClock()
        self.scheduler = ManualScheduler(self.clock)
        self.tasks = Tasks()
        self.store = ZnodeIsrStore(znodes, self.clock, self.scheduler, self.tasks.start)
        self.znodes = znodes
        self.store.start()

    async def pass_time(self, ms: float) -> None:
        for _ in range(int(ms // CHECK_INTERVAL_MS)):
            self.clock.advance(CHECK_INTERVAL_MS)
            self.scheduler.run_due()
            await self.tasks.finished()

    async def notes(self) -> list[set[TopicPartition]]:
        names = await self.znodes.children(IsrChangeZnode.PARENT)
        found = await self.znodes.get_many([f"{IsrChangeZnode.PARENT}/{name}" for name in names])
        return [IsrChangeZnode.decode(each[0]) for each in found if each is not None]


async def test_a_write_keeps_the_controllers_epoch_and_returns_the_version(znodes: Coordination) -> None:
    rig = Rig(znodes)
    assert await rig.store.write(ZERO, STATE._replace(isr=(1, 2))) == 1
    data, stat = await znodes.get(PartitionStateZnode.path(*ZERO))
    assert PartitionStateZnode.decode(data, stat.version) == STATE._replace(isr=(1, 2), state_version=1)


async def test_a_state_of_another_writer_is_left_alone(znodes: Coordination) -> None:
    rig = Rig(znodes)
    other = STATE._replace(leader=2, leader_epoch=5)
    await znodes.set(PartitionStateZnode.path(*ZERO), PartitionStateZnode.encode(other))
    with pytest.raises(BadVersion):
        await rig.store.write(ZERO, STATE._replace(isr=(1,)))
    with pytest.raises(NoNode):
        await rig.store.write(TopicPartition("gone", 0), STATE)
    await rig.pass_time(DELAY_MS_MAX)
    assert await rig.notes() == []


async def test_who_joins_must_be_registered_as_it_was(znodes: Coordination) -> None:
    """Otherwise its disk may have lost since what it had then (KIP-903)."""
    rig = Rig(znodes)
    registration = Registration(znodes, rig.clock, rig.scheduler)
    joined = STATE._replace(isr=(1, 2))
    with pytest.raises(IneligibleReplica):
        await rig.store.write(ZERO, joined, Joining(2, 1))
    endpoint = ListenerEndpoint("PLAINTEXT", Endpoint("localhost", 9092))
    first = await registration.register(BrokerInfo(2, (endpoint,)))
    await registration.unregister(2)
    second = await registration.register(first)
    with pytest.raises(IneligibleReplica):
        await rig.store.write(ZERO, joined, Joining(2, first.epoch))
    _, stat = await znodes.get(PartitionStateZnode.path(*ZERO))
    assert stat.version == 0
    await rig.pass_time(DELAY_MS_MAX)
    assert await rig.notes() == []
    assert await rig.store.write(ZERO, joined, Joining(2, second.epoch)) == 1


@pytest.mark.parametrize("happened", [True, False])
async def test_a_lost_answer_is_looked_up(
    znodes: Coordination, monkeypatch: pytest.MonkeyPatch, happened: bool
) -> None:
    rig = Rig(znodes)
    write = znodes.set

    async def lose_answer(path: str, data: bytes, version: int = -1) -> Stat:
        if happened:
            await write(path, data, version)
        raise ConnectionLoss(path)

    monkeypatch.setattr(znodes, "set", lose_answer)
    change = rig.store.write(ZERO, STATE._replace(isr=(1, 3)))
    if happened:
        assert await change == 1
    else:
        with pytest.raises(ConnectionLoss):
            await change


@pytest.mark.parametrize("was_joined", [True, False])
async def test_a_withdrawn_change_is_undone_although_its_answer_was_lost(
    znodes: Coordination, was_joined: bool
) -> None:
    """Else the leader would wait for a word of the controller, which knows nothing of the change."""
    rig = Rig(znodes)
    path, joined = PartitionStateZnode.path(*ZERO), STATE._replace(isr=(1, 2, 3, 4))
    if was_joined:
        await znodes.set(path, PartitionStateZnode.encode(joined), 0)
    version = await rig.store.write(ZERO, STATE, withdrawn=joined)
    data, stat = await znodes.get(path)
    assert PartitionStateZnode.decode(data, stat.version) == STATE._replace(state_version=version)
    assert await rig.store.write(ZERO, STATE, withdrawn=joined) == version, "its own answer may be lost, too"
    await rig.pass_time(DELAY_MS_MAX)
    assert await rig.notes() == [{ZERO}]


async def test_a_withdrawn_change_does_not_undo_the_controllers(znodes: Coordination) -> None:
    rig = Rig(znodes)
    path, joined = PartitionStateZnode.path(*ZERO), STATE._replace(isr=(1, 2, 3, 4))
    await znodes.set(path, PartitionStateZnode.encode(STATE._replace(leader_epoch=5)), 0)
    with pytest.raises(BadVersion):
        await rig.store.write(ZERO, STATE, withdrawn=joined)


async def test_the_controller_is_told_when_it_is_quiet(znodes: Coordination) -> None:
    rig = Rig(znodes)
    await rig.store.write(ZERO, STATE._replace(isr=(1, 2)))
    await rig.pass_time(CHECK_INTERVAL_MS)
    assert await rig.notes() == []
    await rig.pass_time(QUIET_MS)
    assert await rig.notes() == [{ZERO}]
    await rig.pass_time(DELAY_MS_MAX)
    assert len(await rig.notes()) == 1


async def test_the_controller_is_told_after_a_minute_of_unrest(znodes: Coordination) -> None:
    rig = Rig(znodes)
    for version in range(int(DELAY_MS_MAX // CHECK_INTERVAL_MS)):
        await rig.store.write(ZERO, STATE._replace(isr=(1, version), state_version=version))
        await rig.pass_time(CHECK_INTERVAL_MS)
    assert await rig.notes() == [{ZERO}]


async def test_no_waiter_wakes_up_while_there_is_nothing_to_tell(znodes: Coordination) -> None:
    rig = Rig(znodes)
    rig.clock.advance(DELAY_MS_MAX)
    assert rig.scheduler.run_due() == 0
    await rig.store.write(ZERO, STATE._replace(isr=(1, 2)))
    await rig.pass_time(QUIET_MS + CHECK_INTERVAL_MS)
    assert await rig.notes() == [{ZERO}]
    rig.clock.advance(DELAY_MS_MAX)
    assert rig.scheduler.run_due() == 0


async def test_what_was_not_told_is_told_at_the_end(znodes: Coordination) -> None:
    rig = Rig(znodes)
    await rig.store.write(ZERO, STATE._replace(isr=(1, 2)))
    await rig.store.close()
    assert await rig.notes() == [{ZERO}]


async def test_the_end_waits_for_the_note_that_is_under_way(znodes: Coordination) -> None:
    rig = Rig(znodes)
    await rig.store.write(ZERO, STATE._replace(isr=(1, 2)))
    rig.clock.advance(DELAY_MS_MAX)
    rig.scheduler.run_due()
    await rig.store.close()
    assert await rig.notes() == [{ZERO}]


async def test_a_failed_log_directory_is_reported(znodes: Coordination) -> None:
    await report_failed_log_dir(znodes, 3)
    (name,) = await znodes.children(LogDirEventZnode.PARENT)
    data, _ = await znodes.get(f"{LogDirEventZnode.PARENT}/{name}")
    assert LogDirEventZnode.decode(data) == 3


async def test_the_same_isr_of_a_later_writer_is_not_our_own_write(
    znodes: Coordination,
) -> None:
    """The controller changed the state and changed it back: its versions are not those that we know."""
    path = PartitionStateZnode.path(*ZERO)
    wanted = STATE._replace(isr=(1, 2))
    await znodes.set(path, b"of the controller")
    await znodes.set(path, PartitionStateZnode.encode(wanted))
    with pytest.raises(BadVersion):
        await Rig(znodes).store.write(ZERO, wanted)
