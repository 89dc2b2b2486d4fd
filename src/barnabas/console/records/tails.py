"""Live tails: one reader for each user and topic, shared by all viewers, with a ring of bounded size.

A viewer takes what is new in the ring four times a second, the newest first, and no more than a screen of it.
Records beyond the ring or the screen are counted: "1,204 skipped". A viewer that is slow or gone costs
nothing but its place. The leader answers the reader four times a second, however many records arrive. The
reader stops when its last viewer leaves.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.client.consumer.consumer import Consumer
from barnabas.client.core.steps import ClusterUnreachable
from barnabas.client.extensions.records import Record
from barnabas.console.records.arriving import RING_BYTES, RING_RECORDS, Newest, newest_of
from barnabas.console.records.fetching import memory_of
from barnabas.console.records.masking import Mask, Masks
from barnabas.core.clock import Clock
from barnabas.core.errors import KafkaError
from barnabas.core.reporting.error_isolation import complain

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

TAKEN_BYTES: Final = 1024 * 1024
"""Of batches that a thread decodes at once."""
SHOWN_AT_ONCE: Final = 20
PERIOD_MS: Final = 250.0
FETCH_BYTES_MIN: Final = 512 * 1024
"""Of an answer that comes before the period is over."""
UNBROKEN_MS: Final = 10.0
TAILS_MAX: Final = 32
VIEWERS_MAX: Final = 64


Keeps = Callable[[Record[bytes | None, bytes | None]], Awaitable[bool]]
"""Filter of a viewer."""


class TooMany(Exception):
    """There are as many viewers as there may be."""


class Arrived(NamedTuple):
    number: int
    """Counts the records of the tail."""
    record: Record[bytes | None, bytes | None]
    is_cut: bool


class News(NamedTuple):
    records: list[Arrived]
    """The newest first."""
    skipped: int
    """Records that were not looked at, because they were more than the ring or the screen holds."""
    failure: str | None = None


class _Tail:
    """Reader of one topic, for one user."""

    def __init__(self, properties: Mapping[str, Any], topic: str, mask: Mask | None) -> None:
        self.viewers = 0
        self.failure: str | None = None
        self.ready = asyncio.Event()
        self._ring: deque[Arrived] = deque()
        self._ring_bytes = 0
        self._count = 0
        self._properties = properties
        self._topic = topic
        self._mask = mask
        self._task = asyncio.create_task(self._run())

    @property
    def count(self) -> int:
        """Records so far."""
        return self._count

    def since(self, number: int) -> list[Arrived]:
        """Records after the one of that number, as far as the ring has them; the newest first."""
        found: list[Arrived] = []
        for each in reversed(self._ring):
            if each.number <= number:
                break
            found.append(each)
        return found

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        settings = {
            **self._properties,
            "fetch.max.bytes": 4 * 1024 * 1024,
            # The broker answers when a viewer looks, instead of once for each produce request.
            "fetch.min.bytes": FETCH_BYTES_MIN,
            "fetch.max.wait.ms": round(PERIOD_MS),
            "max.partition.fetch.bytes": 512 * 1024,
            "enable.auto.commit": False,
        }
        try:
            async with Consumer(settings) as consumer:
                partitions = await consumer.partitions_for(self._topic)
                await consumer.assign(partitions)
                await consumer.seek_to_end(*partitions)
                for each in partitions:
                    await consumer.position(each)
                self.ready.set()
                while True:
                    taken = await consumer.take_batches(TAKEN_BYTES, PERIOD_MS)
                    if taken is not None:
                        self._add(await asyncio.to_thread(newest_of, taken, self._mask))
        except (KafkaError, ClusterUnreachable) as error:
            self.failure = error.message if isinstance(error, KafkaError) else str(error)
        except Exception as error:  # noqa: BLE001 - one tail ends, the others go on
            complain("the tail of", self._topic, error)
            self.failure = repr(error)
        finally:
            self.ready.set()

    def _add(self, found: Newest) -> None:
        self._count += found.records - len(found.kept)
        for record, is_cut in found.kept:
            self._count += 1
            self._ring.append(Arrived(self._count, record, is_cut))
            self._ring_bytes += memory_of(record)
        while len(self._ring) > RING_RECORDS or self._ring_bytes > RING_BYTES:
            self._ring_bytes -= memory_of(self._ring.popleft().record)


class Tails:
    def __init__(self, clock: Clock, masks: Masks | None = None) -> None:
        self._clock = clock
        self._masks = masks or Masks()
        self._by_topic: dict[tuple[object, str], _Tail] = {}
        self._viewers = 0

    @property
    def readers(self) -> int:
        return len(self._by_topic)

    async def follow(
        self,
        owner: object,
        properties: Mapping[str, Any],
        topic: str,
        keeps: Keeps,
    ) -> AsyncIterator[News]:
        """News of a topic for one viewer, forever. `owner` is the user's connection: two users never share
        a reader, because they may have different rights.
        """
        key = (owner, topic)
        tail = self._by_topic.get(key)
        if self._viewers >= VIEWERS_MAX or (tail is None and len(self._by_topic) >= TAILS_MAX):
            raise TooMany("too many tails are open now: close one, or try later")
        if tail is None:
            tail = self._by_topic[key] = _Tail(properties, topic, self._masks.of(topic))
        tail.viewers += 1
        self._viewers += 1
        try:
            await tail.ready.wait()
            seen = tail.count
            yield News([], 0, tail.failure)
            while tail.failure is None:
                await asyncio.sleep(PERIOD_MS / 1_000)
                news = tail.since(seen)
                missed = tail.count - seen - len(news)
                seen = tail.count
                wanted = await self._wanted(news, keeps)
                shown = wanted[:SHOWN_AT_ONCE]
                skipped = missed + len(wanted) - len(shown)
                if shown or skipped:
                    yield News(shown, skipped)
            yield News([], 0, tail.failure)
        finally:
            tail.viewers -= 1
            self._viewers -= 1
            if not tail.viewers:
                if self._by_topic.get(key) is tail:
                    del self._by_topic[key]
                await tail.stop()

    async def _wanted(self, news: list[Arrived], keeps: Keeps) -> list[Arrived]:
        """News that the viewer's filter keeps. A filter may parse large values, so other pages get turns."""
        found: list[Arrived] = []
        unbroken_ms = self._clock.monotonic_ms()
        for each in news:
            if await keeps(each.record):
                found.append(each)
            if self._clock.monotonic_ms() - unbroken_ms > UNBROKEN_MS:
                await asyncio.sleep(0)
                unbroken_ms = self._clock.monotonic_ms()
        return found

    async def close(self) -> None:
        tails = list(self._by_topic.values())
        self._by_topic.clear()
        for each in tails:
            await each.stop()
