"""Pages of records: the newest, the oldest, from an offset or a time, of one partition or of all.

A page has a cursor for each partition, so its link shows the same records to another user. With a filter the
search goes on over many records, until the page is full or a bound is reached: records, bytes, or seconds.
The page says how far it came, and goes on from there.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.console.formats.bounds import Undecodable
from barnabas.console.records.decoding import Decoder
from barnabas.console.records.expression import MISSING, Candidate, Predicate, holds
from barnabas.console.records.fetching import Fetched, fetch_in_log, memory_of
from barnabas.console.records.masking import Mask
from barnabas.core.clock import Clock
from barnabas.core.ids import TopicPartition
from barnabas.records.record import Record

FETCH_BYTES: Final = 512 * 1024
SCANNED_RECORDS_MAX: Final = 200_000
SCANNED_BYTES_MAX: Final = 128 * 1024 * 1024
SCAN_MS_MAX: Final = 4_000.0
KEPT_BYTES_MAX: Final = 24 * 1024 * 1024
"""Memory of the records of one page, headers included; a page of very large ones is shorter."""
HELD_BYTES_MAX: Final = 96 * 1024 * 1024
WINDOW_MAX: Final = 20_000
UNREADABLE_MAX: Final = 5
UNBROKEN_MS: Final = 10.0
"""A search gives way to other pages after this long."""
_NOT_DECODED: Final = (
    "Not all values were decoded: that took too long. The filter may have missed some; a filter by partition"
    " or time searches fewer records."
)
FETCHES_AT_ONCE: Final = 4

Direction = Literal["newer", "older"]


@dataclass(frozen=True, slots=True)
class Bounds:
    """First offset and end of a partition."""

    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Found:
    partition: int
    record: Record


@dataclass(frozen=True, slots=True)
class RecordPage:
    records: list[Found]
    """The newest first, or the oldest first, as the direction is."""
    cursors: dict[int, int]
    """By partition: where the next page begins. Older pages have offsets below it."""
    scanned: int
    scanned_bytes: int
    is_complete: bool
    """Whether nothing is left in this direction."""
    unreadable: list[str]


class Browser:
    def __init__(
        self,
        cluster: ClusterClient,
        clock: Clock,
        topic: str,
        bounds: Mapping[int, Bounds],
        predicate: Predicate | None = None,
        decoder: Decoder | None = None,
        *,
        mask: Mask | None,
        committed_only: bool = False,
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._topic = topic
        self._bounds = bounds
        self._predicate = predicate
        self._decoder = decoder
        self._committed_only = committed_only
        self._mask = mask
        self._fetching = asyncio.Semaphore(FETCHES_AT_ONCE)
        self._until_ms = 0.0
        """End of the search."""

    async def newer(self, cursors: Mapping[int, int], limit: int) -> RecordPage:
        """Records from the cursors on, up to the ends as they were, by time."""
        return await self._run(cursors, limit, self._step_newer, is_older=False)

    async def older(self, cursors: Mapping[int, int], limit: int) -> RecordPage:
        """Records below the cursors, the newest first."""
        return await self._run(cursors, limit, self._step_older, is_older=True)

    async def _run(
        self, cursors: Mapping[int, int], limit: int, step: _Step, *, is_older: bool
    ) -> RecordPage:
        scan = _Scan({partition: self._inside(partition, at) for partition, at in cursors.items()})
        self._until_ms = self._clock.monotonic_ms() + SCAN_MS_MAX
        window, is_spent = limit, False
        is_first = True
        while not is_spent:
            dry = [each for each in scan.reached if self._is_dry(scan, each, is_older=is_older)]
            if not dry or not scan.has_room(limit):
                break
            await asyncio.gather(*(step(scan, each, window, is_first=is_first) for each in dry))
            is_first = False
            window = min(window * 4, WINDOW_MAX)
            if self._decoder is not None and self._decoder.is_spent:
                scan.warn(_NOT_DECODED)
            is_spent = scan.is_spent or self._is_late
            self._merge(scan, limit, is_older=is_older, takes_all=is_spent)
        self._merge(scan, limit, is_older=is_older, takes_all=is_spent)
        return scan.page(
            is_older=is_older,
            is_complete=not any(scan.held.values())
            and not any(self._is_dry(scan, each, is_older=is_older) for each in scan.reached),
        )

    def _merge(self, scan: _Scan, limit: int, *, is_older: bool, takes_all: bool) -> None:
        """Move held records to the page by their times, as long as each partition has shown its next one."""
        if not takes_all and any(self._is_dry(scan, each, is_older=is_older) for each in scan.reached):
            return
        sign = -1 if is_older else 1
        ready = [
            (sign * rest[0].record.timestamp, partition) for partition, rest in scan.held.items() if rest
        ]
        heapq.heapify(ready)
        while ready and scan.has_room(limit):
            _, partition = heapq.heappop(ready)
            rest = scan.held[partition]
            scan.take(rest.popleft())
            if rest:
                heapq.heappush(ready, (sign * rest[0].record.timestamp, partition))
            elif not takes_all and self._is_dry(scan, partition, is_older=is_older):
                return

    @property
    def _is_late(self) -> bool:
        return self._clock.monotonic_ms() >= self._until_ms

    async def _step_newer(self, scan: _Scan, partition: int, window: int, *, is_first: bool) -> None:
        del window  # a fetch goes as far as its bytes
        if self._is_late and not is_first:
            return
        at, end = scan.reached[partition], self._bounds[partition].end
        found = await self._fetch(partition, at)
        inside = [each for each in found.records if each.offset < end]
        kept, seen = await self._kept(partition, inside, least=1)
        scan.hold(partition, kept)
        scan.count(found)
        if seen < len(inside):
            scan.reached[partition] = inside[seen].offset
        else:
            scan.reached[partition] = min(found.next_offset, end) if found.next_offset > at else end

    async def _step_older(self, scan: _Scan, partition: int, window: int, *, is_first: bool) -> None:
        end = scan.reached[partition]
        at = start = max(self._bounds[partition].first, end - window)
        kept: list[Found] = []
        least = 0
        while at < end:
            if self._is_late and not is_first:
                return  # the next page begins with this window
            found = await self._fetch(partition, at)
            scan.count(found)
            inside = [each for each in found.records if each.offset < end]
            matching, seen = await self._kept(partition, inside, least)
            if seen < len(inside):
                if not is_first:
                    return
                # The filter takes long. The newest record alone: each page comes further.
                at = start = end - 1
                kept, least = [], 1
                continue
            kept += matching
            if found.next_offset <= at:
                break
            at = found.next_offset
            newest = _newest_within(kept, KEPT_BYTES_MAX)
            if len(newest) < len(kept):  # the next page begins below those that are kept
                kept = newest
                start = newest[0].record.offset
        scan.hold(partition, kept[::-1])
        scan.reached[partition] = start

    def _is_dry(self, scan: _Scan, partition: int, *, is_older: bool) -> bool:
        """Whether more of the partition has to be read before its next record is known."""
        bounds, reached = self._bounds[partition], scan.reached[partition]
        is_over = reached <= bounds.first if is_older else reached >= bounds.end
        return not is_over and not scan.held[partition]

    async def _fetch(self, partition: int, offset: int) -> Fetched:
        at = TopicPartition(self._topic, partition)
        async with self._fetching:
            return await fetch_in_log(
                self._cluster,
                at,
                offset,
                FETCH_BYTES,
                self._mask,
                committed_only=self._committed_only,
            )

    async def _kept(self, partition: int, records: list[Record], least: int) -> tuple[list[Found], int]:
        """Records that the filter keeps, and how many it has seen: all, or `least` if it is late."""
        if self._predicate is None:
            return [Found(partition, each) for each in records], len(records)
        found: list[Found] = []
        unbroken_ms = self._clock.monotonic_ms()
        for seen, each in enumerate(records):
            now_ms = self._clock.monotonic_ms()
            if seen >= least and now_ms >= self._until_ms:
                return found, seen
            if now_ms - unbroken_ms > UNBROKEN_MS:
                await asyncio.sleep(0)  # other viewers wait for the same loop
                unbroken_ms = self._clock.monotonic_ms()
            if await holds(self._predicate, await candidate(partition, each, self._decoder)):
                found.append(Found(partition, each))
        return found, len(records)

    def _inside(self, partition: int, offset: int) -> int:
        bounds = self._bounds[partition]
        return min(max(offset, bounds.first), bounds.end)


class _Scan:
    """State of one search: records that are held by partition, and those on the page."""

    def __init__(self, cursors: Mapping[int, int]) -> None:
        self.reached = dict(cursors)
        self.held: dict[int, deque[Found]] = {partition: deque() for partition in cursors}
        """Matching records in the direction's order, that are not on the page yet."""
        self._records: list[Found] = []
        self._kept_bytes = 0
        self._held_bytes = 0
        self._scanned = 0
        self._scanned_bytes = 0
        self._unreadable: list[str] = []

    @property
    def is_spent(self) -> bool:
        return (
            self._scanned >= SCANNED_RECORDS_MAX
            or self._scanned_bytes >= SCANNED_BYTES_MAX
            or self._held_bytes >= HELD_BYTES_MAX
        )

    def has_room(self, limit: int) -> bool:
        return len(self._records) < limit and self._kept_bytes < KEPT_BYTES_MAX

    def hold(self, partition: int, found: list[Found]) -> None:
        self.held[partition].extend(found)
        self._held_bytes += sum(memory_of(each.record) for each in found)

    def take(self, found: Found) -> None:
        size = memory_of(found.record)
        self._records.append(found)
        self._kept_bytes += size
        self._held_bytes -= size

    def warn(self, told: str) -> None:
        if told not in self._unreadable:
            self._unreadable = [*self._unreadable[: UNREADABLE_MAX - 1], told]

    def count(self, found: Fetched) -> None:
        self._scanned += len(found.records)
        self._scanned_bytes += found.size_bytes
        self._unreadable = [*self._unreadable, *found.unreadable][:UNREADABLE_MAX]

    def page(self, *, is_older: bool, is_complete: bool) -> RecordPage:
        cursors = dict(self.reached)
        for partition, rest in self.held.items():
            if rest:
                cursors[partition] = rest[0].record.offset + (1 if is_older else 0)
        return RecordPage(
            self._records, cursors, self._scanned, self._scanned_bytes, is_complete, self._unreadable
        )


class _Step(Protocol):
    def __call__(self, scan: _Scan, partition: int, window: int, *, is_first: bool) -> Awaitable[None]: ...


async def candidate(partition: int, record: Record, decoder: Decoder | None) -> Candidate:
    """The record as filters see it. A value with a known schema is decoded by it."""
    decoded = MISSING
    if decoder is not None and record.value is not None:
        try:
            found = await decoder.decode(record.value)
            decoded = MISSING if found is None else found.value
        except Undecodable:
            decoded = MISSING
    return Candidate(
        partition, record.offset, record.timestamp, record.key, record.value, record.headers, decoded
    )


def _newest_within(found: list[Found], limit_bytes: int) -> list[Found]:
    kept: list[Found] = []
    left = limit_bytes
    for each in reversed(found):
        left -= memory_of(each.record)
        if left < 0 and kept:
            break
        kept.append(each)
    return kept[::-1]
