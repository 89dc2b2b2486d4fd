"""Recent past of a pipeline: its rate over the last minute, and its last errors."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

RATE_MS: Final = 60_000
REPORTS_MAX: Final = 600
ERRORS_MAX: Final = 10
ERROR_CHARACTERS_MAX: Final = 4_000


@dataclass(slots=True)
class PastError:
    """An error, and how often it came in a row."""

    message: str
    first_ms: int
    last_ms: int
    times: int = 1


class Rate:
    """Records a second, over the micro-batches of the last minute."""

    def __init__(self) -> None:
        self._reports: deque[tuple[int, int]] = deque(maxlen=REPORTS_MAX)

    def add(self, now_ms: int, records: int) -> None:
        self._reports.append((now_ms, records))

    def per_second(self, now_ms: int, running_since_ms: int) -> float:
        """The minute is shorter for a pipeline that has run for less, or that reports more often."""
        since_ms = max(now_ms - RATE_MS, running_since_ms)
        if len(self._reports) == REPORTS_MAX:
            since_ms = max(since_ms, self._reports[0][0])
        records = sum(count for at_ms, count in self._reports if at_ms >= since_ms)
        return records * 1_000 / max(now_ms - since_ms, 1_000)


class PastErrors:
    """The last errors of a pipeline, the newest first. Equal ones in a row count once."""

    def __init__(self) -> None:
        self._errors: deque[PastError] = deque(maxlen=ERRORS_MAX)

    def add(self, now_ms: int, message: str) -> None:
        kept = message[:ERROR_CHARACTERS_MAX]
        newest = self._errors[0] if self._errors else None
        if newest is not None and newest.message == kept:
            newest.times += 1
            newest.last_ms = now_ms
        else:
            self._errors.appendleft(PastError(kept, now_ms, now_ms))

    def newest(self) -> list[PastError]:
        return list(self._errors)
