"""A controller that stops has told every broker what it decided, unless a broker does not answer."""

from __future__ import annotations

import asyncio
from typing import Any

from barnabas.cluster.broker_znodes import BrokerInfo
from barnabas.controller.cluster.broker_channels import BrokerChannels
from barnabas.core.clock import ManualClock
from barnabas.core.metrics import Metrics
from barnabas.core.scheduler import ManualScheduler
from barnabas.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse


class SlowBroker:
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.may_answer = asyncio.Event()
        self.was_asked = asyncio.Event()
        self.asked = 0

    async def send(self, request: Any, response_class: type[Any], /) -> Any:
        self.asked += 1
        self.was_asked.set()
        await self.may_answer.wait()
        return response_class()

    def close(self) -> None:
        return None


def channels_to(broker: SlowBroker) -> BrokerChannels:
    async def connect(_: BrokerInfo) -> SlowBroker:
        return broker

    clock = ManualClock()
    channels = BrokerChannels(connect, clock, ManualScheduler(clock), Metrics())
    channels.add([BrokerInfo(id=1, endpoints=())])
    return channels


async def test_what_was_sent_is_waited_for_until_it_is_answered() -> None:
    broker = SlowBroker()
    channels = channels_to(broker)
    answers: list[Any] = []
    for _ in range(2):
        channels.send(1, UpdateMetadataRequest(), UpdateMetadataResponse, answers.append)
    waiting = asyncio.create_task(channels.delivered(60_000))
    await broker.was_asked.wait()
    assert not waiting.done()
    broker.may_answer.set()
    await waiting
    assert (broker.asked, len(answers)) == (2, 2)
    channels.close()
    await channels.wait_closed()


async def test_a_broker_that_does_not_answer_is_not_waited_for_long() -> None:
    channels = channels_to(SlowBroker())
    channels.send(1, UpdateMetadataRequest(), UpdateMetadataResponse, lambda _: None)
    await channels.delivered(1)
    channels.close()
    await channels.wait_closed()
