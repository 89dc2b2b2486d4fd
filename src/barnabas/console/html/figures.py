"""Numbers, sizes, durations and times as people read them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from barnabas.console.html.elements import Content, Element, span, time_

DASH: Final = "–"
_SIZES: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_SECOND, _MINUTE, _HOUR, _DAY = 1_000, 60_000, 3_600_000, 86_400_000


def number(value: float | None) -> str:
    """`1,234,567`; a fraction has one digit while it is small."""
    if value is None:
        return DASH
    if isinstance(value, float) and not value.is_integer() and abs(value) < 100:
        return f"{value:.1f}"
    return f"{round(value):,}"


def size(value: float | None) -> str:
    if value is None:
        return DASH
    shown, unit = float(value), 0
    while abs(shown) >= 1024 and unit < len(_SIZES) - 1:
        shown, unit = shown / 1024, unit + 1
    return f"{shown:.0f} B" if unit == 0 else f"{shown:.1f} {_SIZES[unit]}"


def rate(value: float | None, unit: str = "") -> str:
    if value is None:
        return DASH
    return f"{size(value)}/s" if unit == "B" else f"{number(value)}{unit}/s"


def duration(value_ms: float | None) -> str:
    """The two largest units: `3 min 20 s`, `2 d 4 h`, `350 ms`."""
    if value_ms is None:
        return DASH
    ms = round(value_ms)
    if ms < _SECOND:
        return f"{ms} ms"
    if ms < _MINUTE:
        return f"{ms / _SECOND:.1f} s"
    for unit, name, part, part_name in (
        (_DAY, "d", _HOUR, "h"),
        (_HOUR, "h", _MINUTE, "min"),
        (_MINUTE, "min", _SECOND, "s"),
    ):
        if ms >= unit:
            rest = ms % unit // part
            return f"{ms // unit} {name}" + (f" {rest} {part_name}" if rest else "")
    raise AssertionError(ms)


def moment(at_ms: int | None) -> Content:
    """A time in UTC. The page's script adds the reader's own zone as a tooltip."""
    if at_ms is None or at_ms < 0:
        return DASH
    try:
        at = datetime.fromtimestamp(at_ms / 1_000, UTC)
    except (ValueError, OverflowError, OSError):  # a timestamp that no calendar has
        return span(str(at_ms), class_="mono", title="milliseconds since 1970")
    shown = f"{at:%Y-%m-%d %H:%M:%S}.{at_ms % 1_000:03d}"
    return time_(shown, datetime=f"{at:%Y-%m-%dT%H:%M:%S}.{at_ms % 1_000:03d}Z", class_="mono")


def known(value: object | None) -> str:
    return DASH if value is None else str(value)


def mono(value: object) -> Element:
    return span(str(value), class_="mono")
