from __future__ import annotations

import random

import pytest

from barnabas.storage.cleaner import offset_map
from barnabas.storage.cleaner.offset_map import SLOT_BYTES, OffsetMap, map_for


def test_the_last_offset_of_each_key_is_found() -> None:
    chance = random.Random(1)
    offsets = OffsetMap(slots=2_000, first_offset=1 << 40)
    expected: dict[bytes, int] = {}
    offset = 1 << 40
    while offsets.size < offsets.size_max:
        offset += chance.randint(1, 1_000)
        key = str(chance.randint(0, 5_000)).encode()
        offsets.put(key, offset)
        expected[key] = offset
    assert offsets.size == len(expected)
    assert all(offsets.get(key) == found for key, found in expected.items())
    absent = [str(number).encode() for number in range(5_000) if str(number).encode() not in expected]
    assert absent
    assert all(offsets.get(key) == -1 for key in absent)
    offsets.close()


def test_keys_with_the_same_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_map, "hash", lambda _: 12345, raising=False)
    offsets = OffsetMap(slots=101, first_offset=0)
    for number in range(50):
        offsets.put(b"key-%d" % number, number)
    assert offsets.size == 50
    assert [offsets.get(b"key-%d" % number) for number in range(50)] == list(range(50))
    assert offsets.get(b"another") == -1


def test_a_full_map_still_ends_its_searches() -> None:
    offsets = OffsetMap(slots=3, first_offset=0, load_factor=1.0)
    for number in range(offsets.size_max):
        offsets.put(b"%d" % number, number)
    assert offsets.size_max == 2
    assert offsets.get(b"absent") == -1


def test_a_map_is_no_larger_than_its_buffer_or_than_needed() -> None:
    assert map_for(0, 10**12, buffer_bytes=1 << 20, load_factor=0.9).size_bytes <= 1 << 20
    small = map_for(1_000, 1_100, buffer_bytes=1 << 30, load_factor=0.9)
    assert small.size_max >= 100
    assert small.size_bytes <= 200 * SLOT_BYTES


@pytest.mark.parametrize(("limit", "prime"), [(4, 3), (100, 97), (1 << 20, 1_048_573), (7_919, 7_919)])
def test_the_number_of_slots_is_prime(limit: int, prime: int) -> None:
    assert OffsetMap(slots=limit, first_offset=0).size_bytes == prime * SLOT_BYTES
