"""Ranges to tasks, and limits shared out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pyspark_barnabas.readers.fetch import OffsetRange
from pyspark_barnabas.readers.planning import limit, plan

ranges = st.lists(st.tuples(st.integers(0, 100), st.integers(0, 50_000)), min_size=1, max_size=20).map(
    lambda rows: [OffsetRange("t", n, start, start + size) for n, (start, size) in enumerate(rows)]
)


def offsets(tasks: list[list[OffsetRange]]) -> list[tuple[int, int, int]]:
    """Pieces of each partition, joined where they touch."""
    joined: list[tuple[int, int, int]] = []
    pieces = sorted((each for task in tasks for each in task), key=lambda each: (each.partition, each.start))
    for each in pieces:
        if joined and joined[-1][0] == each.partition and joined[-1][2] == each.start:
            joined[-1] = (each.partition, joined[-1][1], each.end)
        else:
            joined.append((each.partition, each.start, each.end))
    return joined


@given(ranges, st.none() | st.integers(1, 50), st.none() | st.integers(100, 60_000))
def test_a_plan_covers_every_offset_once(
    wanted: list[OffsetRange], least: int | None, most: int | None
) -> None:
    tasks = plan(wanted, min_partitions=least, max_records_per_partition=most)
    assert offsets(tasks) == [(each.partition, each.start, each.end) for each in wanted if each.size]
    if most:
        assert all(each.size <= most for task in tasks for each in task)


def test_small_ranges_share_a_task_and_large_ones_do_not() -> None:
    assert len(plan([OffsetRange("t", n, 0, 100) for n in range(50)])) == 1
    assert len(plan([OffsetRange("t", n, 0, 1_000_000) for n in range(3)])) == 3
    assert len(plan([OffsetRange("t", 0, 0, 1_000_000)], min_partitions=4)) == 4


@given(ranges, st.integers(1, 100_000))
def test_a_limit_is_kept_and_used_up(wanted: list[OffsetRange], most: int) -> None:
    limited = limit(wanted, most)
    available = sum(each.size for each in wanted)
    assert sum(each.size for each in limited) == min(most, available)
    starts = {each.partition: each for each in wanted}
    assert all(
        each.start == starts[each.partition].start and each.end <= starts[each.partition].end
        for each in limited
    )
