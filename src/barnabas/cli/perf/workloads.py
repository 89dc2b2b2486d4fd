"""Workloads of `barnabas perf`: records sent, records read, records sent and read back."""

from __future__ import annotations

import asyncio
import itertools
import random
import string
import struct
from functools import partial
from typing import Any, Final

from barnabas.cli.perf.measurement import Measurement
from barnabas.cli.support.exit_codes import Failure
from barnabas.client.consumer.consumer import Consumer
from barnabas.client.producer.delivery import Delivery
from barnabas.client.producer.producer import Producer
from barnabas.core.ids import TopicPartition

POLL_MS: Final = 500
RECORDS_MAX: Final = 500
POOL_BYTES: Final = 1 << 20
PAYLOADS_MAX: Final = 1_000
STAMP: Final = struct.Struct(">d")
MARK_BYTES: Final = 8
LOST_AFTER_S: Final = 30.0


async def send_all(
    producer: Producer,
    topic: str,
    measured: Measurement,
    *,
    records: int,
    size: int,
    rate: float | None,
    keys: int | None,
) -> None:
    """Send records of random letters, as fast as the producer takes them, or at a rate."""
    failed: list[Exception] = []

    def done(sent_ms: float, delivery: Delivery) -> None:
        error = delivery.exception()
        if error is not None:
            failed.append(error)
            return
        measured.records += 1
        measured.bytes += size
        measured.latencies.add(measured.now_ms() - sent_ms)

    payloads = itertools.cycle(_payloads(size))
    names = itertools.cycle([b"key %d" % number for number in range(keys)] if keys else [None])
    begin_ms = measured.now_ms()
    for number, value, key in zip(range(records), payloads, names, strict=False):
        if rate is not None:
            await _pace(measured, begin_ms, number, rate)
        sent_ms = measured.now_ms()
        delivery = await producer.send(topic, value, key=key)
        delivery.add_done_callback(partial(done, sent_ms))
        if failed:
            break
    await producer.flush()
    await asyncio.sleep(0)
    if failed:
        raise failed[0]


async def read_to_end(
    consumer: Consumer[Any, Any], measured: Measurement, records: int | None, ends: dict[TopicPartition, int]
) -> None:
    """Read so many records, or up to these ends."""
    while not await _is_done(consumer, measured, records, ends):
        room = RECORDS_MAX if records is None else min(records - measured.records, RECORDS_MAX)
        asked_ms = measured.now_ms()
        found = await consumer.poll(timeout_ms=POLL_MS, max_records=room)
        if found:
            measured.latencies.add(measured.now_ms() - asked_ms)
            measured.records += len(found)
            measured.bytes += sum(len(each.value or b"") + len(each.key or b"") for each in found)


async def _is_done(
    consumer: Consumer[Any, Any], measured: Measurement, records: int | None, ends: dict[TopicPartition, int]
) -> bool:
    if records is not None:
        return measured.records >= records
    for at, end in list(ends.items()):
        if await consumer.position(at) < end:
            return False
        del ends[at]
    return True


class RoundTrips:
    """Records sent and read back by one process, whose clock measures both ends."""

    def __init__(
        self, producer: Producer, consumer: Consumer[Any, Any], topic: str, measured: Measurement, size: int
    ) -> None:
        self._producer = producer
        self._consumer = consumer
        self._topic = topic
        self._measured = measured
        self._size = size
        self._mark = random.randbytes(MARK_BYTES)[: size - STAMP.size]  # noqa: S311 - no secret
        self._arrived = asyncio.Event()

    async def run(self, records: int, rate: float | None) -> None:
        """Send so many records. Without a rate each waits for the arrival of the one before."""
        tasks = [asyncio.create_task(self._receive(records)), asyncio.create_task(self._send(records, rate))]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    async def _receive(self, records: int) -> None:
        measured = self._measured
        last_ms = measured.now_ms()
        while measured.records < records:
            for record in await self._consumer.poll(timeout_ms=POLL_MS):
                value = record.value or b""
                if len(value) != self._size or not value.startswith(self._mark, STAMP.size):
                    continue  # of another producer
                last_ms = measured.now_ms()
                measured.latencies.add(last_ms - STAMP.unpack_from(value)[0])
                measured.records += 1
                measured.bytes += self._size
                self._arrived.set()
            if measured.now_ms() - last_ms > LOST_AFTER_S * 1_000:
                raise Failure(f"no record arrived within {LOST_AFTER_S:.0f} s")

    async def _send(self, records: int, rate: float | None) -> None:
        begin_ms = self._measured.now_ms()
        padding = bytes(self._size)
        for number in range(records):
            if rate is not None:
                await _pace(self._measured, begin_ms, number, rate)
            value = STAMP.pack(self._measured.now_ms()) + self._mark + padding
            delivery = await self._producer.send(self._topic, value[: self._size])
            if rate is None:
                await delivery
                while self._measured.records <= number:
                    self._arrived.clear()
                    await self._arrived.wait()


async def _pace(measured: Measurement, begin_ms: float, number: int, rate: float) -> None:
    """Wait until the record of this number is due."""
    ahead_ms = begin_ms + number * 1_000 / rate - measured.now_ms()
    if ahead_ms > 0:
        await asyncio.sleep(ahead_ms / 1_000)


def _payloads(size: int) -> list[bytes]:
    """Values of random letters, in bounded memory."""
    count = max(1, min(PAYLOADS_MAX, POOL_BYTES // size))
    letters = random.Random().choices  # noqa: S311 - no secret
    return ["".join(letters(string.ascii_uppercase, k=size)).encode() for _ in range(count)]
