"""Report of a failure for a reader who does not know the run.

A run has some hundred lines, most of them about partitions without a complaint. The report keeps the faults,
the controllers, and the events of the partitions that the complaints name. It adds the times at which the
disputed records were acknowledged.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from tests.chaos.history import ALL_REPLICAS, History, Outcome

COMPLAINTS_MAX = 5
_VALUE = re.compile(r"Value\(producer='([^']*)', number=(\d+), transaction='[^']*'\)")
_STRUCTURED_PLACE = re.compile(r"Place\(topic='([^']*)', partition=(\d+), offset=(\d+)\)")
_NAME = re.compile(r"[\w.-]+")
_PLACE = re.compile(r"[\w.-]+@\d+")


def plain(complaint: str) -> str:
    """In words."""
    return _STRUCTURED_PLACE.sub(r"\1-\2@\3", _VALUE.sub(r"record \2 of \1", complaint))


def tell(
    lines: Sequence[str],
    complaints: Sequence[str],
    histories: Sequence[History],
    partitions: Collection[str],
) -> list[str]:
    """`partitions` are the names of all that there are."""
    told = complaints[:COMPLAINTS_MAX]
    known = frozenset(partitions)
    named = {name for complaint in told for name in _NAME.findall(complaint)} & known
    kept = [line for line in lines if not named or _is_about(line, named, known)]
    return sorted([*kept, *_acknowledgements(told, histories)], key=_time_s)


def _is_about(line: str, named: set[str], known: frozenset[str]) -> bool:
    """Of no partition in particular, or of one of these."""
    mentioned = set(_NAME.findall(line)) & known
    return not mentioned or bool(mentioned & named)


def _acknowledgements(complaints: Sequence[str], histories: Sequence[History]) -> list[str]:
    places = {place for complaint in complaints for place in _PLACE.findall(complaint)}
    lines = []
    for write in (each for history in histories for each in history.writes):
        place = f"{write.topic}-{write.partition}@{write.offset}"
        if write.outcome is Outcome.ACKNOWLEDGED and place in places:
            acks = "all" if write.acks == ALL_REPLICAS else write.acks
            lines.append(
                f"{write.answered_s:10.3f}  {write.value.producer} is told that its record"
                f" {write.value.number} is at {place} (acks={acks})"
            )
    return lines


def _time_s(line: str) -> float:
    return float(line.split(maxsplit=1)[0])
