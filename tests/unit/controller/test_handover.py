"""One leader at a time: the new leader is notified when the previous one has given up, or is gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from barnabas.cluster.znodes.brokers import BrokerInfo
from barnabas.controller.channels.broker_channels import HANDOVER_MS_MAX, BrokerChannels
from barnabas.controller.channels.delivery import Delivery
from barnabas.controller.machines.partition_machine import Election
from barnabas.controller.term import UNDELIVERED_MS_MAX
from barnabas.core.ids import TopicPartition
from barnabas.core.reporting.metrics import Metrics
from barnabas.node.membership.controller_channels import ControllerChannels
from barnabas.protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from tests.support.manual_time import ManualClock, ManualScheduler
from tests.unit.controller.scripted_cluster import Cluster
from tests.unit.controller.test_elections import stray

T0 = TopicPartition("t", 0)
LOSER, HEIR = 1, 2
TURNS = 10


class Channel:
    def __init__(self, brokers: Brokers, broker_id: int) -> None:
        self._brokers = brokers
        self._broker_id = broker_id

    async def send(self, request: Any, response_class: type[Any], /) -> Any:
        self._brokers.told.append(self._broker_id)
        if self._broker_id == LOSER:
            await self._brokers.may_answer.wait()
        return response_class()

    def close(self) -> None: ...


class Brokers:
    """Two brokers behind their channels; the first answers when the test lets it."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.scheduler = ManualScheduler(self.clock)
        self.may_answer = asyncio.Event()
        self.told: list[int] = []
        self.senders = ControllerChannels(self.connect, self.clock, self.scheduler)
        self.channels = BrokerChannels(self.senders.start_sender, self.clock, Metrics())
        self.channels.add([BrokerInfo(id=LOSER, endpoints=()), BrokerInfo(id=HEIR, endpoints=())])

    async def connect(self, broker: BrokerInfo) -> Channel:
        return Channel(self, broker.id)

    def hand_over(self) -> None:
        given_up = self._send(LOSER)
        self._send(HEIR, given_up)
        self._send(HEIR)

    def _send(self, broker_id: int, *after: Delivery) -> Delivery:
        return self.channels.send(
            broker_id, LeaderAndIsrRequest(), LeaderAndIsrResponse, lambda _: None, after=after
        )

    async def settle(self) -> list[int]:
        for _ in range(TURNS):
            await asyncio.sleep(0)
        return self.told


@pytest.fixture
async def brokers() -> AsyncIterator[Brokers]:
    brokers = Brokers()
    yield brokers
    brokers.channels.close()
    await brokers.senders.close()


async def test_the_heir_and_all_behind_it_wait_for_the_answer(brokers: Brokers) -> None:
    brokers.hand_over()
    assert await brokers.settle() == [LOSER]
    brokers.may_answer.set()
    assert await brokers.settle() == [LOSER, HEIR, HEIR]


async def test_no_request_waits_for_a_member_that_is_gone(brokers: Brokers) -> None:
    brokers.hand_over()
    await brokers.settle()
    brokers.channels.remove([LOSER])
    assert await brokers.settle() == [LOSER, HEIR, HEIR]
    brokers.hand_over()
    assert await brokers.settle() == [LOSER, HEIR, HEIR, HEIR, HEIR]


async def test_one_who_neither_answers_nor_goes_is_not_waited_for_longer(brokers: Brokers) -> None:
    brokers.hand_over()
    await brokers.settle()
    brokers.clock.advance(HANDOVER_MS_MAX - 1)
    brokers.scheduler.run_due()
    assert await brokers.settle() == [LOSER]
    brokers.clock.advance(1)
    brokers.scheduler.run_due()
    assert await brokers.settle() == [LOSER, HEIR, HEIR]


# As elections do it


async def test_the_preferred_leader_begins_when_the_other_has_ended(cluster: Cluster) -> None:
    await stray(cluster)
    cluster.brokers[3].is_reachable = False
    outcomes = await cluster.active.controller.elect_leaders(Election.PREFERRED, [T0])
    await cluster.settle()
    assert outcomes[T0].leader == 2  # type: ignore[union-attr]
    assert cluster.brokers[2].roles[T0].leader == 3, "it leads nothing before the other has heard"
    cluster.brokers[3].is_reachable = True
    await cluster.advance(1_000)
    assert [cluster.brokers[each].roles[T0].leader for each in (2, 3)] == [2, 2]


async def test_the_heir_of_a_broker_that_shuts_down_begins_when_that_has_ended(cluster: Cluster) -> None:
    await cluster.create("t", {0: [2, 3]})
    cluster.brokers[2].is_reachable = False
    epoch = cluster.brokers[2].epoch
    assert await cluster.active.controller.controlled_shutdown(2, epoch) == []
    await cluster.settle()
    assert cluster.brokers[3].roles[T0].leader == 2
    await cluster.kill(2)
    assert cluster.brokers[3].roles[T0].leader == 3


async def test_a_controller_that_takes_over_in_between_lets_the_other_end_first(cluster: Cluster) -> None:
    """It finds the new leader in the store, but not whether the previous one received its demotion."""
    await stray(cluster)
    cluster.brokers[3].is_reachable = False
    await cluster.active.controller.elect_leaders(Election.PREFERRED, [T0])
    await cluster.settle()
    assert cluster.active.id == 1
    await cluster.kill(1)
    assert cluster.active.id in (2, 3)
    assert cluster.brokers[2].roles[T0].leader == 3, "it leads nothing before the other has heard"
    cluster.brokers[3].is_reachable = True
    await cluster.advance(1_000)
    assert [cluster.brokers[each].roles[T0].leader for each in (2, 3)] == [2, 2]


async def test_what_was_settled_long_ago_does_not_wait(cluster: Cluster) -> None:
    await cluster.create("t", {0: [2, 3]})
    cluster.clock.advance(ms=UNDELIVERED_MS_MAX + 1_000)
    cluster.brokers[3].is_reachable = False
    cluster.forget_requests()
    await cluster.kill(1)
    assert T0 in {
        TopicPartition(topic.topic_name, state.partition_index)
        for request in cluster.brokers[2].of_kind(LeaderAndIsrRequest)
        for topic in request.topic_states
        for state in topic.partition_states
    }
