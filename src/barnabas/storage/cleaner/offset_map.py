"""The last offset of each key, in 16 bytes a slot.

A slot is two 64-bit words of one anonymous mapping: Python's keyed hash of the key, then the
offset (40 bits, counted from the first that was put) with 24 bits of the key's CRC-32C. Keys
themselves are not kept, so two keys that share all 88 bits would be taken for one and the
older would be lost: for 8 million keys, what the default buffer holds, the chance is 10^-13.
A dictionary of the same facts takes about 140 bytes an entry.

Open addressing with double hashing: the number of slots is a prime, so every step visits all
of them. At a load of 0.9 a lookup looks at 2.6 slots on average when the key is there and at
10 when it is not. Memory is touched only where keys fall, and goes back with `close`.
"""

from __future__ import annotations

import mmap
from math import isqrt

from barnabas.records.checksum import crc32c

SLOT_BYTES = 16

_HASH_MASK = (1 << 64) - 1
_CHECK_MASK = (1 << 24) - 1


class OffsetMap:
    __slots__ = ("_first_offset", "_memory", "_slots", "_words", "latest_offset", "size", "size_max")

    def __init__(self, *, slots: int, first_offset: int, load_factor: float = 0.9) -> None:
        self._slots = _prime_up_to(max(slots, 3))
        self._first_offset = first_offset
        self._memory = mmap.mmap(-1, self._slots * SLOT_BYTES)
        self._words = memoryview(self._memory).cast("Q")
        self.size = 0
        self.size_max = max(1, min(int(self._slots * load_factor), self._slots - 1))
        """How many keys may go in; one slot always stays free, or a search would not end."""
        self.latest_offset = first_offset - 1
        """Everything up to here has been put."""

    @property
    def size_bytes(self) -> int:
        return self._slots * SLOT_BYTES

    @property
    def utilization(self) -> float:
        return self.size / self._slots

    def put(self, key: bytes, offset: int) -> None:
        """Remember the offset; offsets of one key must come in ascending order."""
        words, slots = self._words, self._slots
        digest = hash(key) & _HASH_MASK
        check = crc32c(key) & _CHECK_MASK
        slot = digest % slots
        step = 0
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
        """The last offset of the key; -1 when it has none here."""
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
        """Give the memory back."""
        self._words.release()
        self._memory.close()


def map_for(first_offset: int, end_offset: int, *, buffer_bytes: int, load_factor: float) -> OffsetMap:
    """A map for the keys of these offsets: never larger than the buffer, nor than they can need."""
    wanted = int((end_offset - first_offset) / load_factor) + 64
    return OffsetMap(
        slots=min(wanted, buffer_bytes // SLOT_BYTES), first_offset=first_offset, load_factor=load_factor
    )


def _prime_up_to(limit: int) -> int:
    """The largest prime that is not above `limit`."""
    while not _is_prime(limit):
        limit -= 1
    return limit


def _is_prime(number: int) -> bool:
    return all(number % divisor for divisor in range(2, isqrt(number) + 1))
