"""Accumulator: when batches are full, ready and expired, and the order in which they leave."""

from __future__ import annotations

import math

from tests.support.manual_time import ManualClock

from barnabas.client.producer.core.accumulator import Accumulator, AccumulatorOptions, Queue
from barnabas.client.producer.core.batch import ProducerBatch
from barnabas.client.producer.core.buffer_memory import BufferMemory

BATCH_BYTES = 300


class Filled:
    """An accumulator with a queue of one partition."""

    def __init__(self, memory_bytes: int = 10_000, linger_ms: float = 5) -> None:
        self.clock = ManualClock()
        self.memory = BufferMemory(memory_bytes)
        options = AccumulatorOptions(batch_bytes=BATCH_BYTES, linger_ms=linger_ms, delivery_timeout_ms=1_000)
        self.accumulator = Accumulator(options, self.memory, self.clock)
        self.queue: Queue = self.accumulator.queue("orders", 0)

    def add(self, size: int = 50) -> ProducerBatch:
        batch = self.accumulator.open_batch(self.queue, size + 36)
        if batch is None:
            reserved = self.accumulator.batch_bytes_for(size + 36)
            assert self.memory.take(reserved)
            batch = self.accumulator.add_batch(self.queue, reserved, is_transactional=False)
        self.accumulator.append(batch, None, b"x" * size, (), 0)
        return batch


def test_a_batch_takes_records_until_it_is_full() -> None:
    filled = Filled()
    first = filled.add()
    assert filled.add() is filled.add() is first
    assert filled.add() is not first
    assert first.is_closed
    assert first.size_bytes <= BATCH_BYTES
    assert filled.memory.available_bytes == 10_000 - 2 * BATCH_BYTES


def test_a_large_record_is_a_batch_of_its_own() -> None:
    filled = Filled()
    large = filled.add(5_000)
    assert large.is_closed
    assert large.reserved_bytes >= large.size_bytes
    assert filled.add() is not large


def test_a_batch_lingers_unless_it_is_full() -> None:
    filled = Filled()
    first = filled.add()
    assert filled.accumulator.ready_at_ms(filled.queue) == first.created_ms + 5
    while not first.is_closed:
        filled.add()
    assert filled.accumulator.ready_at_ms(filled.queue) == -math.inf


def test_a_second_batch_ends_the_linger_of_the_first() -> None:
    filled = Filled()
    filled.add()
    filled.add(5_000)
    assert filled.accumulator.ready_at_ms(filled.queue) == -math.inf


def test_nothing_lingers_while_a_sender_waits_for_memory() -> None:
    filled = Filled(memory_bytes=BATCH_BYTES)
    filled.add()
    filled.memory.wait(BATCH_BYTES, lambda: None)
    assert filled.accumulator.ready_at_ms(filled.queue) == -math.inf


def test_a_flush_makes_all_batches_ready_and_names_them() -> None:
    filled = Filled()
    batch = filled.add()
    assert filled.accumulator.begin_flush() == [batch]
    assert filled.accumulator.ready_at_ms(filled.queue) == -math.inf
    filled.accumulator.end_flush()
    assert filled.accumulator.ready_at_ms(filled.queue) > 0


def test_an_empty_or_muted_queue_is_never_ready() -> None:
    filled = Filled()
    assert filled.accumulator.ready_at_ms(filled.queue) == math.inf
    filled.add(5_000)
    filled.queue.is_muted = True
    assert filled.accumulator.ready_at_ms(filled.queue) == math.inf


def test_a_retried_batch_waits_for_its_pause() -> None:
    filled = Filled()
    batch = filled.add()
    filled.accumulator.drain(filled.queue)
    batch.attempts, batch.retry_at_ms = 1, 70.0
    filled.accumulator.put_back(batch)
    filled.accumulator.begin_flush()
    assert filled.accumulator.ready_at_ms(filled.queue) == 70.0


def test_queues_take_turns() -> None:
    filled = Filled()
    other = filled.accumulator.queue("orders", 1)
    for queue in (filled.queue, other, filled.queue):
        filled.memory.take(BATCH_BYTES)
        filled.accumulator.add_batch(queue, BATCH_BYTES, is_transactional=False)
    assert list(filled.accumulator.waiting) == [filled.queue, other]
    filled.accumulator.drain(filled.queue)
    assert list(filled.accumulator.waiting) == [other, filled.queue]


def test_batches_come_back_in_the_order_of_their_numbers() -> None:
    filled = Filled(memory_bytes=100_000)
    batches = [filled.add(5_000) for _ in range(4)]
    for number, batch in enumerate(batches[:3]):
        assert filled.accumulator.drain(filled.queue) is batch
        batch.set_producer(7, 0, 0x7FFFFFFE + number if number < 2 else 0)
    for batch in (batches[1], batches[2], batches[0]):
        filled.accumulator.put_back(batch)
    assert list(filled.queue.batches) == batches


def test_batches_without_numbers_come_back_to_the_front() -> None:
    filled = Filled(memory_bytes=100_000)
    first, second = filled.add(5_000), filled.add(5_000)
    filled.accumulator.drain(filled.queue)
    filled.accumulator.put_back(first)
    assert list(filled.queue.batches) == [first, second]


def test_batches_expire_by_their_age_parts_of_split_ones_too() -> None:
    filled = Filled()
    old = filled.add()
    filled.add()
    filled.clock.advance(600)
    young = filled.add(5_000)
    assert filled.accumulator.next_expiry_ms() == old.created_ms + 1_000
    assert filled.accumulator.expired(filled.clock.monotonic_ms()) == []
    filled.accumulator.drain(filled.queue)
    filled.accumulator.seal(old)
    parts = old.split(150)
    filled.accumulator.replace_by_parts(old, parts)
    assert list(filled.queue.batches) == [*parts, young]
    filled.clock.advance(400)
    assert filled.accumulator.expired(filled.clock.monotonic_ms()) == parts


def test_parts_of_a_split_batch_share_its_memory() -> None:
    filled = Filled()
    batch = filled.add()
    filled.add()
    filled.accumulator.drain(filled.queue)
    filled.accumulator.seal(batch)
    parts = batch.split(150)
    filled.accumulator.replace_by_parts(batch, parts)
    assert filled.memory.available_bytes == 10_000 - BATCH_BYTES
    for part in parts:
        filled.accumulator.finished(part)
    assert filled.memory.available_bytes == 10_000
    assert not filled.accumulator.incomplete


def test_a_batch_has_expired_at_the_time_that_is_named() -> None:
    """However the sum is rounded: a sender that is woken then, and finds nothing, would be woken for ever."""
    for tenths in range(1_000):
        filled = Filled()
        filled.clock.advance(tenths * 0.1 + 15_352.17)
        batch = filled.add()
        assert filled.accumulator.expired(filled.accumulator.next_expiry_ms()) == [batch]


def test_a_batch_whose_first_record_cannot_be_encoded_is_dropped() -> None:
    filled = Filled()
    assert filled.memory.take(BATCH_BYTES)
    empty = filled.accumulator.add_batch(filled.queue, BATCH_BYTES, is_transactional=False)
    filled.accumulator.drop_empty(empty)
    assert not filled.accumulator.waiting
    assert not filled.accumulator.incomplete
    assert filled.memory.available_bytes == 10_000
    batch = filled.add()
    filled.accumulator.drop_empty(batch)
    assert list(filled.queue.batches) == [batch], "a batch with records stays"
