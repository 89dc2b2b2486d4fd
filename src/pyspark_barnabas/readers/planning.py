"""Planning of tasks from offset ranges.

A Spark task costs tens of milliseconds before it reads a record, so small ranges share a task. The range of a
topic-partition stays whole, as in Spark's own connector, unless `minPartitions` or `maxRecordsPerPartition`
splits it. The plan depends only on its arguments: a batch that is planned again gets the same tasks.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from pyspark_barnabas.readers.fetch import OffsetRange

RECORDS_WORTH_A_TASK: Final = 20_000
"""Records that are read in about the time that a task takes to start."""


def limit(available: Iterable[OffsetRange], records_max: int) -> list[OffsetRange]:
    """Shortened ranges of at most `records_max` offsets in total, each in proportion to its size.

    Every range with records gets at least one offset while the limit allows, so that a large partition does
    not starve a small one.
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
        limited.append(replace(each, end=each.start + taken))
    return sorted(limited, key=lambda each: each.topic_partition)


def plan(
    ranges: Sequence[OffsetRange],
    *,
    min_partitions: int | None = None,
    max_records_per_partition: int | None = None,
) -> list[list[OffsetRange]]:
    """Tasks, each a list of ranges to read in order."""
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


def whole(ranges: Sequence[OffsetRange]) -> list[list[OffsetRange]]:
    """Tasks for all partitions, including empty ones: records may arrive before the tasks read."""
    total = sum(each.size for each in ranges)
    return _pack(ranges, min(len(ranges), max(1, -(-total // RECORDS_WORTH_A_TASK))))


def _split(wanted: OffsetRange, pieces: int) -> list[OffsetRange]:
    pieces = min(pieces, wanted.size)
    cuts = [wanted.start + wanted.size * number // pieces for number in range(pieces + 1)]
    return [replace(wanted, start=start, end=end) for start, end in itertools.pairwise(cuts)]


def _pack(ranges: Sequence[OffsetRange], tasks: int) -> list[list[OffsetRange]]:
    """Distribute the ranges, the largest first, each to the task with the least load."""
    loads = [(0, number) for number in range(tasks)]
    packed: list[list[OffsetRange]] = [[] for _ in range(tasks)]
    for each in sorted(ranges, key=lambda each: (-each.size, each.topic_partition, each.start)):
        load, number = heapq.heappop(loads)
        packed[number].append(each)
        heapq.heappush(loads, (load + each.size, number))
    return [sorted(task, key=lambda each: (each.topic_partition, each.start)) for task in packed]
