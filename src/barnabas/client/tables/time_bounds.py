"""Times of a bounded read: a duration before now, a datetime, or milliseconds since 1970."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

Time: TypeAlias = str | int | datetime | timedelta

_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)")
_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}


def time_ms(time: Time, now_ms: int) -> int:
    """Milliseconds since 1970. Text is a duration before now (`10m`, `2h30m`) or an ISO 8601 time."""
    if isinstance(time, timedelta):
        return now_ms - int(time.total_seconds() * 1_000)
    if isinstance(time, datetime):
        return int((time if time.tzinfo else time.astimezone()).timestamp() * 1_000)
    if isinstance(time, int):
        return time
    parts = _DURATION.findall(time)
    if parts and "".join(number + unit for number, unit in parts) == time.replace(" ", ""):
        return now_ms - int(sum(float(number) * _MS[unit] for number, unit in parts))
    try:
        parsed = datetime.fromisoformat(time)
    except ValueError:
        raise ValueError(
            f"{time!r} is not a time: write a duration such as 10m or 2h30m, or an ISO 8601 time"
        ) from None
    return int((parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp() * 1_000)
