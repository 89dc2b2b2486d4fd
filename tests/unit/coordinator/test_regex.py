"""Regular expressions of subscriptions: they follow RE2, and cannot be made slow."""

from __future__ import annotations

import re
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.coordinator.group.consumer.regex import CPU_MS_MAX, UNICODE_CLASSES_MAX, Regex, _compiled
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
                                     "a{9999}", "a" * 5_000, "((a{1000}){1000})"])  # fmt: skip
def test_what_cannot_be_understood_or_is_too_large_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidRegularExpression):
        Regex(pattern)


def test_a_pattern_made_to_be_slow_is_not() -> None:
    text = "a" * 249
    assert re.fullmatch("a*b?", text), "Python's own would take longer than the universe with the next one"
    started = time.perf_counter()
    assert not Regex("(a|aa|a*)*(a+)+b").matches(text)
    assert time.perf_counter() - started < 30


@pytest.mark.parametrize("pattern", ["(){1000}{1000}", "a+*", "a{2}{3}", "a" + "{1}" * 1_000,
                                     "((((){1000}){1000}){1000}){1000}",
                                     "(?i)" * 100 + "a{1000}" * 500])  # fmt: skip
def test_repetitions_of_repetitions_and_too_many_states_are_refused(pattern: str) -> None:
    with pytest.raises(InvalidRegularExpression):
        Regex(pattern)


def test_what_is_nested_deeply_costs_nothing() -> None:
    assert Regex("(" * 500 + ")" * 500).matches("")


def test_a_pattern_that_costs_too_much_is_refused() -> None:
    """Every character leads to every one of thousands of states."""
    costly = Regex("(?i)(.?){1000}")
    with pytest.raises(InvalidRegularExpression):
        [costly.matches("a" * 249) for _ in range(10_000)]
    assert Regex("(?i)(.?){1000}").matches("yx"), "the next question has a budget of its own"


def test_only_what_matching_costs_is_counted() -> None:
    spent = iter([0.0, CPU_MS_MAX / 2, 5_000.0, 5_000 + CPU_MS_MAX / 2, 9_000.0, 9_001.0])
    pattern = Regex("a", lambda: next(spent))
    assert pattern.matches("a")
    assert pattern.matches("a"), "whatever others did meanwhile"
    with pytest.raises(InvalidRegularExpression):
        pattern.matches("a")


def test_thousands_of_names_are_within_the_budget() -> None:
    names = [f"{kind}.team-{number % 50}.v{number}" for number in range(10_000) for kind in ("a", "b", "c")]
    usual = Regex(r"(a|b)\.team-(\d|1\d)\.v\d+")
    assert sum(usual.matches(name) for name in names) > 100


def test_a_broker_that_sees_no_pattern_does_not_load_the_library() -> None:
    program = "import sys, barnabas.node.broker; sys.exit('re2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_pattern_that_cannot_be_compiled_is_remembered() -> None:
    """Failing costs as much as compiling: a client that repeats the pattern pays for one look-up."""
    _compiled.cache_clear()
    for _ in range(3):
        with pytest.raises(InvalidRegularExpression):
            Regex("(?i)(unclosed")
    assert _compiled.cache_info().misses == 1


def test_unicode_classes_are_counted() -> None:
    """Each takes a third of a millisecond, before the memory of the whole is looked at."""
    Regex(r"\pL" * 3)
    for kind in ("p", "P"):
        with pytest.raises(InvalidRegularExpression, match="Unicode classes"):
            Regex(f"(?i)\\{kind}L" * (UNICODE_CLASSES_MAX + 1))
