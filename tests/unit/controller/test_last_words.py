"""What a controller decides is told to every broker until it is done, and before the controller stops."""

from __future__ import annotations

import asyncio
from typing import Any

from barnabas.cluster.broker_znodes import BrokerInfo
from barnabas.controller.broker_channels import RETRY_BACKOFF_MS, BrokerChannels
from barnabas.core.clock import ManualClock
from barnabas.core.errors import RequestTimedOut, StaleControllerEpoch
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


class BusyBroker:
    """Answers with these errors, one after the other, and then with none."""

    def __init__(self, *error_codes: int) -> None:
        self.answers = list(error_codes)
        self.asked = 0

    async def send(self, request: Any, response_class: type[Any], /) -> Any:
        self.asked += 1
        return response_class(error_code=self.answers.pop(0) if self.answers else 0)

    def close(self) -> None:
        return None


async def answers_of(broker: BusyBroker) -> list[int]:
    """What the controller takes for the broker's answer to one order."""

    async def connect(_: BrokerInfo) -> BusyBroker:
        return broker

    clock = ManualClock()
    scheduler = ManualScheduler(clock)
    channels = BrokerChannels(connect, clock, scheduler, Metrics())
    channels.add([BrokerInfo(id=1, endpoints=())])
    answers: list[Any] = []
    channels.send(1, UpdateMetadataRequest(), UpdateMetadataResponse, answers.append)
    for _ in range(20):
        await asyncio.sleep(0)
        clock.advance(RETRY_BACKOFF_MS)
        scheduler.run_due()
    channels.close()
    await channels.wait_closed()
    return [answer.error_code for answer in answers]


async def test_an_order_that_a_broker_could_not_carry_out_is_given_again() -> None:
    """A broker reads the settings of topics from the store before it leads them. If the store is out of reach
    at that moment, the order must not be taken for done: nobody would lead the partition, for good."""
    broker = BusyBroker(RequestTimedOut.code, RequestTimedOut.code)
    assert await answers_of(broker) == [0]
    assert broker.asked == 3


async def test_an_order_that_is_refused_is_not_given_again() -> None:
    broker = BusyBroker(StaleControllerEpoch.code)
    assert await answers_of(broker) == [StaleControllerEpoch.code]
    assert broker.asked == 1
