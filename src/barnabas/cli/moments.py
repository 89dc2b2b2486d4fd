"""Moments as people write them on a command line."""

from __future__ import annotations

import datetime as dt
import re

import click

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION_MS_MAX = (1 << 63) - 1


def parse_timestamp(text: str, option: str) -> int:
    """Milliseconds since 1970, from those or from a date; a date without a zone is local time."""
    if text.isdecimal():
        return int(text)
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is neither milliseconds nor a date like 2026-01-31T12:00:00Z", param_hint=option
        ) from None
    return int(moment.astimezone().timestamp() * 1_000)


def parse_duration(text: str, option: str) -> int:
    """Milliseconds, from a number and a unit."""
    found = re.fullmatch(r"([0-9]+)(ms|s|m|h|d)", text)
    if found is None:
        raise click.BadParameter(f"{text!r} is not a time like 45s, 30m, 12h or 7d", param_hint=option)
    return min(int(found[1]) * _UNITS_MS[found[2]], _DURATION_MS_MAX)
