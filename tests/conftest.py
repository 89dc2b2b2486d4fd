"""Options of the whole suite. Fixtures live beside the tests that use them."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--broker",
        choices=("barnabas", "kafka"),
        default="barnabas",
        help="which broker the client and wire tests talk to; `kafka` shows that the tests themselves are right",
    )
