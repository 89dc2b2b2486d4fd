"""`process` against a broker: order, restarts, rebalances, dead letters."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pytest

from barnabas.client import ClientClosed, Consumer, IllegalState, Producer, Record, Retry
from barnabas.client.consumer.process_source import LetterWriter
from barnabas.client.processing.core.finished_runs import decode_runs
from barnabas.core.errors import InvalidGroupId
from tests.scenario.consumer.conftest import PATIENCE_S, Bench, read
from tests.scenario.consumer.test_consumer import both, numbered


class Seen:
    """Handled records, and the consumer that handled each."""

    def __init__(self) -> None:
        self.values: Counter[bytes] = Counter()
        self.by_key: defaultdict[bytes, list[bytes]] = defaultdict(list)
        self.by_consumer: Counter[str] = Counter()
        self._news = asyncio.Event()

    def add(self, record: Record[Any, Any], consumer: str = "") -> None:
        self.values[record.value] += 1
        self.by_key[record.key].append(record.value)
        self.by_consumer[consumer] += 1
        self._news.set()

    async def until(self, count: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while self.values.total() < count:
                self._news.clear()
                await self._news.wait()

    def assert_once_in_order(self, expected: list[bytes]) -> None:
        assert self.values == Counter(expected)
        assert all(values == sorted(values) for values in self.by_key.values())


async def ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


@both
async def test_restarts_repeat_nothing_and_keep_the_order_of_keys(
    bench: Bench, how: Mapping[str, Any]
) -> None:
    await bench.create()
    await bench.write(numbered(300))
    seen = Seen()

    async def handle(record: Record[Any, Any]) -> None:
        for _ in range(record.offset % 7):
            await asyncio.sleep(0)
        seen.add(record)

    for enough in (60, 150, 300):
        async with bench.consumer(**how, auto_commit_interval_ms=10) as consumer:
            work = asyncio.create_task(consumer.process(handle, concurrency=8))
            await seen.until(enough)
            await ended(work)
    seen.assert_once_in_order(numbered(300))


async def test_finished_records_above_a_stuck_one_survive_a_restart(bench: Bench) -> None:
    await bench.create(1)
    await bench.write(numbered(40))
    seen, stuck = Seen(), True

    async def handle(record: Record[Any, Any]) -> None:
        if record.offset == 5 and stuck:
            await asyncio.Event().wait()
        seen.add(record)

    async with bench.consumer() as consumer:
        work = asyncio.create_task(consumer.process(handle, order="none"))
        await seen.until(39)
        await ended(work)
        committed = (await consumer.committed())[bench.at()]
        assert committed is not None
        assert committed.offset == 5
        assert decode_runs(5, committed.metadata) == [(6, 40)]
    stuck = False
    async with bench.consumer() as consumer:
        work = asyncio.create_task(consumer.process(handle))
        await seen.until(40)
        await ended(work)
        committed = (await consumer.committed())[bench.at()]
        assert committed is not None
        assert (committed.offset, committed.metadata) == (40, "")
    assert set(seen.values.values()) == {1}


@both
async def test_members_come_and_go_and_each_record_is_handled_once(
    bench: Bench, how: Mapping[str, Any]
) -> None:
    await bench.create()
    seen = Seen()

    def handler(name: str) -> Any:
        async def handle(record: Record[Any, Any]) -> None:
            await asyncio.sleep(0.001)
            seen.add(record, name)

        return handle

    async def write() -> None:
        for first in range(0, 600, 20):
            await bench.write(numbered(20, first))
            await asyncio.sleep(0.02)

    async with bench.consumer(**how) as one:
        first = asyncio.create_task(one.process(handler("one"), concurrency=8))
        writing = asyncio.create_task(write())
        await seen.until(50)
        async with bench.consumer(**how) as two:
            second = asyncio.create_task(two.process(handler("two"), concurrency=8))
            async with asyncio.timeout(PATIENCE_S):
                while not seen.by_consumer["two"]:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            await ended(second)
        await writing
        await seen.until(600)
        await ended(first)
    seen.assert_once_in_order(numbered(600))
    assert seen.by_consumer["one"]


async def test_failures_are_tried_again_and_then_become_dead_letters(bench: Bench) -> None:
    await bench.create(1)
    dead = f"{bench.topic}-dead"
    await bench.create(1, dead)
    await bench.write([b"1", b"not json", b"3", b"4"])
    attempts: Counter[int] = Counter()
    seen = Seen()

    async def handle(record: Record[Any, Any]) -> None:
        attempts[record.offset] += 1
        if record.value == 3 and attempts[record.offset] < 3:
            raise ConnectionError("later")
        if record.value == 4:
            raise ValueError("four")
        seen.add(record._replace(value=b"%d" % record.value))

    stop = asyncio.Event()
    async with bench.consumer(value_deserializer="json") as consumer:
        work = asyncio.create_task(
            consumer.process(handle, retry=Retry(3, first_ms=1), dead_letters=dead, stop=stop)
        )
        async with Consumer(
            bench.bootstrap, group=f"{bench.group}-dead", topics=[dead], auto_offset_reset="earliest"
        ) as letters:
            found = await read(letters, 2)
        await seen.until(2)
        stop.set()
        await work
        committed = (await consumer.committed())[bench.at()]
        assert committed is not None
        assert committed.offset == 4
    assert attempts == {0: 1, 2: 3, 3: 3}
    assert sorted(record.value for record in found) == [b"4", b"not json"]
    (letter,) = (record for record in found if record.value == b"4")
    assert letter.header("__connect.errors.offset") == b"3"
    assert letter.header("__connect.errors.topic") == bench.topic.encode()
    assert letter.header("__connect.errors.exception.message") == b"four"
    assert letter.header("__connect.errors.connector.name") == bench.group.encode()


async def test_a_failure_without_a_policy_is_raised_and_the_record_comes_again(bench: Bench) -> None:
    await bench.create(1)
    await bench.write(numbered(10))
    seen = Seen()

    def fail(record: Record[Any, Any]) -> None:
        if record.offset == 4:
            raise ValueError("four")
        seen.add(record)

    async with bench.consumer() as consumer:
        with pytest.raises(ValueError, match="four"):
            await consumer.process(fail, order="partition")
    assert sorted(seen.values) == numbered(4)
    async with bench.consumer() as consumer:
        assert (await consumer.get_one()).offset == 4


async def test_processing_needs_a_group(bench: Bench) -> None:
    await bench.create(1)
    async with bench.consumer(group=None, topics=()) as consumer:
        await consumer.assign([bench.at()])
        with pytest.raises(InvalidGroupId):
            await consumer.process(print)


async def test_no_other_call_takes_records_from_processing(bench: Bench) -> None:
    """They would be committed without being handled."""
    await bench.create()
    await bench.write(numbered(5))
    seen = Seen()
    async with bench.consumer() as consumer:
        work = asyncio.create_task(consumer.process(seen.add))
        await seen.until(5)
        for call in (consumer.poll, consumer.get_one, consumer.get_many):
            with pytest.raises(IllegalState, match="is processing"):
                await call()
        with pytest.raises(IllegalState, match="is processing"):
            await anext(consumer.arrow())
        await ended(work)
        assert not await consumer.poll()


async def test_a_handler_that_closes_its_consumer_is_told_how_to_stop(bench: Bench) -> None:
    await bench.create()
    await bench.write(numbered(1))
    async with bench.consumer() as consumer:

        async def handle(_record: Record[Any, Any]) -> None:
            await consumer.close()

        with pytest.raises(IllegalState, match="`stop`"):
            await consumer.process(handle)


async def test_records_follow_processing_where_it_ended(bench: Bench) -> None:
    await bench.create(1)
    await bench.write(numbered(10))
    stop = asyncio.Event()

    def handle(record: Record[Any, Any]) -> None:
        if record.offset == 2:
            stop.set()

    async with bench.consumer() as consumer:
        await consumer.process(handle, concurrency=1, order="partition", stop=stop)
        assert (await consumer.get_one()).offset == 3


async def test_records_follow_processing_whose_end_is_cut_off(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The close of the dead letters' producer may wait for a broker: what is held must not stay so."""
    await bench.create(1)
    await bench.write(numbered(10))
    begun, closing = asyncio.Event(), asyncio.Event()

    async def handle(record: Record[Any, Any]) -> None:
        if record.offset == 2:
            begun.set()
            await asyncio.Event().wait()

    async def close(_: LetterWriter) -> None:
        closing.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(LetterWriter, "close", close)
    async with bench.consumer() as consumer, asyncio.timeout(PATIENCE_S):
        work = asyncio.create_task(consumer.process(handle, concurrency=1, order="partition"))
        await begun.wait()
        while not consumer._engine.positions.of(bench.at()).is_held:  # noqa: ASYNC110 - no event says so
            await asyncio.sleep(0.01)
        work.cancel()
        await closing.wait()
        await ended(work)
        assert (await consumer.get_one()).offset == 2


async def test_close_waits_for_the_handlers_that_run(bench: Bench) -> None:
    """A handler that ends first must not end the others."""
    await bench.create(1)
    await bench.write(numbered(3))
    finished: list[int] = []
    begun = asyncio.Event()

    async def handle(record: Record[Any, Any]) -> None:
        if record.offset == 2:
            begun.set()
        await asyncio.sleep(0.05 + 0.2 * record.offset)
        finished.append(record.offset)

    consumer = bench.consumer()
    await consumer.start()
    work = asyncio.create_task(consumer.process(handle, order="none"))
    async with asyncio.timeout(PATIENCE_S):
        await begun.wait()
        await consumer.close()
        with pytest.raises(ClientClosed):
            await work
    assert finished == [0, 1, 2]
    async with bench.consumer() as successor:
        assert not await successor.poll(timeout_ms=500)


async def test_a_letter_may_be_as_large_as_its_topic_takes(bench: Bench) -> None:
    """The producer of letters has no bound of its own: a record above it would stop the group for ever."""
    dead = f"{bench.topic}-dead"
    for name in (bench.topic, dead):
        await bench.create(1, name, max_message_bytes="3000000")
    async with Producer(bench.bootstrap, max_request_size=3_000_000) as producer:
        await producer.publish(bench.topic, b"x" * 2_000_000)
    stop = asyncio.Event()

    def handle(_record: Record[Any, Any]) -> None:
        raise ValueError("planted")

    async with bench.consumer() as consumer, bench.consumer(topics=[dead], group=dead) as letters:
        work = asyncio.create_task(consumer.process(handle, dead_letters=dead, stop=stop))
        (letter,) = await read(letters, 1)
        stop.set()
        await work
    assert len(letter.value) == 2_000_000
