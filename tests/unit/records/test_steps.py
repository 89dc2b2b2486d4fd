"""Records of a batch in small steps: the same as in one go, and never much at a time."""

from __future__ import annotations

import pytest

from barnabas.core.bounds.budget import Budget
from barnabas.core.errors import CorruptMessage, InvalidRecord, MessageTooLarge, RequestTimedOut
from barnabas.core.limits import WALKED_RECORD_BYTES_MAX
from barnabas.records.batch import RecordBatch
from barnabas.records.builder import build_batch
from barnabas.records.compression import CODECS, Codec, compress
from barnabas.records.legacy import convert_down
from barnabas.records.record import Record, iterate_records
from barnabas.records.steps import STEP_BYTES, inflate_in_steps, iterate_in_steps
from tests.support.slices import in_one_go


def batch_of(codec: Codec, sizes: list[int]) -> RecordBatch:
    rows = [(b"k" * (size % 7), bytes(size), [("h", b"x")], 1_000 + size) for size in sizes]
    return RecordBatch(build_batch(rows, codec=codec, base_offset=40))


SIZES = [0, 1, STEP_BYTES - 9, STEP_BYTES, 5 * STEP_BYTES + 3, 7, 0, 130] + [3] * 4_000


@pytest.mark.parametrize("codec", CODECS)
def test_the_records_are_those_of_one_go(codec: Codec) -> None:
    batch = batch_of(codec, SIZES)
    expected = list(iterate_records(batch))
    assert [each for each in iterate_in_steps(batch, budget=Budget()) if each is not None] == expected
    later = [each for each in iterate_in_steps(batch, budget=Budget(), first_offset=45) if each is not None]
    assert later == expected[5:]
    bare = [each for each in iterate_in_steps(batch, budget=Budget(), with_bodies=False) if each is not None]
    assert bare == [Record(each.offset, each.timestamp, None, None) for each in expected]


@pytest.mark.parametrize("codec", CODECS)
def test_no_step_has_more_than_a_thousand_records(codec: Codec) -> None:
    between = 0
    for each in iterate_in_steps(batch_of(codec, [0] * 20_000), budget=Budget(), with_bodies=False):
        between = 0 if each is None else between + 1
        assert between <= STEP_BYTES // 7


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_a_bomb_is_inflated_piece_by_piece(codec: Codec) -> None:
    bomb = compress(codec, bytes(4 << 20))
    pieces = inflate_in_steps(codec, bomb, 1 << 20)
    for _ in range((1 << 20) // STEP_BYTES):
        assert len(next(pieces)) <= STEP_BYTES
    with pytest.raises(InvalidRecord):
        list(pieces)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_stream_that_ends_early_is_corrupt(codec: Codec) -> None:
    cut = compress(codec, b"some bytes, and some more" * 100)[:-9]
    with pytest.raises(CorruptMessage):
        list(inflate_in_steps(codec, cut))


def test_fewer_records_than_the_header_says_are_refused() -> None:
    data = build_batch([(None, b"v", (), 1)] * 3)
    batch = RecordBatch(data)
    batch.record_count = 5
    with pytest.raises(InvalidRecord):
        list(iterate_in_steps(batch, budget=Budget()))


def test_a_record_that_is_too_large_to_convert_is_not_kept() -> None:
    large = RecordBatch(build_batch([(None, bytes(WALKED_RECORD_BYTES_MAX + 1), (), 1)], codec=Codec.GZIP))
    with pytest.raises(MessageTooLarge):
        list(iterate_in_steps(large, budget=Budget()))
    assert len([each for each in iterate_in_steps(large, budget=Budget(), with_bodies=False) if each]) == 1


def test_what_is_inflated_and_walked_spends_the_budget() -> None:
    budget = Budget()
    before = budget.inflated_bytes
    list(iterate_in_steps(batch_of(Codec.GZIP, [100] * 1_000), budget=budget))
    assert before - budget.inflated_bytes > 100_000
    budget.records = 500
    data = build_batch([(None, b"", (), 1)] * 2_000, codec=Codec.GZIP)
    with pytest.raises(RequestTimedOut):
        in_one_go(convert_down(data, 1, budget, first_offset=0, bytes_max=1 << 20))


def test_a_conversion_makes_no_more_than_it_may() -> None:
    """A message of an old format is five times as large as the smallest record."""
    data = build_batch([(None, None, (), 1)] * 50_000, codec=Codec.GZIP)
    down = in_one_go(convert_down(data, 1, Budget(), first_offset=0, bytes_max=64 * 1024))
    assert len(down) < 16 * 1024
