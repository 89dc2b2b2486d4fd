"""Ledger of a partition: the contiguous end, the finished runs above it, and their text in a commit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.client.processing.core.finished_runs import decode_runs, encode_runs
from barnabas.client.processing.core.offset_ledger import (
    RUNS_MAX,
    UNFINISHED_MAX,
    UNFINISHED_MIN,
    OffsetLedger,
)

METADATA_BYTES_MAX = 4_096
"""offset.metadata.max.bytes, the default of a coordinator."""


def test_the_contiguous_end_waits_for_the_first_unfinished_record() -> None:
    ledger = OffsetLedger(10)
    assert ledger.committable == 10
    for offset in (10, 11, 12):
        assert ledger.take(offset)
    ledger.finish(11)
    ledger.finish(12)
    assert ledger.committable == 10
    assert decode_runs(10, ledger.metadata()) == [(11, 13)]
    ledger.finish(10)
    assert ledger.committable == 13
    assert ledger.metadata() == ""


def test_a_gap_between_finished_records_belongs_to_their_run() -> None:
    ledger = OffsetLedger(0)
    for offset in (0, 5, 9, 20):
        ledger.take(offset)
    ledger.finish(5)
    ledger.finish(9)
    assert decode_runs(0, ledger.metadata()) == [(1, 20)]


def test_the_end_of_a_batch_without_records_counts() -> None:
    ledger = OffsetLedger(0)
    ledger.take(3)
    ledger.finish(3)
    ledger.moved_to(8)
    assert ledger.committable == 8


def test_the_next_owner_skips_what_was_finished() -> None:
    first = OffsetLedger(0)
    for offset in range(6):
        first.take(offset)
    for offset in (1, 2, 4):
        first.finish(offset)
    second = OffsetLedger(first.committable, first.metadata())
    assert [offset for offset in range(8) if second.take(offset)] == [0, 3, 5, 6, 7]
    second.finish(0)
    assert second.committable == 3


def test_what_a_previous_owner_finished_is_kept_before_it_is_reached() -> None:
    ledger = OffsetLedger(0, encode_runs(0, [(3, 5), (8, 9)]))
    ledger.take(0)
    assert decode_runs(0, ledger.metadata()) == [(3, 5), (8, 9)]
    ledger.finish(0)
    assert ledger.committable == 1
    assert decode_runs(1, ledger.metadata()) == [(3, 5), (8, 9)]
    ledger.take(1)
    ledger.take(2)
    ledger.finish(1)
    ledger.finish(2)
    assert ledger.committable == 5, "3 and 4 were finished before"
    assert decode_runs(5, ledger.metadata()) == [(8, 9)]


def test_one_slow_record_does_not_grow_the_text() -> None:
    ledger = OffsetLedger(0)
    ledger.take(0)
    for offset in range(1, 100_000):
        ledger.take(offset)
        ledger.finish(offset)
    assert decode_runs(0, ledger.metadata()) == [(1, 100_000)]
    assert len(ledger.metadata()) < 16


def test_the_text_of_a_full_ledger_fits_into_a_commit() -> None:
    ledger = OffsetLedger(0)
    far = (1 << 28) // 2
    offset = 0
    while ledger.room:
        ledger.take(offset)
        ledger.take(offset + 1)
        ledger.finish(offset + 1)
        offset += far
    assert ledger.unfinished == UNFINISHED_MAX
    assert len(ledger.metadata().encode()) <= METADATA_BYTES_MAX


def test_runs_of_a_previous_owner_leave_less_room_but_never_none() -> None:
    step = 1 << 27
    runs = [(first * step + 1, first * step + step - 1) for first in range(RUNS_MAX)]
    ledger = OffsetLedger(0, encode_runs(0, runs))
    assert ledger.room == UNFINISHED_MIN
    taken = 0
    while ledger.room and ledger.take(taken):
        taken += 2
        if taken > 2 * UNFINISHED_MIN:
            break
    assert len(ledger.metadata().encode()) <= METADATA_BYTES_MAX


@pytest.mark.parametrize(
    "text",
    ["", "note of another tool", "b2:AAAA", "b1:", "b1:!!!", "b1:gA", "b1:AQ", "b1:AAE", "b1:" + "_" * 60],
)
def test_text_of_others_means_that_nothing_is_finished(text: str) -> None:
    assert decode_runs(5, text) == []
    assert OffsetLedger(5, text).take(6)


runs = st.lists(st.tuples(st.integers(1, 10**6), st.integers(1, 10**6)), max_size=50)


@given(committed=st.integers(0, 2**40), lengths=runs)
def test_runs_survive_their_text(committed: int, lengths: list[tuple[int, int]]) -> None:
    found, at = [], committed
    for skipped, finished in lengths:
        found.append((at + skipped, at + skipped + finished))
        at += skipped + finished
    assert decode_runs(committed, encode_runs(committed, found)) == found


@given(data=st.data())
def test_any_history_of_owners_handles_each_record_until_it_is_finished(data: st.DataObject) -> None:
    """The model is a set of finished offsets. A restart happens at any commit."""
    existing = sorted(data.draw(st.sets(st.integers(0, 60), min_size=1)))
    finished: set[int] = set()
    position, text = 0, ""
    for _ in range(data.draw(st.integers(1, 4))):
        ledger = OffsetLedger(position, text)
        running: list[int] = []
        for offset in [each for each in existing if each >= position]:
            took = ledger.take(offset)
            assert took == (offset not in finished), offset
            if took:
                running.append(offset)
            if data.draw(st.booleans()) and running:
                done = running.pop(data.draw(st.integers(0, len(running) - 1)))
                ledger.finish(done)
                finished.add(done)
            if data.draw(st.integers(0, 9)) == 0:
                break
        position, text = ledger.committable, ledger.metadata()
        assert all(offset in finished for offset in existing if offset < position)
        for first, end in decode_runs(position, text):
            assert all(offset in finished for offset in existing if first <= offset < end)
