from __future__ import annotations

from collections.abc import Sequence

import pytest

from barnabas.pipelines.spark.recovery.bisect_bad_records import (
    POISON_MAX,
    TRIES,
    CannotTry,
    Range,
    TooMuchPoison,
    Trial,
    condemn,
    halves,
    is_not_reached,
    is_of_transforms,
    poison,
    spans,
    within,
)

BOOM = Trial("boom", is_of_transforms=True)
LOST = Trial("Python worker failed to connect back.", is_of_transforms=False)
LATE = LOST._replace(is_elsewhere=True)


class Batch:
    """Offsets that fail, trials that fail for other reasons, and the number of trials."""

    def __init__(
        self,
        *bad: tuple[int, int],
        how: Trial = BOOM,
        hiccups: Sequence[int] = (),
        hiccup: Trial = LOST,
    ) -> None:
        self.bad = set(bad)
        self.hiccup = hiccup
        self.how = how
        self.hiccups = hiccups
        self.tries = 0

    def attempt(self, ranges: Sequence[Range]) -> Trial | None:
        self.tries += 1
        if self.tries in self.hiccups:
            return self.hiccup
        hit = any((each.partition, at) in self.bad for each in ranges for at in range(each.begin, each.end))
        return self.how if hit else None


def test_the_records_that_fail_are_found_in_a_few_tries() -> None:
    batch = Batch((0, 123), (1, 7))
    found = poison([Range("t", 0, 100, 600), Range("t", 1, 0, 500)], batch.attempt)
    assert found == {"t/0/123": "boom", "t/1/7": "boom"}
    assert batch.tries < 50


def test_a_batch_that_passes_by_itself_has_no_poison() -> None:
    batch = Batch()
    assert poison([Range("t", 0, 0, 1_000)], batch.attempt) == {}
    assert batch.tries == 1


def test_many_failures_are_no_accident() -> None:
    everything = Batch(*((0, at) for at in range(1_000)))
    with pytest.raises(TooMuchPoison):
        poison([Range("t", 0, 0, 1_000)], everything.attempt)
    assert everything.tries < 4 * POISON_MAX
    with pytest.raises(TooMuchPoison):
        poison([Range("t", 0, 0, 4)], Batch((0, 1), (0, 3)).attempt, room=1)


@pytest.mark.parametrize("hiccup", range(1, 25))
def test_a_trial_that_fails_for_a_moment_condemns_no_good_record(hiccup: int) -> None:
    batch = Batch((0, 8), hiccups=[hiccup])
    assert poison([Range("t", 0, 0, 11)], batch.attempt) in ({"t/0/8": "boom"}, {"t/0/8": LOST.reason})


def test_a_record_that_fails_for_a_moment_by_itself_is_good() -> None:
    assert poison([Range("t", 0, 0, 1)], Batch(hiccups=[1]).attempt) == {}
    assert poison([Range("t", 0, 0, 2)], Batch(hiccups=[1, 2]).attempt) == {}


def test_while_nothing_passes_nothing_is_condemned() -> None:
    """A broker is away, or no worker starts: that is not the records' fault."""
    away = Batch(*((0, at) for at in range(11)), how=LOST)
    with pytest.raises(CannotTry, match="failed to connect back"):
        poison([Range("t", 0, 0, 11)], away.attempt)
    with pytest.raises(CannotTry):
        poison([Range("t", 0, 0, 1)], Batch((0, 0), how=LOST).attempt)


def test_a_record_that_crashes_its_worker_is_found_by_its_neighbours_passing() -> None:
    crash = Trial("Python worker exited unexpectedly (crashed)", is_of_transforms=False)
    batch = Batch((0, 3), how=crash)
    assert poison([Range("t", 0, 0, 11)], batch.attempt) == {"t/0/3": crash.reason}


@pytest.mark.parametrize("hiccup", range(2, 16))
def test_a_record_that_no_trial_reached_is_not_condemned(hiccup: int) -> None:
    """On a busy machine several workers in a row start too late, and the neighbours pass before and after."""
    batch = Batch((0, 8), hiccups=range(hiccup, hiccup + TRIES - 1), hiccup=LATE)
    noted: dict[str, str] = {}
    assert condemn({}, [Range("t", 0, 0, 11)], batch.attempt, write=None, note=noted.update)
    assert noted == {"t/0/8": "boom"}


def test_trials_that_reach_no_record_end() -> None:
    never = Batch((0, 8), hiccups=range(2, 1_000), hiccup=LATE)
    noted: dict[str, str] = {}
    assert not condemn({}, [Range("t", 0, 0, 11)], never.attempt, write=None, note=noted.update)
    assert never.tries == 1 + TRIES
    assert noted == {}


def test_letters_that_no_batch_carries_are_written_before_the_note() -> None:
    """A driver that dies in between finds the same records again."""
    steps: list[tuple[str, list[str]]] = []
    assert condemn(
        {"t/0/3": "old"},
        [Range("t", 0, 0, 11)],
        Batch((0, 8)).attempt,
        write=lambda found: steps.append(("written", list(found))),
        note=lambda found: steps.append(("noted", list(found))),
    )
    assert steps == [("written", ["t/0/8"]), ("noted", ["t/0/8"])]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ("SparkException: Python worker failed to connect back.", True),
        ("Job 7 was cancelled as part of cancellation of all jobs", True),
        ("Python worker exited unexpectedly (crashed)", False),
        ("java.lang.OutOfMemoryError: Java heap space", False),
        ("[USER_RAISED_EXCEPTION] no such country SQLSTATE: P0001", False),
    ],
)
def test_a_worker_that_does_not_start_is_not_the_record_s_fault(error: str, *, expected: bool) -> None:
    assert is_not_reached(error) is expected


def test_no_record_is_condemned_when_its_neighbours_fail_too() -> None:
    batch = Batch((0, 1))
    lost_from = 4  # all, the first and the second record were tried; the machinery breaks after that

    def attempt(ranges: Sequence[Range]) -> Trial | None:
        found = batch.attempt(ranges)
        return LOST if batch.tries >= lost_from else found

    with pytest.raises(CannotTry):
        poison([Range("t", 0, 0, 2)], attempt)


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


def test_records_of_a_batch_are_separated_from_others() -> None:
    batch = [Range("a", 0, 5, 8), Range("b/c", 1, 0, 2)]
    records = ["a/0/4", "a/0/5", "a/0/7", "a/0/8", "a/1/6", "b/c/1/1", "c/1/1"]
    assert within(records, batch) == ["a/0/5", "a/0/7", "b/c/1/1"]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ('PythonException: Traceback (most recent call last):\n  File "x.py"\nZeroDivisionError: no', True),
        ("[USER_RAISED_EXCEPTION] no such country SQLSTATE: P0001", True),
        ("Caused by: org.apache.spark.SparkDateTimeException: [CAST_INVALID_INPUT] The value", True),
        ("SparkException: Python worker failed to connect back.", False),
        ("Python worker exited unexpectedly (crashed)", False),
        ('Traceback (most recent call last):\n  File "/x/pyspark_barnabas/fetch.py"\nDataLoss: gone', False),
        ("Job 7 was cancelled as part of cancellation of all jobs", False),
        ("java.lang.IllegalStateException: whatever it is", False),
    ],
)
def test_errors_of_transforms_are_separated_from_those_of_spark(error: str, *, expected: bool) -> None:
    assert is_of_transforms(error) is expected
