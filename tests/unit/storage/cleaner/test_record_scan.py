from __future__ import annotations

import pytest

from barnabas.core.errors import InvalidRecord
from barnabas.records.batch import RecordBatch
from barnabas.records.builder import build_batch
from barnabas.storage.cleaner.offset_map import OffsetMap
from barnabas.storage.cleaner.record_scan import RECORDS_PER_BREATH, keep_latest, map_keys


def payload_of(*keys: bytes | None, value: bytes | None = b"value") -> bytes:
    return bytes(RecordBatch(build_batch([(key, value, (), 5) for key in keys])).payload())


def breathless() -> None:
    """No waiter."""


def test_every_record_beyond_the_map_is_kept() -> None:
    offsets = OffsetMap(slots=10, first_offset=0)
    offsets.put(b"a", 7)
    offsets.latest_offset = 5
    payload = payload_of(b"a", None, value=None)
    kept = keep_latest(payload, 2, 6, offsets, breathless, drop_tombstones=True)
    assert (kept.record_count, kept.runs) == (2, [(0, len(payload))])
    kept = keep_latest(payload, 2, 4, offsets, breathless, drop_tombstones=True)
    assert (kept.record_count, kept.runs, kept.without_key) == (0, [], 1)


def test_neighbours_that_stay_make_one_run() -> None:
    offsets = OffsetMap(slots=20, first_offset=0)
    payload = payload_of(*(b"%d" % number for number in (0, 1, 2, 1, 3, 4)))
    assert map_keys(payload, 6, 100, 0, offsets, breathless)
    offsets.latest_offset = 200
    size = len(payload) // 6
    kept = keep_latest(payload, 6, 100, offsets, breathless, drop_tombstones=False)
    assert kept.runs == [(0, size), (2 * size, 6 * size)]
    assert kept.record_count == 5


def test_others_get_their_turn_in_a_large_batch() -> None:
    breaths: list[None] = []
    payload = payload_of(*[b"key"] * (10 * RECORDS_PER_BREATH))
    map_keys(
        payload,
        10 * RECORDS_PER_BREATH,
        0,
        0,
        OffsetMap(slots=10, first_offset=0),
        lambda: breaths.append(None),
    )
    assert len(breaths) == 10


@pytest.mark.parametrize("cut", range(1, 25))
def test_a_payload_that_ends_early_is_refused(cut: int) -> None:
    offsets = OffsetMap(slots=10, first_offset=0)
    payload = payload_of(b"key", b"other")[:-cut]
    with pytest.raises(InvalidRecord):
        map_keys(payload, 2, 0, 0, offsets, breathless)
    with pytest.raises(InvalidRecord):
        keep_latest(payload, 2, 0, offsets, breathless, drop_tombstones=False)


def test_more_bytes_than_records_are_refused() -> None:
    with pytest.raises(InvalidRecord):
        keep_latest(
            payload_of(b"a") + b"x",
            1,
            0,
            OffsetMap(slots=10, first_offset=0),
            breathless,
            drop_tombstones=False,
        )


def test_a_key_longer_than_its_record_is_refused() -> None:
    payload = bytearray(payload_of(b"key"))
    payload[4] = 60
    with pytest.raises(InvalidRecord):
        map_keys(bytes(payload), 1, 0, 0, OffsetMap(slots=10, first_offset=0), breathless)
