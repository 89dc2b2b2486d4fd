"""Decoding of a fetch: its memory is bounded, and the next fetch goes on where it stopped."""

from __future__ import annotations

import pytest

from barnabas.console.records import fetching
from barnabas.console.records.fetching import HEADER_BYTES, RECORD_BYTES, Fetched
from barnabas.records.builder import build_batch
from barnabas.records.compression import Codec

BATCHES, RECORDS = 5, 40


def answer(value: bytes | None) -> bytes:
    """Compressed batches of equal records, with offsets from 0 on."""
    records = [(None, value, (), 0)] * RECORDS
    return b"".join(
        build_batch(records, codec=Codec.GZIP, base_offset=number * RECORDS) for number in range(BATCHES)
    )


def decode(data: bytes, offset: int) -> Fetched:
    return fetching._decoded(data, offset, [])


@pytest.mark.parametrize("value", [bytes(5_000), None], ids=["large", "without a value"])
def test_a_fetch_keeps_no_more_than_its_memory(monkeypatch: pytest.MonkeyPatch, value: bytes | None) -> None:
    limit = (RECORD_BYTES + len(value or b"")) * 7
    monkeypatch.setattr(fetching, "DECODED_BYTES_MAX", limit)
    data = answer(value)
    offsets: list[int] = []
    next_offset = 0
    while next_offset < BATCHES * RECORDS:
        found = decode(data, next_offset)
        assert len(found.records) <= 7
        offsets += [record.offset for record in found.records]
        assert found.next_offset > next_offset
        next_offset = found.next_offset
    assert offsets == list(range(BATCHES * RECORDS))


def test_an_answer_within_the_memory_is_decoded_whole() -> None:
    found = decode(answer(b"v"), 30)
    assert [record.offset for record in found.records] == list(range(30, BATCHES * RECORDS))
    assert found.next_offset == BATCHES * RECORDS


def test_a_record_of_very_many_headers_is_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "HEADERS_MAX", 1_000)
    many = build_batch([(None, b"v", [("", None)] * 1_001, 0)], codec=Codec.GZIP)
    few = build_batch([(None, b"v", [("", None)] * 1_000, 0)], base_offset=1)
    found = decode(bytes(many + few), 0)
    assert [record.offset for record in found.records] == [1]
    assert found.next_offset == 2
    (told,) = found.unreadable
    assert "1,001 headers" in told
    assert found.first_unreadable == 0


def test_empty_headers_count_as_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "DECODED_BYTES_MAX", 100 * HEADER_BYTES)
    data = b"".join(
        build_batch([(None, None, [("", None)] * 60, 0)], base_offset=offset) for offset in range(9)
    )
    assert len(decode(data, 0).records) == 2
