"""Bisection of a failed micro-batch: trials of halves find the records that break it.

A trial can fail for other reasons: a worker that a busy machine started too late, a broker out of reach, a
lost executor. A good record must not become a dead letter by that. So a record is condemned only if it fails
twice alone, and

- both times the transforms raised the error, or
- records that passed before still pass. Then the record harms its worker (a crash leaves no error to
  recognise).

Neither is a reason if the failed trial did not reach the record: no worker started, or a broker was away.
Such a trial is repeated a few times, and then the search ends.

If neither holds, no record is condemned: the system itself is faulty, and the batch has failed.

Condemned records are noted, and dead letters once. Where a query of its own writes the letters of a pipeline,
it may have passed these records already. So their letters are written before the note, under a name that they
alone have. A driver that dies in between finds the same records and the same name again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

POISON_MAX = 50
"""More bad records in one micro-batch are systematic: the pipeline fails."""
TRIES = 5
"""Number of times that a trial is made which does not reach its records."""

_MACHINERY = re.compile(
    r"failed to connect back|exited unexpectedly|terminated due to idle timeout|Python daemon"
    r"|ExecutorLostFailure|was cancelled|OutOfMemoryError|MemoryError|No space left|pyspark_barnabas"
)
_NOT_REACHED = re.compile(r"failed to connect back|Python daemon|was cancelled")
"""Failures of a trial whose worker has not begun, or was told to end."""
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
    is_elsewhere: bool = False
    """True if the trial did not reach the records."""


Try = Callable[[Sequence[Range]], Trial | None]


class TooMuchPoison(Exception):
    """More records of a batch fail than the bound allows."""


class CannotTry(Exception):
    """Trials fail for reasons other than the tried records."""


class Stopped(Exception):
    """The pipeline is stopping: no further trials."""


def condemn(
    known: Mapping[str, str],
    ranges: Sequence[Range],
    attempt: Try,
    *,
    write: Callable[[Mapping[str, str]], None] | None,
    note: Callable[[Mapping[str, str]], None],
) -> bool:
    """Find the records that break a failed batch and note those that are new; returns whether any is.

    `known` records are not tried again, and all notes of one batch count. So a batch that fails for a reason
    that no trial shows runs again a bounded number of times. `write` writes letters that no batch will carry.
    """
    room = POISON_MAX - len(within(known, ranges))
    attempt = _repeated(attempt)
    try:
        if not ranges or attempt([]) is not None:
            return False
        found = poison(ranges, attempt, room)
    except (TooMuchPoison, CannotTry, Stopped):
        return False
    new = {record: reason for record, reason in found.items() if record not in known}
    if not new:
        return False
    if write is not None:
        write(new)
    note(new)
    return True


def is_of_transforms(error: str) -> bool:
    """True if a failure comes from evaluating a transform, not from reading or from Spark's processes.

    The connector is Python too: a traceback through it is a failure of reading.
    """
    return _EVALUATION.search(error) is not None and _MACHINERY.search(error) is None


def is_not_reached(error: str) -> bool:
    """True if the records of a trial cannot be the reason of its failure: no worker has read them."""
    return _NOT_REACHED.search(error) is not None


def _repeated(attempt: Try) -> Try:
    """`attempt`, repeated where it does not reach the records."""

    def reach(part: Sequence[Range]) -> Trial | None:
        reason = ""
        for _ in range(TRIES):
            trial = attempt(part)
            if trial is None or not trial.is_elsewhere:
                return trial
            reason = trial.reason
        raise CannotTry(reason)

    return reach


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
