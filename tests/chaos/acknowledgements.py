"""Who may acknowledge a write, told from the writes themselves and from when they were made.

With acks=1 a record is promised by its leader alone, and is lost with it: a leader that is killed, stopped or
cut off takes along what nobody had fetched, and another is elected, in a higher epoch. So it is when the
leadership moves between brokers that live (one that stops in an orderly way, or a preferred leader that comes
back): what the former leader acknowledged before the new one began, and nobody had fetched, may be lost. That
is all that may be lost. A record may not be missing when the same epoch led before it was sent and after it
was acknowledged: then whoever acknowledged it did not lead. And of two acknowledged records the one that was
sent after the other's acknowledgement comes after it in the log, whatever the acks.

Nothing here depends on how long a fault lasts or on what the faults were: the epochs are those of the
records that are in the log at the end, and the times are of the one clock of the clients.
"""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import NamedTuple

from tests.chaos.history import History, Outcome, Place, Write


class Survivor(NamedTuple):
    """A write that is in the log at the end."""

    write: Write
    place: Place


class Timeline:
    """The survivors of one partition: what was known of its log by when."""

    def __init__(self, survivors: list[Survivor], epochs: dict[Place, int]) -> None:
        answered = sorted(
            (each for each in survivors if each.write.outcome is Outcome.ACKNOWLEDGED),
            key=lambda each: each.write.answered_s,
        )
        self._answered_s = [each.write.answered_s for each in answered]
        self._last = list(accumulate(answered, _later))
        self._epoch_by = list(accumulate((epochs[each.place] for each in answered), max))
        begun = sorted(survivors, key=lambda each: each.write.began_s)
        self._began_s = [each.write.began_s for each in begun]
        self._epoch_from = list(accumulate((epochs[each.place] for each in reversed(begun)), min))[::-1]

    def last_before(self, moment_s: float) -> Survivor | None:
        """Of what was acknowledged before, the last in the log."""
        count = bisect_left(self._answered_s, moment_s)
        return self._last[count - 1] if count else None

    def epoch_before(self, moment_s: float) -> int | None:
        """The highest epoch that had led by then."""
        count = bisect_left(self._answered_s, moment_s)
        return self._epoch_by[count - 1] if count else None

    def epoch_after(self, moment_s: float) -> int | None:
        """The lowest epoch of what was sent later."""
        place = bisect_right(self._began_s, moment_s)
        return self._epoch_from[place] if place < len(self._epoch_from) else None


def _later(one: Survivor, other: Survivor) -> Survivor:
    return max(one, other, key=_offset)


def _offset(survivor: Survivor) -> int:
    return survivor.place.offset


def lost_without_a_failover(history: History) -> Iterator[str]:
    present = {value for rows in history.final.values() for _, value in rows}
    timelines = _timelines(history)
    for write in history.writes:
        if write.outcome is not Outcome.ACKNOWLEDGED or write.value in present:
            continue
        timeline = timelines.get((write.topic, write.partition))
        if timeline is None:
            continue
        before, after = timeline.epoch_before(write.began_s), timeline.epoch_after(write.answered_s)
        if before is not None and after is not None and before >= after:
            yield (
                f"lost without a failover: {write.value} was acknowledged at"
                f" {write.topic}-{write.partition}@{write.offset}, and epoch {before} led before and after it"
                f" ({_time_of_day(write.began_s)} to {_time_of_day(write.answered_s)})"
            )


def _time_of_day(moment_s: float) -> str:
    """As the brokers' logs say it."""
    return f"{datetime.now(UTC) + timedelta(seconds=moment_s - time.monotonic()):%H:%M:%S.%f}"


def acknowledged_out_of_time(history: History) -> Iterator[str]:
    timelines = _timelines(history)
    for write in history.writes:
        timeline = timelines.get((write.topic, write.partition))
        if write.outcome is not Outcome.ACKNOWLEDGED or write.offset is None or timeline is None:
            continue
        last = timeline.last_before(write.began_s)
        if last is not None and last.place.offset >= write.offset:
            yield (
                f"acknowledged out of time: {write.value} at {write.topic}-{write.partition}@{write.offset}"
                f" was sent after {last.write.value} had been acknowledged at {last.place.offset}"
            )


def _timelines(history: History) -> dict[tuple[str, int], Timeline]:
    """By partition, for those whose epochs are known."""
    writes = {write.value: write for write in history.writes}
    survivors: defaultdict[tuple[str, int], list[Survivor]] = defaultdict(list)
    for (topic, partition), rows in history.final.items():
        for offset, value in rows:
            write, place = writes.get(value), Place(topic, partition, offset)
            if write is not None and place in history.epochs:
                survivors[topic, partition].append(Survivor(write, place))
    return {key: Timeline(found, history.epochs) for key, found in survivors.items()}
