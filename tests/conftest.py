"""Options of the whole suite. Fixtures live beside the tests that use them."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--broker",
        choices=("barnabas", "kafka"),
        default="barnabas",
        help="which broker client and wire tests talk to; `kafka` shows that the tests are right",
    )


def pytest_configure(config: pytest.Config) -> None:
    # kafka-python reads its message schemas through functions that Python 3.11 deprecated.
    config.addinivalue_line("filterwarnings", "ignore:(read|open)_text is deprecated:DeprecationWarning")
