"""The filter language: what it finds, what it refuses, and that it is bounded."""

from __future__ import annotations

import asyncio
import json
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.console.records.expression import (
    CHARACTERS_MAX,
    INLINE_STEPS_MAX,
    MATCHED_CHARACTERS_MAX,
    Candidate,
    InvalidExpression,
    Predicate,
    compile_expression,
    containing,
    holds,
)

VALUE = {
    "amount": 120.5,
    "customer": "c-7",
    "paid": True,
    "gone": None,
    "items": [{"sku": "A-1", "n": 2}, {"sku": "B"}],
    "tags": ["new", "eu"],
}


def record(value: object = VALUE, **fields: object) -> Candidate:
    data = value if isinstance(value, bytes) or value is None else json.dumps(value).encode()
    given = {"partition": 3, "offset": 42, "timestamp_ms": 1_763_456_400_000, "key": b"c-7"} | fields
    return Candidate(
        **given,  # type: ignore[arg-type]
        value=data,
        headers=(("trace", b"42"), ("trace", b"43"), ("source", None)),
    )


@pytest.mark.parametrize(
    "expression",
    [
        "value.amount > 120",
        "value.amount >= 120.5 and value.amount <= 120.5",
        'value.customer == "c-7" && key == "c-7"',
        "value.customer == 'c-7'",
        'key startswith "c-" and key endswith "7"',
        'value.items[0].sku == "A-1"',
        "value.items[0].n in [1, 2]",
        'value.tags contains "eu"',
        'value contains "amount"',
        'header.trace == "43"',
        "value.paid",
        "value.paid == true",
        "not value.missing",
        "exists(value.gone) and value.gone == null",
        "not exists(value.missing)",
        "offset == 42 and partition in [1, 3]",
        'timestamp >= "2025-11-18T09:00" and timestamp < "2025-11-18T09:00:01"',
        "size > 10",
        'value.customer matches "^c-[0-9]$"',
        '(value.amount > 1000 or value.paid) and not (key == "x")',
        "!value.missing || false",
        'value.missing != "x"',
    ],
)
def test_what_a_filter_finds(expression: str) -> None:
    assert compile_expression(expression)(record())


@pytest.mark.parametrize(
    "expression",
    [
        "value.amount > 121",
        'value.amount > "100"',
        "value.customer > 1",
        "value.paid == 1",
        "value.items[7].sku == 'A-1'",
        "value.missing == null",
        "value.missing < 5",
        "header.absent",
        "value.gone",
        "offset < 42",
        'key matches "^x"',
        "value.amount matches 'x'",
    ],
)
def test_what_a_filter_leaves_out(expression: str) -> None:
    assert not compile_expression(expression)(record())


@pytest.mark.parametrize("value", [None, b"", b"\xff\xfe", b"not json", b"[" * 100_000])
def test_a_record_of_another_shape_is_left_out_without_an_error(value: bytes | None) -> None:
    check = compile_expression('value.amount > 1 or key.id == 2 or value matches "^amount"')
    assert not check(record(value, key=None))


@pytest.mark.parametrize(
    ("expression", "told"),
    [
        ("", "empty"),
        ("value.amount >", "ends too early"),
        ("value >> 3", "does not fit there"),
        ("(value.a == 1", "expected )"),
        ("name == 1", "not a name"),
        ("value.a == 1 value.b", "does not fit there"),
        ("value matches '('", "not valid"),
        ("value matches key", "pattern in quotes"),
        ("value.a in [key]", "texts in quotes"),
        ("timestamp > 'soon'", "not a time"),
        ("__import__('os')", "not a name"),
        ("value.a = 1", "cannot read"),
        ("a" * (CHARACTERS_MAX + 1), "at most"),
        ("not " * 60 + "value", "too deeply"),
        ("(" * 60 + "key" + ")" * 60, "too deeply"),
        (" or ".join(["key"] * 150), "at most"),
    ],
)
def test_a_filter_that_cannot_be_read_is_refused(expression: str, told: str) -> None:
    with pytest.raises(InvalidExpression, match=r".*" + told.replace(")", r"\)")):
        compile_expression(expression)


@given(st.text(alphabet="value.key()[]<>=!&|'\"0123abc and or not in matches ", max_size=60))
def test_any_text_is_a_filter_or_is_refused(source: str) -> None:
    try:
        check = compile_expression(source)
    except InvalidExpression:
        return
    assert check(record()) in (True, False)


def test_a_pattern_runs_in_linear_time() -> None:
    check = compile_expression('value matches "^(a+)+$"')
    before = time.process_time()
    assert not check(record(b"a" * 50_000 + b"b"))
    assert time.process_time() - before < 30  # backtracking would take longer than the universe has


def test_patterns_of_a_filter_have_a_size() -> None:
    """A character of a text may take each instruction of each pattern."""
    steps = compile_expression('value matches "[ab]{300}c" and key matches "x{300}"').steps
    assert 600 < steps < 700
    with pytest.raises(InvalidExpression, match="too large"):
        compile_expression('value matches "[ab]{600}c" or value matches "[ab]{600}d"')


def test_a_pattern_looks_at_the_beginning_of_a_long_text() -> None:
    check = compile_expression('value matches "end"')
    assert check(record(b"x" * (MATCHED_CHARACTERS_MAX - 3) + b"end"))
    assert not check(record(b"x" * MATCHED_CHARACTERS_MAX + b"end"))


def test_a_large_record_is_filtered_by_a_thread() -> None:
    threads = []

    def check(_: Candidate) -> bool:
        threads.append(threading.current_thread())
        return True

    small, large = record(b"x"), record(b"x" * (INLINE_STEPS_MAX // 10 + 1))

    async def run() -> None:
        assert await holds(Predicate(check, 10), small)
        assert await holds(Predicate(check, 10), large)

    asyncio.run(run())
    assert [thread is threading.main_thread() for thread in threads] == [True, False]


def test_headers_count_for_the_size_of_a_record() -> None:
    predicate = compile_expression('header.a == "x"')
    long = Candidate(0, 0, 0, b"", b"", [("a", b"x" * INLINE_STEPS_MAX)])
    many = Candidate(0, 0, 0, b"", b"", [("", b"")] * (INLINE_STEPS_MAX // 16))
    few = Candidate(0, 0, 0, b"", b"", [("a", b"x"), ("b", None)])
    assert [predicate.takes_long(each) for each in (long, many, few)] == [True, True, False]


def test_deep_values_are_compared_or_differ() -> None:
    deep = b"[" * 900 + b"]" * 900
    check = compile_expression("value.a == value.b or value.a in [1] or value.a contains 1")
    value = b'{"a":%b,"b":%b}' % (deep, deep)

    def below(frames: int) -> bool:
        return below(frames - 1) if frames else check(record(value))

    assert all(below(frames) in (True, False) for frames in range(0, 900, 20))


def test_contains_looks_everywhere_in_any_case() -> None:
    assert containing("CUSTOMER")(record())
    assert containing("43")(record(None))
    assert not containing("absent")(record())
