"""The expressions of subscriptions: they mean what RE2 means, and cannot be made slow."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.coordinator.group.regex import Regex, compile_regex
from barnabas.core.errors import InvalidRegularExpression

NAMES = ["", "a", "b", "ab", "ba", "aab", "abab", "A", "aB", "a-b", "a.b", "a_1", "log-7", "12", "c" * 9]
PATTERNS = [
    "a", "a*", "a+b", "(a|b)*", "a?b?", "[ab]+", "[^a]+", "a{2}b", "(ab){1,2}", "a{0,1}", ".*", "^a.*$",
    r"log-\d", r"\w+", r"[\w.-]+", "(?i)ab", "(?i:a)b", "a|b|", "(?:ab)+",
    r"a\.b", "[a-c]+", "a{1,}", "(a*)*b?",
    r"[\d]{2}", "a.b", "()", "(?P<name>a)b",
]  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_matches_what_pythons_own_matcher_matches(pattern: str) -> None:
    ours, theirs = Regex(pattern), re.compile(pattern)
    for name in NAMES:
        assert ours.matches(name) == (theirs.fullmatch(name) is not None), name


LEAVES = st.sampled_from(["a", "b", ".", "[ab]", "[^b]", r"\w", "c"])
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"({pair[0]}|{pair[1]})"),
        inner.map(lambda part: f"({part})?"),
        inner.map(lambda part: f"({part}){{1,2}}"),
    ),
    max_leaves=8,
)


@given(TREES, st.text("abc", max_size=6))
def test_any_pattern_agrees_with_python(pattern: str, text: str) -> None:
    assert Regex(pattern).matches(text) == (re.fullmatch(pattern, text) is not None)


@pytest.mark.parametrize("pattern", ["(", ")", "a**b(", "[", "[z-a]", "(?=a)", r"\1", "*", "a{5,2}",
                                     "a{9999}",
                                     "(" * 500 + ")" * 500, "a" * 5_000, "((a{1000}){1000})"])  # fmt: skip
def test_what_cannot_be_understood_or_is_too_large_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidRegularExpression):
        Regex(pattern)


def test_a_pattern_made_to_be_slow_is_not() -> None:
    text = "a" * 249
    assert re.fullmatch("a*b?", text), "Python's own would take longer than the universe with the next one"
    started = time.perf_counter()
    assert not Regex("(a|aa|a*)*(a+)+b").matches(text)
    assert time.perf_counter() - started < 30


@pytest.mark.parametrize(
    "pattern",
    [
        "(){1000}{1000}",
        "a+*",
        "a{2}{3}",
        "a" + "{1}" * 1_000,
        "(?i)" * 900 + "a{1000}" * 5,
    ],
)
def test_repetitions_of_repetitions_and_too_many_states_are_refused(pattern: str) -> None:
    with pytest.raises(InvalidRegularExpression):
        Regex(pattern)


def test_nothing_can_be_repeated_without_end() -> None:
    """Nested groups that match nothing make no states; building them is not repeated either."""
    assert Regex("((((){1000}){1000}){1000}){1000}").matches("")


def test_a_pattern_that_costs_too_much_is_refused() -> None:
    """Every character leads to every one of thousands of states."""
    pattern = ".{0,1000}x"
    names = [f"{number:025d}" for number in range(500)]
    costly = compile_regex(pattern)
    with pytest.raises(InvalidRegularExpression):
        [costly.matches(name) for name in names]
    assert compile_regex(pattern).matches("yx"), "the next question has a budget of its own"
    usual = compile_regex(r"[a-z0-9.]*\d{3}")
    assert all(usual.matches(name) for name in names)


def test_ten_thousand_names_are_within_the_budget() -> None:
    names = [f"{kind}.team-{number % 50}.v{number}" for number in range(3_334) for kind in ("a", "b", "c")]
    usual = compile_regex(r"(a|b)\.team-(\d|1\d)\.v\d+")
    assert sum(usual.matches(name) for name in names) > 100
