"""Charts of values over time: the line, its axis and its description say the same."""

from __future__ import annotations

import re

from barnabas.console.html.charts import sparkline, time_line
from barnabas.console.html.elements import render
from barnabas.console.html.figures import duration, rate


def drawn(points: list[tuple[int, float]]) -> str:
    return render(time_line(points, "Written", shown=lambda value: rate(value, "B"), span=duration))


def places(html: str) -> list[tuple[float, float]]:
    (found,) = re.findall(r'<polyline points="([^"]+)"', html)
    return [(float(x), float(y)) for x, y in (each.split(",") for each in found.split())]


def test_a_point_stands_at_its_time() -> None:
    across = [x for x, _ in places(drawn([(0, 1.0), (1_000, 2.0), (4_000, 3.0), (10_000, 4.0)]))]
    assert [round(each / across[-1], 2) for each in across] == [0.0, 0.1, 0.4, 1.0]


def test_the_highest_label_is_at_the_highest_value() -> None:
    html = drawn([(0, 0.0), (1_000, 0.4), (2_000, 0.2)])
    assert min(y for _, y in places(html)) == 0.0
    assert "the most is 0 B/s" in html
    flat = drawn([(0, 0.0), (1_000, 0.0)])
    assert {y for _, y in places(flat)} == {118.0}
    assert "the most is 0 B/s" in flat


def test_labels_do_not_contradict_each_other() -> None:
    for points in ([(0, 0.0), (1_000, 0.0)], [(0, 5.0), (1_000, 2_048.0)]):
        labels = re.findall(r"<text[^>]*>([^<]*/s)</text>", drawn(points))
        assert len(labels) == len(set(labels)) >= 2


def test_a_small_line_fills_its_height() -> None:
    html = render(sparkline([0.0, 50.0, 100.0], "Lag", "told"))
    assert places(html) == [(0.0, 23.0), (60.0, 12.0), (120.0, 1.0)]
    assert "polyline" not in render(sparkline([], "Lag", "told"))
    assert {y for _, y in places(render(sparkline([0.0, 0.0], "Lag", "told")))} == {23.0}
