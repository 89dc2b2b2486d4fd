from __future__ import annotations

from collections.abc import Sequence

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")

from barnabas.pipelines.spark.quarantine import POISON_MAX, Range, TooMuchPoison, halves, poison, spans


class Batch:
    """Offsets that fail, and how often anything was tried."""

    def __init__(self, *bad: tuple[int, int]) -> None:
        self.bad = set(bad)
        self.tries = 0

    def failure(self, ranges: Sequence[Range]) -> str | None:
        self.tries += 1
        hit = any((each.partition, at) in self.bad for each in ranges for at in range(each.begin, each.end))
        return "boom" if hit else None


def test_the_records_that_fail_are_found_in_a_few_tries() -> None:
    batch = Batch((0, 123), (1, 7))
    found = poison([Range("t", 0, 100, 600), Range("t", 1, 0, 500)], batch.failure)
    assert found == {"t/0/123": "boom", "t/1/7": "boom"}
    assert batch.tries < 50


def test_a_batch_that_passes_by_itself_has_no_poison() -> None:
    batch = Batch()
    assert poison([Range("t", 0, 0, 1_000)], batch.failure) == {}
    assert batch.tries == 1


def test_many_failures_are_no_accident() -> None:
    everything = Batch(*((0, at) for at in range(1_000)))
    with pytest.raises(TooMuchPoison):
        poison([Range("t", 0, 0, 1_000)], everything.failure)
    assert everything.tries < 4 * POISON_MAX


def test_halves_share_all_and_are_never_empty() -> None:
    ranges = [Range("t", 0, 5, 6), Range("t", 1, 10, 11), Range("u", 0, 0, 7)]
    left, right = halves(ranges, 9)
    assert sum(each.end - each.begin for each in left) == 4
    assert left == [Range("t", 0, 5, 6), Range("t", 1, 10, 11), Range("u", 0, 0, 2)]
    assert right == [Range("u", 0, 2, 7)]
    assert halves([Range("t", 0, 0, 2)], 2) == ([Range("t", 0, 0, 1)], [Range("t", 0, 1, 2)])


def test_records_of_a_partition_are_spanned() -> None:
    found = spans(["a/0/7", "a/1/3", "a/0/2", "b/c/0/5"])
    assert found == [Range("a", 0, 2, 8), Range("a", 1, 3, 4), Range("b/c", 0, 5, 6)]
