"""Time until a group has read everything."""

from __future__ import annotations

import pytest

from barnabas.console.html.figures import DASH
from barnabas.console.pages.groups import caught_up_in


@pytest.mark.parametrize(
    ("lag", "slope", "said"),
    [
        (0, 5.0, "now"),
        (6_000, -100.0, "about 1 min"),
        (10**18, -0.1, "about 115740740740740 d 17 h"),
        (6_000, 0.0, DASH),
        (6_000, -0.01, DASH),
        (6_000, 3.0, DASH),
        (6_000, None, DASH),
        (None, -3.0, DASH),
    ],
)
def test_a_shrinking_lag_has_an_end(lag: int | None, slope: float | None, said: str) -> None:
    assert caught_up_in(lag, slope) == said
