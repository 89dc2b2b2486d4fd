"""Commits of the synchronous consumer when its `with` block fails. No broker: the records are buffered."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.client.consumer.test_fetch_plans import World, batch, data

from barnabas.client.consumer import consumer as asynchronous
from barnabas.client.sync.consumer import Consumer
from barnabas.core.ids import TopicPartition


class HandlerFailed(Exception):
    """Error of the application."""


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """Twenty records are buffered. Every consumer hands them out, five at a time."""
    made = World(1)
    made.answer(made.send()[1], data(0, batch(0, 20)))

    async def start(consumer: asynchronous.Consumer) -> None:
        consumer._hand = consumer._engine.hand = made.hand
        consumer._engine.positions = made.positions

    async def poll(_: asynchronous.Consumer, **__: object) -> list[Any]:
        return made.hand.take(5)

    def seek(_: asynchronous.Consumer, at: TopicPartition, offset: int) -> None:
        made.positions.of(at).seek(offset)

    async def close(_: asynchronous.Consumer, **__: object) -> None:
        pass

    monkeypatch.setattr(asynchronous.Consumer, "start", start)
    monkeypatch.setattr(asynchronous.Consumer, "poll", poll)
    monkeypatch.setattr(asynchronous.Consumer, "seek", seek)
    monkeypatch.setattr(asynchronous.Consumer, "close", close)
    return made


def committed(world: World) -> int:
    """Offset that a close commits."""
    (offset,) = world.hand.offsets().values()
    return offset.offset


@pytest.mark.parametrize("method", ["poll", "get_many"])
def test_a_batch_whose_processing_failed_is_not_committed(world: World, method: str) -> None:
    def run() -> None:
        with Consumer("127.0.0.1:1") as consumer:
            consumer.poll()
            getattr(consumer, method)()
            raise HandlerFailed

    with pytest.raises(HandlerFailed):
        run()
    assert committed(world) == 5


def test_a_batch_is_committed_when_nothing_failed(world: World) -> None:
    with Consumer("127.0.0.1:1") as consumer:
        consumer.poll()
    assert committed(world) == 5


def test_records_before_the_failed_one_are_committed(world: World) -> None:
    def run() -> None:
        with Consumer("127.0.0.1:1") as consumer:
            for record in consumer:
                if record.offset == 7:
                    raise HandlerFailed

    with pytest.raises(HandlerFailed):
        run()
    assert committed(world) == 7


def test_a_batch_that_was_done_is_committed_when_the_next_call_fails(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = asynchronous.Consumer.poll

    async def poll(consumer: asynchronous.Consumer, **options: Any) -> list[Any]:
        records = await taken(consumer, **options)
        if records[0].offset:
            raise HandlerFailed  # it was taken, and the loop body did not get it
        return records

    monkeypatch.setattr(asynchronous.Consumer, "poll", poll)
    with pytest.raises(HandlerFailed), Consumer("127.0.0.1:1") as consumer:
        for _ in consumer:
            pass
    assert committed(world) == 5
