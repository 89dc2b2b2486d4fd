"""The queue: one event at a time, in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from barnabas.controller.events import Event, EventQueue
from barnabas.core.errors import NotController
from barnabas.core.reporting.metrics import Metrics, render_prometheus
from tests.support.manual_time import ManualClock
from tests.unit.controller.scripted_cluster import is_idle


class Recorder:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.metrics = Metrics()
        self.log: list[str] = []
        self.queue = EventQueue(self.handle, self.clock, self.metrics)

    async def handle(self, event: Event) -> None:
        try:
            await event.process()
        except Exception as error:
            self.log.append(repr(error))

    def put(self, name: str, gate: asyncio.Event | None = None, **how: object) -> None:
        async def process() -> None:
            self.log.append(f"{name} begins")
            if gate is not None:
                await gate.wait()
            self.log.append(f"{name} ends")

        self.queue.put(name, process, **how)  # type: ignore[arg-type]

    async def settle(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)


@pytest.fixture
async def events() -> AsyncIterator[Recorder]:
    recorder = Recorder()
    recorder.queue.start()
    yield recorder
    await recorder.queue.close()


async def test_events_are_processed_one_at_a_time_in_order(events: Recorder) -> None:
    gate = asyncio.Event()
    events.put("first", gate)
    events.put("second")
    await events.settle()
    assert events.log == ["first begins"]
    assert not is_idle(events.queue)
    gate.set()
    await events.settle()
    assert events.log == ["first begins", "first ends", "second begins", "second ends"]
    assert is_idle(events.queue)


async def test_what_says_look_again_is_queued_once_until_someone_looks(events: Recorder) -> None:
    gate = asyncio.Event()
    events.put("busy", gate)
    await events.settle()
    events.put("look", key="k")
    events.put("look", key="k")
    gate.set()
    await events.settle()
    assert events.log.count("look ends") == 1
    events.put("look", key="k")
    await events.settle()
    assert events.log.count("look ends") == 2


async def test_an_event_that_fires_itself_again_while_processed_is_queued(events: Recorder) -> None:
    gate = asyncio.Event()
    events.put("look", gate, key="k")
    await events.settle()
    events.put("look", key="k")
    gate.set()
    await events.settle()
    assert events.log.count("look ends") == 2, "the change may have come after the look"


async def test_a_call_answers_with_its_result_or_its_error(events: Recorder) -> None:
    async def works() -> int:
        return 7

    async def fails() -> int:
        raise ValueError("no")

    assert await events.queue.call("works", works) == 7
    with pytest.raises(ValueError, match="no"):
        await events.queue.call("fails", fails)


async def test_clearing_drops_what_is_queued_and_answers_who_waits(events: Recorder) -> None:
    gate = asyncio.Event()
    events.put("busy", gate)

    async def never() -> None:
        raise AssertionError

    waiting = asyncio.ensure_future(events.queue.call("call", never))
    events.put("dropped")
    await events.settle()

    async def last() -> None:
        events.log.append("last")

    events.queue.clear_and_put("expired", last)
    gate.set()
    with pytest.raises(NotController):
        await waiting
    await events.settle()
    assert events.log == ["busy begins", "busy ends", "last"]


async def test_closing_answers_everyone_who_waits(events: Recorder) -> None:
    forever = asyncio.Event()

    async def hang() -> None:
        await forever.wait()

    waiting = [asyncio.ensure_future(events.queue.call("call", hang)) for _ in range(2)]
    await events.settle()
    await events.queue.close()
    for each in waiting:
        with pytest.raises(NotController):
            await each
    with pytest.raises(NotController):
        await events.queue.call("late", hang)


async def test_the_time_in_the_queue_is_measured(events: Recorder) -> None:
    gate = asyncio.Event()
    events.put("busy", gate)
    events.put("late")
    await events.settle()
    assert "kafka_controller_event_queue_size 1" in render_prometheus(events.metrics)
    events.clock.advance(ms=40)
    gate.set()
    await events.settle()
    text = render_prometheus(events.metrics)
    assert "kafka_controller_event_queue_time_ms_sum 40" in text
    assert 'kafka_controller_event_time_ms_sum{kind="busy"} 40' in text


async def test_what_escapes_while_an_event_is_handled_does_not_stop_those_behind_it() -> None:
    handled: list[str] = []

    async def handle(event: Event) -> None:
        handled.append(event.kind)
        if event.kind == "bad":
            raise ValueError

    async def nothing() -> None:
        pass

    queue = EventQueue(handle, ManualClock(), Metrics())
    queue.start()
    for kind in ("bad", "good"):
        queue.put(kind, nothing)
        for _ in range(5):
            await asyncio.sleep(0)
    assert handled == ["bad", "good"]
    assert is_idle(queue)
    await queue.close()
