"""Bisection of a failed micro-batch: trials of halves find the records that break it.

A trial can fail for other reasons: a worker that a busy machine started too late, a broker out of reach, a
lost executor. A good record must not become a dead letter by that. So a record is condemned only if it fails
twice alone, and

- both times the transforms raised the error, or
- records that passed before still pass. Then the record harms its worker (a crash leaves no error to
  recognise).

If neither holds, no record is condemned: the system itself is faulty, and the batch has failed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

POISON_MAX = 50
"""More bad records in one micro-batch are systematic: the pipeline fails."""

_MACHINERY = re.compile(
    r"failed to connect back|exited unexpectedly|terminated due to idle timeout|Python daemon"
    r"|ExecutorLostFailure|was cancelled|OutOfMemoryError|MemoryError|No space left|pyspark_barnabas"
)
_EVALUATION = re.compile(
    r"Traceback \(most recent call last\)|\[USER_RAISED_EXCEPTION\]"
    r"|Spark(?:Arithmetic|ArrayIndexOutOfBounds|DateTime|IllegalArgument|NumberFormat|Runtime)Exception"
)


class Range(NamedTuple):
    topic: str
    partition: int
    begin: int
    end: int


class Trial(NamedTuple):
    """Failure of a trial."""

    reason: str
    is_of_transforms: bool
    """True if the transforms raised it, as far as the text shows."""


Try = Callable[[Sequence[Range]], Trial | None]


class TooMuchPoison(Exception):
    """More records of a batch fail than the bound allows."""


class CannotTry(Exception):
    """Trials fail for reasons other than the tried records."""


def is_of_transforms(error: str) -> bool:
    """True if a failure comes from evaluating a transform, not from reading or from Spark's processes.

    The connector is Python too: a traceback through it is a failure of reading.
    """
    return _EVALUATION.search(error) is not None and _MACHINERY.search(error) is None


def poison(ranges: Sequence[Range], attempt: Try, room: int = POISON_MAX) -> dict[str, str]:
    """Records that fail alone, with the reason; at most `room`."""
    suspects: list[tuple[Range, Trial]] = []
    passed: list[Range] = []

    def search(part: list[Range]) -> None:
        trial = attempt(part)
        size = sum(each.end - each.begin for each in part)
        if trial is None:
            passed[:] = part
        elif size > 1:
            for half in halves(part, size):
                search(half)
        elif len(suspects) == room:
            raise TooMuchPoison
        else:
            suspects.append((part[0], trial))

    search([each for each in ranges if each.end > each.begin])
    return {
        record_id(suspect.topic, suspect.partition, suspect.begin): trial.reason
        for suspect, first in suspects
        if (trial := _confirmed(suspect, first, attempt, passed)) is not None
    }


def _confirmed(suspect: Range, first: Trial, attempt: Try, passed: Sequence[Range]) -> Trial | None:
    """Failure of a record that fails again; None if it passes."""
    again = attempt([suspect])
    if again is None or (first.is_of_transforms and again.is_of_transforms):
        return again
    if not passed or attempt(passed) is not None:
        raise CannotTry(again.reason)
    return again


def halves(ranges: Sequence[Range], size: int) -> tuple[list[Range], list[Range]]:
    """Two parts with about the same number of offsets, neither of them empty."""
    left: list[Range] = []
    right: list[Range] = []
    room = size // 2
    for each in ranges:
        cut = each.begin + min(room, each.end - each.begin)
        room -= cut - each.begin
        left += [each._replace(end=cut)] if cut > each.begin else []
        right += [each._replace(begin=cut)] if cut < each.end else []
    return left, right


def record_id(topic: str, partition: int, offset: int) -> str:
    return f"{topic}/{partition}/{offset}"


def spans(records: Iterable[str]) -> list[Range]:
    """Range of each partition that covers all of its records."""
    found: dict[tuple[str, int], Range] = {}
    for record in records:
        topic, partition, offset = _parsed(record)
        known = found.get((topic, partition), Range(topic, partition, offset, offset + 1))
        found[topic, partition] = known._replace(
            begin=min(known.begin, offset), end=max(known.end, offset + 1)
        )
    return list(found.values())


def within(records: Iterable[str], ranges: Sequence[Range]) -> list[str]:
    """Records that lie in one of `ranges`."""
    bounds = {(each.topic, each.partition): each for each in ranges}
    found = []
    for record in records:
        topic, partition, offset = _parsed(record)
        bound = bounds.get((topic, partition))
        if bound is not None and bound.begin <= offset < bound.end:
            found.append(record)
    return found


def _parsed(record: str) -> tuple[str, int, int]:
    topic, partition, offset = record.rsplit("/", 2)
    return topic, int(partition), int(offset)
