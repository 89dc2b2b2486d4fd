"""Offset map: the last offset of each key, in slots of 16 bytes.

A slot is two 64-bit words of one anonymous mapping. The first is Python's keyed hash of the key. The second
is the offset (40 bits, relative to the first that was put) with 24 bits of the key's CRC-32C. So a map ends
when it is full, or when offsets are 2^40 apart.

The map does not keep the keys. Two keys that share all 88 bits would count as one, and the older record would
be lost. For 8 million keys, the capacity of the default buffer, the probability is 10^-13. A dictionary takes
about 140 bytes for each entry.

Open addressing with double hashing: the number of slots is a prime, so every step visits all of them. At a
load of 0.9 a lookup reads 2.6 slots on average for a present key and 10 for an absent one. Only slots in use
take memory, and `close` frees it.
"""

from __future__ import annotations

import mmap
from math import isqrt

from barnabas.records.checksum import crc32c
from barnabas.records.varint import INT64_MAX

SLOT_BYTES = 16

OFFSETS_MAX = 1 << 40
"""Range of offsets in one map."""
SLOTS_MIN = 1 << 12
"""Smallest map: with less memory there is none."""

_HASH_MASK = (1 << 64) - 1
_CHECK_MASK = (1 << 24) - 1


class OffsetMap:
    __slots__ = (
        "_first_offset", "_memory", "_slots", "_words", "latest_offset", "offset_max", "size", "size_max",
    )  # fmt: skip

    def __init__(self, *, slots: int, first_offset: int, load_factor: float = 0.9) -> None:
        self._slots = _prime_up_to(max(slots, 3))
        self._first_offset = first_offset
        self.offset_max = INT64_MAX
        """Largest offset that can be put."""
        self._memory = mmap.mmap(-1, self._slots * SLOT_BYTES)
        self._words = memoryview(self._memory).cast("Q")
        self.size = 0
        self.size_max = max(1, min(int(self._slots * load_factor), self._slots - 1))
        """Maximum number of keys. One slot stays free, or a search would not end."""
        self.latest_offset = first_offset - 1
        """Every record up to here has been put."""

    @property
    def size_bytes(self) -> int:
        return self._slots * SLOT_BYTES

    @property
    def utilization(self) -> float:
        return self.size / self._slots

    def put(self, key: bytes, offset: int) -> None:
        """Store the offset of a key; offsets of one key must ascend."""
        words, slots = self._words, self._slots
        digest = hash(key) & _HASH_MASK
        check = crc32c(key) & _CHECK_MASK
        slot = digest % slots
        step = 0
        if not self.size:
            self._first_offset, self.offset_max = offset, offset + OFFSETS_MAX - 2
        entry = (offset - self._first_offset + 1) << 24 | check
        while found := words[2 * slot + 1]:
            if words[2 * slot] == digest and found & _CHECK_MASK == check:
                words[2 * slot + 1] = entry
                return
            if not step:
                step = 1 + digest // slots % (slots - 1)
            slot += step
            if slot >= slots:
                slot -= slots
        words[2 * slot] = digest
        words[2 * slot + 1] = entry
        self.size += 1

    def get(self, key: bytes) -> int:
        """Last offset of the key; -1 if it is not in the map."""
        words, slots = self._words, self._slots
        digest = hash(key) & _HASH_MASK
        slot = digest % slots
        step = 0
        while found := words[2 * slot + 1]:
            if words[2 * slot] == digest and found & _CHECK_MASK == crc32c(key) & _CHECK_MASK:
                return self._first_offset + (found >> 24) - 1
            if not step:
                step = 1 + digest // slots % (slots - 1)
            slot += step
            if slot >= slots:
                slot -= slots
        return -1

    def close(self) -> None:
        """Free the memory."""
        self._words.release()
        self._memory.close()


def map_for(first_offset: int, end_offset: int, *, buffer_bytes: int, load_factor: float) -> OffsetMap:
    """Create a map for the keys of these offsets, bounded by the buffer and by their number."""
    wanted = int((end_offset - first_offset) / load_factor) + 64
    slots = min(wanted, buffer_bytes // SLOT_BYTES)
    while True:
        try:
            return OffsetMap(slots=slots, first_offset=first_offset, load_factor=load_factor)
        except OSError as error:
            # A failed mapping is not a disk error. A smaller map only means more runs over the log.
            if slots <= SLOTS_MIN:
                raise MemoryError(f"no memory for a map of {slots * SLOT_BYTES} bytes: {error}") from error
            slots = max(SLOTS_MIN, slots // 2)


def _prime_up_to(limit: int) -> int:
    """Largest prime up to `limit`."""
    while not _is_prime(limit):
        limit -= 1
    return limit


def _is_prime(number: int) -> bool:
    return all(number % divisor for divisor in range(2, isqrt(number) + 1))
