"""`auto.offset.reset`: where a partition without a valid position begins."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from barnabas.core.errors import InvalidConfig
from barnabas.protocol.offset_numbers import EARLIEST, LATEST

_DURATION: Final = re.compile(
    r"P(?:(?P<d>\d+)D)?(?:T(?:(?P<h>\d+)H)?(?:(?P<m>\d+)M)?(?:(?P<s>\d+(?:\.\d+)?)S)?)?", re.IGNORECASE
)
_MS: Final = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000}
BY_DURATION: Final = "by_duration:"


class ResetStrategy(NamedTuple):
    """Timestamp for ListOffsets: EARLIEST, LATEST, or `duration_ms` before now."""

    timestamp: int
    duration_ms: float | None = None

    def timestamp_at(self, now_ms: int) -> int:
        return self.timestamp if self.duration_ms is None else max(0, int(now_ms - self.duration_ms))


TO_EARLIEST: Final = ResetStrategy(EARLIEST)
TO_LATEST: Final = ResetStrategy(LATEST)


def parse_reset(text: str) -> ResetStrategy | None:
    """Strategy of `auto.offset.reset`; None for `none`: the consumer raises instead."""
    match text.lower():
        case "earliest":
            return TO_EARLIEST
        case "latest":
            return TO_LATEST
        case "none":
            return None
    if text.lower().startswith(BY_DURATION):
        found = _DURATION.fullmatch(text[len(BY_DURATION) :])
        if found is not None and any(found.groups()):
            parts = found.groupdict(default="0")
            return ResetStrategy(0, sum(float(parts[unit]) * ms for unit, ms in _MS.items()))
    raise InvalidConfig(
        f"auto.offset.reset is {text!r}: write earliest, latest, none, or by_duration: and an ISO 8601"
        " duration, as in by_duration:PT1H"
    )
