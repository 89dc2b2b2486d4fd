"""Partitioner of records, compatible with Java's producer so that keys stay together.

The partition of a key is its murmur2 hash, made positive by dropping the sign bit, modulo the number of
partitions. Records without a key stick to one partition per request and move on with the next request. That
fills batches instead of scattering records.
"""

from __future__ import annotations

_MASK = 0xFFFFFFFF
SEED = 0x9747B28C
MULTIPLIER = 0x5BD1E995
SHIFT = 24


def murmur2(data: bytes) -> int:
    """MurmurHash2 as Kafka seeds it, as an unsigned 32-bit number."""
    length = len(data)
    h = (SEED ^ length) & _MASK
    whole = length & ~3
    for position in range(0, whole, 4):
        k = int.from_bytes(data[position : position + 4], "little") * MULTIPLIER & _MASK
        k = (k ^ k >> SHIFT) * MULTIPLIER & _MASK
        h = (h * MULTIPLIER & _MASK) ^ k
    if whole < length:
        h = (h ^ int.from_bytes(data[whole:], "little")) * MULTIPLIER & _MASK
    h = (h ^ h >> 13) * MULTIPLIER & _MASK
    return h ^ h >> 15


def partition_for_key(key: bytes, partition_count: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partition_count
