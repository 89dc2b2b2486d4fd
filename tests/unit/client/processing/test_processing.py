"""Processing with a source in memory: acknowledgement, retries, dead letters, back-pressure, rebalances."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from barnabas.client.core.client_errors import DeserializationFailed
from barnabas.client.core.offsets import CommittedOffset
from barnabas.client.extensions.records import Header, Record
from barnabas.client.processing.core.finished_runs import decode_runs, encode_runs
from barnabas.client.processing.core.offset_ledger import UNFINISHED_MAX
from barnabas.client.processing.core.retry_policy import Retry
from barnabas.client.processing.processing import Handler, Processing, ProcessOptions
from barnabas.core.clock import SystemClock
from barnabas.core.ids import TopicPartition

AT = TopicPartition("t", 0)


async def until(is_met: Callable[[], bool]) -> None:
    while not is_met():  # noqa: ASYNC110 - the condition has no event
        await asyncio.sleep(0)


class Log:
    """One partition in memory, with its committed offset."""

    def __init__(self, count: int, keys: int = 1_000) -> None:
        self.records: list[Record[Any, Any]] = [
            Record("t", 0, offset, 0, b"%d" % (offset % keys), b"%d" % offset) for offset in range(count)
        ]
        self.position = 0
        self.committed = CommittedOffset(0)
        self.commits: list[CommittedOffset] = []
        self.start = CommittedOffset(0)
        self.held = False
        self.news = asyncio.Event()
        self.letters: list[tuple[str, bytes | None, bytes | None, dict[str, bytes | None]]] = []

    def restart(self) -> None:
        self.start = self.committed
        self.position = self.start.offset

    async def take(self, most: int, timeout_ms: float) -> list[Record[Any, Any]]:
        found = [] if self.held else self.records[self.position : self.position + most]
        self.position += len(found)
        if not found:
            try:
                async with asyncio.timeout(timeout_ms / 1_000):
                    await self.news.wait()
            except TimeoutError:
                pass
        self.news.clear()
        await asyncio.sleep(0)
        return found

    def start_of(self, at: TopicPartition) -> CommittedOffset:
        return self.start

    def position_of(self, at: TopicPartition) -> int | None:
        return self.position

    def hold(self, partitions: Iterable[TopicPartition]) -> None:
        self.held = AT in partitions

    def wake(self) -> None:
        self.news.set()

    async def commit(self, offsets: dict[TopicPartition, CommittedOffset]) -> None:
        self.committed = offsets[AT]
        self.commits.append(self.committed)

    def deserialized(self, record: Record[Any, Any]) -> Record[Any, Any]:
        if record.value == b"damaged":
            raise ValueError("not JSON")
        return record

    async def publish(
        self, topic: str, key: bytes | None, value: bytes | None, headers: Sequence[Header]
    ) -> None:
        self.letters.append((topic, key, value, dict(headers)))

    def processing(self, handler: Handler, **options: Any) -> Processing:
        publish = self.publish if options.get("dead_letters") else None
        return Processing(
            self, handler, ProcessOptions(commit_interval_ms=1, **options), SystemClock(), publish
        )


class Seen:
    """Handler that counts, and stops after `enough` records."""

    def __init__(self, enough: int) -> None:
        self.offsets: list[int] = []
        self.by_key: defaultdict[bytes, list[int]] = defaultdict(list)
        self.stop = asyncio.Event()
        self._enough = enough

    def add(self, record: Record[Any, Any]) -> None:
        self.offsets.append(record.offset)
        self.by_key[record.key].append(record.offset)
        if len(self.offsets) >= self._enough:
            self.stop.set()


async def test_every_record_is_handled_once_in_the_order_of_its_key() -> None:
    log, seen = Log(500, keys=7), Seen(500)

    async def handle(record: Record[Any, Any]) -> None:
        for _ in range(record.offset % 5):
            await asyncio.sleep(0)
        seen.add(record)

    await log.processing(handle, concurrency=16).run(seen.stop)
    assert sorted(seen.offsets) == list(range(500))
    assert all(offsets == sorted(offsets) for offsets in seen.by_key.values())
    assert seen.offsets != sorted(seen.offsets), "keys run beside each other"
    assert log.committed == CommittedOffset(500)


async def test_a_plain_function_is_a_handler_too() -> None:
    log, seen = Log(5), Seen(5)
    await log.processing(seen.add).run(seen.stop)
    assert seen.offsets == [0, 1, 2, 3, 4]


async def test_a_restart_repeats_nothing_that_was_finished() -> None:
    log, seen = Log(100), Seen(100)
    stuck = asyncio.Event()

    async def handle(record: Record[Any, Any]) -> None:
        if record.offset in (3, 40) and not stuck.is_set():
            await stuck.wait()
        seen.add(record)

    first = asyncio.create_task(log.processing(handle, concurrency=200).run(None))
    await until(lambda: len(seen.offsets) >= 98)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert log.committed.offset == 3
    assert decode_runs(3, log.committed.metadata) == [(4, 40), (41, 100)]
    stuck.set()
    log.restart()
    await log.processing(handle).run(seen.stop)
    assert sorted(seen.offsets) == list(range(100))
    assert log.committed == CommittedOffset(100)


async def test_a_failure_without_a_policy_ends_the_processing_and_is_not_acknowledged() -> None:
    log = Log(10, keys=1)

    def handle(record: Record[Any, Any]) -> None:
        if record.offset == 4:
            raise ZeroDivisionError("four")

    with pytest.raises(ZeroDivisionError, match="four"):
        await log.processing(handle).run(None)
    assert log.committed == CommittedOffset(4)


async def test_a_retry_keeps_the_order_of_its_key() -> None:
    log, seen = Log(6, keys=2), Seen(6)
    failures = iter((OSError(), OSError()))

    def handle(record: Record[Any, Any]) -> None:
        if record.offset == 0 and (error := next(failures, None)) is not None:
            raise error
        seen.add(record)

    await log.processing(handle, retry=Retry(3, first_ms=1)).run(seen.stop)
    assert seen.by_key == {b"0": [0, 2, 4], b"1": [1, 3, 5]}


async def test_a_record_that_fails_for_good_becomes_a_dead_letter() -> None:
    log, seen = Log(5), Seen(4)
    log.records[1] = log.records[1]._replace(headers=(("trace", b"7"),))
    attempts = 0

    def handle(record: Record[Any, Any]) -> None:
        nonlocal attempts
        if record.offset == 1:
            attempts += 1
            raise ValueError("no such order")
        seen.add(record)

    work = log.processing(handle, retry=Retry(2, first_ms=1), dead_letters="dead", name="billing")
    stop = asyncio.Event()
    running = asyncio.create_task(work.run(stop))
    await until(lambda: bool(log.letters) and seen.stop.is_set())
    stop.set()
    await running
    assert attempts == 2
    ((topic, key, value, headers),) = log.letters
    assert (topic, key, value) == ("dead", b"1", b"1")
    assert headers["trace"] == b"7"
    assert headers["__connect.errors.topic"] == b"t"
    assert headers["__connect.errors.partition"] == b"0"
    assert headers["__connect.errors.offset"] == b"1"
    assert headers["__connect.errors.connector.name"] == b"billing"
    assert headers["__connect.errors.exception.class.name"] == b"builtins.ValueError"
    assert headers["__connect.errors.exception.message"] == b"no such order"
    assert b"no such order" in (headers["__connect.errors.exception.stacktrace"] or b"")
    assert log.committed == CommittedOffset(5)


async def test_a_record_that_cannot_be_deserialized_is_not_tried_again() -> None:
    log, seen = Log(3), Seen(2)
    log.records[0] = log.records[0]._replace(value=b"damaged")
    work = log.processing(seen.add, retry=Retry(5, first_ms=60_000), dead_letters="dead")
    stop = asyncio.Event()
    running = asyncio.create_task(work.run(stop))
    await until(lambda: bool(log.letters) and seen.stop.is_set())
    stop.set()
    await running
    assert log.letters[0][2] == b"damaged"
    log = Log(3)
    log.records[0] = log.records[0]._replace(value=b"damaged")
    with pytest.raises(DeserializationFailed, match="not JSON"):
        await log.processing(seen.add).run(None)


async def test_a_letter_that_cannot_be_written_ends_the_processing() -> None:
    log = Log(3)

    async def publish(*letter: object) -> None:
        raise OSError("no broker")

    def handle(record: Record[Any, Any]) -> None:
        raise ValueError

    options = ProcessOptions(dead_letters="dead")
    with pytest.raises(OSError, match="no broker"):
        await Processing(log, handle, options, SystemClock(), publish).run(None)
    assert log.committed.offset == 0
    assert not log.committed.metadata


async def test_back_pressure_bounds_what_is_taken() -> None:
    log = Log(100_000)
    gate = asyncio.Event()

    async def handle(record: Record[Any, Any]) -> None:
        await gate.wait()

    work = log.processing(handle, concurrency=4)
    running = asyncio.create_task(work.run(None))
    await until(lambda: log.held)
    assert log.position <= 8
    running.cancel()
    await asyncio.wait((running,))
    wide = log = Log(100_000)
    running = asyncio.create_task(log.processing(handle, concurrency=10_000).run(None))
    await until(lambda: wide.held)
    assert wide.position == UNFINISHED_MAX
    running.cancel()
    await asyncio.wait((running,))


async def test_revoked_partitions_are_drained_before_their_commit() -> None:
    log = Log(6)  # all are taken: here the release runs beside the loop, which would take more
    gate = asyncio.Event()
    done: list[int] = []

    async def handle(record: Record[Any, Any]) -> None:
        await gate.wait()
        done.append(record.offset)

    work = log.processing(handle, concurrency=3)
    running = asyncio.create_task(work.run(None))
    await until(lambda: log.held)
    releasing = asyncio.create_task(work.release(frozenset({AT})))
    await asyncio.sleep(0)
    gate.set()
    await releasing
    assert done == [0, 1, 2], "queued records are dropped"
    assert work.offsets()[AT] == CommittedOffset(3)
    work.released(frozenset({AT}))
    assert work.offsets() == {}
    running.cancel()
    await asyncio.wait((running,))


async def test_late_handlers_are_cancelled_and_not_acknowledged() -> None:
    log = Log(2)
    cancelled: list[int] = []

    async def handle(record: Record[Any, Any]) -> None:
        if record.offset == 0:
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.append(record.offset)

    work = log.processing(handle, drain_ms=1)
    running = asyncio.create_task(work.run(None))
    await until(lambda: AT in work.offsets() and bool(work.offsets()[AT].metadata))
    await work.release(frozenset({AT}))
    assert cancelled == [0]
    assert work.offsets()[AT].offset == 0
    assert decode_runs(0, work.offsets()[AT].metadata) == [(1, 2)]
    running.cancel()
    await asyncio.wait((running,))


async def test_handlers_of_lost_partitions_are_cancelled_at_once() -> None:
    log = Log(2)
    began, ended = asyncio.Event(), asyncio.Event()

    async def handle(record: Record[Any, Any]) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    work = log.processing(handle, order="partition")
    running = asyncio.create_task(work.run(None))
    await began.wait()
    work.lose(frozenset({AT}))
    await ended.wait()
    assert work.offsets() == {}
    log.records = []
    await asyncio.sleep(0.01)
    assert not running.done()
    running.cancel()
    await asyncio.wait((running,))
    assert log.commits == []


async def test_the_end_waits_for_handlers_of_lost_partitions_to_clean_up() -> None:
    """Left behind, a handler would meet a closed consumer, or a loop that has ended."""
    log, stop, began, cleaned = Log(1), asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def handle(record: Record[Any, Any]) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.02)
            cleaned.set()

    work = log.processing(handle)
    running = asyncio.create_task(work.run(stop))
    await began.wait()
    work.lose(frozenset({AT}))
    stop.set()
    await running
    assert cleaned.is_set()


async def test_a_graceful_stop_waits_for_handlers_and_commits() -> None:
    log, stop = Log(3), asyncio.Event()
    gate = asyncio.Event()

    async def handle(record: Record[Any, Any]) -> None:
        stop.set()
        await gate.wait()

    running = asyncio.create_task(log.processing(handle).run(stop))
    await stop.wait()
    for _ in range(10):
        await asyncio.sleep(0)
    assert not running.done()
    gate.set()
    await running
    assert log.committed == CommittedOffset(3)


async def test_a_position_that_jumps_back_begins_a_new_ledger() -> None:
    log, seen = Log(6), Seen(9)

    def handle(record: Record[Any, Any]) -> None:
        seen.add(record)
        if len(seen.offsets) == 6:
            log.position, log.start = 3, CommittedOffset(3)

    await log.processing(handle).run(seen.stop)
    assert seen.offsets == [0, 1, 2, 3, 4, 5, 3, 4, 5]
    assert log.committed == CommittedOffset(6)


async def test_a_position_below_the_committed_offset_skips_nothing() -> None:
    log, seen = Log(30), Seen(30)
    log.start = CommittedOffset(100, encode_runs(100, [(105, 115)]))
    async with asyncio.timeout(10):
        await log.processing(seen.add).run(seen.stop)
    assert sorted(seen.offsets) == list(range(30))
    assert log.committed == CommittedOffset(30)


async def test_a_jump_back_keeps_the_records_below_it() -> None:
    log, seen, gate = Log(6, keys=2), Seen(6), asyncio.Event()

    async def handle(record: Record[Any, Any]) -> None:
        await gate.wait()
        seen.add(record)

    work = log.processing(handle)
    running = asyncio.create_task(work.run(seen.stop))
    async with asyncio.timeout(10):
        await until(lambda: work.offsets() == {AT: CommittedOffset(0)} and log.position == 6)
        log.position = 4
        log.wake()
        await until(lambda: log.position == 6)
        assert work.offsets()[AT] == CommittedOffset(0), "records that run or wait are not done"
        gate.set()
        await running
    assert seen.by_key == {b"0": [0, 2, 4], b"1": [1, 3, 5]}
    assert log.committed == CommittedOffset(6)


async def given_up(log: Log, work: Processing, began: Callable[[], bool], gate: asyncio.Event) -> None:
    """Release the partition while a handler runs, which then goes on; nothing of it is fetched afterwards."""
    running = asyncio.create_task(work.run(None))
    await until(began)
    releasing = asyncio.create_task(work.release(frozenset({AT})))
    await asyncio.sleep(0)
    gate.set()
    await releasing
    work.released(frozenset({AT}))
    log.records = []
    log.wake()
    for _ in range(5):
        await asyncio.sleep(0.01)
        log.wake()
    assert not running.done()
    running.cancel()
    await asyncio.wait((running,))


async def test_a_record_is_not_tried_again_after_its_partition_was_given_up() -> None:
    log, gate = Log(3), asyncio.Event()
    calls: list[int] = []

    async def handle(record: Record[Any, Any]) -> None:
        calls.append(record.offset)
        await gate.wait()
        raise ValueError("no")

    work = log.processing(handle, retry=Retry(5, first_ms=1), order="partition")
    await given_up(log, work, lambda: bool(calls), gate)
    assert calls == [0]


@pytest.mark.parametrize(("drain_ms", "letters"), [(10_000, 1), (20, 0)])
async def test_a_dead_letter_is_awaited_before_its_partition_is_given_up(drain_ms: int, letters: int) -> None:
    log, gate = Log(1), asyncio.Event()
    calls: list[int] = []
    ends: list[str] = []
    accepts = asyncio.Event()
    if letters:
        accepts.set()

    async def publish(*letter: object) -> None:
        try:
            await asyncio.sleep(0.001)
            await accepts.wait()
            ends.append("written")
        except asyncio.CancelledError:
            ends.append("cancelled")
            raise

    async def handle(record: Record[Any, Any]) -> None:
        calls.append(record.offset)
        await gate.wait()
        raise ValueError("no")

    options = ProcessOptions(dead_letters="dead", drain_ms=drain_ms)
    work = Processing(log, handle, options, SystemClock(), publish)
    await given_up(log, work, lambda: bool(calls), gate)
    assert ends == ["written" if letters else "cancelled"]
