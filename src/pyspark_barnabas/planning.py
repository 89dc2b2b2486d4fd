"""From ranges of offsets to tasks.

A Spark task costs tens of milliseconds before it reads anything, so small ranges share one. A
range of a topic-partition stays whole, as in Spark's own connector, unless `minPartitions` or
`maxRecordsPerPartition` asks for pieces. The plan depends on nothing but its arguments: a batch
that is planned again gets the same tasks.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Sequence
from typing import Final

from pyspark_barnabas.fetch import OffsetRange

RECORDS_WORTH_A_TASK: Final = 20_000
"""What reads in about the time that starting a task takes."""


def limit(available: Iterable[OffsetRange], records_max: int) -> list[OffsetRange]:
    """Shorter ranges, of at most `records_max` offsets in all, each in proportion to its size.

    Every range that has anything gets at least one offset as long as there are any to give, so that
    a small partition beside a large one is never starved.
    """
    ranges = [each for each in available if each.size]
    total = sum(each.size for each in ranges)
    if total <= records_max:
        return ranges
    left = records_max
    limited = []
    for number, each in enumerate(sorted(ranges, key=lambda each: each.size)):
        share = max(1, each.size * records_max // total)
        taken = min(each.size, share, left)
        if number == len(ranges) - 1:
            taken = min(each.size, left)
        left -= taken
        limited.append(OffsetRange(each.topic, each.partition, each.start, each.start + taken))
    return sorted(limited, key=lambda each: each.place)


def plan(
    ranges: Sequence[OffsetRange],
    *,
    min_partitions: int | None = None,
    max_records_per_partition: int | None = None,
) -> list[list[OffsetRange]]:
    """Tasks, each a list of ranges to read one after another."""
    wanted = [each for each in ranges if each.size]
    if max_records_per_partition:
        wanted = [
            piece for each in wanted for piece in _split(each, -(-each.size // max_records_per_partition))
        ]
    if min_partitions and len(wanted) < min_partitions:
        total = sum(each.size for each in wanted)
        shares = [(each, max(1, round(min_partitions * each.size / total))) for each in wanted]
        wanted = [piece for each, share in shares for piece in _split(each, share)]
    if max_records_per_partition:
        return [[each] for each in wanted]
    total = sum(each.size for each in wanted)
    tasks = min(len(wanted), max(-(-total // RECORDS_WORTH_A_TASK), min_partitions or 1))
    return _pack(wanted, tasks)


def _split(wanted: OffsetRange, pieces: int) -> list[OffsetRange]:
    pieces = min(pieces, wanted.size)
    cuts = [wanted.start + wanted.size * number // pieces for number in range(pieces + 1)]
    return [
        OffsetRange(wanted.topic, wanted.partition, start, end) for start, end in itertools.pairwise(cuts)
    ]


def _pack(ranges: Sequence[OffsetRange], tasks: int) -> list[list[OffsetRange]]:
    """The largest first, each to the task that has the least so far."""
    loads = [(0, number) for number in range(tasks)]
    packed: list[list[OffsetRange]] = [[] for _ in range(tasks)]
    for each in sorted(ranges, key=lambda each: (-each.size, each.place, each.start)):
        load, number = heapq.heappop(loads)
        packed[number].append(each)
        heapq.heappush(loads, (load + each.size, number))
    return [sorted(task, key=lambda each: (each.place, each.start)) for task in packed]
