"""Printing of a consumer's records: the limits of --count, --timeout and of ends, and silent brokers.

A topic may be silent for hours, and a broker that hangs looks the same. So the leaders are asked for their
ends while nothing comes. A missing answer is announced on standard error.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from barnabas.cli.records.record_lines import Render
from barnabas.cli.support.exit_codes import Failure
from barnabas.cli.support.progress import Stages
from barnabas.client.admin.admin import Admin
from barnabas.client.consumer.consumer import Consumer
from barnabas.client.core.steps import ClusterUnreachable
from barnabas.client.extensions.records import Record
from barnabas.core.clock import Clock, SystemClock
from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.protocol.offset_numbers import LATEST

POLL_MS = 500
RECORDS_MAX = 500
ASK_AFTER_S = 1.0
UNANSWERED_S = 3.0
"""Together below the five seconds that a command may be silent."""


class Printer:
    """Prints records until --count or --timeout ends it."""

    def __init__(
        self, render: Render, *, count: int | None, timeout_s: float | None, clock: Clock | None = None
    ) -> None:
        self._clock = clock or SystemClock()
        self._render = render
        self._left = count
        self._timeout_s = timeout_s
        self._last_ms = self._clock.monotonic_ms()

    def begin_waiting(self) -> None:
        """Start the timeout. The time before it, such as a rebalance, does not count."""
        self._last_ms = self._clock.monotonic_ms()

    @property
    def room(self) -> int:
        """Records of the next poll."""
        return RECORDS_MAX if self._left is None else min(self._left, RECORDS_MAX)

    @property
    def is_full(self) -> bool:
        return self._left == 0

    @property
    def silent_s(self) -> float:
        return (self._clock.monotonic_ms() - self._last_ms) / 1_000

    @property
    def timed_out(self) -> bool:
        return self._timeout_s is not None and self.silent_s >= self._timeout_s

    def print(self, records: Iterable[Record[Any, Any]]) -> None:
        """Print records up to the first that cannot be shown, which raises Failure."""
        lines: list[bytes] = []
        try:
            for each in records:
                lines.append(self._render(each))  # noqa: PERF401 - those before an error are kept
        except ValueError as error:
            raise Failure(str(error)) from None
        finally:
            self._write(lines)

    def _write(self, lines: Sequence[bytes]) -> None:
        if not lines:
            return
        if self._left is not None:
            self._left -= len(lines)
        sys.stdout.buffer.write(b"".join(lines))
        sys.stdout.buffer.flush()
        self.begin_waiting()


class Following:
    """Reads a consumer to the end that its command wants."""

    def __init__(
        self, consumer: Consumer[Any, Any], printer: Printer, ends: Mapping[TopicPartition, int]
    ) -> None:
        self._consumer = consumer
        self._printer = printer
        self._ends = dict(ends)
        self._is_bounded = bool(ends)

    async def run(self) -> None:
        while not self._printer.is_full and not await self._is_at_end():
            records = await self._consumer.poll(timeout_ms=POLL_MS, max_records=self._printer.room)
            if self._is_bounded:
                records = [each for each in records if each.offset < self._ends.get(each.topic_partition, 0)]
            self._printer.print(records)

    async def _is_at_end(self) -> bool:
        if self._is_bounded:
            for at, end in list(self._ends.items()):
                if await self._consumer.position(at) >= end:
                    del self._ends[at]
                    self._consumer.pause(at)
            return not self._ends
        return self._printer.timed_out and await has_read_everything(self._consumer)


async def has_read_everything(consumer: Consumer[Any, Any]) -> bool:
    """True when no partition has records that were not handed out yet."""
    ends = await consumer.end_offsets(consumer.assignment)
    offsets = consumer.positions()
    return all(at in offsets and offsets[at].offset >= end for at, end in ends.items())


@asynccontextmanager
async def watching_brokers(
    admin: Admin, printer: Printer, consumer: Consumer[Any, Any]
) -> AsyncIterator[None]:
    """Announce leaders that do not answer while the block lasts."""
    watching = asyncio.create_task(_watch(admin, printer, lambda: consumer.assignment))
    try:
        yield
    finally:
        watching.cancel()
        await asyncio.wait((watching,))


async def _watch(
    admin: Admin, printer: Printer, partitions: Callable[[], Collection[TopicPartition]]
) -> None:
    stages = Stages("barnabas")
    while True:
        await asyncio.sleep(ASK_AFTER_S)
        if printer.silent_s < ASK_AFTER_S:
            continue
        async with asyncio.TaskGroup() as group:
            asked, silent_s = group.create_task(_ask(admin, partitions())), 0.0
            while not (await asyncio.wait((asked,), timeout=UNANSWERED_S))[0]:
                silent_s += UNANSWERED_S
                stages.say(f"no answer from the brokers … {silent_s:.0f} s")
        if (fault := asked.result()) is not None:
            stages.say(f"{fault}; trying again …")
            await asyncio.sleep(UNANSWERED_S)


async def _ask(admin: Admin, partitions: Collection[TopicPartition]) -> str | None:
    """Ask the leaders, or any broker while there are no partitions. Returns what is wrong."""
    try:
        if partitions:
            await admin.list_offsets(dict.fromkeys(partitions, LATEST))
        else:
            await admin.cluster.refresh(())
    except KafkaError as error:
        name = error.protocol_name()
        return name if error.message == name else f"{error.message} ({name})"
    except ClusterUnreachable as error:
        return str(error)
    return None
