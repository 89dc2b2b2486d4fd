"""Batches of aborted transactions, hidden from readers of committed data."""

from __future__ import annotations

import pytest

from barnabas.client.core.aborted_transactions import AbortedFilter
from barnabas.records.batch import RecordBatch, read_batch
from barnabas.records.builder import build_batch, build_end_transaction_marker
from barnabas.records.record import EndTransactionMarker

P, Q = 7, 8


def data(offset: int, producer_id: int, *, count: int = 1, is_transactional: bool = True) -> RecordBatch:
    records = [(None, b"v", (), 0)] * count
    return read_batch(
        build_batch(
            records,
            base_offset=offset,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=is_transactional,
        )
    )


def marker(offset: int, producer_id: int, *, is_commit: bool) -> RecordBatch:
    end = EndTransactionMarker(is_commit=is_commit, coordinator_epoch=0)
    return read_batch(
        build_end_transaction_marker(
            end, producer_id=producer_id, producer_epoch=0, timestamp=0, base_offset=offset
        )
    )


def kept(aborted: list[tuple[int, int]], *batches: RecordBatch) -> list[int]:
    wanted = AbortedFilter(aborted)
    return [batch.base_offset for batch in batches if wanted.keeps(batch)]


def test_an_aborted_transaction_is_hidden_until_its_marker() -> None:
    batches = [
        data(0, P),
        data(1, P),
        marker(2, P, is_commit=False),
        data(3, P),
        marker(4, P, is_commit=True),
    ]
    assert kept([(0, P)], *batches) == [3]


def test_other_producers_are_read_between() -> None:
    batches = [
        data(0, P),
        data(1, Q),
        data(2, P),
        marker(3, Q, is_commit=True),
        marker(4, P, is_commit=False),
    ]
    assert kept([(0, P)], *batches) == [1]


def test_a_batch_outside_of_transactions_is_read() -> None:
    assert kept([(0, P)], data(0, P, is_transactional=False), data(1, P)) == [0]


@pytest.mark.parametrize("is_commit", [True, False])
def test_markers_are_never_read(is_commit: bool) -> None:
    assert kept([], marker(0, P, is_commit=is_commit)) == []


@pytest.mark.parametrize("aborted", [[(0, P), (4, P)], [(4, P), (0, P)]])
def test_two_aborted_transactions_of_a_producer_in_any_order(aborted: list[tuple[int, int]]) -> None:
    batches = [
        data(0, P),
        marker(1, P, is_commit=False),
        data(2, P),
        marker(3, P, is_commit=True),
        data(4, P),
        marker(5, P, is_commit=False),
    ]
    assert kept(aborted, *batches) == [2]


def test_a_transaction_that_begins_within_a_batch_hides_it() -> None:
    assert kept([(3, P)], data(2, P, count=3), data(5, P)) == []


def test_a_commit_marker_of_an_earlier_transaction_ends_nothing() -> None:
    """The aborted transaction begins in the same response, before the marker that is still to come."""
    batches = [data(0, P), marker(1, P, is_commit=True), data(2, P), marker(3, P, is_commit=False)]
    assert kept([(2, P)], *batches) == [0]
