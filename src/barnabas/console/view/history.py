"""Lag of groups and traffic of the brokers over time: short rings of samples, so that pages show a trend.

Samples are taken while the console runs. The memory is bounded: groups beyond a number have no history.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from barnabas.console.view.rows import GroupRow, Traffic

SAMPLES: Final = 120
GROUPS_MAX: Final = 20_000
UNKNOWN: Final = -1


class LagHistory:
    def __init__(self) -> None:
        self._times: list[int] = []
        """Of the samples that all groups share, the oldest first."""
        self._lags: dict[str, array[int]] = {}

    def add(self, at_ms: int, groups: Iterable[GroupRow]) -> None:
        """Add one sample of every group. A group that is gone loses its history."""
        self._times.append(at_ms)
        if len(self._times) > SAMPLES:
            del self._times[0]
        length = len(self._times)
        found: dict[str, array[int]] = {}
        for group in groups:
            if len(found) >= GROUPS_MAX:
                break
            lags = self._lags.get(group.group_id) or array("q", [UNKNOWN] * (length - 1))
            lags.append(UNKNOWN if group.lag_records is None else group.lag_records)
            if len(lags) > length:
                del lags[: len(lags) - length]
            found[group.group_id] = lags
        self._lags = found

    def of(self, group_id: str) -> list[tuple[int, int]]:
        """Times and lags of a group, the oldest first."""
        lags = self._lags.get(group_id, array("q"))
        return [(at, lag) for at, lag in zip(self._times[-len(lags) :], lags, strict=False) if lag != UNKNOWN]

    def trend(self, group_id: str) -> float | None:
        """Records a second by which the lag grows (above 0) or shrinks, over the last samples."""
        points = self.of(group_id)[-TREND_SAMPLES:]
        if len(points) < 2 or points[-1][0] <= points[0][0]:
            return None
        return (points[-1][1] - points[0][1]) * 1_000 / (points[-1][0] - points[0][0])


TREND_SAMPLES: Final = 8


class TrafficHistory:
    """Traffic of all brokers together."""

    def __init__(self) -> None:
        self._samples: deque[tuple[int, Traffic]] = deque(maxlen=SAMPLES)

    def add(self, at_ms: int, traffic: Traffic) -> None:
        self._samples.append((at_ms, traffic))

    def of(self, figure: Callable[[Traffic], float | None]) -> list[tuple[int, float]]:
        """Times and values of one figure where it was known, the oldest first."""
        values = ((at, figure(traffic)) for at, traffic in self._samples)
        return [(at, value) for at, value in values if value is not None]
