from __future__ import annotations

import pytest

from barnabas.pipelines.spec.texts import pattern_complaint


@pytest.mark.parametrize("pattern", ["a.*", r"\p{L}+", "(?<kind>a|b)-x", "orders-(?i)eu", "a{2}"])
def test_patterns_of_java_are_left_to_the_engine(pattern: str) -> None:
    assert pattern_complaint(pattern) is None


@pytest.mark.parametrize("pattern", ["a(", "[a", "*", "(?P<a"])
def test_what_no_dialect_takes_is_refused(pattern: str) -> None:
    assert "expected a regular expression" in (pattern_complaint(pattern) or "")
