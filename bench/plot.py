"""One bar a row: how many times better than Apache Kafka, on a logarithmic scale, as SVG."""

from __future__ import annotations

import math
from html import escape

ROW_HEIGHT = 22
LABEL_WIDTH = 430
BAR_WIDTH = 360
RATIO_MAX = 64.0


def drawn(ratios: list[tuple[str, float]]) -> str:
    height = ROW_HEIGHT * (len(ratios) + 2)
    width = LABEL_WIDTH + BAR_WIDTH + 70
    equal = _x(1.0)
    size = f'width="{width}" height="{height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        '<text x="10" y="16" font-weight="bold">Times better than Apache Kafka (1 = the same)</text>',
        f'<line x1="{equal}" y1="24" x2="{equal}" y2="{height - 6}" stroke="#888" stroke-dasharray="3"/>',
    ]
    for number, (name, ratio) in enumerate(ratios, 1):
        top = ROW_HEIGHT * number + 6
        left, right = sorted((equal, _x(ratio)))
        colour = "#2a7f62" if ratio >= 1 else "#b3541e"
        parts += [
            f'<text x="{LABEL_WIDTH - 8}" y="{top + 13}" text-anchor="end">{escape(name)}</text>',
            f'<rect x="{left:.1f}" y="{top + 2}" width="{right - left:.1f}" height="14" fill="{colour}"/>',
            f'<text x="{right + 5:.1f}" y="{top + 13}">{ratio:.1f}</text>',
        ]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _x(ratio: float) -> float:
    """From a quarter to 64 times."""
    share = (math.log2(min(max(ratio, 0.25), RATIO_MAX)) + 2) / (math.log2(RATIO_MAX) + 2)
    return LABEL_WIDTH + BAR_WIDTH * share
