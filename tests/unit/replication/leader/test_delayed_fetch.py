"""Completion of fetches: at once, by cases A to D, or at the timeout."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.core.errors import (
    FencedLeaderEpoch,
    KafkaStorageError,
    OffsetOutOfRange,
    UnknownLeaderEpoch,
    UnknownTopicOrPartition,
)
from tests.support.background import ManualBackground
from tests.support.power_cut_files import PowerCutFiles
from tests.unit.replication.support import ME, ONE, OTHER, ZERO, Replicas, at, fetch_params, offsets_of
from tests.unit.storage.support import batch, end_transaction

READ_COMMITTED = {"read_committed": True}


@pytest.fixture
def replicas(tmp_path: Path) -> Replicas:
    return Replicas(str(tmp_path))


# At once


def test_a_reader_that_will_not_wait_is_answered_with_what_there_is(replicas: Replicas) -> None:
    replicas.lead()
    replicas.ask(at(0), max_wait_ms=0)
    ((read,),) = replicas.answered
    assert (read.error_code, read.records, read.high_watermark) == (0, None, 0)


def test_a_reader_that_asks_for_nothing_is_answered_at_once(replicas: Replicas) -> None:
    replicas.ask(max_wait_ms=10_000)
    assert replicas.answered == [[]]


def test_enough_bytes_are_an_answer_at_once(replicas: Replicas) -> None:
    size_bytes = replicas.append(replicas.lead()).size_bytes
    replicas.ask(at(0), min_bytes=size_bytes, max_wait_ms=10_000)
    ((read,),) = replicas.answered
    assert offsets_of(read) == [(0, 0)]
    replicas.ask(at(0), min_bytes=size_bytes + 1, max_wait_ms=10_000)
    assert len(replicas.answered) == 1, "a byte is missing"


@pytest.mark.parametrize(
    ("ask", "error"),
    [
        (at(1), OffsetOutOfRange),
        (at(-1), OffsetOutOfRange),
        (at(0, epoch=4), FencedLeaderEpoch),
        (at(0, epoch=6), UnknownLeaderEpoch),
        (at(0, ONE), UnknownTopicOrPartition),
    ],
)
def test_an_error_is_an_answer_at_once(replicas: Replicas, ask: object, error: type[Exception]) -> None:
    replicas.lead(epoch=5)
    replicas.ask(at(0), ask, max_wait_ms=10_000)  # type: ignore[arg-type]
    ((good, bad),) = replicas.answered
    assert (good.error_code, bad.error_code) == (0, error.code)  # type: ignore[attr-defined]


def test_offsets_before_the_start_of_the_log_are_out_of_range(replicas: Replicas) -> None:
    partition = replicas.lead()
    replicas.append(partition, b"gone")
    partition.delete_records_before(1)
    replicas.ask(at(0))
    ((read,),) = replicas.answered
    assert read.error_code == OffsetOutOfRange.code
    assert read.log_start_offset == -1, "errors carry no offsets"


# Case A to D


def test_case_a_a_new_leader_epoch_ends_the_waiting(replicas: Replicas) -> None:
    replicas.lead(epoch=5)
    replicas.ask(at(0, epoch=5))
    assert replicas.answered == []
    replicas.lead(epoch=6)
    ((read,),) = replicas.answered
    assert read.error_code == FencedLeaderEpoch.code


def test_case_b_a_partition_that_is_gone_ends_the_waiting(replicas: Replicas) -> None:
    replicas.lead()
    replicas.ask(at(0))
    replicas.local.stop(ZERO, delete=True)
    ((read,),) = replicas.answered
    assert read.error_code == UnknownTopicOrPartition.code


def test_case_b_a_failed_disk_ends_the_waiting() -> None:
    replicas = Replicas("/disk", files=PowerCutFiles())
    partition = replicas.lead()
    replicas.ask(at(0))
    partition.log.log_directory.fail(OSError(5, "Input/output error"))
    ((read,),) = replicas.answered
    assert read.error_code == KafkaStorageError.code


def test_case_c_a_segment_rolled_under_the_reader_ends_the_waiting(replicas: Replicas) -> None:
    """The rest of an older segment will not grow."""
    partition = replicas.lead()
    replicas.append(partition)
    replicas.ask(at(0), min_bytes=1 << 19)
    assert replicas.answered == []
    partition.log.roll()
    replicas.append(partition)
    ((read,),) = replicas.answered
    assert offsets_of(read) == [(0, 0)]


def test_case_c_a_log_truncated_under_the_reader_ends_the_waiting(replicas: Replicas) -> None:
    partition = replicas.lead()
    replicas.append(partition)
    replicas.append(partition)
    replicas.ask(at(2))
    replicas.log_manager.truncate_to({ZERO: 1})
    replicas.delayed.wake(ZERO)
    ((read,),) = replicas.answered
    assert read.error_code == OffsetOutOfRange.code


def test_case_c_records_deleted_under_the_reader_end_the_waiting(replicas: Replicas) -> None:
    partition = replicas.lead()
    replicas.append(partition)
    replicas.ask(at(0), min_bytes=1 << 19)
    partition.delete_records_before(1)
    replicas.append(partition)
    ((read,),) = replicas.answered
    assert read.error_code == OffsetOutOfRange.code


def test_case_d_the_append_that_makes_it_enough_ends_the_waiting(replicas: Replicas) -> None:
    zero, one = replicas.lead(ZERO), replicas.lead(ONE)
    size_bytes = replicas.append(zero).size_bytes
    replicas.ask(at(0), at(0, ONE), min_bytes=3 * size_bytes)
    replicas.append(one)
    assert replicas.answered == [], "two of three"
    replicas.append(zero)
    ((first, second),) = replicas.answered
    assert (offsets_of(first), offsets_of(second)) == ([(0, 0), (1, 1)], [(0, 0)])
    replicas.append(zero)
    assert len(replicas.answered) == 1, "answered exactly once"
    assert replicas.delayed.fetches.pending == 0


def test_case_d_an_append_above_the_high_watermark_wakes_no_fetch(tmp_path: Path) -> None:
    disk = ManualBackground()
    replicas = Replicas(str(tmp_path), background=disk, flush_messages=1)
    partition = replicas.lead()
    replicas.ask(at(0))
    replicas.append(partition)
    assert replicas.answered == [], "it is not committed yet"
    disk.run_one()
    ((read,),) = replicas.answered
    assert offsets_of(read) == [(0, 0)]


def test_patience_ends_with_what_there_is(replicas: Replicas) -> None:
    partition = replicas.lead()
    replicas.append(partition)
    replicas.ask(at(0), min_bytes=1 << 19, max_wait_ms=500)
    replicas.pass_time(499)
    assert replicas.answered == []
    replicas.pass_time(1)
    ((read,),) = replicas.answered
    assert offsets_of(read) == [(0, 0)]


# How far a reader sees


def test_followers_read_to_the_end_and_consumers_to_the_high_watermark(tmp_path: Path) -> None:
    replicas = Replicas(str(tmp_path), background=ManualBackground(), flush_messages=1)
    partition = replicas.lead()
    replicas.append(partition)
    (seen,) = replicas.reader.read(fetch_params(), [at(0)])
    assert (offsets_of(seen), seen.high_watermark) == ([], 0)
    (seen,) = replicas.reader.read(fetch_params(replica_id=OTHER), [at(0)])
    assert offsets_of(seen) == [(0, 0)]


def test_committed_readers_stop_at_the_last_stable_offset_and_get_the_aborted_list(
    replicas: Replicas,
) -> None:
    partition = replicas.lead()
    transactional = {"producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
    replicas.append(partition, b"plain")
    replicas.append(partition, b"aborted", b"aborted", producer_id=10, **transactional)
    replicas.append(partition, b"committed", producer_id=11, **transactional)
    replicas.append(partition, b"open", producer_id=12, **transactional)
    for producer_id, commit in ((10, False), (11, True)):
        end_transaction(partition.log, producer_id, commit=commit)
    partition.maybe_advance_high_watermark()

    (seen,) = replicas.reader.read(fetch_params(**READ_COMMITTED), [at(0)])
    assert (seen.high_watermark, seen.last_stable_offset) == (7, 4)
    assert offsets_of(seen) == [(0, 0), (1, 2), (3, 3)]
    assert seen.aborted_transactions is not None
    assert [tuple(each) for each in seen.aborted_transactions] == [(10, 1)]

    (seen,) = replicas.reader.read(fetch_params(), [at(0)])
    assert offsets_of(seen)[-1] == (6, 6)
    assert seen.aborted_transactions is None, "only committed readers need the list"

    replicas.ask(at(4), **READ_COMMITTED)
    assert replicas.answered == [], "an open transaction holds committed readers back"
    end_transaction(partition.log, 12, commit=False)
    partition.maybe_advance_high_watermark()
    replicas.delayed.wake(ZERO)
    ((woken,),) = replicas.answered
    assert woken.last_stable_offset == 8
    assert offsets_of(woken) == [(4, 4), (5, 5), (6, 6), (7, 7)]
    assert woken.aborted_transactions is not None
    assert (12, 4) in [tuple(each) for each in woken.aborted_transactions]


def test_a_committed_reader_beyond_the_last_stable_offset_waits_as_others_do(replicas: Replicas) -> None:
    """Answering it at once would only make it ask again, as fast as it can."""
    partition = replicas.lead()
    replicas.append(
        partition, b"open", producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    replicas.append(partition, b"plain")
    replicas.ask(at(1), **READ_COMMITTED)
    assert replicas.answered == []
    replicas.append(partition, b"plain")
    assert replicas.answered == []
    replicas.pass_time(500)
    ((read,),) = replicas.answered
    assert (read.error_code, offsets_of(read)) == (0, [])


# How much a reader gets


def test_a_fetch_from_the_middle_of_a_batch_gets_the_whole_batch(replicas: Replicas) -> None:
    replicas.append(replicas.lead(), b"a", b"b", b"c")
    (read,) = replicas.reader.read(fetch_params(), [at(1)])
    assert offsets_of(read) == [(0, 2)]


def test_the_first_batch_comes_whole_however_small_the_limits(replicas: Replicas) -> None:
    zero, one = replicas.lead(ZERO), replicas.lead(ONE)
    size_bytes = replicas.append(zero, bytes(10_000)).size_bytes
    replicas.append(one, bytes(10_000))
    first, second = replicas.reader.read(
        fetch_params(max_bytes=50), [at(0, max_bytes=10), at(0, ONE, max_bytes=10)]
    )
    assert first.records is not None
    assert first.records.length == size_bytes
    assert second.records is None, "only the first partition with data may exceed the limits"


def test_the_limit_of_a_request_holds_over_all_its_partitions(replicas: Replicas) -> None:
    zero, one = replicas.lead(ZERO), replicas.lead(ONE)
    size_bytes = replicas.append(zero).size_bytes
    for _ in range(3):
        replicas.append(one)
    first, second = replicas.reader.read(fetch_params(max_bytes=3 * size_bytes), [at(0), at(0, ONE)])
    assert (offsets_of(first), offsets_of(second)) == ([(0, 0)], [(0, 0), (1, 1)])


def test_ten_thousand_pending_fetches_wake_the_timer_a_few_times_only(replicas: Replicas) -> None:
    """The driver sleeps until the next bucket; while nothing is due it is not woken at all."""
    replicas.lead()
    for number in range(10_000):
        replicas.clock.advance(0.01)
        replicas.ask(at(0), max_wait_ms=30_000 + number % 7)
    assert replicas.delayed.fetches.pending == 10_000
    assert len(replicas.wakes) <= 4, "one for the first, few for those that are due earlier"
    advances = 0
    while (due_ms := replicas.timer.next_expiry_ms()) is not None:
        replicas.clock.advance(max(due_ms - replicas.clock.monotonic_ms(), 0))
        replicas.timer.advance()
        advances += 1
    assert len(replicas.answered) == 10_000
    assert advances < 200, f"{advances} wake-ups for a wait of 30 s"


def test_what_one_turn_of_the_loop_appends_is_read_together(tmp_path: Path) -> None:
    deferred: list[Callable[[], None]] = []
    replicas = Replicas(str(tmp_path), defer=deferred.append)
    partition = replicas.lead()
    replicas.ask(at(0))
    for _ in range(3):
        partition.append(memoryview(batch((b"value",))), 1)
        replicas.delayed.wake_soon(ZERO)
    assert not replicas.answered
    (work,) = deferred
    work()
    ((read,),) = replicas.answered
    assert offsets_of(read) == [(0, 0), (1, 1), (2, 2)]
    replicas.delayed.wake_soon(ZERO)
    assert len(deferred) == 2, "the next turn has a wake-up of its own"


def test_a_fetch_that_waited_reports_the_followers_position_once(tmp_path: Path) -> None:
    """Meanwhile the follower may have been started again: a stale position must not count as its own."""
    replicas = Replicas(str(tmp_path))
    partition = replicas.lead(isr=(ME, OTHER))
    replicas.append(partition)
    replicas.ask(at(1), replica_id=OTHER, max_wait_ms=1_000)
    assert partition.followers[OTHER].end_offset == 1
    replicas.fetched(partition, OTHER, 0)
    replicas.append(partition)
    assert len(replicas.answered) == 1
    assert partition.followers[OTHER].end_offset == 0
