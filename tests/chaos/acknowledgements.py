"""Right of a broker to acknowledge a write, judged by the writes themselves and by when they were made.

With acks=1 the leader alone promises a record. The record is lost with its leader: a leader that is killed,
stopped or cut off takes along what no follower has fetched, and another leads in a higher epoch. The same
holds when the leadership moves between live brokers, as in an orderly stop: records that the previous leader
acknowledged before the next one began may be lost, unless they were fetched. Nothing else may be lost.

Bounds: E1 is the highest epoch of survivors that were acknowledged before a write was sent. E2 is the lowest
epoch of survivors that were sent after its acknowledgement. Only leaders acknowledge and epochs only grow, so
the write was acknowledged from E1 to E2. A lost write was acknowledged below E2: the leader of E2 wrote the
survivor behind it, and every log with that survivor has all that lies before it. So a broker that led from E1
on, below E2, must have answered a write that is lost (`lost_without_a_failover`).

Order: of two acknowledged records, the one sent after the other's acknowledgement comes after it in the log
(`acknowledged_out_of_time`). Two failovers may break the order, in Apache Kafka too:

- Broker 1 acknowledges A in epoch 4, and only broker 3 fetches it.
- Broker 1 dies. Broker 2, in sync without A, leads in epoch 6 and acknowledges B at the offset of A.
- Broker 2 stops before broker 3 has fetched from it. Broker 3 is in sync and leads in epoch 7:
  A survives and B is lost.

The leader of E1 itself writes in order, so B is excused only if its broker led above E1 and below E2. Such an
epoch has no survivors, and the brokers' files do not show it. A gap between E1 and E2 alone proves nothing:
most failovers write an epoch without a leader first. `leaderships` has the leader of every epoch.

A write that survives, and one with acks=all, is never excused.

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

from tests.chaos.history import ALL_REPLICAS, History, Outcome, Place, Value, Write
from tests.chaos.leaderships import NO_LEADER


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
    present = _present(history)
    timelines = _timelines(history)
    for write in history.writes:
        if write.outcome is not Outcome.ACKNOWLEDGED or write.value in present:
            continue
        timeline = timelines.get((write.topic, write.partition))
        if timeline is None:
            continue
        before, after = timeline.epoch_before(write.began_s), timeline.epoch_after(write.answered_s)
        if not _is_led(history, write, 0 if before is None else before, after):
            yield (
                f"lost without a failover: {write.value} was acknowledged at"
                f" {write.topic}-{write.partition}@{write.offset}, {_between(history, write, before, after)}"
            )


def _present(history: History) -> set[Value]:
    return {value for rows in history.final.values() for _, value in rows}


def _is_led(history: History, write: Write, lowest: int, below: int | None) -> bool:
    """Whether a broker that can have acknowledged a lost write led an epoch from `lowest` on, below `below`.

    The leader of the last epoch is alive at the end, and has lost nothing."""
    leaders = history.leaders.get((write.topic, write.partition), {})
    if below is None:
        if not leaders:
            return True
        below = max(leaders)
    led = (leaders.get(epoch) for epoch in range(lowest, below))
    return any(each is None or (each != NO_LEADER and write.broker in (None, each)) for each in led)


def _between(history: History, write: Write, before: int | None, after: int | None) -> str:
    leaders = history.leaders.get((write.topic, write.partition), {})
    led = {epoch: leader for epoch, leader in sorted(leaders.items()) if _is_within(epoch, before, after)}
    asked = "" if write.broker is None else f", by broker {write.broker}"
    named = f"; leaders by epoch: {led}" if led else ""
    return (
        f"{_time_of_day(write.began_s)} to {_time_of_day(write.answered_s)}{asked}; epoch {before} led before"
        f" and {after} after it{named}"
    )


def _is_within(epoch: int, before: int | None, after: int | None) -> bool:
    return (before is None or before <= epoch) and (after is None or epoch <= after)


def _time_of_day(moment_s: float) -> str:
    """As the brokers' logs say it."""
    return f"{datetime.now(UTC) + timedelta(seconds=moment_s - time.monotonic()):%H:%M:%S.%f}"


def acknowledged_out_of_time(history: History) -> Iterator[str]:
    present = _present(history)
    timelines = _timelines(history)
    for write in history.writes:
        timeline = timelines.get((write.topic, write.partition))
        if write.outcome is not Outcome.ACKNOWLEDGED or write.offset is None or timeline is None:
            continue
        last = timeline.last_before(write.began_s)
        if last is None or last.place.offset < write.offset:
            continue
        before, after = history.epochs[last.place], timeline.epoch_after(write.answered_s)
        may_be_lost = write.acks != ALL_REPLICAS and write.value not in present
        if not (may_be_lost and _is_led(history, write, before + 1, after)):
            yield (
                f"acknowledged out of time: {write.value} at {write.topic}-{write.partition}@{write.offset}"
                f" was sent after {last.write.value} had been acknowledged at {last.place.offset},"
                f" {_between(history, write, before, after)}"
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
