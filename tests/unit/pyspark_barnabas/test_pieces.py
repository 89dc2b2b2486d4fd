"""Memory of a reader is bounded by the inflated size of the records."""

from __future__ import annotations

import pytest

from barnabas.records.batch import RecordBatch, iterate_batches
from barnabas.records.builder import build_batch
from barnabas.records.columnar import pieces as cutting
from barnabas.records.columnar.decode import DecodeTarget, decode_batches
from barnabas.records.compression import Codec

TARGET = DecodeTarget("events", 0, ("value", "offset"))
BATCH_RECORDS = 100


def batches(codec: Codec, count: int) -> list[RecordBatch]:
    data = bytearray()
    for number in range(count):
        records = [(None, b"x" * 1_000, (), 0)] * BATCH_RECORDS
        data += build_batch(records, base_offset=number * BATCH_RECORDS, codec=codec)
    return list(iterate_batches(data))


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
@pytest.mark.parametrize("start", [0, 1, 99, 150])
def test_a_piece_is_about_a_megabyte_however_well_it_was_compressed(
    codec: Codec, start: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded_bytes: list[int] = []

    def counting(group: list[RecordBatch], *rest: object) -> object:
        decoded_bytes.append(sum(each.record_count for each in group) * 1_000)
        return decode_batches(group, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(cutting, "decode_batches", counting)
    pieces = list(cutting.decode_pieces(iter(batches(codec, 100)), TARGET, start, 9_990))
    offsets = [offset for piece in pieces for offset in piece.column("offset").to_pylist()]
    assert offsets == list(range(start, 9_990))
    assert max(decoded_bytes) <= cutting.PIECE_BYTES + BATCH_RECORDS * 1_000
    assert len(decoded_bytes) <= 12, "pieces are too small to be fast"
