"""Figures of many records: sizes, keys, times. One pass; a number for each record is all that is kept."""

from __future__ import annotations

import hashlib
from array import array
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from barnabas.console.records.expression import Candidate

RECORDS_MAX: Final = 200_000
TOP_KEYS: Final = 10
KEY_SHOWN_BYTES: Final = 60
PERIODS: Final = 48
_DIGEST_BYTES: Final = 12


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes of keys or of values, without those that are null."""

    count: int
    total: int
    least: int
    median: int
    p99: int
    most: int


@dataclass(frozen=True, slots=True)
class KeyCount:
    key: bytes
    """Its beginning."""
    records: int


@dataclass(frozen=True, slots=True)
class Figures:
    records: int
    null_keys: int
    null_values: int
    distinct_keys: int
    with_headers: int
    first_ms: int | None
    last_ms: int | None
    keys: Sizes | None
    values: Sizes | None
    largest: tuple[int, int] | None
    """Partition and offset of the record with the largest value."""
    top_keys: tuple[KeyCount, ...]
    by_partition: tuple[tuple[int, int], ...]
    by_time: tuple[tuple[int, int], ...]
    """Begin of a period in milliseconds, and its records. The periods are equally long."""


class Statistics:
    """A predicate that looks at each record. It finds those beyond `records_max`, so that the search ends."""

    def __init__(self, records_max: int) -> None:
        self._records_max = records_max
        self._key_sizes = array("q")
        self._value_sizes = array("q")
        self._times = array("q")
        self._keys: Counter[bytes] = Counter()
        """By digest: keys may be large."""
        self._key_of: dict[bytes, bytes] = {}
        self._partitions: defaultdict[int, int] = defaultdict(int)
        self._null_keys = self._null_values = self._with_headers = 0
        self._largest: tuple[int, tuple[int, int]] | None = None

    def __call__(self, found: Candidate) -> bool:
        self._times.append(found.timestamp_ms)
        self._partitions[found.partition] += 1
        self._with_headers += bool(found.headers)
        if found.key is None:
            self._null_keys += 1
        else:
            self._key_sizes.append(len(found.key))
            digest = hashlib.blake2b(found.key, digest_size=_DIGEST_BYTES).digest()
            self._keys[digest] += 1
            self._key_of.setdefault(digest, found.key[:KEY_SHOWN_BYTES])
        if found.value is None:
            self._null_values += 1
        else:
            size = len(found.value)
            self._value_sizes.append(size)
            if self._largest is None or size > self._largest[0]:
                self._largest = size, (found.partition, found.offset)
        return len(self._times) > self._records_max

    def figures(self) -> Figures:
        times = [each for each in self._times if each >= 0]
        top = self._keys.most_common(TOP_KEYS)
        return Figures(
            records=len(self._times),
            null_keys=self._null_keys,
            null_values=self._null_values,
            distinct_keys=len(self._keys),
            with_headers=self._with_headers,
            first_ms=min(times, default=None),
            last_ms=max(times, default=None),
            keys=_sizes(self._key_sizes),
            values=_sizes(self._value_sizes),
            largest=None if self._largest is None else self._largest[1],
            top_keys=tuple(KeyCount(self._key_of[digest], records) for digest, records in top),
            by_partition=tuple(sorted(self._partitions.items())),
            by_time=_by_time(times),
        )


def _sizes(found: array[int]) -> Sizes | None:
    if not found:
        return None
    ordered = sorted(found)
    last = len(ordered) - 1
    return Sizes(
        count=len(ordered),
        total=sum(ordered),
        least=ordered[0],
        median=ordered[last // 2],
        p99=ordered[last * 99 // 100],
        most=ordered[-1],
    )


def _by_time(times: Sequence[int]) -> tuple[tuple[int, int], ...]:
    if not times:
        return ()
    first, last = min(times), max(times)
    period = max((last - first) // PERIODS + 1, 1)
    counted = Counter((each - first) // period for each in times)
    return tuple((first + index * period, counted[index]) for index in range((last - first) // period + 1))
