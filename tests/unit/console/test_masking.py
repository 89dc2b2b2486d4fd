"""Masks: what they hide, and that nothing else of a value gets through."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.console.records.masking import MASK, MASKED_BYTES_MAX, Mask, Masks
from barnabas.core.errors import InvalidConfig


def masked(rule: str, value: object) -> object:
    mask = Masks([f"t={rule}"]).of("t")
    assert mask is not None
    data = mask.of_value(json.dumps(value).encode())
    assert data is not None
    return json.loads(data)


def test_a_name_is_hidden_at_any_depth_and_a_path_from_the_top() -> None:
    value = {"email": "a@b", "card": {"number": 1, "kind": "x"}, "all": [{"email": "c"}, {"number": 2}]}
    assert masked("email,card.number", value) == {
        "email": MASK,
        "card": {"number": MASK, "kind": "x"},
        "all": [{"email": MASK}, {"number": 2}],
    }
    assert masked("all.number", value)["all"] == [{"email": "c"}, {"number": MASK}]  # type: ignore[index]
    assert masked("card", value)["card"] == MASK  # type: ignore[index]


@pytest.mark.parametrize(
    "data",
    [b"secret", b'"secret"', b"\x00\x00\x00\x00\x05secret", b"[" * 100_000, b'{"email": "secret"', b"12"],
)
def test_what_is_no_object_of_json_is_hidden_whole(data: bytes) -> None:
    mask = Masks(["t=email"]).of("t")
    assert mask is not None
    assert mask.of_value(data) == MASK.encode()


def test_a_value_that_would_take_much_memory_is_hidden_whole() -> None:
    mask = Mask(value=frozenset({"email"}))
    assert mask.of_value(b"[" + b"0," * (MASKED_BYTES_MAX // 2) + b"0]") == MASK.encode()
    assert mask.of_value(b'["' + b"x" * (MASKED_BYTES_MAX - 4) + b'"]') != MASK.encode()


def test_a_field_that_is_written_twice_is_hidden_twice() -> None:
    mask = Mask(value=frozenset({"email"}))
    assert b"secret" not in (
        mask.of_value(b'{"email": "secret", "email": "secret2", "\\u0065mail": "secret3"}') or b""
    )


@given(st.recursive(st.text(max_size=4) | st.integers(), lambda inner: st.dictionaries(
    st.sampled_from(["email", "a", "b"]), inner) | st.lists(inner, max_size=3), max_leaves=20))  # fmt: skip
def test_no_value_of_the_field_is_left(value: object) -> None:
    mask = Mask(value=frozenset({"email"}))
    data = mask.of_value(json.dumps(value).encode()) or b""
    found = json.loads(data) if isinstance(value, dict | list) else None
    assert found is not None or data == MASK.encode()
    waiting = [found]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            assert each.get("email", MASK) == MASK
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each


def test_keys_headers_wildcards_and_tombstones() -> None:
    masks = Masks(["pay-*=*", "pay-*:key=*", "pay-out:headers=user", "other=x"])
    assert masks.of("orders") is None
    mask = masks.of("pay-out")
    assert mask is not None
    assert (mask.of_value(b"anything"), mask.of_value(None), mask.of_key(b"k")) == (b"***", None, b"***")
    assert mask.of_headers([("user", b"alice"), ("trace", b"1"), ("user", None)]) == (
        ("user", b"***"),
        ("trace", b"1"),
        ("user", None),
    )
    assert masks.of("pay-in") == Mask(frozenset("*"), frozenset("*"))


@pytest.mark.parametrize("rule", ["", "t", "t=", "=x", "t:body=x", "t= , "])
def test_a_rule_that_cannot_be_read_is_refused(rule: str) -> None:
    with pytest.raises(InvalidConfig, match="--mask is TOPIC=FIELDS"):
        Masks([rule])
