"""The rules for idempotent and transactional producers."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from barnabas.core.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    OutOfOrderSequenceNumber,
    TransactionCoordinatorFenced,
)
from barnabas.records.batch import RecordBatch
from barnabas.records.builder import build_end_transaction_marker, rebuild_batch
from barnabas.records.record import EndTransactionMarker
from barnabas.storage.log.aborted_transactions import aborted_transactions
from barnabas.storage.log.log import Log
from barnabas.storage.log.producer_expiry import remove_expired_producers
from barnabas.storage.log.truncation import truncate_to
from barnabas.storage.producers.append_checks import AppendOrigin
from barnabas.storage.producers.producer_entry import SEQUENCE_MAX
from barnabas.storage.producers.producer_state import ProducerState
from barnabas.storage.producers.waiting_writes import FirstWrite
from tests.unit.storage.support import NOW_MS, Bench, batch, end_transaction, produce


@pytest.fixture
def log(bench: Bench) -> Log:
    return bench.open()


def idempotent(log: Log, sequence: int, count: int = 1, *, producer_id: int = 7, producer_epoch: int = 0):  # type: ignore[no-untyped-def]
    return produce(log, count, producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=sequence)


def transactional(log: Log, sequence: int, *, producer_id: int = 7, producer_epoch: int = 0):  # type: ignore[no-untyped-def]
    return produce(
        log,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=sequence,
        is_transactional=True,
    )


def test_a_retry_of_any_of_the_last_five_batches_gets_its_first_offsets(log: Log) -> None:
    for number in range(7):
        idempotent(log, 2 * number, 2)
    end = log.log_end_offset
    for number in range(2, 7):
        again = idempotent(log, 2 * number, 2)
        assert again.is_duplicate
        assert (again.first_offset, again.last_offset) == (2 * number, 2 * number + 1)
    assert log.log_end_offset == end
    with pytest.raises(OutOfOrderSequenceNumber):
        idempotent(log, 2, 2)


def test_the_last_five_batches_survive_a_clean_restart_and_a_crash(bench: Bench) -> None:
    log = bench.open()
    for number in range(7):
        idempotent(log, number)
    log.close()
    for is_clean in (True, False):
        log = bench.open(is_clean=is_clean)
        for number in range(2, 7):
            assert idempotent(log, number).first_offset == number
        assert log.log_end_offset == 7


def test_a_batch_of_other_bounds_is_no_retry(log: Log) -> None:
    idempotent(log, 0, 3)
    with pytest.raises(OutOfOrderSequenceNumber):
        idempotent(log, 0, 2)


def test_a_gap_is_out_of_order(log: Log) -> None:
    idempotent(log, 0)
    with pytest.raises(OutOfOrderSequenceNumber):
        idempotent(log, 2)
    assert log.log_end_offset == 1


def test_an_unknown_producer_may_begin_anywhere(log: Log) -> None:
    assert idempotent(log, 41).first_offset == 0


def test_an_older_epoch_is_fenced(log: Log) -> None:
    idempotent(log, 0, producer_epoch=3)
    with pytest.raises(InvalidProducerEpoch):
        idempotent(log, 1, producer_epoch=2)


def test_a_new_epoch_begins_at_zero_and_forgets_the_old_batches(log: Log) -> None:
    idempotent(log, 0)
    with pytest.raises(OutOfOrderSequenceNumber):
        idempotent(log, 1, producer_epoch=1)
    assert idempotent(log, 0, producer_epoch=1).first_offset == 1
    (entry,) = log.active_producers()
    assert [known.last_offset for known in entry.batches] == [1]


def test_sequences_start_over_after_the_largest(log: Log) -> None:
    idempotent(log, SEQUENCE_MAX - 1, 4)
    (entry,) = log.active_producers()
    assert (entry.batches[0].first_sequence, entry.last_sequence) == (SEQUENCE_MAX - 1, 1)
    assert idempotent(log, SEQUENCE_MAX - 1, 4).is_duplicate
    idempotent(log, 2)


def test_zero_follows_the_largest_sequence(log: Log) -> None:
    idempotent(log, SEQUENCE_MAX)
    assert idempotent(log, 0).first_offset == 1


def test_a_coordinator_is_checked_for_its_epoch_only(log: Log) -> None:
    idempotent(log, 0, producer_epoch=1)
    free = batch(producer_id=7, producer_epoch=1, base_sequence=-1)
    assert log.append_as_leader(free, leader_epoch=0, origin=AppendOrigin.COORDINATOR).first_offset == 1
    stale = batch(producer_id=7, producer_epoch=0, base_sequence=-1)
    with pytest.raises(InvalidProducerEpoch):
        log.append_as_leader(stale, leader_epoch=0, origin=AppendOrigin.COORDINATOR)


def test_several_batches_of_one_append_are_checked_in_order(log: Log) -> None:
    state = ProducerState()
    fields: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0}
    batches = [RecordBatch(batch(base_sequence=s, base_offset=s, **fields)) for s in (0, 1, 3)]
    assert state.check(batches[:2], AppendOrigin.CLIENT) is None
    with pytest.raises(OutOfOrderSequenceNumber):
        state.check(batches, AppendOrigin.CLIENT)
    assert state.check(batches, AppendOrigin.REPLICATION) is None
    assert not state.producers, "checking changes nothing"


def test_an_open_transaction_holds_the_last_stable_offset_back(log: Log) -> None:
    produce(log)
    transactional(log, 0)
    produce(log)
    log.advance_high_watermark(3)
    assert (log.producers.first_unstable_offset, log.last_stable_offset) == (1, 1)
    assert log.producers.has_ongoing_transaction(7)
    end_transaction(log, 7, commit=True)
    assert log.last_stable_offset == 1, "the marker is not below the high watermark yet"
    log.update_high_watermark(3)
    assert (log.producers.first_unstable_offset,) == (1,), "and at it is not below it"
    log.advance_high_watermark(4)
    stable: tuple[int | None, int] = (log.producers.first_unstable_offset, log.last_stable_offset)
    assert stable == (None, 4)
    assert not log.producers.has_ongoing_transaction(7)


def test_the_oldest_open_transaction_counts(log: Log) -> None:
    transactional(log, 0, producer_id=1)
    transactional(log, 0, producer_id=2)
    log.advance_high_watermark(2)
    end_transaction(log, 1, commit=False)
    log.advance_high_watermark(3)
    assert log.last_stable_offset == 1
    end_transaction(log, 2, commit=False)
    log.advance_high_watermark(4)
    assert log.last_stable_offset == 4
    assert [tuple(entry) for entry in aborted_transactions(log, 0, 4)] == [(1, 0), (2, 1)]
    first, second = log.segments.active.transaction_index.entries
    assert (first.last_stable_offset, second.last_stable_offset) == (1, 4)


def test_only_overlapping_aborted_transactions_are_listed(log: Log) -> None:
    for number in range(3):
        transactional(log, number)
        end_transaction(log, 7, commit=False)
    assert [entry.first_offset for entry in aborted_transactions(log, 2, 4)] == [2]
    assert [entry.first_offset for entry in aborted_transactions(log, 1, 3)] == [0, 2]


def test_a_plain_write_inside_a_transaction_is_refused(log: Log) -> None:
    transactional(log, 0)
    with pytest.raises(InvalidTxnState):
        idempotent(log, 1)


def test_a_marker_of_an_old_coordinator_is_fenced(log: Log) -> None:
    transactional(log, 0)
    end_transaction(log, 7, commit=True, coordinator_epoch=5)
    with pytest.raises(TransactionCoordinatorFenced):
        end_transaction(log, 7, commit=True, coordinator_epoch=4)


def test_a_guard_stands_until_a_marker_of_its_producer_comes(log: Log) -> None:
    guard, other = log.producers.waiting.guard(7), log.producers.waiting.guard(8)
    assert log.producers.waiting.guard(7) is guard, "all that wait share one"
    transactional(log, 0)
    end_transaction(log, 8, commit=True)
    assert log.producers.waiting.stands(7, guard)
    assert not log.producers.waiting.stands(8, other)
    end_transaction(log, 7, commit=True)
    assert not log.producers.waiting.stands(7, guard)
    assert not log.producers.waiting.stands(7, log.producers.waiting.guard(8))
    assert log.producers.waiting.stands(7, later := log.producers.waiting.guard(7))
    assert later is not guard
    assert not log.producers.waiting.stands(7, guard)


def test_a_guard_falls_with_a_marker_that_ends_nothing_and_with_one_of_the_leader(bench: Bench) -> None:
    log = bench.open()
    guard = log.producers.waiting.guard(7)
    marker = build_end_transaction_marker(
        EndTransactionMarker(is_commit=False, coordinator_epoch=0),
        producer_id=7,
        producer_epoch=0,
        timestamp=NOW_MS,
    )
    log.append_as_follower(marker)
    assert not log.producers.waiting.stands(7, guard)


def test_a_guard_does_not_outlive_a_truncation_nor_its_writes(log: Log) -> None:
    transactional(log, 0)
    guard = log.producers.waiting.guard(7)
    truncate_to(log, 0)
    assert not log.producers.waiting.stands(7, guard)
    log.producers.waiting.guard(9)
    assert not log.producers.waiting._guards, "no write waits"


def test_a_producer_that_had_to_wait_begins_with_its_lowest_sequence(log: Log) -> None:
    for sequence in (5, 3, 8):
        log.producers.await_first(7, FirstWrite(1, sequence))
    log.producers.await_first(7, FirstWrite(0, 0))
    for sequence in (4, 5):
        with pytest.raises(OutOfOrderSequenceNumber):
            transactional(log, sequence, producer_epoch=1)
    transactional(log, 3, producer_epoch=1)
    transactional(log, 4, producer_epoch=1)
    transactional(log, 9, producer_id=8)


def test_a_write_that_never_came_again_is_forgotten_in_time(log: Log) -> None:
    log.producers.await_first(7, FirstWrite(0, 0))
    remove_expired_producers(log)
    with pytest.raises(OutOfOrderSequenceNumber):
        transactional(log, 1)
    remove_expired_producers(log)
    transactional(log, 1)


def test_a_new_epoch_of_a_producer_that_had_to_wait_begins_anywhere(log: Log) -> None:
    log.producers.await_first(7, FirstWrite(0, 0))
    transactional(log, 5, producer_epoch=1)


def test_a_marker_without_a_transaction_changes_no_watermark(log: Log) -> None:
    end_transaction(log, 7, commit=False)
    assert log.producers.first_unstable_offset is None
    assert aborted_transactions(log, 0, 1) == []


def test_a_marker_may_raise_the_epoch(log: Log) -> None:
    transactional(log, 0)
    end_transaction(log, 7, commit=False, producer_epoch=1)
    with pytest.raises(InvalidProducerEpoch):
        transactional(log, 1)
    transactional(log, 0, producer_epoch=1)


def emptied_marker(producer_epoch: int) -> RecordBatch:
    """What compaction leaves of a marker whose time is over."""
    marker = build_end_transaction_marker(
        EndTransactionMarker(is_commit=False, coordinator_epoch=0),
        producer_id=7, producer_epoch=producer_epoch, timestamp=NOW_MS, base_offset=5,
    )  # fmt: skip
    return RecordBatch(rebuild_batch(RecordBatch(marker), ()))


def test_a_marker_that_compaction_has_emptied_still_fences(log: Log) -> None:
    idempotent(log, 0)
    state = log.producers
    state.apply(emptied_marker(3), 5)
    (entry,) = state.producers.values()
    assert (entry.producer_epoch, entry.last_sequence, entry.last_timestamp) == (3, -1, NOW_MS)
    with pytest.raises(InvalidProducerEpoch):
        idempotent(log, 1, producer_epoch=2)
    state.apply(emptied_marker(1), 6)
    assert entry.producer_epoch == 3


def test_an_emptied_marker_is_all_that_is_left_of_a_producer() -> None:
    state = ProducerState(end_offset=0)
    assert state.apply(emptied_marker(3), 5) is None
    assert [(entry.producer_id, entry.producer_epoch) for entry in state.producers.values()] == [(7, 3)]
    assert state.first_unstable_offset is None


def test_silent_producers_are_forgotten_unless_a_transaction_is_open(bench: Bench) -> None:
    log = bench.open()
    idempotent(log, 0, producer_id=1)
    transactional(log, 0, producer_id=2)
    bench.clock.advance(bench.environment.config.producer_id_expiration_ms)
    remove_expired_producers(log)
    assert [entry.producer_id for entry in log.active_producers()] == [2]


def test_last_timestamp_follows_the_batches(log: Log) -> None:
    produce(log, timestamp=NOW_MS + 5, producer_id=1, producer_epoch=0, base_sequence=0)
    (entry,) = log.active_producers()
    assert entry.last_timestamp == NOW_MS + 5


def test_a_log_without_transactions_takes_little_memory() -> None:
    """Brokers have many thousand logs, and most of them are idle."""
    count = 100
    ProducerState()
    tracemalloc.start()
    try:
        before_bytes, _ = tracemalloc.get_traced_memory()
        states = [ProducerState() for _ in range(count)]
        after_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (after_bytes - before_bytes) / len(states) < 600
