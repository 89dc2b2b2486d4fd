"""Lanes: order per key, partition or none, within the concurrency; delays block a lane only."""

from __future__ import annotations

import pytest

from barnabas.client.extensions.records import Record
from barnabas.client.processing.core.lanes import Job, Lanes, Order
from barnabas.client.processing.core.offset_ledger import OffsetLedger
from barnabas.client.processing.core.retry_policy import Retry
from barnabas.core.ids import TopicPartition

LEDGER = OffsetLedger(0)


def job(offset: int, key: bytes | None = b"k", partition: int = 0) -> Job:
    record = Record("t", partition, offset, 0, key, b"")
    return Job(TopicPartition("t", partition), record, LEDGER)


def started(lanes: Lanes) -> list[int]:
    return [each.record.offset for each in lanes.start()]


def of(lanes: Lanes, offset: int) -> Job:
    return next(each for each in lanes.running if each.record.offset == offset)


@pytest.mark.parametrize(
    ("order", "first"), [("key", [0, 2, 3]), ("partition", [0, 3]), ("none", [0, 1, 2, 3])]
)
def test_what_may_run_beside_each_other(order: Order, first: list[int]) -> None:
    lanes = Lanes(10, order)
    for each in (job(0, b"a"), job(1, b"a"), job(2, b"b"), job(3, b"a", partition=1)):
        lanes.add(each)
    assert started(lanes) == first


def test_records_without_a_key_have_no_order() -> None:
    lanes = Lanes(10, "key")
    lanes.add(job(0, None))
    lanes.add(job(1, None))
    assert started(lanes) == [0, 1]


def test_the_next_of_a_lane_runs_when_the_one_before_is_done() -> None:
    lanes = Lanes(10, "key")
    for offset in range(3):
        lanes.add(job(offset))
    assert started(lanes) == [0]
    assert started(lanes) == []
    lanes.finish(of(lanes, 0))
    assert started(lanes) == [1]
    assert lanes.queued == 2


def test_concurrency_bounds_what_runs() -> None:
    lanes = Lanes(2, "none")
    for offset in range(4):
        lanes.add(job(offset))
    assert started(lanes) == [0, 1]
    lanes.finish(of(lanes, 1))
    assert started(lanes) == [2]


def test_a_delayed_record_blocks_its_lane_and_no_other() -> None:
    lanes = Lanes(1, "key")
    lanes.add(job(0, b"a"))
    lanes.add(job(1, b"a"))
    lanes.add(job(2, b"b"))
    assert started(lanes) == [0]
    lanes.delay(of(lanes, 0), 100)
    assert started(lanes) == [2], "the delayed record takes no place"
    lanes.finish(of(lanes, 2))
    assert lanes.wakes_ms() == 100
    lanes.wake(99)
    assert started(lanes) == []
    lanes.wake(100)
    assert started(lanes) == [0]


def test_dropped_partitions_keep_only_what_runs() -> None:
    lanes = Lanes(1, "key")
    lanes.add(job(0, b"a"))
    lanes.add(job(1, b"a"))
    lanes.add(job(2, b"b"))
    lanes.add(job(3, b"a", partition=1))
    assert started(lanes) == [0]
    running = lanes.drop_queued(frozenset({TopicPartition("t", 0)}))
    assert [each.record.offset for each in running] == [0]
    lanes.finish(running[0])
    assert started(lanes) == [3]
    assert lanes.queued == 1


def test_a_delayed_record_of_a_dropped_partition_never_runs() -> None:
    lanes = Lanes(1, "key")
    lanes.add(job(0))
    started(lanes)
    lanes.delay(of(lanes, 0), 10)
    lanes.drop_queued(frozenset({TopicPartition("t", 0)}))
    lanes.wake(10)
    assert started(lanes) == []


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one record"):
        Lanes(0, "key")
    with pytest.raises(ValueError, match="order is one of"):
        Lanes(1, "keys")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least once"):
        Retry(attempts=0)


def test_pauses_double_and_end() -> None:
    retry = Retry(attempts=4, first_ms=10, max_ms=25, on=(OSError,))
    assert [retry.pause_ms(count, OSError()) for count in (1, 2, 3, 4)] == [10, 20, 25, None]
    assert retry.pause_ms(1, ValueError()) is None
