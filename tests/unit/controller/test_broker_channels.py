"""Delivery of controller requests to every broker, in order and until done; without a loop."""

from __future__ import annotations

import math
from typing import Any

import pytest

from barnabas.cluster.znodes.brokers import BrokerInfo
from barnabas.controller.channels.broker_channels import (
    HANDOVER_MS_MAX,
    REPORT_INTERVAL_MS,
    RETRY_BACKOFF_MS,
    BrokerChannels,
    BrokerQueue,
    Rest,
    Send,
)
from barnabas.controller.channels.delivery import Delivery
from barnabas.core.errors import NetworkException, RequestTimedOut, StaleControllerEpoch
from barnabas.core.reporting.metrics import Metrics, render_prometheus
from barnabas.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from tests.support.figures import figure
from tests.support.manual_time import ManualClock


class RecordingSender:
    def __init__(self, queue: BrokerQueue) -> None:
        self.queue = queue
        self.wakes = 0
        self.is_stopped = False

    def wake(self) -> None:
        self.wakes += 1

    def stop(self) -> None:
        self.is_stopped = True


class Channels(BrokerChannels):
    def __init__(self, *broker_ids: int) -> None:
        self.clock = ManualClock()
        self.metrics = Metrics()
        self.senders: dict[int, RecordingSender] = {}
        self.answers: list[tuple[int, int]] = []
        super().__init__(self._start, self.clock, self.metrics)
        self.add([BrokerInfo(id=broker_id, endpoints=()) for broker_id in broker_ids])

    def _start(self, queue: BrokerQueue) -> RecordingSender:
        sender = self.senders[queue.broker.id] = RecordingSender(queue)
        return sender

    def tell(self, broker_id: int, number: int, *after: Delivery) -> Delivery:
        request = UpdateMetadataRequest(controller_id=number)
        return self.send(
            broker_id,
            request,
            UpdateMetadataResponse,
            lambda response: self.answers.append((number, getattr(response, "error_code", -1))),
            after=after,
        )

    def step(self, broker_id: int = 1) -> int | float:
        """The number of the request to send, or until when to rest."""
        step: Any = self.senders[broker_id].queue.next_step()
        if isinstance(step, Rest):
            return step.until_ms - self.clock.monotonic_ms()
        assert isinstance(step, Send)
        return int(step.request.controller_id)  # type: ignore[attr-defined]

    def answer(self, broker_id: int = 1, error_code: int = 0) -> None:
        self.senders[broker_id].queue.answered(UpdateMetadataResponse(error_code=error_code))


@pytest.fixture
def channels() -> Channels:
    return Channels(1, 2)


def test_requests_leave_in_order_each_after_the_answer_to_the_one_before(channels: Channels) -> None:
    assert channels.step() == math.inf
    first, second = channels.tell(1, 10), channels.tell(1, 11)
    assert channels.senders[1].wakes == 2
    channels.clock.advance(ms=30)
    assert channels.step() == 10
    assert figure(channels.metrics, "kafka_controller_channel_queue_time_ms_sum", to_broker="1") == 30
    channels.answer()
    assert (first.is_over, second.is_over) == (True, False)
    assert channels.step() == 11
    channels.answer()
    assert second.is_over
    assert channels.answers == [(10, 0), (11, 0)]
    assert channels.step() == math.inf


def test_what_no_broker_has_answered_is_known(channels: Channels) -> None:
    assert channels.undelivered() == []
    channels.tell(1, 10)
    last, other = channels.tell(1, 11), channels.tell(2, 20)
    assert channels.undelivered() == [last, other]
    assert channels.undelivered(1) == [last]
    assert channels.undelivered(7) == []
    for _ in range(2):
        channels.step()
        channels.answer()
    assert last.is_over
    assert channels.undelivered() == [other]


def test_what_fails_is_sent_again_after_a_pause(channels: Channels) -> None:
    channels.tell(1, 10)
    assert channels.step() == 10
    channels.senders[1].queue.failed(NetworkException("unplugged"))
    assert channels.step() == RETRY_BACKOFF_MS
    channels.clock.advance(RETRY_BACKOFF_MS - 1)
    channels.tell(1, 11)
    assert channels.step() == 1, "what is queued behind it does not end the pause"
    channels.clock.advance(1)
    assert channels.step() == 10
    channels.answer()
    assert channels.step() == 11


def test_a_broker_that_does_not_answer_is_reported_now_and_then(
    channels: Channels, caplog: pytest.LogCaptureFixture
) -> None:
    """A broker that stops is asked ten times a second until its session ends."""
    caplog.set_level("INFO")
    channels.tell(1, 1)
    queue = channels.senders[1].queue
    for _ in range(REPORT_INTERVAL_MS // RETRY_BACKOFF_MS):
        assert isinstance(queue.next_step(), Send)
        queue.failed(NetworkException("unplugged"))
        channels.clock.advance(RETRY_BACKOFF_MS)
    assert caplog.text.count("broker 1 does not answer") == 1
    queue.failed(NetworkException("unplugged"))
    assert caplog.text.count("broker 1 does not answer") == 2
    channels.clock.advance(RETRY_BACKOFF_MS)
    queue.next_step()
    queue.answered(UpdateMetadataResponse())
    channels.tell(1, 2)
    queue.next_step()
    queue.failed(NetworkException("unplugged"))
    assert caplog.text.count("broker 1 does not answer") == 3


def test_a_fault_of_our_own_does_not_stop_the_queue(
    channels: Channels, caplog: pytest.LogCaptureFixture
) -> None:
    channels.tell(1, 10)
    channels.step()
    channels.senders[1].queue.failed(ValueError("cannot be encoded"))
    assert "broker 1: controller request could not be sent" in caplog.text
    assert "cannot be encoded" in caplog.text
    assert channels.step() == RETRY_BACKOFF_MS


def test_an_order_that_a_broker_could_not_carry_out_is_given_again(channels: Channels) -> None:
    """A broker reads the settings of topics from the store before it leads them. If the store is unreachable
    at that moment, the request must not count as done: the partition would stay without a leader.
    """
    channels.tell(1, 10)
    for _ in range(2):
        assert channels.step() == 10
        channels.answer(error_code=RequestTimedOut.code)
        assert channels.step() == RETRY_BACKOFF_MS
        channels.clock.advance(RETRY_BACKOFF_MS)
    assert channels.step() == 10
    channels.answer()
    assert channels.answers == [(10, 0)]


def test_an_order_that_is_refused_is_not_given_again(channels: Channels) -> None:
    channels.tell(1, 10)
    channels.step()
    channels.answer(error_code=StaleControllerEpoch.code)
    assert channels.answers == [(10, StaleControllerEpoch.code)]
    assert channels.step() == math.inf


def test_who_takes_over_waits_for_who_gives_up(channels: Channels) -> None:
    given_up = channels.tell(1, 10)
    channels.tell(2, 20, given_up)
    channels.tell(2, 21)
    assert channels.step(2) == HANDOVER_MS_MAX
    wakes = channels.senders[2].wakes
    channels.step(1)
    channels.answer(1)
    assert channels.senders[2].wakes == wakes + 1
    assert channels.step(2) == 20
    channels.senders[2].queue.failed(NetworkException("unplugged"))
    assert channels.step(2) == RETRY_BACKOFF_MS


def test_who_neither_answers_nor_goes_is_waited_for_only_so_long(channels: Channels) -> None:
    channels.tell(2, 20, channels.tell(1, 10))
    assert channels.step(2) == HANDOVER_MS_MAX
    channels.clock.advance(HANDOVER_MS_MAX - 1)
    assert channels.step(2) == 1
    channels.clock.advance(1)
    assert channels.step(2) == 20


def test_a_broker_that_is_gone_acts_on_nothing(channels: Channels) -> None:
    channels.tell(1, 10)
    channels.step()
    pending = [*channels.undelivered(), channels.tell(1, 11)]
    assert figure(channels.metrics, "kafka_controller_channel_queue_size", to_broker="1") == 1
    channels.remove([1])
    assert channels.senders[1].is_stopped
    assert all(delivery.is_over for delivery in pending)
    assert channels.tell(1, 12).is_over
    assert 'to_broker="1"' not in render_prometheus(channels.metrics)
    assert channels.answers == []


def test_the_next_connection_goes_to_where_the_broker_has_moved(channels: Channels) -> None:
    moved = BrokerInfo(id=1, endpoints=(), rack="elsewhere")
    channels.update(moved)
    assert channels.senders[1].queue.broker is moved
