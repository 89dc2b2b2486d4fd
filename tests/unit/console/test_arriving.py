"""Batches of a tail: whatever they inflate to, the newest records are kept and the others counted."""

from __future__ import annotations

import pytest

from barnabas.client.consumer.core.handing_out import BatchesOfPartition
from barnabas.console.records import arriving
from barnabas.console.records.arriving import HEADERS_KEPT, RECORD_BYTES_MAX, RING_RECORDS, newest_of
from barnabas.console.records.fetching import HEADERS_MAX, memory_of
from barnabas.console.records.masking import Masks
from barnabas.core.ids import TopicPartition
from barnabas.records.batch import read_header
from barnabas.records.builder import build_batch
from barnabas.records.compression import Codec
from barnabas.records.varint import Buffer

AT = TopicPartition("orders", 3)


def taken(*batches: Buffer, start: int = 0) -> BatchesOfPartition:
    return BatchesOfPartition(AT, start, [read_header(each, 0) for each in batches], None)


def test_the_newest_records_are_kept_and_all_are_counted() -> None:
    records = [(b"k", b"%d" % number, (), 5) for number in range(RING_RECORDS + 50)]
    found = newest_of(taken(build_batch(records, codec=Codec.GZIP, base_offset=10), start=20), None)
    assert found.records == RING_RECORDS + 40
    assert [each.record.offset for each in found.kept] == list(range(60, RING_RECORDS + 60))
    newest = found.kept[-1].record
    assert (newest.topic_partition, newest.key, newest.timestamp_ms) == (AT, b"k", 5)


def test_records_are_kept_by_their_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arriving, "RING_BYTES", 100_000)
    records = [(None, None, [("", None)] * 100, 0)] * 20
    found = newest_of(taken(build_batch(records)), None)
    assert found.records == 20
    assert 0 < sum(memory_of(each.record) for each in found.kept) <= 100_000


def test_a_large_record_is_cut() -> None:
    headers = [("name", b"value")] * 10_000
    found = newest_of(taken(build_batch([(b"k", b"v", headers, 0)])), None)
    (kept,) = found.kept
    assert kept.is_cut
    assert len(kept.record.headers) == HEADERS_KEPT
    found = newest_of(
        taken(build_batch([(b"k", bytes(RECORD_BYTES_MAX + 1), [("h", bytes(300_000))], 0)])), None
    )
    (kept,) = found.kept
    assert kept.is_cut
    assert (len(kept.record.value or b""), kept.record.headers) == (RECORD_BYTES_MAX, ())


def test_a_record_of_very_many_headers_is_counted_alone() -> None:
    many = build_batch([(None, b"v", [("", None)] * (HEADERS_MAX + 1), 0)], codec=Codec.GZIP)
    after = build_batch([(None, b"after", (), 0)], base_offset=1)
    found = newest_of(taken(many, after), None)
    assert found.records == 2
    assert [each.record.value for each in found.kept] == [b"after"]


def test_a_batch_that_inflates_to_too_much_is_counted_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arriving, "INFLATED_BYTES_MAX", 10_000)
    found = newest_of(taken(build_batch([(None, bytes(20_000), (), 0)], codec=Codec.GZIP)), None)
    assert (found.kept, found.records) == ([], 1)


def test_kept_records_are_masked() -> None:
    mask = Masks(["orders=card"]).of("orders")
    found = newest_of(taken(build_batch([(None, b'{"card": 7, "id": 1}', (), 0)])), mask)
    assert b"7" not in (found.kept[0].record.value or b"")
