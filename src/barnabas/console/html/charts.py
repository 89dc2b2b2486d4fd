"""Charts as SVG. Each has a title and a description for screen readers, and stands beside its table.

Colours and fonts come from the stylesheet by class, so a chart follows light and dark.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Final

from barnabas.console.html.elements import Content, Element, div, element

_numbers = count(1)
LABEL_CHARACTER_WIDTH: Final = 6.6


def svg(
    width: float, height: float, name: str, description: str, *content: Content, class_: str = "chart"
) -> Element:
    id_ = f"chart-{next(_numbers)}"
    return element(
        "svg",
        element("title", name, id=f"{id_}-title"),
        element("desc", description, id=f"{id_}-desc"),
        *content,
        class_=class_,
        role="img",
        attributes={
            "viewBox": f"0 0 {width:g} {height:g}",
            "aria-labelledby": f"{id_}-title {id_}-desc",
            "preserveAspectRatio": "xMidYMid meet",
        },
    )


def wide(name: str, chart: Element) -> Element:
    """A chart that scrolls where the window is too narrow to read it."""
    return div(chart, class_="chart-wrap", role="region", aria_label=name, tabindex="0")


def rect(
    x: float, y: float, width: float, height: float, class_: str, *inside: Content, radius: float = 0
) -> Element:
    return element(
        "rect",
        *inside,
        x=round(x, 2),
        y=round(y, 2),
        width=round(max(width, 0), 2),
        height=round(max(height, 0), 2),
        rx=radius or None,
        class_=class_,
    )


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> Element:
    return element("line", x1=round(x1, 2), y1=round(y1, 2), x2=round(x2, 2), y2=round(y2, 2), class_=class_)


def label(x: float, y: float, shown: str, class_: str = "", anchor: str = "start") -> Element:
    return element(
        "text", shown, x=round(x, 2), y=round(y, 2), class_=class_ or None, attributes={"text-anchor": anchor}
    )


def sparkline(points: Sequence[float], name: str, description: str) -> Element:
    """A small line without axes, for a cell of a table."""
    width, height = 120.0, 24.0
    steps = max(len(points) - 1, 1)
    places = [(index / steps, value) for index, value in enumerate(points)]
    curve = _curve(places, 0, 1, width, height - 2, top=max(*points, 1e-9) if points else 1.0)
    return svg(width, height, name, description, curve, class_="chart spark")


def time_line(
    points: Sequence[tuple[int, float]],
    name: str,
    *,
    shown: Callable[[float], str],
    span: Callable[[float], str],
    width: float = 960.0,
    ends: tuple[str, str] | None = None,
) -> Element:
    """Values over time. The points are in the order of their times, in milliseconds. `ends` are the words
    below the first and the last point; without them the last one is now.
    """
    height, bottom = 150.0, 130.0
    values = [value for _, value in points] or [0.0]
    most = max(values)
    top = most if most > 0 else 1.0
    first, last = (points[0][0], points[-1][0]) if points else (0, 0)
    description = (
        f"From {shown(values[0])} to {shown(values[-1])} in {span(last - first)}; the most is {shown(most)}."
    )
    begin, end = ends or (f"{span(last - first)} ago", "now")
    # Labels that rounding makes equal would contradict each other.
    labels = {shown(top * part): part for part in (1.0, 0.5, 0.0)}
    left = max(64.0, LABEL_CHARACTER_WIDTH * max(map(len, labels)) + 12)
    guides = [
        (line(left, y, width, y, "grid-line"), label(left - 8, y + 4, text, anchor="end"))
        for text, part in labels.items()
        for y in (bottom - part * (bottom - 12),)
    ]
    passed = max(last - first, 1)
    moved = element(
        "g",
        _curve(
            [((at - first) / passed, value) for at, value in points], 0, 0, width - left, bottom - 12, top
        ),
        attributes={"transform": f"translate({left:g} 12)"},
    )
    chart = svg(
        width,
        height,
        name,
        description,
        guides,
        moved,
        label(left, height - 4, begin),
        label(width, height - 4, end, anchor="end"),
        class_="chart over-time" if width < 960 else "chart",
    )
    return wide(name, chart)


def _curve(
    points: Sequence[tuple[float, float]], x: float, y: float, width: float, height: float, top: float
) -> Content:
    """A line with its area. A point has its part of the width, and a value; `top` is the highest value."""
    if len(points) < 2:
        return None
    places = [f"{x + part * width:.1f},{y + height - value / top * height:.1f}" for part, value in points]
    area = f"{x:.1f},{y + height:.1f} {' '.join(places)} {x + width:.1f},{y + height:.1f}"
    return (
        element("polygon", points=area, class_="area"),
        element("polyline", points=" ".join(places), class_="line"),
    )


def meter(part: float, name: str) -> Element:
    """A bar that is filled to a part between 0 and 1."""
    filled = min(max(part, 0.0), 1.0)
    tone = "bar bad" if filled > 0.9 else "bar warn" if filled > 0.75 else "bar"
    return svg(
        88,
        8,
        name,
        f"{filled:.0%}",
        rect(0, 0, 88, 8, "bar-track", radius=4),
        rect(0, 0, 88 * filled, 8, tone, radius=4),
        class_="chart meter",
    )
