"""The filter language: what it finds, what it refuses, and that it is bounded."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.console.records.expression import (
    CHARACTERS_MAX,
    Candidate,
    InvalidExpression,
    compile_expression,
    containing,
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
        ("name == 1", "no name"),
        ("value.a == 1 value.b", "does not fit there"),
        ("value matches '('", "not valid"),
        ("value matches key", "pattern in quotes"),
        ("value.a in [key]", "texts in quotes"),
        ("timestamp > 'soon'", "no time"),
        ("__import__('os')", "no name"),
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


def test_contains_looks_everywhere_in_any_case() -> None:
    assert containing("CUSTOMER")(record())
    assert containing("43")(record(None))
    assert not containing("absent")(record())
