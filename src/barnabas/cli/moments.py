"""Moments as people write them on a command line."""

from __future__ import annotations

import datetime as dt

import click


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
